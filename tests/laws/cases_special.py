"""Cases of graphc/ops/scipy_api/special.py."""

from __future__ import annotations

import numpy as np
from scipy import special

from graphc.errors import DTypeError
from graphc.ops.scipy_api import special as ops
from tests.laws.case import Bad, Case, In

FLOATING = ("float16", "bfloat16", "float32", "float64")
A = In((4, 3), batch_axis=0)
POSITIVE = In((4, 3), low=0.25, high=3.0, batch_axis=0)
LINE = In((4, 3), values=np.linspace(1.0, 3.0, 12).reshape(4, 3), batch_axis=0)
ROW = In((3,), low=0.5, high=4.0)
WIDE = In((4, 3), "float64", low=0.25, high=3.0)
WIDE_ROW = In((3,), "float64", low=0.5, high=4.0)
UNIT = In((4, 3), low=0.05, high=0.95, batch_axis=0)
ZEROS = In((4, 3), values=np.array([[0.0, 1.0, 0.0]] * 4), batch_axis=0, grad=False)


CASES = (
    Case(
        "Lgamma",
        ops.gammaln,
        [POSITIVE],
        special.gammaln,
        FLOATING,
        bad=[Bad(ops.gammaln, [In((2,), "complex64")], DTypeError, "x must be floating")],
    ),
    Case("Lgamma", ops.gammaln, [In((4,), values=[-0.5, -1.7, -2.2, 9.0])], special.gammaln,
         label="below 0"),
    Case("Digamma", ops.digamma, [LINE], special.digamma, FLOATING),
    Case("Polygamma", lambda x: ops.polygamma(1, x), [POSITIVE],
         lambda x: special.polygamma(1, x)),
    Case("Polygamma", lambda x: ops.polygamma(np.array([0.0, 2.0, 3.0], np.float32), x),
         [POSITIVE], lambda x: special.polygamma(np.array([0, 2, 3]), x), label="orders",
         layout=False, rtol=2e-4),
    # JAX has no derivative of zeta: see tests/ops/numpy_api/test_elementwise.py
    Case("Zeta", lambda x: ops.zeta(2.5, x), [LINE], lambda x: special.zeta(2.5, x),
         gradient=False),
    Case("Zeta", ops.zeta, [In((3,), low=1.5, high=4.0)], special.zeta, gradient=False,
         label="Riemann's"),
    # These compile for seconds each, so there is one dtype. Others test the same layout rule.
    Case("Igamma", ops.gammainc, [WIDE, WIDE_ROW], special.gammainc, ("float64",), layout=False,
         bad=[Bad(ops.gammainc, [In((2,), "complex64")] * 2, DTypeError, "a must be floating")]),
    Case("Igammac", ops.gammaincc, [WIDE, WIDE_ROW], special.gammaincc, ("float64",),
         layout=False),
    Case("Betainc", lambda x: ops.betainc(2.0, np.array([0.5, 1.5, 3.0], np.float32), x),
         [In((4, 3), "float64", low=0.05, high=0.95)],
         lambda x: special.betainc(2.0, np.array([0.5, 1.5, 3.0]), x), ("float64",)),
    Case("BesselI0e", ops.i0e, [A], special.i0e),
    Case("BesselI1e", ops.i1e, [A], special.i1e),
    Case("Ndtri", ops.ndtri, [UNIT], special.ndtri),
    Case("LogNdtr", ops.log_ndtr, [In((4, 3), low=-6.0, high=6.0, batch_axis=0)],
         special.log_ndtr),
    Case("Xlogy", ops.xlogy, [A, ROW], special.xlogy, FLOATING),
    Case("Xlogy", ops.xlogy, [ZEROS, POSITIVE], special.xlogy, label="zeros"),
    Case("Xlog1py", ops.xlog1py, [A, ROW], special.xlog1py, FLOATING),
)  # fmt: skip
