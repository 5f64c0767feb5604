"""Special functions, elementwise: gamma, beta, Bessel, zeta, and those of probability.

Source: Abramowitz & Stegun, Handbook of Mathematical Functions, chapters 6, 9, 23 and 26.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, OpDef
from graphc.ops.arrays.creation import full_like
from graphc.ops.core.broadcasting import Adjoints, infer_floating, unary_gradient, unbroadcast
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator
from graphc.ops.core.emit import promote_inexact
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.transcendental import exp, log, log1p
from graphc.typing import TensorLike

__all__ = [
    "betainc",
    "digamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0e",
    "i1e",
    "log_ndtr",
    "ndtri",
    "polygamma",
    "xlog1py",
    "xlogy",
    "zeta",
]


def _special(
    name: str, function: Callable[..., Any], gradient: Callable[..., Adjoints] | None = None
) -> Declaration:
    """An operator on floats. Without `gradient`, its derivative is that of JAX."""
    return elementwise_operator(name, function, infer=infer_floating, widen=True, gradient=gradient)


def _in_float32(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that JAX supports for float32 and float64 only."""
    return lambda x: function(x.astype(wide(x.dtype))).astype(x.dtype)


def _no_derivative(x: Tensor) -> Tensor:
    """NaN, for a derivative without a known formula."""
    return full_like(x, math.nan)


def _polygamma_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    n, x = node.inputs
    return [_no_derivative(n), unbroadcast(ctx, dy * polygamma(n + 1.0, x), x)]


def _zeta_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, q = node.inputs
    return [_no_derivative(x), unbroadcast(ctx, -(dy * x * zeta(x + 1.0, q)), q)]


def _betainc_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    a, b, x = node.inputs
    log_beta = gammaln(a) + gammaln(b) - gammaln(a + b)
    density = exp(xlog1py(b - 1.0, -x) + xlogy(a - 1.0, x) - log_beta)
    return [_no_derivative(a), _no_derivative(b), unbroadcast(ctx, dy * density, x)]


def _igamma_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    a, x = node.inputs
    density = exp(xlogy(a - 1.0, x) - x - gammaln(a))
    in_a = ctx.ops.igamma_grad_a(a, x)
    return [unbroadcast(ctx, dy * in_a, a), unbroadcast(ctx, dy * density, x)]


@_special("Polygamma", lax.polygamma, _polygamma_gradient)
def polygamma(n: TensorLike, x: TensorLike, *, name: str | None = None) -> Given:
    """The derivative of order `n` of `digamma` at `x`, with broadcasting.

    The gradient with respect to `n` is NaN. Source: scipy.special.polygamma.

    Examples:
        >>> run(gc.polygamma(1, [1.0]))
        Array([1.6449], dtype=float32)
    """
    return promote_inexact(n, x)


@_special("Digamma", lax.digamma, unary_gradient(lambda dy, x, y: dy * polygamma(1.0, x)))
def digamma(x: TensorLike, *, name: str | None = None) -> Given:
    """The derivative of `gammaln`, elementwise. Source: scipy.special.digamma.

    Examples:
        >>> run(gc.digamma([1.0, 2.0]))
        Array([-0.5772,  0.4228], dtype=float32)
    """
    return promote_inexact(x)


@_special("Lgamma", lax.lgamma, unary_gradient(lambda dy, x, y: dy * digamma(x)))
def gammaln(x: TensorLike, *, name: str | None = None) -> Given:
    """log(|gamma(x)|), elementwise; integers give float32. Source: scipy.special.gammaln.

    Examples:
        >>> run(gc.gammaln([1.0, 4.0]))
        Array([0.    , 1.7918], dtype=float32)
    """
    return promote_inexact(x)


@_special("Zeta", lax.zeta, _zeta_gradient)
def zeta(x: TensorLike, q: TensorLike = 1.0, *, name: str | None = None) -> Given:
    """The sum of (k + q)^-x over k = 0, 1, ...: Riemann's zeta function for q = 1.

    The gradient with respect to `x` is NaN. Source: scipy.special.zeta.

    Examples:
        >>> run(gc.zeta([2.0]))
        Array([1.6449], dtype=float32)
    """
    return promote_inexact(x, q)


