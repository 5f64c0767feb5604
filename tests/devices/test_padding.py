"""Operators for the pieces of a batch that does not divide by the number of replicas."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphc.build.placeholders import placeholder
from graphc.errors import DTypeError, LayoutError, ShapeError
from graphc.ir.graph import Graph
from graphc.ir.layouts import REPLICATED
from graphc.ops.core.emit import constant, emit_one
from graphc.ops.structure.uneven import FILL_PADDING, OPS, PADDED_PIECE, neutral
from tests.devices.test_collective import REPLICAS, replicated


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_pieces_repeat_the_last_row_and_are_filled_behind_it(dtype: str) -> None:
    x = (np.arange(12).reshape(6, 2) % 5).astype(dtype)
    fill = np.array([1, 0]).astype(dtype)

    def build(x):
        piece = emit_one(PADDED_PIECE, (x,), axis=0, replicas=REPLICAS, piece=2)
        return [piece, emit_one(FILL_PADDING, (piece, constant(fill)), axis=0, size=5)]

    piece, filled = replicated(build, np.tile(x, (REPLICAS, 1, 1)))
    np.testing.assert_array_equal(piece.reshape(8, 2), x[[0, 1, 2, 3, 4, 5, 5, 5]])
    np.testing.assert_array_equal(filled.reshape(8, 2), np.stack([*x[:5], fill, fill, fill]))


@pytest.mark.parametrize(
    "dtype",
    ["float64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint4", "bool"],
)
def test_what_leaves_an_extreme_as_it_is(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    numbers = np.array([0, 1], kind)
    assert np.all(np.maximum(numbers, neutral("max", kind)) == numbers)
    assert np.all(np.minimum(numbers, neutral("min", kind)) == numbers)
    assert neutral("sum", kind) == 0 and neutral("max", kind).dtype == kind


def test_bad_input() -> None:
    with Graph() as graph:
        x = placeholder((6, 3), "float32")
        with pytest.raises(ShapeError, match="size 6 cannot be cut into 2 pieces of 2"):
            emit_one(PADDED_PIECE, (x,), axis=0, replicas=2, piece=2)
        with pytest.raises(ShapeError, match="axis 2 is out of range"):
            emit_one(PADDED_PIECE, (x,), axis=2, replicas=2, piece=2)
        with pytest.raises(ShapeError, match=r"fill f32\[2\] does not broadcast"):
            emit_one(FILL_PADDING, (x, constant(np.zeros(2, "f4"))), axis=0, size=5)
        with pytest.raises(DTypeError, match="fill must be float32, as x, got int32"):
            emit_one(FILL_PADDING, (x, constant(np.zeros((), "i4"))), axis=0, size=5)
        y = emit_one(PADDED_PIECE, (x,), axis=0, replicas=4, piece=2)
    with pytest.raises(LayoutError, match="already replicated"):
        graph.producer(y).op.layout(None, graph.producer(y), REPLICATED)
    assert not any(op.differentiable for op in OPS)
