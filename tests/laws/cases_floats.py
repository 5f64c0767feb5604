"""Cases of graphc/ops/elementwise/floats.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError
from graphc.ops.elementwise import floats as ops
from tests.laws.case import Bad, Case, In

FLOATING = ("float16", "bfloat16", "float32", "float64")
REAL = ("int32", *FLOATING)
A = In((4, 3), batch_axis=0)
AWAY = In((4, 3), low=0.4, high=2.0, batch_axis=0)
ROW = In((3,), values=[-1.5, 1.25, 2.0])
SIGNS = In((4,), values=[-0.0, 0.0, -2.0, 3.0])
TWO = In((2,), "complex64")

CASES = (
    Case("Cbrt", ops.cbrt, [AWAY], np.cbrt, FLOATING),
    Case("Cbrt", ops.cbrt, [In((3,), low=-3.0, high=-1.0)], np.cbrt, label="below 0"),
    Case("Sinc", ops.sinc, [A], np.sinc, FLOATING),
    Case("Sinc", ops.sinc, [In((3,), values=[0.0, 1.0, -0.5])], np.sinc, label="at 0"),
    Case("Hypot", ops.hypot, [A, ROW], np.hypot, FLOATING,
         bad=[Bad(ops.hypot, [TWO, TWO], DTypeError, "x must be floating")]),
    Case("Hypot", ops.hypot, [In((2,), "float32", values=[1e30, 3e-30])] * 2, np.hypot,
         ("float32",),
         gradient=False, label="far out"),
    Case("LogAddExp", ops.logaddexp, [A, ROW], np.logaddexp, FLOATING),
    Case("LogAddExp", ops.logaddexp, [In((3,), "float64", values=[500.0, -500.0, 0.0]),
         In((3,), "float64", values=[499.0, -501.0, 300.0])], np.logaddexp, ("float64",),
         label="far out"),
    Case("Fmod", ops.fmod, [In((4, 3), low=2.1, high=2.9, batch_axis=0), ROW], np.fmod,
         ("float32", "float64"), label="floats"),
    Case("Fmod", ops.fmod, [In((4, 3), low=-2.9, high=-2.1, batch_axis=0), ROW], np.fmod,
         label="negative"),
    Case("Fmod", ops.fmod, [In((4,), values=[7, -7, 7, -7], batch_axis=0),
         In((4,), values=[3, 3, -3, -3])], np.fmod, ("int32", "int8"), label="integers"),
    Case("NextAfter", ops.nextafter, [A, ROW], None, FLOATING),
    # A sum over replicas loses the sign of zero: no layouts.
    Case("SignBit", ops.signbit, [SIGNS], np.signbit, FLOATING, layout=False,
         bad=[Bad(ops.signbit, [In((2,), "bool")], DTypeError, "integer or floating")]),
    Case("SignBit", ops.signbit, [In((4,), values=[-3, 0, 5, -1], batch_axis=0)],
         lambda x: x < 0, ("int8", "int32"), label="integers"),
    Case("SignBit", ops.signbit, [In((4,), values=[3, 0, 5, 1])], lambda x: x < 0, ("uint8",),
         label="unsigned"),
    Case("Ldexp", ops.ldexp, [A, In((3,), "int32", values=[-3, 0, 2])],
         lambda x, n: x * 2.0**n, FLOATING,
         bad=[Bad(ops.ldexp, [In((2,)), In((2,))], DTypeError, "n must be integers")]),
)  # fmt: skip
