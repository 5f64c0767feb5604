"""Cases of graphc/ops/arrays/indexing.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.arrays import indexing as ops
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int4", "uint8", "int32", "bfloat16", "float32", "float64", "complex64")
NUMBERS = ("uint8", "int32", "bfloat16", "float32", "float64", "complex64")
TABLE = In((5, 3))
X = In((8, 5, 3), batch_axis=0)
ROWS = In((8,), "int32", values=[0, 4, 2, 2, -1, 3, -5, 0], batch_axis=0)
GRID = In((4, 2), "int32", values=[[0, 4], [2, 2], [-1, 3], [1, 0]], batch_axis=0)
BYTES = In((4,), "uint8", values=[4, 0, 0, 2], batch_axis=0)
OUTSIDE = In((4,), "int32", values=[5, -6, 1, 99], batch_axis=0)
M, AT, F = In((5, 3), "float32"), In((4,), "int32"), In((4,), "float32")


def take(axis, mode=None):
    return lambda x, i: ops.take(x, i, axis, mode)


def taken(axis, mode=None):
    """Handles indices out of range itself: NumPy's own modes treat negative indices differently."""

    def oracle(x, i):
        n = x.shape[axis]
        places = np.where(i < 0, i.astype(int) + n, i)
        result = np.take(x, np.clip(places, 0, n - 1), axis)
        inside = ((places >= 0) & (places < n)).reshape(i.shape + (1,) * (x.ndim - axis - 1))
        fill = {None: result, "clip": result, "fill": np.nan, "zero": 0}[mode]
        return result if inside.all() else np.where(inside, result, fill)

    return oracle


def added(axis, mode="drop"):
    """Adds row by row, in Python."""

    def oracle(x, i, u):
        n = x.shape[axis]
        result = np.moveaxis(np.array(x), axis, 0)
        rows = np.moveaxis(u, range(axis, axis + i.ndim), range(i.ndim))
        for where in np.ndindex(i.shape):
            place = int(i[where])
            place = place + n if place < 0 else place
            if mode == "clip":
                place = min(max(place, 0), n - 1)
            if 0 <= place < n:
                result[place] += rows[where]
        return np.moveaxis(result, 0, axis)

    return oracle


def scatter(axis, mode="drop"):
    return lambda x, i, u: ops.scatter_add(x, i, u, axis, mode)


def partial(x):
    return reduce_sum(x, axis=0)


