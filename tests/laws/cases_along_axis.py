"""Cases of graphc/ops/arrays/along_axis.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.arrays import along_axis as ops
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "uint8", "int32", "bfloat16", "float32", "float64", "complex64")
NUMBERS = ALL[1:]
X = In((4, 5), batch_axis=0)
ONE = In((4, 1), "int32", values=[[0], [4], [-1], [2]], batch_axis=0)
TWO = In((4, 2), "int32", values=[[0, 0], [4, 1], [-1, -5], [2, 2]], batch_axis=0)
DOWN = In((8, 5), "int32", values=np.arange(40).reshape(8, 5) % 4, batch_axis=0)
OUTSIDE = In((4, 2), "int32", values=[[5, 0], [4, 9], [-6, 2], [3, 3]], batch_axis=0)
LABELS = In((4,), "T", values=[0, 2, 3, 1], batch_axis=0)
INTEGERS = ("int8", "uint8", "int32", "int64")
M, AT = In((4, 5), "float32"), In((4, 2), "int32")


def take(axis, mode=None):
    return lambda x, i: ops.take_along_axis(x, i, axis, mode)


def scatter(axis, mode="drop"):
    return lambda x, i, u: ops.scatter_add_along_axis(x, i, u, axis, mode)


def taken(axis):
    return lambda x, i: np.take_along_axis(x, i, axis)


def clipped(x, i):
    return np.take_along_axis(x, np.clip(np.where(i < 0, i + 5, i), 0, 4), 1)


def zeroed(x, i):
    return np.where((i < 5) & (i >= -5), clipped(x, i), 0)


def added(axis, mode="drop"):
    """Adds element by element, in Python."""

    def oracle(x, i, u):
        n = x.shape[axis]
        result = np.array(x)
        for where in np.ndindex(i.shape):
            place = int(i[where])
            place = place + n if place < 0 else place
            if mode == "clip":
                place = min(max(place, 0), n - 1)
            if 0 <= place < n:
                to = list(where)
                to[axis] = place
                result[tuple(to)] += u[where]
        return result

    return oracle


def hot(axis=-1):
    def oracle(i):
        return np.moveaxis(np.asarray(i[..., None] == np.arange(4), float), -1, axis)

    return oracle


CASES = (
    Case(
        "TakeAlongAxis",
        take(1),
        [X, ONE],
        taken(1),
        ALL,
        bad=[
            Bad(take(1), [M, In((4,), "int32")], ShapeError, "rank of x, 2, got 1"),
            Bad(take(1), [M, In((3, 2), "int32")], ShapeError, "sizes of axis 0 differ, 4 and 3"),
            Bad(take(1), [M, M], DTypeError, "must be integers"),
            Bad(take(2), [M, AT], AttributeValueError, "axis 2 is out of range"),
            Bad(take(1, "wrap"), [M, AT], AttributeValueError, '"clip", "fill" or "zero"'),
        ],
    ),
    Case("TakeAlongAxis", take(-1), [X, TWO], taken(1), label="two"),
    Case("TakeAlongAxis", take(0), [In((4, 5)), DOWN], taken(0), label="indices along the axis"),
    Case("TakeAlongAxis", take(0), [X, DOWN], taken(0), label="both along the axis"),
    Case("TakeAlongAxis", take(1), [X, In((4, 1), "int32", values=[[1]] * 4)], taken(1), label="x"),
    Case("TakeAlongAxis", take(1), [In((4, 5)), TWO], taken(1), label="indices sharded"),
    Case(
        "TakeAlongAxis",
        take(1),
        [X, In((1, 2), "int32", values=[[0, 3]])],
        taken(1),
        label="indices repeated",
    ),
    Case("TakeAlongAxis", take(1), [In((1, 5)), TWO], taken(1), label="x repeated"),
    Case("TakeAlongAxis", take(1, "clip"), [X, OUTSIDE], clipped, label="clip"),
    Case("TakeAlongAxis", take(1, "zero"), [X, OUTSIDE], zeroed, label="zero"),
    Case(
        "TakeAlongAxis",
        lambda x, i: ops.take_along_axis(reduce_sum(x, axis=0), i, 0),
        [X, In((2,), "int32", values=[1, 1])],
        lambda x, i: x.sum(0)[i],
        label="partial",
    ),
    Case(
        "ScatterAddAlongAxis",
        scatter(1),
        [X, TWO, In((4, 2), batch_axis=0)],
        added(1),
        NUMBERS,
        bad=[
            Bad(scatter(1), [M, AT, M], ShapeError, "axis 1 of the updates differ, 2 and 5"),
            Bad(scatter(1, "x"), [M, AT, AT], AttributeValueError, '"clip" or "drop"'),
        ],
    ),
    Case(
        "ScatterAddAlongAxis",
        scatter(0),
        [In((4, 5)), DOWN, In((8, 5), batch_axis=0)],
        added(0),
        label="updates along the axis",
    ),
    Case(
        "ScatterAddAlongAxis",
        scatter(0),
        [X, DOWN, In((8, 5))],
        added(0),
        label="all along the axis",
    ),
    Case(
        "ScatterAddAlongAxis",
        scatter(1, "clip"),
        [X, OUTSIDE, In((4, 2), batch_axis=0)],
        added(1, "clip"),
        label="clip",
    ),
    Case(
        "ScatterAddAlongAxis",
        scatter(1, "drop"),
        [X, OUTSIDE, In((4, 2))],
        added(1),
        label="drop",
    ),
    Case(
        "ScatterAddAlongAxis",
        lambda x, i: ops.scatter_add_along_axis(reduce_sum(x, axis=0), i, 1.0, 0),
        [X, In((2,), "int32", values=[1, 1])],
        lambda x, i: x.sum(0) + np.array([0, 2, 0, 0, 0]),
        label="partial",
    ),
    Case(
        "OneHot",
        lambda i: ops.one_hot(i, 4),
        [LABELS],
        hot(),
        INTEGERS,
        bad=[
            Bad(lambda x: ops.one_hot(x, 4), [M], DTypeError, "must be integers"),
            Bad(lambda i: ops.one_hot(i, 4, axis=3), [AT], AttributeValueError, "axis 3 is out of"),
            Bad(lambda i: ops.one_hot(i, -1), [AT], AttributeValueError, "depth"),
        ],
    ),
    Case(
        "OneHot",
        lambda i: (ops.one_hot(i, 4, "int8", 0), ops.one_hot(i, 4, "bool", 1)),
        [In((4, 2), "int32", values=[[0, 1], [2, 3], [4, -1], [1, 1]], batch_axis=0)],
        lambda i: (hot(0)(i), hot(1)(i)),
        ("float32",),
        label="axis",
    ),
)