@_special("Igamma", lax.igamma, _igamma_gradient)
def gammainc(a: TensorLike, x: TensorLike, *, name: str | None = None) -> Given:
    """The regularized lower incomplete gamma function, from 0 at x = 0 to 1.

    Source: scipy.special.gammainc.

    Examples:
        >>> run(gc.gammainc(1.0, [0.0, 1.0]))
        Array([0.    , 0.6321], dtype=float32)
    """
    return promote_inexact(a, x)


@_special("Igammac", lax.igammac, lambda ctx, node, dy: _igamma_gradient(ctx, node, -dy))
def gammaincc(a: TensorLike, x: TensorLike, *, name: str | None = None) -> Given:
    """1 - gammainc(a, x), also exact where this is near 0. Source: scipy.special.gammaincc.

    Examples:
        >>> run(gc.gammaincc(1.0, [0.0, 1.0]))
        Array([1.    , 0.3679], dtype=float32)
    """
    return promote_inexact(a, x)


@_special("Betainc", lax.betainc, _betainc_gradient)
def betainc(a: TensorLike, b: TensorLike, x: TensorLike, *, name: str | None = None) -> Given:
    """The regularized incomplete beta function, with broadcasting; 0 <= x <= 1.

    The gradients with respect to `a` and `b` are NaN. Source: scipy.special.betainc.

    Examples:
        >>> run(gc.betainc(1.0, 1.0, [0.25, 0.5]))
        Array([0.25, 0.5 ], dtype=float32)
    """
    return promote_inexact(a, b, x)


@_special("BesselI0e", lax.bessel_i0e)
def i0e(x: TensorLike, *, name: str | None = None) -> Given:
    """exp(-|x|) i0(x), elementwise; does not overflow. Source: scipy.special.i0e.

    Examples:
        >>> run(gc.i0e([0.0, 1.0]))
        Array([1.    , 0.4658], dtype=float32)
    """
    return promote_inexact(x)


@_special("BesselI1e", lax.bessel_i1e)
def i1e(x: TensorLike, *, name: str | None = None) -> Given:
    """exp(-|x|) i1(x), elementwise; does not overflow. Source: scipy.special.i1e.

    Examples:
        >>> run(gc.i1e([0.0, 1.0]))
        Array([0.    , 0.2079], dtype=float32)
    """
    return promote_inexact(x)


@_special("Ndtri", _in_float32(jax.scipy.special.ndtri))
def ndtri(x: TensorLike, *, name: str | None = None) -> Given:
    """The inverse of `ndtr`, elementwise, for 0 < x < 1. Source: scipy.special.ndtri.

    Examples:
        >>> run(gc.ndtri([0.5, 0.975]))
        Array([0.  , 1.96], dtype=float32)
    """
    return promote_inexact(x)


@_special("LogNdtr", _in_float32(jax.scipy.special.log_ndtr))
def log_ndtr(x: TensorLike, *, name: str | None = None) -> Given:
    """log(ndtr(x)), elementwise, exact far below 0. Source: scipy.special.log_ndtr.

    Examples:
        >>> run(gc.log_ndtr([0.0]))
        Array([-0.6931], dtype=float32)
    """
    return promote_inexact(x)


def _xlogy_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    return [unbroadcast(ctx, dz * log(y), x), unbroadcast(ctx, dz * x / y, y)]


def _xlog1py_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    return [unbroadcast(ctx, dz * log1p(y), x), unbroadcast(ctx, dz * x / (y + 1.0), y)]


@_special("Xlogy", jax.scipy.special.xlogy, _xlogy_gradient)
def xlogy(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x log(y) with broadcasting, and 0 where x is 0. Source: scipy.special.xlogy.

    Examples:
        >>> run(gc.xlogy([0.0, 2.0], [0.0, 1.0]))
        Array([0., 0.], dtype=float32)
    """
    return promote_inexact(x, y)


@_special("Xlog1py", jax.scipy.special.xlog1py, _xlog1py_gradient)
def xlog1py(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x log(1 + y) with broadcasting, and 0 where x is 0. Source: scipy.special.xlog1py.

    Examples:
        >>> run(gc.xlog1py([0.0, 2.0], [-1.0, 1.0]))
        Array([0.    , 1.3863], dtype=float32)
    """
    return promote_inexact(x, y)


OPS: tuple[OpDef, ...] = declared(__name__)
