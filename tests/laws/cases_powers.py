"""Cases of graphc/ops/elementwise/powers.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError
from graphc.ops.elementwise import powers as ops
from tests.laws.case import Bad, Case, In

NUMBERS = ("int32", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
INEXACT = NUMBERS[1:]

A = In((4, 3), batch_axis=0)
POSITIVE = In((4, 3), low=0.5, high=2.0, batch_axis=0)

CASES = (
    Case("Power", ops.power, [POSITIVE, A], np.power, dtypes=INEXACT, rtol=1e-4),
    Case("Power", ops.power, [POSITIVE, In((3,))], np.power, rtol=1e-4, label="row"),
    Case("Power", lambda y: ops.power(2.0, y), [A], lambda y: np.power(2.0, y), label="of 2"),
    Case(
        "Power",
        lambda x: ops.power(x, 1.7),
        [POSITIVE],
        lambda x: np.power(x, 1.7),
        rtol=1e-4,
        label="constant fraction",
    ),
    Case(
        "Power",
        ops.power,
        [In((4,), low=-4, high=4, batch_axis=0), In((4,), low=0, high=4, batch_axis=0)],
        np.power,
        dtypes=("int32",),
        gradient=False,
        label="integers",
        bad=[
            Bad(
                lambda x: ops.power(x, -2),
                [In((2,), "int32")],
                AttributeValueError,
                "integers cannot be raised to the negative power -2",
            ),
            Bad(
                ops.power,
                [In((2,), "bool"), In((2,), "bool")],
                DTypeError,
                "must be numeric, got bool",
            ),
        ],
    ),
    Case("IntegerPower", lambda x: x**3, [A], lambda x: x**3, dtypes=NUMBERS),
    Case("IntegerPower", lambda x: x**-3, [POSITIVE], lambda x: x**-3.0, dtypes=INEXACT),
    Case("IntegerPower", lambda x: x**4.0, [A], lambda x: x**4, dtypes=INEXACT, label="float"),
    Case("IntegerPower", lambda x: x**1, [A], lambda x: x, label="1"),
    Case("IntegerPower", lambda x: x**0 * x, [A], lambda x: x, label="0"),
    Case("Square", ops.square, [A], np.square, dtypes=NUMBERS),
    Case("Square", lambda x: x**2, [A], np.square, label="by **"),
    Case("Sqrt", ops.sqrt, [POSITIVE], np.sqrt, dtypes=INEXACT),
    Case("Sqrt", lambda x: x**0.5, [POSITIVE], np.sqrt, label="by **"),
    Case(
        "Sqrt",
        ops.sqrt,
        [In((4,), low=0, high=9, batch_axis=0)],
        lambda x: np.sqrt(x).astype(np.float32),
        dtypes=("int32",),
        gradient=False,
        label="integers",
    ),
    Case("Rsqrt", ops.rsqrt, [POSITIVE], lambda x: 1 / np.sqrt(x), dtypes=INEXACT),
    Case("Rsqrt", lambda x: x**-0.5, [POSITIVE], lambda x: 1 / np.sqrt(x), label="by **"),
    Case("Reciprocal", ops.reciprocal, [POSITIVE], lambda x: 1 / x, dtypes=INEXACT),
    Case("Reciprocal", lambda x: x**-1, [POSITIVE], lambda x: 1 / x, label="by **"),
)
