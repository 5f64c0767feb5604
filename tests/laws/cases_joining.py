"""Cases of graphc/ops/arrays/joining.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, ShapeError
from graphc.ops.arrays import joining as ops
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int4", "int32", "bfloat16", "float32", "float64", "complex64")
A = In((4, 3), batch_axis=0)
B = In((4, 2), batch_axis=0)
X = In((8, 6), batch_axis=0)
M, N = In((4, 3), "float32"), In((4, 2), "float32")


def joined(axis):
    return lambda *xs: ops.concatenate(xs, axis)


def sums(*xs):
    return [reduce_sum(x, axis=0) for x in xs]


CASES = (
    Case(
        "Concatenate",
        joined(1),
        [A, B],
        lambda *xs: np.concatenate(xs, 1),
        ALL,
        bad=[
            Bad(joined(0), [M, N], ShapeError, "sizes of axis 1 differ, 3 and 2"),
            Bad(joined(2), [M, M], AttributeValueError, "axis 2 is out of range"),
            Bad(joined(0), [M, In((3,), "float32")], ShapeError, "ranks differ"),
            Bad(lambda: ops.concatenate([]), [], AttributeValueError, "one or more"),
            Bad(lambda x: ops.concatenate(x), [M], AttributeValueError, "a list of tensors"),
        ],
    ),
    Case("Concatenate", joined(0), [A, A], lambda *xs: np.concatenate(xs, 0), label="batch"),
    Case(
        "Concatenate",
        joined(-1),
        [A, In((4, 2)), In((4, 1))],
        lambda *xs: np.concatenate(xs, -1),
        label="sharded and not",
    ),
    Case(
        "Concatenate",
        lambda *xs: ops.concatenate(sums(*xs), 0),
        [A, B],
        lambda a, b: np.concatenate([a.sum(0), b.sum(0)]),
        label="partial",
    ),
    Case(
        "Concatenate",
        lambda x: ops.concatenate([x, np.ones((4, 1), np.int8)], 1),
        [A],
        lambda x: np.concatenate([x, np.ones((4, 1))], 1),
        dtypes=("float64",),
        label="promoted",
    ),
    Case(
        "Split",
        lambda x: ops.split(x, 3, axis=1),
        [X],
        lambda x: np.split(x, 3, 1),
        ALL,
        bad=[
            Bad(lambda x: ops.split(x, 2, 1), [M], ShapeError, "does not divide by 2"),
            Bad(lambda x: ops.split(x, [1, 3], 1), [M], ShapeError, "add to 4, axis 1 has 3"),
            Bad(lambda x: ops.split(x, [-2, 5], 1), [M], AttributeValueError, "none negative"),
            Bad(lambda x: ops.split(x, [], 1), [M], AttributeValueError, "one or more"),
        ],
    ),
    Case(
        "Split",
        lambda x: ops.split(x, [1, 0, -1], axis=-1),
        [X],
        lambda x: np.split(x, [1, 1], 1),
        label="sizes",
    ),
    Case("Split", lambda x: ops.split(x, 2), [X], lambda x: np.split(x, 2), label="the batch"),
    Case("Split", lambda x: ops.split(x, 1), [X], lambda x: (x,), label="one piece"),
    Case(
        "Split",
        lambda x: ops.split(x, 3, axis=1)[1],
        [X],
        lambda x: np.split(x, 3, 1)[1],
        label="one used",
    ),
    Case(
        "Split",
        lambda x: ops.split(reduce_sum(x, axis=0), 2),
        [X],
        lambda x: np.split(x.sum(0), 2),
        label="partial",
    ),
)
