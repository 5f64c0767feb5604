"""Cases of graphc/ops/elementwise/arithmetic.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.elementwise import arithmetic as ops
from tests.laws.case import Bad, Case, In

ALL = ("int32", "uint8", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
NUMBERS = ("int32", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
REAL = ("int32", "float16", "bfloat16", "float32", "float64")
INEXACT = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")

A = In((4, 3), batch_axis=0)
ROW = In((3,))
COLUMN = In((4, 1), batch_axis=0)
FAR_FROM_ZERO = In((4, 3), low=0.5, high=2.0, batch_axis=0)
DISTINCT = In((4, 3), batch_axis=0, distinct=True)
FLAGS = In((4, 3), values=[[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0]], batch_axis=0)

CASES = (
    Case(
        "Add",
        ops.add,
        [A, A],
        np.add,
        dtypes=ALL,
        bad=[
            Bad(ops.add, [In((4, 3), "float32"), In((5,), "float32")], ShapeError, "3 against 5"),
            Bad(lambda x: ops.add(x, "a"), [In((3,), "float32")], DTypeError, "not numeric"),
        ],
    ),
    Case("Add", ops.add, [A, ROW], np.add, label="row"),
    Case("Add", ops.add, [ROW, A], np.add, label="row first"),
    Case("Add", lambda x: 1 + x, [A], lambda x: x + 1, dtypes=NUMBERS, label="scalar"),
    Case("Add", ops.add, [A, In((), grad=True)], np.add, label="rank 0"),
    Case("Add", ops.add, [FLAGS, FLAGS], np.add, dtypes=("bool",), gradient=False, label="bool"),
    Case(
        "Subtract",
        ops.subtract,
        [A, A],
        np.subtract,
        dtypes=NUMBERS,
        bad=[
            Bad(
                ops.subtract,
                [In((2,), "bool"), In((2,), "bool")],
                DTypeError,
                "Subtract: x must be numeric, got bool",
            )
        ],
    ),
    Case("Subtract", ops.subtract, [ROW, COLUMN], np.subtract, label="outer"),
    Case("Subtract", lambda x: 2.5 - x, [A], lambda x: 2.5 - x, label="from a scalar"),
    Case("Multiply", ops.multiply, [A, A], np.multiply, dtypes=ALL),
    Case("Multiply", ops.multiply, [COLUMN, In((1, 3))], np.multiply, label="outer"),
    Case(
        "Multiply",
        ops.multiply,
        [FLAGS, FLAGS],
        np.multiply,
        dtypes=("bool",),
        gradient=False,
        label="bool",
    ),
    Case(
        "Divide",
        ops.divide,
        [A, FAR_FROM_ZERO],
        np.divide,
        dtypes=INEXACT,
        bad=[
            Bad(
                ops.divide,
                [In((4, 3), "float32"), In((4, 2), "float32")],
                ShapeError,
                "do not broadcast together: 3 against 2",
            )
        ],
    ),
    Case("Divide", ops.divide, [ROW, FAR_FROM_ZERO], np.divide, label="row"),
    Case(
        "Divide",
        ops.divide,
        [In((4,), low=-9, high=9, batch_axis=0), In((4,), low=1, high=9, batch_axis=0)],
        lambda x, y: np.divide(x, y).astype(np.float32),
        dtypes=("int32", "uint8"),
        gradient=False,
        label="integers",
    ),
    Case(
        "FloorDivide",
        ops.floor_divide,
        [In((4, 3), low=-9, high=9, batch_axis=0), In((4, 3), low=1, high=4, batch_axis=0)],
        np.floor_divide,
        dtypes=("int32", "float32", "float64"),
        gradient=False,
    ),
    Case(
        "FloorDivide",
        ops.floor_divide,
        [In((4, 3), low=-9, high=9, batch_axis=0), In((3,), values=[-2, 3, -4])],
        np.floor_divide,
        dtypes=("int32", "float64"),
        gradient=False,
        label="negative divisors",
    ),
    Case(
        "Remainder",
        ops.remainder,
        [In((4, 3), low=-9, high=9, batch_axis=0), In((4, 3), low=2, high=4, batch_axis=0)],
        np.remainder,
        dtypes=("int32", "float32", "float64"),
        bad=[
            Bad(
                ops.remainder,
                [In((2,), "complex64"), In((2,), "complex64")],
                DTypeError,
                "must be integer or floating, got complex64",
            )
        ],
    ),
    Case(
        "Remainder",
        ops.remainder,
        [In((4, 3), low=-9, high=9, batch_axis=0), In((3,), values=[-2.5, 3.25, -4.0])],
        np.remainder,
        label="of the divisor's sign",
    ),
    Case("Maximum", ops.maximum, [DISTINCT, In((3,), values=[0.5, -0.25, 0.0])], np.maximum),
    Case("Maximum", ops.maximum, [A, A], np.maximum, dtypes=REAL, gradient=False, label="dtypes"),
    Case(
        "Maximum",
        ops.maximum,
        [FLAGS, FLAGS],
        np.maximum,
        dtypes=("bool",),
        gradient=False,
        label="bool",
    ),
    Case(
        "Minimum",
        ops.minimum,
        [DISTINCT, In((3,), values=[0.5, -0.25, 0.0])],
        np.minimum,
        bad=[
            Bad(
                ops.minimum,
                [In((2,), "complex64"), In((2,), "complex64")],
                DTypeError,
                "must be real or bool",
            )
        ],
    ),
    Case("Minimum", ops.minimum, [A, A], np.minimum, dtypes=REAL, gradient=False, label="dtypes"),
    Case(
        "Clip",
        ops.clip,
        [DISTINCT, In((), values=-0.505), In((), values=1.005)],
        np.clip,
        bad=[Bad(ops.clip, [In((2,), "float32")], AttributeValueError, "give lo, hi or both")],
    ),
    Case(
        "Clip",
        ops.clip,
        [DISTINCT, In((3,), values=[-1.005, -0.505, 0.005]), In((4, 1), values=[[1.005]] * 4)],
        np.clip,
        label="bounds with axes",
    ),
    Case(
        "Clip",
        lambda x: ops.clip(x, -1, 1),
        [In((4, 3), batch_axis=0)],
        lambda x: np.clip(x, -1, 1),
        dtypes=REAL,
        gradient=False,
        label="dtypes",
    ),
    Case("Clip", lambda x: ops.clip(x, lo=0), [DISTINCT], lambda x: np.maximum(x, 0), label="lo"),
    Case("Clip", lambda x: ops.clip(x, hi=0), [DISTINCT], lambda x: np.minimum(x, 0), label="hi"),
    Case("Negative", ops.negative, [A], np.negative, dtypes=NUMBERS),
    Case("Abs", ops.absolute, [A], np.abs, dtypes=ALL),
    Case("Abs", ops.absolute, [FLAGS], np.abs, dtypes=("bool",), gradient=False, label="bool"),
    Case("Sign", ops.sign, [A], np.sign, dtypes=NUMBERS, gradient=False),
)
