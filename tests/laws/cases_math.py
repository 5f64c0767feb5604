"""Cases of graphc/ops/elementwise/transcendental.py."""

from __future__ import annotations

import numpy as np
from scipy import special

from graphc.errors import DTypeError
from graphc.ops.elementwise import transcendental as ops
from tests.laws.case import Bad, Case, In

FLOATING = ("float16", "bfloat16", "float32", "float64")
INEXACT = (*FLOATING, "complex64", "complex128")

A = In((4, 3), batch_axis=0)
POSITIVE = In((4, 3), low=0.25, high=3.0, batch_axis=0)
UNIT = In((4, 3), low=-0.9, high=0.9, batch_axis=0)


def softplus(x):
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


CASES = (
    Case("Exp", ops.exp, [A], np.exp, dtypes=INEXACT),
    Case(
        "Exp",
        ops.exp,
        [In((4,), batch_axis=0)],
        lambda x: np.exp(x).astype(np.float32),
        dtypes=("int32",),
        gradient=False,
        label="integers",
    ),
    Case("Expm1", ops.expm1, [A], np.expm1, dtypes=INEXACT),
    Case("Expm1", ops.expm1, [In((4,), low=-1e-6, high=1e-6)], np.expm1, label="near 0"),
    Case("Log", ops.log, [POSITIVE], np.log, dtypes=INEXACT),
    Case("Log1p", ops.log1p, [UNIT], np.log1p, dtypes=INEXACT),
    Case("Sin", ops.sin, [A], np.sin, dtypes=INEXACT),
    Case("Cos", ops.cos, [A], np.cos, dtypes=INEXACT),
    Case("Tan", ops.tan, [UNIT], np.tan, dtypes=INEXACT),
    Case("Asin", ops.asin, [UNIT], np.arcsin, dtypes=INEXACT),
    Case("Acos", ops.acos, [UNIT], np.arccos, dtypes=INEXACT),
    Case("Atan", ops.atan, [UNIT], np.arctan, dtypes=INEXACT),
    Case(
        "Atan2",
        ops.atan2,
        [A, POSITIVE],
        np.arctan2,
        dtypes=FLOATING,
        bad=[
            Bad(
                ops.atan2,
                [In((2,), "complex64")] * 2,
                DTypeError,
                "Atan2: y must be floating, got complex64",
            )
        ],
    ),
    Case("Atan2", ops.atan2, [A, In((3,), values=[-1.5, -0.5, 2.0])], np.arctan2, label="row"),
    Case("Asinh", ops.asinh, [A], np.arcsinh, dtypes=INEXACT),
    Case("Acosh", ops.acosh, [In((4, 3), low=1.2, high=3.0, batch_axis=0)], np.arccosh),
    Case("Atanh", ops.atanh, [UNIT], np.arctanh, dtypes=INEXACT),
    Case("Sinh", ops.sinh, [A], np.sinh, dtypes=INEXACT),
    Case("Cosh", ops.cosh, [A], np.cosh, dtypes=INEXACT),
    Case("Tanh", ops.tanh, [A], np.tanh, dtypes=INEXACT),
    Case("Sigmoid", ops.sigmoid, [A], lambda x: 1 / (1 + np.exp(-x)), dtypes=INEXACT),
    Case(
        "Erf",
        ops.erf,
        [A],
        special.erf,
        dtypes=FLOATING,
        bad=[Bad(ops.erf, [In((2,), "complex64")], DTypeError, "Erf: x must be floating")],
    ),
    Case("Erfc", ops.erfc, [A], special.erfc, dtypes=FLOATING),
    Case("Erfc", ops.erfc, [In((4,), low=3.0, high=5.0)], special.erfc, atol=0, label="far out"),
    Case("ErfInv", ops.erfinv, [UNIT], special.erfinv),
    Case("Softplus", ops.softplus, [A], softplus, dtypes=FLOATING),
    Case(
        "Softplus",
        ops.softplus,
        [In((4,), values=[-60.0, -8.0, 8.0, 60.0], batch_axis=0)],
        softplus,
        label="far from 0",
    ),
)
