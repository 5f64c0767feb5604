"""A loop gives its body what the body takes: the verifier looks, since passes write both."""

from __future__ import annotations

from textwrap import dedent

import pytest

from graphc.errors import VerifyError
from graphc.ir.parse import parse_program
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE

LOOP = dedent(
    """
    program p(w: f32[3], c: f32[3], xs: f32[5, 3]) {
      %0 = Scan(w, c, xs) {consts=1, carries=1, length=5} : f32[3]
          with body(w: f32[3], c: f32[3], x: f32[3]) {
        %0 = Add(c, x) : f32[3]
        return r0 = %0
      }
      return y = %0
    }
    """
).strip()


def test_a_loop_that_fits() -> None:
    verify(parse_program(LOOP, CATALOGUE), "functional")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Scan(w, c, xs)", "Scan(w, c)", "the body takes 3 values, and gets 2"),
        ("program p(w: f32[3]", "program p(w: i32[3]", r"takes f32\[3\] for value 0, and gets i32"),
        ("program p(w: f32[3]", "program p(w: f32[1, 3]", r"takes f32\[3\] for value 0"),
        ("program p(w: f32[3]", "program p(w: f32[4]", "value 0 .* differ, 4 and 3"),
        ("program p(w: f32[3]", "program p(w: f32[n]", "needs n == 3"),
        ("xs: f32[5, 3]", "xs: f32[5, 4]", "value 2 .* differ, 4 and 3"),
    ],
)
def test_one_that_does_not(old: str, new: str, message: str) -> None:
    assert old in LOOP
    with pytest.raises(VerifyError, match=message):
        verify(parse_program(LOOP.replace(old, new), CATALOGUE), "functional")
