"""Cases of graphc/ops/scipy_api/integrals.py.

They take long to compile, so all except Fresnel are tested with one dtype.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from graphc.errors import DTypeError
from graphc.ops.scipy_api import integrals as ops
from tests.laws.case import Bad, Case, In

A = In((4, 3), "float64", values=np.linspace(-3.1, 3.0, 12).reshape(4, 3), batch_axis=0)
ABOVE = In((4, 3), "float64", values=np.linspace(0.05, 4.0, 12).reshape(4, 3), batch_axis=0)
ORDERS = np.array([1.0, 2.0, 4.0])
FROM_ZERO = np.array([[0.0], [1.0], [4.0]])
ENDS = In((5,), "float32", values=[0.0, np.inf, -np.inf, np.nan, 1.0])
COMPLEX = [In((2,), "complex64")]

CASES = (
    Case("Expi", ops.expi, [A], special.expi, ("float64",),
         bad=[Bad(ops.expi, COMPLEX, DTypeError, "x must be floating")]),
    Case("Expi", ops.expi, [ENDS], special.expi, ("float32",), gradient=False, label="ends"),
    Case("ExpN", lambda x: ops.expn(ORDERS, x),
         [ABOVE], lambda x: special.expn(ORDERS.astype(int), x), ("float64",), layout=False,
         bad=[Bad(lambda x: ops.expn(1, x), COMPLEX, DTypeError, "n must be floating")]),
    Case("ExpN", lambda x: ops.expn(FROM_ZERO, x), [In((4,), "float64", values=[0, np.inf,
         np.nan, 2.0])], lambda x: special.expn(FROM_ZERO.astype(int), x), ("float64",),
         gradient=False, label="ends"),
    # JAX's derivative is NaN between 1.5 and 2: see tests/ops/scipy_api/test_special_gradients.py
    Case("Spence", ops.spence, [ABOVE], special.spence, ("float64",), gradient=False),
    Case("Fresnel", ops.fresnel, [In((4, 3), low=-3.0, high=3.0, batch_axis=0)],
         special.fresnel, ("bfloat16", "float32", "float64")),
    Case("Sici", ops.sici, [A], special.sici, ("float64",),
         bad=[Bad(ops.sici, COMPLEX, DTypeError, "x must be floating")]),
)  # fmt: skip
