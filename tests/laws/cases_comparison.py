"""Cases of graphc/ops/elementwise/comparison.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.elementwise import comparison as ops
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int32", "float16", "bfloat16", "float32", "float64", "complex64")
REAL = ALL[:-1]

# Few different values, so that some are equal.
X = In((4, 3), values=[[0, 1, 2], [2, 1, 0], [1, 1, 1], [0, 0, 2]], batch_axis=0)
Y = In((4, 3), values=[[0, 2, 1], [2, 1, 1], [0, 1, 2], [0, 1, 0]], batch_axis=0)
ROW = In((3,), values=[0, 1, 2])
ODD = In((4, 2), values=[[0, np.inf], [np.nan, 1], [-np.inf, 2], [3, np.nan]], batch_axis=0)
LOGICAL = ("bool", "int32", "uint8")


def table(op, function, oracle, dtypes):
    return (
        Case(op, function, [X, Y], oracle, dtypes=dtypes, gradient=False),
        Case(op, function, [X, ROW], oracle, dtypes=("int32",), gradient=False, label="row"),
        Case(op, function, [In((4, 1), values=[[0], [1], [2], [1]], batch_axis=0), ROW], oracle,
             dtypes=("int32",), gradient=False, label="outer"),
    )  # fmt: skip


CASES = (
    *table("Equal", ops.equal, np.equal, ALL),
    *table("NotEqual", ops.not_equal, np.not_equal, ALL),
    *table("Less", ops.less, np.less, REAL),
    *table("LessEqual", ops.less_equal, np.less_equal, REAL),
    *table("Greater", ops.greater, np.greater, REAL),
    *table("GreaterEqual", ops.greater_equal, np.greater_equal, REAL),
    Case(
        "Less",
        lambda x: x < 1.5,
        [In((4,), values=[0, 1, 2, 3], batch_axis=0)],
        lambda x: x < 1.5,
        dtypes=("int32",),
        gradient=False,
        label="integers against a float",
        bad=[
            Bad(ops.less, [In((2,), "complex64")] * 2, DTypeError, "Less: x must be real or bool"),
            Bad(
                ops.less, [In((2,), "float32"), In((3,), "float32")], ShapeError, "do not broadcast"
            ),
        ],
    ),
    *table("LogicalAnd", ops.logical_and, np.bitwise_and, ("bool", "int32", "uint8")),
    *table("LogicalOr", ops.logical_or, np.bitwise_or, ("bool", "int32", "uint8")),
    *table("LogicalXor", ops.logical_xor, np.bitwise_xor, ("bool", "int32", "uint8")),
    Case("LogicalNot", ops.logical_not, [X], np.invert, dtypes=LOGICAL, gradient=False),
    Case(
        "LogicalAnd",
        lambda x, y: (x & y) | ~x,
        [X, Y],
        lambda x, y: (x & y) | ~x,
        dtypes=LOGICAL,
        gradient=False,
        label="Python's operators",
        bad=[
            Bad(
                ops.logical_and,
                [In((2,), "float32")] * 2,
                DTypeError,
                r"x must be bool or integer, got float32",
            )
        ],
    ),
    Case(
        "Where",
        ops.where,
        [
            In((4, 3), "bool", values=[[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0]], batch_axis=0),
            In((4, 3), batch_axis=0),
            In((4, 3), batch_axis=0),
        ],
        np.where,
        dtypes=ALL,
        bad=[
            Bad(
                ops.where,
                [In((4,), "bool"), In((4,), "float32"), In((3,), "float32")],
                ShapeError,
                "Where: shapes",
            )
        ],
    ),
    Case(
        "Where",
        ops.where,
        [
            In((4, 1), "bool", values=[[1], [0], [1], [0]], batch_axis=0),
            In((3,)),
            In((4, 3), batch_axis=0),
        ],
        np.where,
        label="broadcast",
    ),
    Case(
        "Where",
        ops.where,
        [In((), "bool", values=True), In((4, 3), batch_axis=0), In((4, 1), batch_axis=0)],
        np.where,
        label="one condition",
    ),
    Case(
        "Where",
        lambda x, y: ops.where(x, y, 0.0),
        [In((4,), "int32", values=[0, 1, 2, 0], batch_axis=0), In((4,), batch_axis=0)],
        lambda x, y: np.where(x, y, np.zeros_like(y)),
        label="a condition of integers, a scalar",
    ),
    Case(
        "IsFinite",
        ops.isfinite,
        [ODD],
        np.isfinite,
        dtypes=("float16", "bfloat16", "float32", "float64", "complex64"),
        gradient=False,
    ),
    Case(
        "IsNan",
        ops.isnan,
        [ODD],
        np.isnan,
        dtypes=("float16", "bfloat16", "float32", "float64", "complex64"),
        gradient=False,
    ),
    Case("IsFinite", ops.isfinite, [X], np.isfinite, dtypes=("bool", "int32"), gradient=False),
    Case("IsNan", ops.isnan, [X], np.isnan, dtypes=("bool", "int32"), gradient=False),
)
