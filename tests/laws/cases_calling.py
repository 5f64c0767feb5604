"""Cases of graphc/ops/control/calling.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.control.calling import function
from graphc.ops.elementwise.transcendental import tanh
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.reductions.reduction import reduce_mean
from tests.laws.case import Bad, Case, In


def layered(x, w, v):
    """One body called twice, with different weights: each call has a mean over the batch."""

    @function
    def layer(h, w):
        y = tanh(matmul(h, w))
        return y - reduce_mean(y, 0), y * y

    h, first = layer(x, w)
    h, second = layer(h, v)
    return h, first + second


def layered_oracle(x, w, v):
    squares, h = 0.0, x
    for weights in (w, v):
        y = np.tanh(h @ weights)
        squares, h = squares + y * y, y - y.mean(0)
    return h, squares


def in_each_other(x, y):
    """A function that captures tensors, called by another function, with nests and keywords."""

    @function
    def scaled(nest, by=2.0):
        return {"sum": nest["a"] * by + y, "a": nest["a"]}

    @function
    def both(a):
        found = scaled({"a": a})
        return scaled({"a": found["sum"]}, by=a)["sum"] + found["a"]

    return both(x) + both(y)


def in_each_other_oracle(x, y):
    return sum((a * 2 + y) * a + y + a for a in (x, y))


CASES = (
    Case("Call", layered, [In((4, 3), batch_axis=0), In((3, 3)), In((3, 3))], layered_oracle),
    Case(
        "Call",
        in_each_other,
        [In((4, 2), batch_axis=0), In((4, 2), batch_axis=0)],
        in_each_other_oracle,
        dtypes=("float32", "float64", "complex64"),
        label="nested",
        bad=[
            Bad(
                lambda x: function(lambda a: a)([x, "text"]),
                [In((2,), "float32")],
                DTypeError,
                "'text' is not numeric",
            ),
            Bad(
                lambda x: function(lambda a: matmul(a, a))(x),
                [In((2, 3), "float32")],
                ShapeError,
                "inner dimensions differ, 3 and 2",
            ),
        ],
    ),
)
