"""Derivatives of the incomplete gamma function in its parameter, and of draws that follow it.

Source: Moore, Algorithm AS 187, Applied Statistics 31, 1982; Figurnov, Mohamed & Mnih, Implicit
Reparameterization Gradients, NeurIPS 2018.
"""

from __future__ import annotations

import math
from typing import Any

from jax import lax
from jax import numpy as jnp

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import full_like
from graphc.ops.core.broadcasting import Adjoints, broadcast_all, infer_floating, unbroadcast
from graphc.ops.core.emit import emit_one, promote_inexact
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import summed
from graphc.ops.elementwise.transcendental import exp, log
from graphc.ops.scipy_api.special import digamma, gammaln, xlogy

# Below this, exp(log x) is near the end of float32's range and the limit x -> 0 exact.
_VANISHING = -60.0


def _igamma_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    a, x = node.inputs
    density = exp(xlogy(a - 1.0, x) - x - gammaln(a))
    slope = density * (log(x) - digamma(a))
    return [full_like(a, math.nan), unbroadcast(ctx, dy * slope, x)]


IGAMMA_GRAD_A = OpDef(
    name="IgammaGradA",
    signature="a, x -> y",
    precision="wide",
    infer=infer_floating,
    lower=summed(lambda ctx, a, x: lax.igamma_grad_a(*broadcast_all(a, x))),
    gradient=_igamma_gradient,
    layout=elementwise,
    doc="The derivative of the regularized lower incomplete gamma function in a; the adjoint of a "
    "is NaN. Floating dtypes. Source: Moore, Applied Statistics 31, 1982.",
)


def _infer_slope(ctx: InferContext, alpha: TensorType, x: TensorType, *, log: bool) -> TensorType:
    return infer_floating(ctx, alpha, x)


def _lower_slope(ctx: LowerContext, alpha: Any, x: Any, *, log: bool) -> Any:
    alpha, x = broadcast_all(alpha, x)
    if not log:
        return lax.random_gamma_grad(alpha, x)
    small = x < _VANISHING
    draw = jnp.exp(jnp.where(small, 0, x))
    # There the distribution function is x^alpha / gamma(alpha + 1).
    limit = (lax.digamma(alpha + 1) - x) / alpha
    return jnp.where(small, limit, lax.random_gamma_grad(alpha, draw) / draw)


def _slope_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    """The distribution function F gives the slope -F_alpha / F_x, which x has in two places."""
    (alpha, x), y = node.inputs, node.outputs[0]
    if node.attrs["log"]:
        slope = digamma(alpha) - x - y * (alpha - exp(x))
    else:
        slope = digamma(alpha) - log(x) - y * ((alpha - 1.0) / x - 1.0)
    return [full_like(alpha, math.nan), unbroadcast(ctx, dy * slope, x)]


RANDOM_GAMMA_GRAD = OpDef(
    name="RandomGammaGrad",
    signature="alpha, x -> y",
    precision="wide",
    attrs={"log": Attr("bool", default=False, doc="x is the logarithm of the draw, y its slope")},
    infer=_infer_slope,
    lower=summed(_lower_slope),
    gradient=_slope_gradient,
    layout=elementwise,
    doc="The derivative in alpha of a draw x of the gamma distribution of shape alpha, its place "
    "in the distribution held; the adjoint of alpha is NaN. Floating dtypes. Source: Figurnov et "
    "al., NeurIPS 2018.",
)


def igamma_grad_a(a: Any, x: Any, *, name: str | None = None) -> Tensor:
    """The derivative of `gammainc(a, x)` in `a`, with broadcasting. Source: jax.lax."""
    return emit_one(IGAMMA_GRAD_A, promote_inexact(a, x), name)


def random_gamma_grad(alpha: Any, x: Any, *, log: bool = False, name: str | None = None) -> Tensor:
    """The derivative in `alpha` of a draw `x` of the gamma distribution (or of its logarithm).

    Source: jax.lax.random_gamma_grad.
    """
    return emit_one(RANDOM_GAMMA_GRAD, promote_inexact(alpha, x), name, log=log)


OPS: tuple[OpDef, ...] = (IGAMMA_GRAD_A, RANDOM_GAMMA_GRAD)
