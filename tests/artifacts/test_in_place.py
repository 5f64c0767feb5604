"""A program compiled for one device of this machine overwrites its state, as in a session."""

from __future__ import annotations

import re

import jax
import pytest

from graphc.artifacts.lowering import for_one
from tests.passes.check import program

STEP = """
    program p(w: state f32[300, 300], x: f32[4, 300], dy: f32[4, 300]) {
      %0 = MatMul(x, dy) {transpose_a=true} : f32[300, 300]
      %1 = Add(w, %0) : f32[300, 300]
      %2 = MatMul(dy, w) {transpose_b=true} : f32[4, 300]
      return state w = %1, dx = %2
    }
"""


@pytest.mark.parametrize(("known", "copies"), [(True, 0), (False, 1)])
def test_weights_are_copied_only_for_any_device(known: bool, copies: int) -> None:
    device = jax.devices("cpu")[0] if known else None
    function = for_one(program(STEP), donated=1, device=device)
    text = function.lower().compile().as_text()
    assert len(re.findall(r" = f32\[300,300\]\S* copy\(", text)) == copies
