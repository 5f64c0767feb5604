"""Special functions, elementwise: gamma, beta, Bessel, zeta, and what probability needs.

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
from graphc.ops.core.broadcasting import (
    Adjoints,
    binary,
    broadcast_all,
    infer_floating,
    unary,
    unary_gradient,
    unbroadcast,
)
from graphc.ops.core.emit import emit_one, promote_inexact
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import in_wider, wide
from graphc.ops.elementwise.transcendental import exp, log, log1p

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
    name: str,
    signature: str,
    lower: Callable[..., Any],
    doc: str,
    gradient: Callable[..., Adjoints] | None = None,
) -> OpDef:
    """An operator on floats; without a rule its derivative is JAX's."""
    return OpDef(
        name=name,
        signature=signature,
        precision="wide",
        infer=infer_floating,
        lower=in_wider(lower),
        gradient=gradient,
        layout=elementwise,
        doc=f"{doc} Floating dtypes.",
    )


def _in_float32(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """The lowering to a function that JAX has for float32 and float64 only."""
    return lambda ctx, x: function(x.astype(wide(x.dtype))).astype(x.dtype)


def _no_derivative(x: Tensor) -> Tensor:
    """NaN in the place of a derivative that nobody has a formula for."""
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


def _igammac_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    return _igamma_gradient(ctx, node, -dy)


LGAMMA = _special(
    "Lgamma",
    "x -> y",
    unary(lax.lgamma),
    "The logarithm of the absolute value of the gamma function.",
    unary_gradient(lambda dy, x, y: dy * digamma(x)),
)
DIGAMMA = _special(
    "Digamma",
    "x -> y",
    unary(lax.digamma),
    "The derivative of the logarithm of the gamma function.",
    unary_gradient(lambda dy, x, y: dy * polygamma(1.0, x)),
)
POLYGAMMA = _special(
    "Polygamma",
    "n, x -> y",
    binary(lax.polygamma),
    "The derivative of order n of digamma at x; n is whole, and its own adjoint NaN.",
    _polygamma_gradient,
)
ZETA = _special(
    "Zeta",
    "x, q -> y",
    binary(lax.zeta),
    "Hurwitz's zeta function, the sum of (k + q)^-x over k = 0, 1, ...; the adjoint of x is NaN.",
    _zeta_gradient,
)
IGAMMA = _special(
    "Igamma",
    "a, x -> y",
    binary(lax.igamma),
    "The regularized lower incomplete gamma function, from 0 at x = 0 to 1.",
    _igamma_gradient,
)
IGAMMAC = _special(
    "Igammac",
    "a, x -> y",
    binary(lax.igammac),
    "The regularized upper incomplete gamma function, 1 - igamma(a, x).",
    _igammac_gradient,
)
BETAINC = _special(
    "Betainc",
    "a, b, x -> y",
    lambda ctx, a, b, x: lax.betainc(*broadcast_all(a, b, x)),
    "The regularized incomplete beta function, from 0 at x = 0 to 1 at x = 1; the adjoints of a "
    "and b are NaN.",
    _betainc_gradient,
)
BESSEL_I0E = _special(
    "BesselI0e",
    "x -> y",
    unary(lax.bessel_i0e),
    "exp(-|x|) times the modified Bessel function of order 0.",
)
BESSEL_I1E = _special(
    "BesselI1e",
    "x -> y",
    unary(lax.bessel_i1e),
    "exp(-|x|) times the modified Bessel function of order 1.",
)
NDTRI = _special(
    "Ndtri",
    "x -> y",
    _in_float32(jax.scipy.special.ndtri),
    "The place below which the normal distribution has the probability x.",
)
LOG_NDTR = _special(
    "LogNdtr",
    "x -> y",
    _in_float32(jax.scipy.special.log_ndtr),
    "The logarithm of the normal distribution's probability below x, exact far below 0.",
)


def _xlogy_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    return [unbroadcast(ctx, dz * log(y), x), unbroadcast(ctx, dz * x / y, y)]


def _xlog1py_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    return [unbroadcast(ctx, dz * log1p(y), x), unbroadcast(ctx, dz * x / (y + 1.0), y)]


XLOGY = _special(
    "Xlogy",
    "x, y -> z",
    lambda ctx, x, y: jax.scipy.special.xlogy(x, y),
    "x log(y), and 0 where x is 0.",
    _xlogy_gradient,
)
XLOG1PY = _special(
    "Xlog1py",
    "x, y -> z",
    lambda ctx, x, y: jax.scipy.special.xlog1py(x, y),
    "x log(1 + y), and 0 where x is 0.",
    _xlog1py_gradient,
)


def gammaln(x: Any, *, name: str | None = None) -> Tensor:
    """log(|gamma(x)|), elementwise; integers give float32. Source: scipy.special.gammaln."""
    return emit_one(LGAMMA, promote_inexact(x), name)


def digamma(x: Any, *, name: str | None = None) -> Tensor:
    """The derivative of `gammaln`, elementwise. Source: scipy.special.digamma."""
    return emit_one(DIGAMMA, promote_inexact(x), name)


def polygamma(n: Any, x: Any, *, name: str | None = None) -> Tensor:
    """The derivative of order `n` of `digamma` at `x`, with broadcasting.

    The gradient in `n` is NaN. Source: scipy.special.polygamma.
    """
    return emit_one(POLYGAMMA, promote_inexact(n, x), name)


def zeta(x: Any, q: Any = 1.0, *, name: str | None = None) -> Tensor:
    """The sum of (k + q)^-x over k = 0, 1, ...: Riemann's zeta function for q = 1.

    The gradient in `x` is NaN. Source: scipy.special.zeta.
    """
    return emit_one(ZETA, promote_inexact(x, q), name)


def gammainc(a: Any, x: Any, *, name: str | None = None) -> Tensor:
    """The regularized lower incomplete gamma function. Source: scipy.special.gammainc."""
    return emit_one(IGAMMA, promote_inexact(a, x), name)


def gammaincc(a: Any, x: Any, *, name: str | None = None) -> Tensor:
    """1 - gammainc(a, x), exact where that is near 0. Source: scipy.special.gammaincc."""
    return emit_one(IGAMMAC, promote_inexact(a, x), name)


def betainc(a: Any, b: Any, x: Any, *, name: str | None = None) -> Tensor:
    """The regularized incomplete beta function, with broadcasting; 0 <= x <= 1.

    The gradients in `a` and `b` are NaN. Source: scipy.special.betainc.
    """
    return emit_one(BETAINC, promote_inexact(a, b, x), name)


def i0e(x: Any, *, name: str | None = None) -> Tensor:
    """exp(-|x|) i0(x), elementwise; does not overflow. Source: scipy.special.i0e."""
    return emit_one(BESSEL_I0E, promote_inexact(x), name)


def i1e(x: Any, *, name: str | None = None) -> Tensor:
    """exp(-|x|) i1(x), elementwise; does not overflow. Source: scipy.special.i1e."""
    return emit_one(BESSEL_I1E, promote_inexact(x), name)


def ndtri(x: Any, *, name: str | None = None) -> Tensor:
    """The inverse of `ndtr`, elementwise, for 0 < x < 1. Source: scipy.special.ndtri."""
    return emit_one(NDTRI, promote_inexact(x), name)


def log_ndtr(x: Any, *, name: str | None = None) -> Tensor:
    """log(ndtr(x)), elementwise, exact far below 0. Source: scipy.special.log_ndtr."""
    return emit_one(LOG_NDTR, promote_inexact(x), name)


def xlogy(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x log(y) with broadcasting, and 0 where x is 0. Source: scipy.special.xlogy."""
    return emit_one(XLOGY, promote_inexact(x, y), name)


def xlog1py(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x log(1 + y) with broadcasting, and 0 where x is 0. Source: scipy.special.xlog1py."""
    return emit_one(XLOG1PY, promote_inexact(x, y), name)


OPS: tuple[OpDef, ...] = (
    LGAMMA,
    DIGAMMA,
    POLYGAMMA,
    ZETA,
    IGAMMA,
    IGAMMAC,
    BETAINC,
    BESSEL_I0E,
    BESSEL_I1E,
    NDTRI,
    LOG_NDTR,
    XLOGY,
    XLOG1PY,
)
