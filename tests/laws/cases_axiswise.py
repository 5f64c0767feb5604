"""Cases of graphc/ops/axiswise.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops import axiswise as ops
from tests.laws.case import Bad, Case, In

NUMBERS = ("int32", "float32", "float64", "complex64")
REAL = ("bool", "int32", "float16", "bfloat16", "float32", "float64")
A = In((4, 3, 2), batch_axis=0)
DISTINCT = In((4, 3, 2), batch_axis=0, distinct=True)


def table(op, function, oracle):
    return tuple(
        Case(
            op,
            lambda x, axis=axis: function(x, axis),
            [DISTINCT],
            lambda x, axis=axis: oracle(x, axis).astype(np.int32),
            gradient=False,
            label=f"axis {axis}",
        )
        for axis in (None, 0, 1, -1)
    )


CASES = (
    *table("ArgMax", ops.argmax, np.argmax),
    *table("ArgMin", ops.argmin, np.argmin),
    Case(
        "ArgMax",
        lambda x: ops.argmax(x, 1, dtype="int64"),
        [In((4, 3), values=[[0, 1, 1], [1, 0, 1], [0, 0, 0], [0, 0, 1]], batch_axis=0)],
        lambda x: np.argmax(x, 1),
        dtypes=REAL,
        gradient=False,
        label="the first of equal ones",
        bad=[
            Bad(
                lambda x: ops.argmax(x, 1),
                [In((3,), "float32")],
                AttributeValueError,
                "ArgMax: axis 1 is out of range for rank 1",
            ),
            Bad(
                lambda x: ops.argmax(x, 0),
                [In((3,), "complex64")],
                DTypeError,
                "must be real or bool",
            ),
            Bad(lambda x: ops.argmax(x, 0), [In((0, 3), "float32")], ShapeError, "no elements"),
            Bad(
                lambda x: ops.argmax(x, 0, dtype="float32"),
                [In((3,), "float32")],
                AttributeValueError,
                "dtype must be an integer dtype",
            ),
        ],
    ),
    Case("CumSum", lambda x: ops.cumsum(x, 0), [A], lambda x: np.cumsum(x, 0), dtypes=NUMBERS),
    Case("CumSum", lambda x: ops.cumsum(x, -1), [A], lambda x: np.cumsum(x, -1), label="last"),
    Case("CumSum", ops.cumsum, [A], np.cumsum, label="flat"),
    Case(
        "CumSum",
        lambda x: ops.cumsum(x, 1, reverse=True),
        [A],
        lambda x: np.flip(np.cumsum(np.flip(x, 1), 1), 1),
        label="reverse",
    ),
    Case(
        "CumSum",
        lambda x: ops.cumsum(x, 0),
        [In((4,), values=[1, 0, 1, 1], batch_axis=0)],
        lambda x: np.cumsum(x, dtype=np.int32),
        dtypes=("bool",),
        gradient=False,
        label="bool",
        bad=[
            Bad(
                lambda x: ops.cumsum(x, 2),
                [In((2, 2), "float32")],
                AttributeValueError,
                "CumSum: axis 2 is out of range",
            )
        ],
    ),
)
