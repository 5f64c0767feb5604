"""Recompute: stacked and recomputed values, as text before and after the pass."""

from __future__ import annotations

import pytest

from graphc.errors import AttributeValueError
from graphc.ir.verify import verify
from graphc.passes.core.peak import peak
from graphc.passes.memory.recompute import Recompute
from tests.passes.check import check, check_stays, program

LEAST = Recompute(budget=0)


KEEPS_ALL = """
program p(x: f32[64], w: state f32[7, 64], dy: f32[64]) {
  %0, %1, %2 = Scan(x, w) {consts=0, carries=1, length=7} : f32[64], f32[7, 64], f32[7, 64]
      with layer(a0: f32[64], a1: f32[64]) {
    %0 = Multiply(a0, a1) : f32[64]
    %1 = Tanh(%0) : f32[64]
    return r0 = %1, r1 = a0, r2 = %1
  }
  %3, %4 = Scan(dy, w, %1, %2) {consts=0, carries=1, length=7, reverse=true}
      : f32[64], f32[7, 64] with layer_grad(a0: f32[64], a1: f32[64], a2: f32[64], a3: f32[64]) {
    %0 = Multiply(a3, a3) : f32[64]
    %1 = Subtract(a0, %0) : f32[64]
    %2 = Multiply(%1, a1) : f32[64]
    %3 = Multiply(%1, a2) : f32[64]
    return r0 = %2, r1 = %3
  }
  return x = %3, y = %0, w = %4
}
"""

KEEPS_CARRIES = """
program p(x: f32[64], w: state f32[7, 64], dy: f32[64]) {
  %0, %1 = Scan(x, w) {consts=0, carries=1, length=7} : f32[64], f32[7, 64]
      with layer(a0: f32[64], a1: f32[64]) {
    %0 = Multiply(a0, a1) : f32[64]
    %1 = Tanh(%0) : f32[64]
    return r0 = %1, r1 = a0
  }
  %2, %3 = Scan(dy, w, %1) {consts=0, carries=1, length=7, reverse=true}
      : f32[64], f32[7, 64] with layer_grad(a0: f32[64], a1: f32[64], a2: f32[64]) {
    %0 = Multiply(a2, a1) : f32[64]
    %1 = Tanh(%0) : f32[64]
    %2 = Multiply(%1, %1) : f32[64]
    %3 = Subtract(a0, %2) : f32[64]
    %4 = Multiply(%3, a1) : f32[64]
    %5 = Multiply(%3, a2) : f32[64]
    return r0 = %4, r1 = %5
  }
  return x = %2, y = %0, w = %3
}
"""


def test_what_follows_from_the_carry_is_computed_again() -> None:
    check(LEAST, KEEPS_ALL, KEEPS_CARRIES)


def test_no_more_than_the_budget_asks_for() -> None:
    """Without the pass there are two stacks; with one byte less, one of them is recomputed."""
    before = program(KEEPS_ALL)
    check_stays(Recompute(peak(before)), KEEPS_ALL)
    check(Recompute(peak(before) - 1), KEEPS_ALL, KEEPS_CARRIES)


def test_a_stack_that_others_take_too_stays_and_costs_nothing() -> None:
    """A fetched value exists anyway, so recomputing it saves nothing."""
    check_stays(LEAST, KEEPS_ALL.replace("w = %4", "w = %4, hidden = %2"))


def test_what_can_not_be_reached_again_is_saved() -> None:
    """The new carry is an operand of the backward iteration; the previous carry is not needed."""
    check_stays(
        LEAST,
        """
        program p(x: f32[64], dy: f32[64]) {
          %0, %1 = Scan(x) {consts=0, carries=1, length=7} : f32[64], f32[7, 64]
              with layer(a0: f32[64]) {
            %0 = Tanh(a0) : f32[64]
            return r0 = %0, r1 = %0
          }
          %2 = Scan(dy, %1) {consts=0, carries=1, length=7, reverse=true} : f32[64]
              with layer_grad(a0: f32[64], a1: f32[64]) {
            %0 = Multiply(a0, a1) : f32[64]
            return r0 = %0
          }
          return x = %2
        }
        """,
    )


