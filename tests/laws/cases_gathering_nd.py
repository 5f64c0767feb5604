"""Cases of graphc/ops/arrays/gathering_nd.py, and of `x[i, j]`."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.arrays import gathering_nd as ops
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "uint8", "int32", "bfloat16", "float32", "float64", "complex64")
X = In((4, 3, 5), batch_axis=0)
PLAIN = In((4, 3, 5))
PAIRS = In((4, 2), "int32", values=[[0, 0], [3, 2], [-1, 1], [2, -3]], batch_axis=0)
ROWS = In((4, 2, 1), "int32", values=[[[0], [2]], [[1], [1]], [[-1], [0]], [[2], [-3]]],
          batch_axis=0)  # fmt: skip
OUTSIDE = In((4, 2), "int32", values=[[0, 3], [4, 0], [-5, 1], [1, 1]], batch_axis=0)
FEW = In((3,), "int32", values=[0, 2, -1])
J = In((2, 1), "int32", values=[[1], [-1]])
M, AT = In((4, 3), "float32"), In((2, 2), "int32")


def gather(**attrs):
    return lambda x, i: ops.gather_nd(x, i, **attrs)


def picked(x, i):
    return x[tuple(np.moveaxis(i, -1, 0))]


def in_step(x, i):
    return np.stack([picked(*pair) for pair in zip(x, i, strict=True)])


def inside(x, i):
    """Computes the indices of OUTSIDE by hand: one index out of range makes all of them invalid."""
    places = np.where(i < 0, i + x.shape[:2], i)
    valid = ((places >= 0) & (places < x.shape[:2])).all(-1)
    return np.clip(places, 0, np.array(x.shape[:2]) - 1), valid[:, None]


def index(*items):
    """`x[items]`, where the names "i" and "j" stand for i and j."""
    return lambda x, i, j=None: x[tuple(i if k == "i" else j if k == "j" else k for k in items)]


ALL_OF = slice(None)
CASES = (
    Case(
        "GatherNd",
        gather(),
        [PLAIN, PAIRS],
        picked,
        ALL,
        bad=[
            Bad(gather(), [M, M], DTypeError, "indices must be integers"),
            Bad(gather(), [M, In((4, 3), "bool")], DTypeError, "gc.extract"),
            Bad(gather(), [M, In((2, 3), "int32")], ShapeError, r"axes \(0, 1, 2\) are not axes"),
            Bad(gather(), [M, In((), "int32")], AttributeValueError, "known size, 1 or more"),
            Bad(gather(batch_dims=1), [M, In((2, 1), "int32")], ShapeError, "sizes of axis 0"),
            Bad(gather(mode="wrap"), [M, AT], AttributeValueError, '"clip", "fill" or "zero"'),
            Bad(lambda x, i: ops.gather_at(x, i, (1, 0)), [M, AT], AttributeValueError, "in order"),
            Bad(lambda x, i: ops.gather_at(x, i, (0,)), [M, AT], ShapeError, "each of 1 axes"),
            Bad(lambda x: x[[0, 9], [0, 0]], [M], ShapeError, "index 9 is out of range"),
        ],
    ),
    Case("GatherNd", gather(), [X, PAIRS], picked, label="both sharded"),
    Case("GatherNd", gather(batch_dims=1), [X, ROWS], in_step, label="a batch"),
    Case("GatherNd", gather(batch_dims=1), [PLAIN, ROWS], in_step, label="a batch of indices"),
    Case("GatherNd", gather(), [PLAIN, OUTSIDE],
         lambda x, i: picked(x, inside(x, i)[0]), label="clip"),
    Case("GatherNd", gather(mode="zero"), [PLAIN, OUTSIDE],
         lambda x, i: np.where(inside(x, i)[1], picked(x, inside(x, i)[0]), 0), label="zero"),
    Case("GatherNd", gather(mode="fill"), [PLAIN, OUTSIDE],
         lambda x, i: np.where(inside(x, i)[1], picked(x, inside(x, i)[0]), np.nan),
         gradient=False, label="fill"),
    Case("GatherNd", lambda x, i: ops.gather_nd(reduce_sum(x, axis=0), i),
         [X, In((2, 1), "int32", values=[[1], [1]])], lambda x, i: x.sum(0)[i[:, 0]],
         label="partial"),
    Case("GatherNd", lambda x, i: ops.gather_nd(x, i), [In((8, 2), "float64"),
         In((2, 2), "uint8", values=[[7, 1], [0, 0]])], picked, ("float64",), label="unsigned"),
    *[
        Case("GatherNd", index(*items), [X, FEW, J][: 3 if "j" in str(items) else 2],
             index(*items), label=f"getitem {n}")
        for n, items in enumerate(
            [
                ("i", "j"),
                (ALL_OF, "i", "j"),
                ("i", ALL_OF, "j"),
                (1, ALL_OF, "i"),
                ("i", None, "j", 0),
                ("i", slice(1, 3), "j"),
                (..., slice(None, None, -1), "i", "j"),
                ("i", "i", "i"),
                (ALL_OF, "i", ..., "j"),  # arrays that are apart
                (None, 1, ..., "i", 0),
            ]
        )
    ],
    Case(
        "GatherNd",
        lambda x: x[np.array([[True, False, True]] * 4)],
        [X],
        lambda x: x[np.array([[True, False, True]] * 4)],
        label="a known mask",
        bad=[
            Bad(lambda x: x[np.ones(3, bool)], [M], ShapeError, "a mask of size 3 along axis 0"),
            Bad(lambda x: x[[0, 1], [0, 1, 2]], [M], ShapeError, "do not broadcast together"),
        ],
    ),
)  # fmt: skip
