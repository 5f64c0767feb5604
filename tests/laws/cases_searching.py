"""Cases of graphc/ops/numpy_api/searching.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.numpy_api import searching as ops
from tests.laws.case import Bad, Case, In

REAL = ("uint8", "int32", "float16", "bfloat16", "float32", "float64")
ROW = In((5,), values=[0, 1, 1, 3, 7])
X = In((4, 3), values=[[0, 1, 2], [3, 7, 9], [1, 0, 8], [5, 7, 1]], batch_axis=0)
V, M = In((3,), "float32"), In((2, 3), "float32")

CASES = (
    *[
        Case(
            "SearchSorted",
            lambda x, v, side=side: ops.searchsorted(x, v, side),
            [ROW, X],
            lambda x, v, side=side: np.searchsorted(x, v, side).astype(np.int32),
            REAL,
            label=side,
            bad=[
                Bad(ops.searchsorted, [M, V], ShapeError, "x must be a vector"),
                Bad(ops.searchsorted, [V, In((2,), "complex64")], DTypeError, "real or bool"),
                Bad(
                    lambda x, v, side=side: ops.searchsorted(x, v, side[:2]),
                    [V, M],
                    AttributeValueError,
                    'must be "left" or "right"',
                ),
            ],
        )
        for side in ("left", "right")
    ],
    Case(
        "SearchSorted",
        ops.searchsorted,
        [
            In((5,), "float32", values=[-1.0, 0.0, 2.0, np.inf, np.nan]),
            In((3,), "float32", values=[np.nan, 5.0, -9.0]),
        ],
        lambda x, v: np.searchsorted(x, v).astype(np.int32),
        ("float32",),
        label="NaN comes last",
    ),
)