def test_the_narrowest_place_is_saved() -> None:
    """In a chain of 64, 8 and 64 elements, the 8 are saved: neither the carry nor an operand."""
    check(
        LEAST,
        """
        program p(x: f32[1, 64], d: state f32[64, 8], u: state f32[8, 64], dy: f32[1, 64]) {
          %0, %1 = Scan(d, u, x) {consts=2, carries=1, length=7} : f32[1, 64], f32[7, 1, 64]
              with layer(a0: f32[64, 8], a1: f32[8, 64], a2: f32[1, 64]) {
            %0 = MatMul(a2, a0) : f32[1, 8]
            %1 = MatMul(%0, a1) : f32[1, 64]
            %2 = Tanh(%1) : f32[1, 64]
            return r0 = %2, r1 = %1
          }
          %2 = Scan(dy, %1) {consts=0, carries=1, length=7, reverse=true} : f32[1, 64]
              with layer_grad(a0: f32[1, 64], a1: f32[1, 64]) {
            %0 = Multiply(a0, a1) : f32[1, 64]
            return r0 = %0
          }
          return x = %2
        }
        """,
        """
        program p(x: f32[1, 64], d: state f32[64, 8], u: state f32[8, 64], dy: f32[1, 64]) {
          %0, %1 = Scan(d, u, x) {consts=2, carries=1, length=7} : f32[1, 64], f32[7, 1, 8]
              with layer(a0: f32[64, 8], a1: f32[8, 64], a2: f32[1, 64]) {
            %0 = MatMul(a2, a0) : f32[1, 8]
            %1 = MatMul(%0, a1) : f32[1, 64]
            %2 = Tanh(%1) : f32[1, 64]
            return r0 = %2, r1 = %0
          }
          %2 = Scan(u, dy, %1) {consts=1, carries=1, length=7, reverse=true} : f32[1, 64]
              with layer_grad(a0: f32[8, 64], a1: f32[1, 64], a2: f32[1, 8]) {
            %0 = MatMul(a2, a0) : f32[1, 64]
            %1 = Multiply(a1, %0) : f32[1, 64]
            return r0 = %1
          }
          return x = %2
        }
        """,
    )


def test_a_carry_of_many_iterations_is_kept_of_some() -> None:
    """16 iterations in segments of 4: 4 carries are kept, and each segment stacks 4 more."""
    check(
        LEAST,
        """
        program p(x: f32[64], dy: f32[64]) {
          %0, %1 = Scan(x) {consts=0, carries=1, length=16} : f32[64], f32[16, 64]
              with layer(a0: f32[64]) {
            %0 = Tanh(a0) : f32[64]
            return r0 = %0, r1 = a0
          }
          %2 = Scan(dy, %1) {consts=0, carries=1, length=16, reverse=true} : f32[64]
              with layer_grad(a0: f32[64], a1: f32[64]) {
            %0 = Multiply(a0, a1) : f32[64]
            return r0 = %0
          }
          return x = %2
        }
        """,
        """
        program p(x: f32[64], dy: f32[64]) {
          %0, %1 = Scan(x) {consts=0, carries=1, length=4} : f32[64], f32[4, 64]
              with layer(a0: f32[64]) {
            %0 = Scan(a0) {consts=0, carries=1, length=4} : f32[64] with layer(a0: f32[64]) {
              %0 = Tanh(a0) : f32[64]
              return r0 = %0
            }
            return r0 = %0, r1 = a0
          }
          %2 = Scan(dy, %1) {consts=0, carries=1, length=4, reverse=true} : f32[64]
              with layer_grad(a0: f32[64], a1: f32[64]) {
            %0, %1 = Scan(a1) {consts=0, carries=1, length=4} : f32[64], f32[4, 64]
                with layer(a0: f32[64]) {
              %0 = Tanh(a0) : f32[64]
              return r0 = %0, r1 = a0
            }
            %2 = Scan(a0, %1) {consts=0, carries=1, length=4, reverse=true} : f32[64]
                with layer_grad(a0: f32[64], a1: f32[64]) {
              %0 = Multiply(a0, a1) : f32[64]
              return r0 = %0
            }
            return r0 = %2
          }
          return x = %2
        }
        """,
    )


def test_bodies_are_looked_into() -> None:
    """The pair of loops is in the body of a loop over steps, as in `run_steps`."""
    nodes = KEEPS_ALL[KEEPS_ALL.index("%0, %1") : KEEPS_ALL.rindex("return")]
    nodes = nodes.replace("(x, w)", "(a2, a0)").replace("(dy, w,", "(a1, a0,")
    start = program(
        f"""
        program steps(x: f32[64], w: f32[7, 64], dy: f32[64]) {{
          %0, %1 = Scan(w, dy, x) {{consts=2, carries=1, length=3}} : f32[64], f32[3, 7, 64]
              with step(a0: f32[7, 64], a1: f32[64], a2: f32[64]) {{
            {nodes}
            return r0 = %0, r1 = %4
          }}
          return x = %0, w = %1
        }}
        """
    )
    after, changed = LEAST.run(start)
    verify(after, "functional")
    assert changed == 1
    assert peak(after) < peak(start)


@pytest.mark.parametrize("budget", [-1, 1.5, "4GiB", True])
def test_a_budget_is_bytes(budget: object) -> None:
    with pytest.raises(AttributeValueError, match="budget must be bytes"):
        Recompute(budget)  # type: ignore[arg-type]
