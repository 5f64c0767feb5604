"""Loops over the same variables run over the same number of them."""

from __future__ import annotations

from textwrap import indent

import pytest

from graphc.passes.rolling.align import align
from graphc.passes.rolling.recurrence import Recurrence, recurrences
from graphc.passes.rolling.roll_repeats import RollRepeats
from tests.passes.check import check, program
from tests.passes.rolling.models import ROLL, rolls, text

# The backward pass needs no gradient of x, so its last iteration differs.
FOUR_LAYERS = """
    %0 = Multiply(x, a) : f32[2]
    %1 = Tanh(%0) : f32[2]
    %2 = Multiply(%1, b) : f32[2]
    %3 = Tanh(%2) : f32[2]
    %4 = Multiply(%3, c) : f32[2]
    %5 = Tanh(%4) : f32[2]
    %6 = Multiply(%5, d) : f32[2]
    %7 = Tanh(%6) : f32[2]
    %8 = Multiply(z, %7) : f32[2]
    %9 = Multiply(%8, %5) : f32[2]
    %10 = Multiply(%8, d) : f32[2]
    %11 = Multiply(%10, %5) : f32[2]
    %12 = Multiply(%11, %3) : f32[2]
    %13 = Multiply(%11, c) : f32[2]
    %14 = Multiply(%13, %3) : f32[2]
    %15 = Multiply(%14, %1) : f32[2]
    %16 = Multiply(%14, b) : f32[2]
    %17 = Subtract(%16, %1) : f32[2]
    return da = %17, db = %15, dc = %12, dd = %9
"""


def test_an_iteration_that_the_backward_pass_does_not_have_stays_out_of_the_forward_loop() -> None:
    rolls(
        FOUR_LAYERS,
        """
        %0 = Multiply(x, a) : f32[2]
        %1 = Tanh(%0) : f32[2]
        %2 = Stack(b, c, d) : f32[3, 2]
        %3, %4, %5 = Scan(%1, %2) {consts=0, carries=1, length=3} : f32[2], f32[3, 2], f32[3, 2]
            with forward(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1, r1 = %1, r2 = a0
        }
        %6, %7 = Scan(z, %4, %5, %2) {consts=0, carries=1, length=3, reverse=true}
            : f32[2], f32[3, 2]
            with backward(a0: f32[2], a1: f32[2], a2: f32[2], a3: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Multiply(%0, a2) : f32[2]
          %2 = Multiply(%0, a3) : f32[2]
          return r0 = %2, r1 = %1
        }
        %8, %9, %10 = Unstack(%7) : f32[2], f32[2], f32[2]
        %11 = Subtract(%6, %1) : f32[2]
        return da = %11, db = %8, dc = %9, dd = %10
        """,
    )


def test_a_loop_that_would_then_not_be_worth_it_stays_and_its_stacks_are_cut() -> None:
    """A loop over four layers saves six nodes, a loop over three saves only four."""
    rolled = RollRepeats(turns=3, saved=6, work=0).run(program(text(FOUR_LAYERS))).program
    kinds = [node.op.name for node in rolled.nodes]
    assert kinds.count("Slice") == 3  # of the parameters and of both saved values
    scans = [node for node in rolled.nodes if node.op.name == "Scan"]
    assert [node.attrs["length"] for node in scans] == [4, 3]


def chain(weights: str, start: int) -> str:
    """Products with all weights, one after the other, from x on."""
    lines, x = [], "x"
    for place, weight in enumerate(weights, start):
        lines.append(f"%{place} = Multiply({x}, {weight}) : f32[2]")
        x = f"%{place}"
    return "\n".join(lines)


