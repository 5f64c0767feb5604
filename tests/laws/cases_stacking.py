"""Cases of graphc/ops/arrays/stacking.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, ShapeError
from graphc.ops.arrays import stacking as ops
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int4", "int32", "bfloat16", "float32", "float64", "complex64")
A = In((4, 3), batch_axis=0)
M, N = In((4, 3), "float32"), In((4, 2), "float32")


CASES = (
    Case(
        "Stack",
        lambda *xs: ops.stack(xs),
        [A, A],
        lambda *xs: np.stack(xs),
        ALL,
        bad=[
            Bad(lambda *xs: ops.stack(xs), [M, N], ShapeError, "only tensors of one shape"),
            Bad(lambda *xs: ops.stack(xs, 3), [M, M], AttributeValueError, "axis 3 is out of"),
            Bad(lambda *xs: ops.stack(xs), [M, In((3,), "float32")], ShapeError, "ranks 2, 1"),
            Bad(lambda: ops.stack([]), [], AttributeValueError, "one or more"),
            Bad(lambda x: ops.stack(x), [M], AttributeValueError, "a list of tensors"),
        ],
    ),
    Case("Stack", lambda *xs: ops.stack(xs, -1), [A, A, A], lambda *xs: np.stack(xs, -1)),
    Case(
        "Stack",
        lambda a, b: ops.stack([reduce_sum(a, axis=0), reduce_sum(b, axis=0)], 1),
        [A, A],
        lambda a, b: np.stack([a.sum(0), b.sum(0)], 1),
        label="partial",
    ),
    Case(
        "Stack",
        lambda a: ops.stack([a, np.ones((4, 3), np.int8)], 1),
        [A],
        lambda a: np.stack([a, np.ones((4, 3))], 1),
        dtypes=("float64",),
        label="sharded and not, promoted",
    ),
    Case(
        "Unstack",
        lambda x: ops.unstack(x, 1),
        [A],
        lambda x: tuple(x.T),
        ALL,
        bad=[
            Bad(lambda x: ops.unstack(x, 2), [M], AttributeValueError, "axis 2 is out of range"),
        ],
    ),
    Case("Unstack", lambda x: ops.unstack(x), [In((3, 2))], lambda x: tuple(x), label="first"),
    Case(
        "Unstack",
        lambda x: ops.unstack(reduce_sum(x, axis=0)),
        [A],
        lambda x: tuple(x.sum(0)),
        label="partial",
    ),
)
