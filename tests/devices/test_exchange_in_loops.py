"""Exchange in loops: the sum over replicas of what a loop stacks, turn by turn."""

from __future__ import annotations

import pytest

from graphc.devices.exchange_in_loops import ExchangeInLoops
from tests.passes.check import check, check_stays

BEFORE = """
program p(x: f32[4, 1024, 1024], c: f32[1024, 1024]) {
  %c, %y, %z = Scan(c, x) {consts=0, carries=1, length=4, reverse=true}
      : f32[1024, 1024], f32[4, 1024, 1024], f32[4, 1024]
      with body(c: f32[1024, 1024], x: f32[1024, 1024]) {
    %d = Multiply(c, x) : f32[1024, 1024]
    %s = ReduceSum(%d) {axes=[0], keepdims=false} : f32[1024]
    return r0 = %d, r1 = %d, r2 = %s
  }
  %g = AllReduce(%y) {op="sum"} : f32[4, 1024, 1024]
  %h = AllReduce(%z) {op="sum"} : f32[4, 1024]
  return c = %c, g = %g, h = %h
}
"""


def test_large_slices_are_exchanged_in_the_body() -> None:
    """The carry is what it was, and small slices are exchanged together."""
    check(
        ExchangeInLoops(),
        BEFORE,
        """
        program p(x: f32[4, 1024, 1024], c: f32[1024, 1024]) {
          %c, %g, %z = Scan(c, x) {consts=0, carries=1, length=4, reverse=true}
              : f32[1024, 1024], f32[4, 1024, 1024], f32[4, 1024]
              with body(a0: f32[1024, 1024], a1: f32[1024, 1024]) {
            %d = Multiply(a0, a1) : f32[1024, 1024]
            %e = AllReduce(%d) {op="sum"} : f32[1024, 1024]
            %s = ReduceSum(%d) {axes=[0], keepdims=false} : f32[1024]
            return r0 = %d, r1 = %e, r2 = %s
          }
          %h = AllReduce(%z) {op="sum"} : f32[4, 1024]
          return c = %c, g = %g, h = %h
        }
        """,
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("g = %g,", "g = %g, y = %y,"),  # what each replica has is used too
        ("AllReduce(%y)", "AllReduce(x)"),
        ("1024", "512"),  # small
    ],
)
def test_others_stay(old: str, new: str) -> None:
    check_stays(ExchangeInLoops(), BEFORE.replace(old, new))


def test_the_last_carry_is_exchanged_after_the_loop() -> None:
    text = BEFORE.replace("(%y)", "(%c)").replace("c = %c, ", "")
    check_stays(ExchangeInLoops(), text.replace("4, 1024, 1024]\n  %h", "1024, 1024]\n  %h"))
