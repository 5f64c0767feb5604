"""Cases of graphc/ops/arrays/dynamic_slicing.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.arrays.dynamic_slicing import dynamic_slice, dynamic_update_slice
from tests.laws.case import Bad, Case, In

ANY = ("bool", "int32", "bfloat16", "float32", "float64", "complex64")
X = In((4, 5), batch_axis=0)
# Inside, from the end, and out of range on either side: such starts are clamped.
STARTS = ((1, 2), (0, -2), (0, 7), (-9, 0))


def start(value):
    return In((), "int32", values=value)


def window(x, starts, sizes):
    lows = [
        min(max(int(s) + (n if s < 0 else 0), 0), n - size)
        for s, n, size in zip(starts, x.shape, sizes, strict=True)
    ]
    return tuple(slice(low, low + size) for low, size in zip(lows, sizes, strict=True))


def updated(x, update, *starts):
    result = x.copy()
    result[window(x, starts, update.shape)] = update
    return result


CASES = (
    *(
        Case(
            "DynamicSlice",
            lambda x, i, j: dynamic_slice(x, (i, j), (2, 3)),
            [X, start(i), start(j)],
            lambda x, i, j: x[window(x, (i, j), (2, 3))],
            dtypes=ANY if i == 1 else ("float64",),
            label=f"at {i}, {j}",
        )
        for i, j in STARTS
    ),
    Case(
        "DynamicSlice",
        lambda x, j: dynamic_slice(x, (0, j), (4, 2)),
        [X, start(1)],
        lambda x, j: x[:, 1:3],
        label="the batch whole",
        bad=[
            Bad(
                lambda x: dynamic_slice(x, (0, 0), (2, 6)),
                [In((4, 5))],
                ShapeError,
                "DynamicSlice: a window of 6 does not lie in axis 1, of size 5",
            ),
            Bad(
                lambda x: dynamic_slice(x, (0,), (2,)),
                [In((4, 5))],
                ShapeError,
                "needs a start and a size for each of the 2 axes",
            ),
            Bad(
                lambda x: dynamic_slice(x, (0, 0.5), (2, 2)),
                [In((4, 5))],
                DTypeError,
                "starts are float32",
            ),
            Bad(
                lambda x, i: dynamic_slice(x, i, (2,)),
                [In((4,)), In((1,), "int32", values=[0])],
                ShapeError,
                "must be a sequence of scalars",
            ),
            Bad(
                lambda x, i: dynamic_slice(x, (i,), (2,)),
                [In((4,)), In((1,), "int32", values=[0])],
                ShapeError,
                "a start must be a scalar",
            ),
        ],
    ),
    *(
        Case(
            "DynamicUpdateSlice",
            lambda x, update, i, j: dynamic_update_slice(x, update, (i, j)),
            [X, In((2, 3)), start(i), start(j)],
            updated,
            dtypes=ANY if i == 1 else ("float64",),
            label=f"at {i}, {j}",
        )
        for i, j in STARTS
    ),
    Case(
        "DynamicUpdateSlice",
        lambda x, update, j: dynamic_update_slice(x, update, (0, j)),
        [X, In((4, 2), batch_axis=0), start(np.int32(1))],
        lambda x, update, j: updated(x, update, 0, j),
        label="the batch whole",
        bad=[
            Bad(
                lambda x, update: dynamic_update_slice(x, update, (0, 0)),
                [In((4, 5)), In((5, 5))],
                ShapeError,
                "DynamicUpdateSlice: a window of 5 does not lie in axis 0, of size 4",
            ),
        ],
    ),
)
