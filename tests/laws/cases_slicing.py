"""Cases of graphc/ops/arrays/slicing.py, of `pad`, and of `x[...]`."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.arrays import slicing as ops
from graphc.ops.arrays.padding import pad
from graphc.ops.arrays.subscript import getitem
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int4", "int32", "bfloat16", "float32", "float64", "complex64")
X = In((8, 6), batch_axis=0)
D = In((4, 5, 6), batch_axis=0)
M = In((8, 6), "float32")


def at(*index):
    """`x[index]`, for the builder and for NumPy."""
    return lambda x: x[index if len(index) != 1 else index[0]]


BASIC = (
    ("Slice", X, at(2)),
    ("Slice", X, at(-1, 2)),
    ("Slice", X, at(slice(2, 7, 2))),
    ("Slice", X, at(slice(None), slice(1, -1))),
    ("Slice", X, at(slice(2, 99), slice(-99, 2))),
    ("Slice", X, at(slice(5, 2))),
    ("Slice", X, at(..., 0)),
    ("Slice", D, at(0, ..., slice(None, None, 4))),
    ("Reshape", D, at(None, ..., None)),
    ("Slice", D, at(slice(None), 1, None, slice(1, 3))),
    ("Slice", D, at(1, 2, 3)),
    ("Slice", D, at(slice(None), np.int64(2))),
    ("Reverse", X, at(slice(None, None, -1))),
    ("Reverse", X, at(slice(None), slice(None, None, -1))),
    ("Reverse", X, at(slice(6, 1, -2), slice(-2, None, -3))),
    ("Reverse", X, at(slice(1, 6, -1), 0)),
)
PADS = (
    ([(0, 0, 0), (1, 2, 0)], "plain"),
    ([(1, 0, 0), (0, 0, 0)], "the batch"),
    ([(0, 0, 0), (0, 0, 2)], "interior"),
    ([(0, 0, 0), (-1, -2, 0)], "cut"),
    ([(-1, 3, 1), (2, -3, 2)], "all of it"),
    ([(0, 0, 0), (-9, 5, 0)], "all cut off"),
)


def padded(pads):
    """An oracle that shares no code with the fold: element by element."""

    def oracle(x, value):
        sizes = [
            low + high + n + (n - 1) * inner
            for n, (low, high, inner) in zip(x.shape, pads, strict=True)
        ]
        result = np.full(sizes, value)
        for index in np.ndindex(x.shape):
            to = [low + i * (inner + 1) for i, (low, _, inner) in zip(index, pads, strict=True)]
            if all(0 <= t < n for t, n in zip(to, sizes, strict=True)):
                result[tuple(to)] = x[index]
        return result

    return oracle


CASES = (
    Case(
        "Slice",
        lambda x: ops.slice_(x, (0, 1), (8, 6), (1, 2)),
        [X],
        lambda x: x[:, 1:6:2],
        ALL,
        bad=[
            Bad(lambda x: ops.slice_(x, (0, 0), (9, 6)), [M], ShapeError, "is not within axis 0"),
            Bad(lambda x: ops.slice_(x, (0, 4), (8, 3)), [M], ShapeError, "4:3:1 does not lie"),
            Bad(lambda x: ops.slice_(x, (0,), (8,)), [M], ShapeError, "each of the 2 axes"),
            Bad(lambda x: x[8], [M], ShapeError, "index 8 is out of range for axis 0 of size 8"),
            Bad(lambda x: x[0, 0, 0], [M], ShapeError, "3 indices for 2 axes"),
            Bad(lambda x: x[..., ...], [M], ShapeError, r"more than one '\.\.\.'"),
            Bad(lambda x: x[::0], [M], ShapeError, "not 0"),
            Bad(lambda x: x[1.5], [M], DTypeError, "must be an integer"),
            Bad(lambda x: x["a"], [M], DTypeError, "not numeric"),
            Bad(lambda x: x[True], [M], DTypeError, "mask"),
            Bad(lambda x: x[np.array(True)], [M], DTypeError, "must be an integer.*got bool"),
            Bad(lambda x: x[np.array(False), 0], [M], DTypeError, "got bool"),
            Bad(lambda x: x[np.zeros(0)], [M], DTypeError, "got float64"),
            Bad(lambda x, m: x[m], [M, In((8,), "bool")], DTypeError, "gc.where"),
            Bad(lambda x, i: x[i:], [M, In((), "int32")], ShapeError, "a bound of a slice"),
            Bad(lambda x: x[[9]], [M], ShapeError, "index 9 is out of range for size 8"),
        ],
    ),
    *[
        Case(op, index, [x], index, label=f"getitem {i}", dtypes=("float32", "float64", "int32"))
        for i, (op, x, index) in enumerate(BASIC)
        if op != "Slice" or i != 5
    ],
    Case(
        "Slice", at(slice(5, 2)), [X], at(slice(5, 2)), ("float32",), gradient=False, label="empty"
    ),
    Case(
        "Slice",
        lambda x: reduce_sum(x, axis=0)[1:-1],
        [X],
        lambda x: x.sum(0)[1:-1],
        label="partial",
    ),
    Case(
        "Take",
        lambda x, i: x[i],
        [X, In((3,), "int32", values=[7, 0, -1])],
        lambda x, i: x[i],
        label="getitem",
    ),
    Case(
        "Take",
        lambda x, i: getitem(x, (slice(1, 4), i, 2)),
        [D, In((2, 2), "int8", values=[[0, 1], [4, -5]])],
        lambda x, i: x[1:4, i, 2],
        label="getitem among others",
    ),
    Case("Take", lambda x: x[:, [2, 0, -1]], [X], lambda x: x[:, [2, 0, -1]], label="getitem list"),
    Case(
        "Take",
        lambda x, i: x[i],
        [X, In((), "int32", values=-3)],
        lambda x, i: x[i],
        label="getitem scalar",
    ),
    *[
        Case(
            "Pad",
            lambda x, value, pads=pads: ops.pad_with(x, value, pads),
            [X, In(())],
            padded(pads),
            ("int32", "bfloat16", "float32", "float64", "complex64"),
            label=label,
        )
        for pads, label in PADS
    ],
    Case(
        "Pad",
        lambda x: pad(x, ((0, 0), (1, 2)), constant_values=3),
        [X],
        lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=3),
        label="numpy",
        bad=[
            Bad(lambda x: pad(x, -1), [M], AttributeValueError, "negative width"),
            Bad(lambda x: pad(x, 1, "mean"), [M], AttributeValueError, "mode must be"),
            Bad(lambda x: pad(x, ((1, 1),) * 3), [M], AttributeValueError, "for 2 axes"),
            Bad(lambda x: pad(x, 1, constant_values=[0, 1]), [M], ShapeError, "a scalar"),
            Bad(lambda x: ops.pad_with(x, 0, [(-4, -5, 0), (0, 0, 0)]), [M], ShapeError, "cannot"),
            Bad(lambda x: ops.pad_with(x, 0, [(0, 0, 0)]), [M], ShapeError, "each of the 2 axes"),
        ],
    ),
    Case("Pad", lambda x: pad(x, 2), [X], lambda x: np.pad(x, 2), label="one number"),
    Case("Pad", lambda x: pad(x, (1, 0)), [X], lambda x: np.pad(x, (1, 0)), label="one pair"),
    Case(
        "Pad",
        lambda x: pad(reduce_sum(x, axis=0), 1, constant_values=5),
        [X],
        lambda x: np.pad(x.sum(0), 1, constant_values=5),
        label="partial",
    ),
    Case(
        "Reverse",
        lambda x: (ops.flip(x), ops.flip(x, 0), ops.flip(x, -1)),
        [X],
        lambda x: (np.flip(x), np.flip(x, 0), np.flip(x, -1)),
        ALL,
        bad=[Bad(lambda x: ops.flip(x, 2), [M], AttributeValueError, "axis 2 is out of range")],
    ),
    Case(
        "Reverse",
        lambda x: ops.flip(reduce_sum(x, axis=0)),
        [X],
        lambda x: np.flip(x.sum(0)),
        label="partial",
    ),
)
