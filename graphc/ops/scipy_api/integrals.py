"""Integrals without an elementary form, elementwise: exponential, Fresnel, sine and Spence's.

JAX computes them; the values at the ends of the range are added here. Source:
Abramowitz & Stegun, Handbook of Mathematical Functions, chapters 5, 7 and 27.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import full_like
from graphc.ops.core.broadcasting import (
    Adjoints,
    broadcast_all,
    infer_floating,
    unary_gradient,
    unbroadcast,
)
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator
from graphc.ops.core.defining import define
from graphc.ops.core.emit import emit, promote_inexact
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import summed
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.elementwise.powers import square
from graphc.ops.elementwise.transcendental import cos, exp, log, sin
from graphc.typing import TensorLike

__all__ = ["exp1", "expi", "expn", "fresnel", "sici", "spence"]


def _integral(
    name: str, lower: Callable[..., Any], gradient: Callable[..., Adjoints]
) -> Declaration:
    """An operator on floats. Dtypes narrower than float32 are computed in float32."""
    return elementwise_operator(name, infer=infer_floating, lower=summed(lower), gradient=gradient)


# -- exponential integrals ---------------------------------------------------------------------


def _lower_expi(ctx: LowerContext, x: Any) -> Any:
    end = (x == 0) | ~jnp.isfinite(x)
    at_end = jnp.where(x == 0, -math.inf, jnp.where(x == -math.inf, 0, x))
    return jnp.where(end, at_end, jax.scipy.special.expi(jnp.where(end, 1, x)))


def _lower_expn(ctx: LowerContext, n: Any, x: Any) -> Any:
    n, x = broadcast_all(lax.stop_gradient(n), x)
    outside = (x < 0) | (n < 0) | jnp.isnan(x)
    at_zero = jnp.where(n > 1, 1 / jnp.where(n > 1, n - 1, 1), math.inf)
    at_end = jnp.where(outside, math.nan, jnp.where(x == 0, at_zero, 0))
    end = outside | (x == 0) | (x == math.inf)
    small = x <= 1
    # JAX uses a continued fraction for every x. Near 0 it takes about 1 / x steps.
    far = jax.scipy.special.expn(jnp.where(end | small, 1, n), jnp.where(end | small, 2, x))
    near = _expn_near_zero(jnp.where(end | ~small, 1, n), jnp.where(end | ~small, 1, x))
    return jnp.where(end, at_end, jnp.where(small, near, far))


def _expn_near_zero(n: Any, x: Any) -> Any:
    """The power series for 0 < x <= 1: Abramowitz & Stegun, 5.1.12."""
    total = jnp.zeros_like(x)
    for m in range(24):  # 1 / 24! is below the precision of float64
        gap = m + 1 - n
        term = (-x) ** m / (float(math.factorial(m)) * jnp.where(gap == 0, 1, gap))
        total -= jnp.where(gap == 0, 0, term)
    sign = jnp.where(n % 2 == 1, 1, -1)
    at_least_one = jnp.maximum(n, 1)
    size = jnp.exp((at_least_one - 1) * jnp.log(x) - lax.lgamma(at_least_one))
    logarithmic = sign * size * (lax.digamma(at_least_one) - jnp.log(x))
    return jnp.where(n == 0, jnp.exp(-x) / x, logarithmic + total)


def _expn_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    n, x = node.inputs
    first = equal(n, 0.0)
    below = expn(where(first, 1.0, n) - 1.0, x)
    slope = where(first, exp(-x) * (x + 1.0) / square(x), below)
    return [full_like(n, math.nan), -unbroadcast(ctx, dy * slope, x)]


@_integral("Expi", _lower_expi, unary_gradient(lambda dy, x, y: dy * (exp(x) / x)))
def expi(x: TensorLike, *, name: str | None = None) -> Given:
    """The exponential integral Ei, elementwise; integers give float32, -inf at 0.

    The integral of exp(t) / t from minus infinity to x; the principal value for x above 0.
    Source: scipy.special.expi.

    Examples:
        >>> run(gc.expi([1.0]))
        Array([1.8951], dtype=float32)
    """
    return promote_inexact(x)


@_integral("ExpN", _lower_expn, _expn_gradient)
def expn(n: TensorLike, x: TensorLike, *, name: str | None = None) -> Given:
    """The exponential integral E_n for whole `n` >= 0 and `x` >= 0, with broadcasting.

    The integral of exp(-x t) / t^n from 1 to infinity; NaN for other `n` or `x`. The gradient
    with respect to `n` is NaN. Source: scipy.special.expn.

    Examples:
        >>> run(gc.expn(1, [1.0]))
        Array([0.2194], dtype=float32)
    """
    return promote_inexact(n, x)


def exp1(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The exponential integral E_1, elementwise; NaN below 0. Source: scipy.special.exp1.

    Examples:
        >>> run(gc.exp1([1.0]))
        Array([0.2194], dtype=float32)
    """
    return expn(1, x, name=name)


