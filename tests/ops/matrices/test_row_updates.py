"""`UpdateByRows` updates matrices block by block. Only the pass `CpuUpdateByRows` makes it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from graphc.errors import GraphcError
from graphc.ir.compare import difference
from graphc.ir.parse import parse_program
from graphc.ir.serial import dump_program, load_program
from graphc.ir.text import print_program
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import CATALOGUE
from tests.near import assert_near
from tests.passes.check import program

NESTEROV = """
    program p(a: f32[3, 6], b: f32[3, 4], m: f32[6, 4], w: f32[6, 4], mask: f32[6, 4],
        rate: f32[]) {
      %0, %1 = UpdateByRows(a, b, m, w, mask, rate) {states=2, rows=2} : f32[6, 4], f32[6, 4]
          with product(a: f32[3, 2], b: f32[3, 4]) {
        %0 = MatMul(a, b) {transpose_a=true} : f32[2, 4]
        return g = %0
      } with update(g: f32[2, 4], m: f32[2, 4], w: f32[2, 4], mask: f32[2, 4], rate: f32[]) {
        %0 = Multiply(m, rate) : f32[2, 4]
        %1 = Add(%0, g) : f32[2, 4]
        return m = %1
      } with update(g: f32[2, 4], m: f32[2, 4], w: f32[2, 4], mask: f32[2, 4], rate: f32[]) {
        %0 = Multiply(m, mask) : f32[2, 4]
        %1 = Add(%0, g) : f32[2, 4]
        %2 = Subtract(w, %1) : f32[2, 4]
        return w = %2
      }
      return m = %0, w = %1
    }
"""


def given() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((3, 6), (3, 4), (6, 4), (6, 4), (6, 4), ())
    return [np.asarray(rng.standard_normal(s), np.float32) for s in shapes]


def test_each_state_sees_the_new_rows_of_those_before() -> None:
    a, b, m, w, mask, rate = given()
    new = m * rate + a.T @ b
    got = jax.jit(to_function(program(NESTEROV)))(a, b, m, w, mask, rate)
    assert_near(got[0], new, rtol=1e-5)
    assert_near(got[1], w - (new * mask + a.T @ b), rtol=1e-5, atol=1e-5)


def test_text_and_bytes_there_and_back() -> None:
    start = program(NESTEROV)
    again = parse_program(print_program(start), CATALOGUE)
    assert difference(start, again) is None
    manifest, arrays = dump_program(start)
    assert difference(start, load_program(manifest, arrays, CATALOGUE)) is None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rows=2", "rows=4", "divide the number of rows of the product"),
        ("states=2", "states=7", "7 states among 4 operands"),
        ("states=2", "states=1", "a body for the product and each state"),
        ("m: f32[6, 4]", "m: f32[4, 6]", "the shape of the product"),
        ("return w = %2", "return w = rate", "must return state 1 only"),
        ("rate: f32[]) {", "rate: f32[2]) {", "takes f32.* and gets"),
    ],
)
def test_bad_ones_are_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(GraphcError, match=says):
        program(NESTEROV.replace(old, new, 1))
