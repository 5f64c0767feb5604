"""Cases of graphc/ops/arrays/unique_rows.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.arrays import unique_rows as ops
from tests.laws.case import Bad, Case, In

SIZE = 6
MANY = In((8,), "int32", values=[3, 0, -1, 3, 9, -7, 5, 0], batch_axis=0)
GRID = In((4, 2), "int8", values=[[1, 5], [1, -6], [2, 2], [7, -9]], batch_axis=0)
UNSIGNED = In((4,), "uint32", values=[4, 2**32 - 1, 4, 0], batch_axis=0)
WIDE = In((4,), "int64", values=[2, -(2**40), 2**40, -1], batch_axis=0)
ONE = In((), "int32", values=-2)
F = In((4,), "float32")


def unique(clipped, size=SIZE):
    return lambda *indices: ops.unique_rows(*indices, size=size, clipped=clipped)


def found(clipped, size):
    """Searches index by index, in Python."""

    def row(index, clip):
        index = index + size if index < 0 else index
        if clip:
            return min(max(index, 0), size - 1)
        return index if 0 <= index < size else size

    def oracle(*indices):
        rows = [[row(int(i), k < clipped) for i in x.ravel()] for k, x in enumerate(indices)]
        every = [r for each in rows for r in each]
        named = [r if r < size and every.index(r) == j else size + j for j, r in enumerate(every)]
        places = [
            np.array([every.index(r) if r < size else len(every) for r in each]).reshape(x.shape)
            for each, x in zip(rows, indices, strict=True)
        ]
        return np.array(named, np.int32), *(np.asarray(p, np.int32) for p in places)

    return oracle


def case(label, clipped, inputs, bad=(), size=SIZE):
    return Case(
        "UniqueRows",
        unique(clipped, size),
        inputs,
        found(clipped, size),
        ("int32",),
        gradient=False,
        label=label,
        bad=bad,
    )


CASES: tuple[Case, ...] = (
    case(
        "out of range counts nowhere",
        0,
        [MANY],
        bad=[
            Bad(unique(0), [F], DTypeError, "must be integers, got float32"),
            Bad(unique(2), [ONE], ShapeError, "2 of 1 indices cannot be clipped"),
            Bad(lambda i: ops.unique_rows(i, size=0), [ONE], ShapeError, "there must be a row"),
            Bad(lambda i: ops.unique_rows(i, size=2**31 - 1), [ONE], ShapeError, "fit into int32"),
            Bad(
                lambda i: ops.unique_rows(i, size=3, clipped=-1),
                [ONE],
                AttributeValueError,
                "negative",
            ),
        ],
    ),
    case("out of range is the nearest", 1, [MANY]),
    case("several, of any shape", 1, [GRID, MANY, ONE]),
    case("unsigned", 0, [UNSIGNED]),
    case("unsigned, the nearest", 1, [UNSIGNED, MANY]),
    case("64 bits", 1, [WIDE, WIDE]),
    case("of so many rows that lookups are sorted", 0, [MANY, GRID, ONE], size=5000),
    case("of so many rows, the nearest", 2, [GRID, MANY], size=5000),
)
