"""Loops over rolled bodies: sums of stacks, and stacks of values from outside the loop."""

from __future__ import annotations

from graphc.passes.rolling.stack_carries import StackCarries
from tests.passes.check import check, check_stays

LOOP = """
    program p(x: f32[4, 3], a: f32[3], b: f32[3], w: state f32[3], v: state f32[3]) {
      %0, %1, %2 = Scan(w, v, a, b, x) {consts=2, carries=2, length=4} : f32[3], f32[3], f32[4, 3]
          with turn(a0: f32[3], a1: f32[3], a2: f32[3], a3: f32[3], a4: f32[3]) {
        %0 = Stack(a0, a1) : f32[2, 3]
        %1 = Multiply(%0, a4) : f32[2, 3]
        %2, %3 = Unstack(%1) : f32[3], f32[3]
        %4 = Add(a2, %2) : f32[3]
        %5 = Add(a3, %3) : f32[3]
        %6 = Tanh(ROWS) : f32[3]
        return r0 = %4, r1 = %5, r2 = %6
      }
      return a = %0, b = %1, rows = %2
    }
"""


def test_one_carry_for_the_pieces_of_a_stack() -> None:
    check(
        StackCarries(),
        LOOP.replace("ROWS", "a4"),
        """
        program p(x: f32[4, 3], a: f32[3], b: f32[3], w: state f32[3], v: state f32[3]) {
          %0 = Stack(w, v) : f32[2, 3]
          %1 = Stack(a, b) : f32[2, 3]
          %2, %3 = Scan(w, v, %0, %1, x) {consts=3, carries=1, length=4} : f32[2, 3], f32[4, 3]
              with turn(a0: f32[3], a1: f32[3], a2: f32[2, 3], a3: f32[2, 3], a4: f32[3]) {
            %0 = Multiply(a2, a4) : f32[2, 3]
            %1 = Tanh(a4) : f32[3]
            %2 = Add(a3, %0) : f32[2, 3]
            return r0 = %2, r1 = %1
          }
          %4, %5 = Unstack(%2) : f32[3], f32[3]
          return a = %4, b = %5, rows = %3
        }
        """,
        prune=False,
    )


def test_not_where_the_body_uses_a_piece_or_a_carry_otherwise() -> None:
    for used in ("%2", "a2"):
        text = LOOP.replace("Stack(a0, a1)", "Stack(a0, a4)").replace("ROWS", used)
        check_stays(StackCarries(), text)


def test_not_where_a_piece_is_missing() -> None:
    text = LOOP.replace("Stack(a0, a1)", "Stack(a0, a4)").replace("Add(a3, %3)", "Add(a3, a4)")
    check_stays(StackCarries(), text.replace("ROWS", "a4"))