CASES = (
    Case(
        "Take",
        take(0),
        [TABLE, ROWS],
        taken(0),
        ALL,
        label="rows",
        bad=[
            Bad(take(0), [M, F], DTypeError, "indices must be integers"),
            Bad(take(0), [M, In((5,), "bool")], DTypeError, "gc.where"),
            Bad(take(2), [M, AT], AttributeValueError, "axis 2 is out of range"),
            Bad(take(0, "raise"), [M, AT], AttributeValueError, '"zero" or "wrap", got'),
            Bad(lambda x: ops.take(x, [0, 5]), [M], ShapeError, "index 5 is out of range"),
            Bad(lambda x: ops.take(x, -6), [M], ShapeError, "index -6 is out of range"),
        ],
    ),
    Case("Take", take(1), [X, In((2, 2), "int32", values=[[0, 4], [1, -1]])], taken(1), label="x"),
    Case("Take", take(0), [X, In((2,), "int32", values=[7, 1])], taken(0), label="the batch"),
    Case("Take", take(1), [In((3, 5)), GRID], taken(1), label="indices of two axes"),
    Case("Take", take(0), [TABLE, BYTES], taken(0), label="unsigned"),
    Case("Take", take(0), [X, ROWS], taken(0), label="both sharded"),
    Case("Take", take(1), [X, BYTES], taken(1), label="both sharded, another axis"),
    Case("Take", take(None), [TABLE, ROWS], lambda x, i: np.take(x, i), label="raveled"),
    Case("Take", take(0, "clip"), [TABLE, OUTSIDE], taken(0, "clip"), label="clip"),
    Case("Take", take(0, "zero"), [TABLE, OUTSIDE], taken(0, "zero"), label="zero"),
    Case(
        "Take",
        take(0, "fill"),
        [TABLE, OUTSIDE],
        taken(0, "fill"),
        ("bfloat16", "float32", "float64"),
        gradient=False,
        label="fill",
    ),
    Case(
        "Take",
        lambda x, i: ops.take(partial(x), i),
        [X, In((2,), "int32", values=[4, 1])],
        lambda x, i: x.sum(0)[i],
        label="partial",
    ),
    Case(
        "Take",
        lambda x, i: ops.take(partial(x), i),
        [X, ROWS],
        lambda x, i: x.sum(0)[i],
        label="partial by sharded",
    ),
    Case(
        "ScatterAdd",
        scatter(0),
        [TABLE, ROWS, In((8, 3), batch_axis=0)],
        added(0),
        NUMBERS,
        label="rows",
        bad=[
            Bad(scatter(0), [M, AT, In((4, 2), "float32")], ShapeError, "updates differ, 3 and 2"),
            Bad(scatter(0), [M, AT, In((5, 3), "float32")], ShapeError, "axis 0 of the updates"),
            Bad(scatter(0), [M, F, In((4, 3), "float32")], DTypeError, "must be integers"),
            Bad(scatter(0, "fill"), [M, AT, M], AttributeValueError, '"clip" or "drop"'),
            Bad(
                scatter(0),
                [In((5,), "bool"), AT, In((4,), "bool")],
                DTypeError,
                "one numeric dtype, got bool",
            ),
        ],
    ),
    Case(
        "ScatterAdd",
        scatter(1),
        [In((2, 5)), GRID, In((2, 4, 2), batch_axis=1)],
        added(1),
        label="columns",
    ),
    Case(
        "ScatterAdd",
        scatter(1),
        [X, In((2,), "int32", values=[1, 1]), In((8, 2, 3), batch_axis=0)],
        added(1),
        label="in each row",
    ),
    Case(
        "ScatterAdd",
        scatter(1),
        [X, In((2,), "int32", values=[1, 1]), In((8, 2, 3))],
        added(1),
        label="the operand sharded",
    ),
    Case(
        "ScatterAdd",
        scatter(1),
        [In((8, 5)), In((2,), "int32", values=[1, 4]), In((8, 2), batch_axis=0)],
        added(1),
        label="the updates sharded",
    ),
    Case("ScatterAdd", scatter(0), [X, ROWS, In((8, 5, 3), batch_axis=0)], added(0), label="batch"),
    Case("ScatterAdd", scatter(0), [TABLE, ROWS, In((8, 3))], added(0), label="indices sharded"),
    Case(
        "ScatterAdd",
        scatter(0, "clip"),
        [TABLE, OUTSIDE, In((4, 3), batch_axis=0)],
        added(0, "clip"),
        label="clip",
    ),
    Case(
        "ScatterAdd",
        scatter(0, "drop"),
        [TABLE, OUTSIDE, In((4, 3), batch_axis=0)],
        added(0, "drop"),
        label="drop",
    ),
    Case(
        "ScatterAdd",
        lambda x, i, u: ops.scatter_add(partial(x), i, u),
        [X, In((2,), "int32", values=[0, 0]), In((2, 3))],
        lambda x, i, u: added(0)(x.sum(0), i, u),
        label="into a partial sum",
    ),
    Case(
        "ScatterAdd",
        lambda x, i, u: ops.scatter_add(x, i, partial(u)),
        [TABLE, In((2,), "int32", values=[0, 0]), In((4, 2, 3), batch_axis=0)],
        lambda x, i, u: added(0)(x, i, u.sum(0)),
        label="of partial sums",
    ),
    Case(
        "ScatterAdd",
        lambda x, i: ops.scatter_add(x, i, 1),
        [In((5,)), ROWS],
        lambda x, i: x + np.bincount(i % 5, minlength=5),
        label="histogram",
    ),
)
