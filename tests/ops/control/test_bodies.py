"""The verifier checks that a loop and its body agree on types, since passes write both."""

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
    program = parse_program(LOOP, CATALOGUE)
    verify(program, "functional")
    assert [node.op.name for node in program.nodes] == ["Scan"]


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


WHILE = dedent(
    """
    program p(i: i32[], c: f32[3], xs: f32[5, 3]) {
      %0, %1, %2 = While(i, c, xs) {consts=0, carries=2, length=5} : i32[], f32[3], f32[5, 3]
          with body(i: i32[], c: f32[3], x: f32[3]) {
        %0 = Constant() {value=i32[] 1} : i32[]
        %1 = Add(i, %0) : i32[]
        %2 = Add(c, x) : f32[3]
        return r0 = %1, r1 = %2, r2 = %2
      } with condition(i: i32[], c: f32[3]) {
        %0 = Constant() {value=i32[] 4} : i32[]
        %1 = Less(i, %0) : bool[]
        return r0 = %1
      }
      return y = %1
    }
    """
).strip()


def test_a_while_that_fits() -> None:
    program = parse_program(WHILE, CATALOGUE)
    verify(program, "functional")
    assert [node.op.name for node in program.nodes] == ["While"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", length=5}", "}", "xs and ys need a length"),
        ("length=5}", "length=6}", "lengths of xs differ, 5 and 6"),
        ("condition(i: i32[], ", "condition(i: i32[], j: i32[], ", "takes 3 values, and gets 2"),
        ("condition(i: i32[], c: f32[3])", "condition(i: i32[], c: f32[4])", "differ, 3 and 4"),
        ("return r0 = %1\n", "return r0 = %0\n", r"must return one bool, got i32\[\]"),
        ("return r0 = %1\n", "return r0 = %1, r1 = %1\n", r"one bool, got bool\[\], bool\[\]"),
    ],
)
def test_a_while_that_does_not(old: str, new: str, message: str) -> None:
    assert old in WHILE
    with pytest.raises(VerifyError, match=message):
        verify(parse_program(WHILE.replace(old, new), CATALOGUE), "functional")
