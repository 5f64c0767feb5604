"""Cases of graphc/ops/arrays/creation.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.arrays import creation as ops
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int32", "bfloat16", "float32", "float64", "complex64")
A = In((4, 3), batch_axis=0)
ROW = In((4,), "float32", batch_axis=0)


CASES = (
    Case(
        "Iota",
        lambda: (
            ops.iota((2, 3), 1),
            ops.iota((4,), 0, "bfloat16"),
            ops.iota((2, 3, 4), -2, "float32"),
            ops.iota((300,), dtype="uint8"),
        ),
        [],
        lambda: (
            np.indices((2, 3))[1],
            np.arange(4),
            np.indices((2, 3, 4))[1],
            np.arange(300).astype(np.uint8),
        ),
        ("float32",),
        bad=[
            Bad(lambda: ops.iota((2, 3), 2), [], ShapeError, "axis 2 is out of range"),
            Bad(lambda: ops.iota((2,), 0, "bool"), [], DTypeError, "must be numeric"),
            Bad(lambda: ops.arange("a"), [], AttributeValueError, "must be an int"),
            Bad(lambda: ops.arange(0, 4, 0), [], AttributeValueError, "not 0"),
        ],
    ),
    Case(
        "Iota",
        lambda: tuple(
            ops.arange(*bounds) for bounds in ((5,), (2, 7), (7, 2, -2), (0, 9, 4), (3, 1))
        ),
        [],
        lambda: (
            np.arange(5),
            np.arange(2, 7),
            np.arange(7, 2, -2),
            np.arange(0, 9, 4),
            np.arange(3, 1),
        ),
        ("float32",),
        label="arange",
    ),
    Case(
        "BroadcastTo",
        lambda x: (x, ops.zeros_like(x), ops.ones_like(x), ops.full_like(x, 1, "int32")),
        [A],
        lambda x: (x, np.zeros_like(x), np.ones_like(x), np.ones(x.shape)),
        ALL,
        gradient=False,
        label="like",
    ),
    Case(
        "BroadcastTo",
        lambda: (ops.zeros((2, 3)), ops.ones(()), ops.full((2,), 7), ops.full((2,), 7, "float64")),
        [],
        lambda: (np.zeros((2, 3)), np.ones(()), np.full(2, 7), np.full(2, 7.0)),
        ("float32",),
        gradient=False,
        label="filled",
        bad=[
            Bad(lambda: ops.zeros((-1, 2)), [], AttributeValueError, "none negative"),
            Bad(lambda x: ops.full((2,), x), [ROW], ShapeError, "does not broadcast"),
        ],
    ),
    Case(
        "BroadcastTo",
        lambda x: ops.full((2, 4), x),
        [In((4,), batch_axis=0)],
        lambda x: np.broadcast_to(x, (2, 4)),
        label="full of a tensor",
    ),
)
