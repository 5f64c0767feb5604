"""Derivatives of the incomplete gamma function, and of gamma draws, with respect to the parameter.

Source: Moore, Algorithm AS 187, Applied Statistics 31, 1982; Figurnov, Mohamed & Mnih, Implicit
Reparameterization Gradients, NeurIPS 2018.
"""

from __future__ import annotations

import math
from typing import Any

from jax import lax
from jax import numpy as jnp

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, LowerContext, OpDef
from graphc.ops.arrays.creation import full_like
from graphc.ops.core.broadcasting import Adjoints, broadcast_all, infer_floating, unbroadcast
from graphc.ops.core.declaring import Given, Operands, declared, elementwise_operator
from graphc.ops.core.emit import promote_inexact
from graphc.ops.core.precision import summed
from graphc.ops.elementwise.transcendental import exp, log
from graphc.ops.scipy_api.special import digamma, gammaln, xlogy

# Below this, exp(log x) is near the end of float32's range, and the limit x -> 0 is exact.
_VANISHING = -60.0


def _igamma_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    a, x = node.inputs
    density = exp(xlogy(a - 1.0, x) - x - gammaln(a))
    slope = density * (log(x) - digamma(a))
    return [full_like(a, math.nan), unbroadcast(ctx, dy * slope, x)]


@elementwise_operator(
    "IgammaGradA",
    infer=infer_floating,
    lower=summed(lambda ctx, a, x: lax.igamma_grad_a(*broadcast_all(a, x))),
    gradient=_igamma_gradient,
)
def igamma_grad_a(a: Any, x: Any, *, name: str | None = None) -> Given:
    """The derivative of `gammainc(a, x)` with respect to `a`, with broadcasting; the adjoint of `a`
    is NaN.

    Source: Moore, Applied Statistics 31, 1982.
    """
    return promote_inexact(a, x)


def _lower_slope(ctx: LowerContext, alpha: Any, x: Any, *, log: bool) -> Any:
    alpha, x = broadcast_all(alpha, x)
    if not log:
        return lax.random_gamma_grad(alpha, x)
    small = x < _VANISHING
    draw = jnp.exp(jnp.where(small, 0, x))
    # For small x the distribution function is x^alpha / gamma(alpha + 1).
    limit = (lax.digamma(alpha + 1) - x) / alpha
    return jnp.where(small, limit, lax.random_gamma_grad(alpha, draw) / draw)


def _slope_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    """The derivative is -F_alpha / F_x for the distribution function F; both depend on x."""
    (alpha, x), y = node.inputs, node.outputs[0]
    if node.attrs["log"]:
        slope = digamma(alpha) - x - y * (alpha - exp(x))
    else:
        slope = digamma(alpha) - log(x) - y * ((alpha - 1.0) / x - 1.0)
    return [full_like(alpha, math.nan), unbroadcast(ctx, dy * slope, x)]


@elementwise_operator(
    "RandomGammaGrad",
    infer=infer_floating,
    lower=summed(_lower_slope),
    attrs={
        "log": Attr("bool", default=False, doc="x is the logarithm of the draw, y its derivative")
    },
    gradient=_slope_gradient,
)
def random_gamma_grad(alpha: Any, x: Any, *, log: bool = False, name: str | None = None) -> Given:
    """The derivative of a draw `x` from the gamma distribution (or of its logarithm) by `alpha`.

    Source: jax.lax.random_gamma_grad.
    """
    return Operands(*promote_inexact(alpha, x), log=log)


OPS: tuple[OpDef, ...] = declared(__name__)
