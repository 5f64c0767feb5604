"""Cases of graphc/ops/reductions/axiswise.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.reductions import axiswise as ops
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


def along(accumulate, x, axis, reverse=False):
    """`accumulate` as the operators apply it: over all elements, or from the end."""
    if axis is None:
        return accumulate(x.ravel(), 0)
    return np.flip(accumulate(np.flip(x, axis), axis), axis) if reverse else accumulate(x, axis)


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
    *(
        Case(
            op,
            lambda x, function=function, options=options: function(x, **options),
            [DISTINCT],
            lambda x, oracle=oracle, options=options: along(oracle, x, **options),
            dtypes=dtypes if options == {"axis": 1} else ("float64",),
            label=str(options),
        )
        for op, function, oracle, dtypes in (
            ("CumProd", ops.cumprod, np.cumprod, NUMBERS),
            ("CumMax", ops.cummax, np.maximum.accumulate, REAL[1:]),
            ("CumMin", ops.cummin, np.minimum.accumulate, REAL[1:]),
            ("CumLogSumExp", ops.cumlogsumexp, np.logaddexp.accumulate, REAL[2:]),
        )
        for options in ({"axis": 1}, {"axis": 0, "reverse": True}, {"axis": None})
    ),
    Case(
        "CumProd",
        lambda x: ops.cumprod(x, 0),
        [In((5,), values=[2.0, 0.0, 3.0, 0.0, 4.0])],
        lambda x: np.cumprod(x),
        dtypes=("float64",),
        label="with zeros",
        bad=[
            Bad(
                lambda x, function=function: function(x, 0),
                [In((3,), "complex64")],
                DTypeError,
                words,
            )
            for function, words in (
                (ops.cummax, "CumMax: x must be integer or floating"),
                (ops.cumlogsumexp, "CumLogSumExp: x must be floating"),
            )
        ],
    ),
    Case(
        "CumLogSumExp",
        lambda x: ops.cumlogsumexp(x, 0),
        [In((4,), "float64", values=[-800.0, 900.0, 901.0, -1000.0])],
        np.logaddexp.accumulate,
        dtypes=("float64",),
        label="without overflow",
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
