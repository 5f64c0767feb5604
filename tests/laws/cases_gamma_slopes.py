"""Cases of graphc/ops/scipy_api/gamma_slopes.py."""

from __future__ import annotations

import numpy as np
from scipy import special, stats

from graphc.errors import DTypeError
from graphc.ops.scipy_api import gamma_slopes as ops
from tests.laws.case import Bad, Case, In

ALPHA = In((3,), "float64", values=[0.5, 1.3, 4.0])
X = In((4, 3), "float64", low=0.25, high=3.0)
LOG_X = In((4, 3), "float64", low=-2.0, high=1.0)
STEP = 1e-6
COMPLEX = [In((2,), "complex64")] * 2


def slope(a, x):
    """The derivative of gammainc in a, by central differences."""
    return (special.gammainc(a + STEP, x) - special.gammainc(a - STEP, x)) / (2 * STEP)


def of_draw(a, x):
    return -slope(a, x) / stats.gamma(a).pdf(x)


# JAX cannot differentiate these: see tests/ops/scipy_api/test_special_gradients.py
CASES = (
    Case("IgammaGradA", ops.igamma_grad_a, [ALPHA, X], slope, ("float64",), gradient=False,
         layout=False, rtol=1e-6,
         bad=[Bad(ops.igamma_grad_a, COMPLEX, DTypeError, "a must be floating")]),
    Case("RandomGammaGrad", ops.random_gamma_grad, [ALPHA, X], of_draw, ("float64",),
         gradient=False, layout=False, rtol=1e-6,
         bad=[Bad(ops.random_gamma_grad, COMPLEX, DTypeError, "alpha must be floating")]),
    Case("RandomGammaGrad", lambda a, x: ops.random_gamma_grad(a, x, log=True), [ALPHA, LOG_X],
         lambda a, x: of_draw(a, np.exp(x)) / np.exp(x), ("float64",), gradient=False, layout=False,
         rtol=1e-6, label="log"),
)  # fmt: skip