# -- Spence's function -------------------------------------------------------------------------


def _spence_slope(dy: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """log(x) / (1 - x), and its series at 1, so that higher derivatives are correct there."""
    one = equal(x, 1.0)
    off = x - 1.0
    series = (off * 0.5 - 1.0) - square(off) / 3.0
    return dy * where(one, series, log(x) / where(one, 1.0, -off))


@_integral("Spence", lambda ctx, x: jax.scipy.special.spence(x), unary_gradient(_spence_slope))
def spence(x: TensorLike, *, name: str | None = None) -> Given:
    """The integral of log(t) / (1 - t) from 1 to x, elementwise; NaN below 0.

    The dilogarithm Li2(z) is `spence(1 - z)`. Source: scipy.special.spence.

    Examples:
        >>> run(gc.spence([1.0, 2.0]))
        Array([ 0.    , -0.8225], dtype=float32)
    """
    return promote_inexact(x)


# -- integrals in pairs ------------------------------------------------------------------------


# The derivatives of both results at x.
Slopes = Callable[[Tensor], tuple[Tensor, Tensor]]


def _infer_pair(ctx: InferContext, x: TensorType) -> tuple[TensorType, TensorType]:
    result = infer_floating(ctx, x)
    return result, result


def _pair_gradient(slopes: Slopes) -> Callable[..., Adjoints]:
    """The gradient rule of an operator with two results."""

    def gradient(ctx: GradientContext, node: Node, *adjoints: Tensor | None) -> Adjoints:
        (x,) = node.inputs
        pairs = zip(adjoints, slopes(x), strict=True)
        terms = [adjoint * slope for adjoint, slope in pairs if adjoint is not None]
        return [terms[0] + terms[1] if len(terms) == 2 else terms[0]]

    return gradient


def _fresnel_slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    angle = square(x) * (math.pi / 2)
    return sin(angle), cos(angle)


def _sici_slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    zero = equal(x, 0.0)
    around_zero = 1.0 - square(x) / 6.0
    return where(zero, around_zero, sin(x) / where(zero, 1.0, x)), cos(x) / x


def _pair(schema: str, function: Callable[..., Any], slopes: Slopes, doc: str) -> OpDef:
    return define(
        schema,
        precision="wide",
        infer=_infer_pair,
        lower=summed(lambda ctx, x: tuple(function(x))),
        gradient=_pair_gradient(slopes),
        layout=elementwise,
        doc=doc,
    )


FRESNEL = _pair(
    "Fresnel(x) -> s, c",
    jax.scipy.special.fresnel,
    _fresnel_slopes,
    "The integrals of sin(pi t^2 / 2) and of cos(pi t^2 / 2) from 0 to x. Floating dtypes.",
)
SICI = _pair(
    "Sici(x) -> si, ci",
    jax.scipy.special.sici,
    _sici_slopes,
    "The integral of sin(t) / t from 0 to x, and that of cos(t) / t from infinity to |x|. "
    "Floating dtypes.",
)


def fresnel(x: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The Fresnel integrals S (of the sine) and C (of the cosine), elementwise.

    Source: scipy.special.fresnel.

    Examples:
        >>> run(gc.fresnel([1.0]))
        (Array([0.4383], dtype=float32), Array([0.7799], dtype=float32))
    """
    s, c = emit(FRESNEL, promote_inexact(x), name=name)
    return s, c


def sici(x: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The sine integral Si and the cosine integral Ci, elementwise; Ci is -inf at 0.

    Ci of a negative number is Ci of its absolute value. Source: scipy.special.sici.

    Examples:
        >>> run(gc.sici([1.0]))
        (Array([0.9461], dtype=float32), Array([0.3374], dtype=float32))
    """
    si, ci = emit(SICI, promote_inexact(x), name=name)
    return si, ci


OPS: tuple[OpDef, ...] = (*declared(__name__), FRESNEL, SICI)