def aligned(*chains: str, worth: int = 2) -> list[str]:
    """The weights of each chain's loop after alignment; a to g are variables."""
    lines = [chain(weights, 10 * number) for number, weights in enumerate(chains)]
    nodes = indent("\n".join(lines), "  ")
    feeds = ", ".join(f"{name}: f32[2]" for name in "xyz")
    state = ", ".join(f"{name}: state f32[2]" for name in "abcdefg")
    start = program(f"program p({feeds}, {state}) {{\n{nodes}\n  return\n}}")
    row = iter(start.nodes)
    found: list[Recurrence] = []
    for weights in chains:
        (one,) = recurrences([[next(row)] for _ in weights])
        found.append(one)
    result = align(found, set(start.input_tensors("state")), lambda r: len(r.turns) >= worth)
    return ["".join([t.name for t in each.stacks[0]]) for each in result]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["abcd", "bcd"], ["bcd", "bcd"]),
        (["abcd", "abc"], ["abc", "abc"]),
        (["abcde", "bcd"], ["bcd", "bcd"]),
        (["abcd", "dcb"], ["bcd", "dcb"]),  # in reverse, as backward passes are
        (["dcb", "abcd"], ["dcb", "bcd"]),
        (["abcd", "abcd"], ["abcd", "abcd"]),
        (["abc", "def"], ["abc", "def"]),  # no common weight
        (["abc", "cde"], ["abc", "cde"]),  # one common weight is no stack
        (["abcd", "acd"], ["abcd", "acd"]),  # not adjacent
        (["abcd", "bcde"], ["bcd", "bcd"]),  # each has a weight that the other lacks
        (["abcd", "edcb"], ["bcd", "dcb"]),
        (["abcdefg", "def"], ["def", "abc", "def"]),  # the removed part may be another loop
        (["abcdefg", "de"], ["de", "abc", "fg", "de"]),
        (["abcde", "defg"], ["de", "abc", "de", "fg"]),
        (["abcd", "cbd"], ["abcd", "cbd"]),  # in another order
        (["abcd", "bdc"], ["abcd", "bdc"]),
        (["abcx", "bcx"], ["abcx", "bcx"]),  # not only variables: stacked anew in each step anyway
        (["abcde", "abcd", "bcd"], ["bcd", "bcd", "bcd"]),
    ],
    ids=str,
)
def test_which_iterations_stay(before: list[str], after: list[str]) -> None:
    assert aligned(*before) == after


def test_what_would_not_be_worth_a_loop_stays() -> None:
    assert aligned("abcd", "bcd", worth=4) == ["abcd", "bcd"]
    assert aligned("abcdefg", "cdef", worth=3) == ["cdef", "cdef"]


def test_a_recurrence_that_is_cut_knows_where_it_begins() -> None:
    check(
        ROLL,
        """
        program p(x: f32[2], a: state f32[2], b: state f32[2], c: state f32[2], d: state f32[2]) {
          %0 = Multiply(x, a) : f32[2]
          %1 = Tanh(%0) : f32[2]
          %2 = Multiply(%1, b) : f32[2]
          %3 = Tanh(%2) : f32[2]
          %4 = Multiply(%3, c) : f32[2]
          %5 = Tanh(%4) : f32[2]
          %6 = Multiply(%5, d) : f32[2]
          %7 = Tanh(%6) : f32[2]
          %8 = Add(%7, a) : f32[2]
          %9 = Relu(%8) : f32[2]
          %10 = Add(%9, b) : f32[2]
          %11 = Relu(%10) : f32[2]
          %12 = Add(%11, c) : f32[2]
          %13 = Relu(%12) : f32[2]
          return y = %13
        }
        """,
        """
        program p(x: f32[2], a: state f32[2], b: state f32[2], c: state f32[2], d: state f32[2]) {
          %0 = Stack(a, b, c) : f32[3, 2]
          %1 = Scan(x, %0) {consts=0, carries=1, length=3} : f32[2]
              with body(a0: f32[2], a1: f32[2]) {
            %0 = Multiply(a0, a1) : f32[2]
            %1 = Tanh(%0) : f32[2]
            return r0 = %1
          }
          %2 = Multiply(%1, d) : f32[2]
          %3 = Tanh(%2) : f32[2]
          %4 = Scan(%3, %0) {consts=0, carries=1, length=3} : f32[2]
              with body(a0: f32[2], a1: f32[2]) {
            %0 = Add(a0, a1) : f32[2]
            %1 = Relu(%0) : f32[2]
            return r0 = %1
          }
          return y = %4
        }
        """,
    )
