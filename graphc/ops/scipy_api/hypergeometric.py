"""The hypergeometric functions 1F1 and 2F1, elementwise, of real numbers.

JAX sums their series, which lose all digits for negative arguments. The transformations of Kummer
and Pfaff give positive arguments instead. Source: Olver et al., NIST Digital Library of
Mathematical Functions, 13.2.39, 13.7.2 and 15.8.1; Pearson, Olver & Porter, Numerical Algorithms
74, 2017.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import jax
from jax import numpy as jnp

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, LowerContext, OpDef
from graphc.ops.core.broadcasting import Adjoints, broadcast_all, infer_floating, unbroadcast
from graphc.ops.core.declaring import Given, declared, elementwise_operator
from graphc.ops.core.emit import promote_inexact
from graphc.ops.core.precision import summed
from graphc.ops.elementwise.comparison import (
    equal,
    greater,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    where,
)
from graphc.ops.elementwise.rounding import floor
from graphc.typing import TensorLike

__all__ = ["hyp1f1", "hyp2f1"]

_special: Any = jax.scipy.special  # only partly typed

_FAR = 80.0  # exp(-80) is still a normal float32
_FAR_TERMS = 24
_PFAFF = -0.5
# JAX's series of derivatives stop after 250 terms, which suffice for arguments up to these.
_SERIES_1F1 = 100.0
_SERIES_2F1 = 0.9


def _far_below_zero(a: Any, b: Any, size: Any) -> Any:
    """1F1(a, b, -size) for large `size`: gamma(b) / gamma(b - a) size^-a times a series."""
    pole = (b - a <= 0) & (b - a == jnp.floor(b - a))
    rest = jnp.where(pole, 1, b - a)
    signs = _special.gammasgn(b) * _special.gammasgn(rest)
    scale = jnp.exp(_special.gammaln(b) - _special.gammaln(rest) - a * jnp.log(size))
    term = total = jnp.ones_like(size)
    for k in range(_FAR_TERMS):
        term = term * ((a + k) * (a - b + 1 + k) / ((k + 1) * size))
        total = total + term
    return jnp.where(pole, 0, signs * scale * total)


def _lower_1f1(ctx: LowerContext, a: Any, b: Any, x: Any) -> Any:
    a, b, x = broadcast_all(a, b, x)
    below, far = x < 0, x < -_FAR
    size = jnp.where(below, jnp.minimum(-x, _FAR), x)
    near = _special.hyp1f1(jnp.where(below, b - a, a), b, size)
    near = jnp.where(below, jnp.exp(-jnp.where(below, size, 0)), 1) * near
    return jnp.where(far, _far_below_zero(a, b, jnp.where(far, -x, _FAR)), near)


def _ends(x: Tensor) -> Tensor:
    """Whether a series with this parameter is finite: JAX's derivatives are then 0 or NaN."""
    return logical_and(less_equal(x, 0.0), equal(x, floor(x)))


def _1f1_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    a, b, x = node.inputs
    ends = logical_or(_ends(a), _ends(b - a))
    known = where(logical_and(less(x, _SERIES_1F1), logical_not(ends)), dy, math.nan)
    slope = a / b * hyp1f1(a + 1.0, b + 1.0, x)
    return [*ctx.by_vjp(node, known)[:2], unbroadcast(ctx, dy * slope, x)]


def _lower_2f1(ctx: LowerContext, a: Any, b: Any, c: Any, x: Any) -> Any:
    a, b, c, x = broadcast_all(a, b, c, x)
    below = x < _PFAFF
    at = jnp.where(below, x / (jnp.where(below, x, 0) - 1), x)
    scale = jnp.where(below, (1 - jnp.where(below, x, 0)) ** -a, 1)
    return scale * _special.hyp2f1(a, jnp.where(below, c - b, b), c, at)


def _2f1_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    a, b, c, x = node.inputs
    inside = logical_and(less(x, _SERIES_2F1), greater(x, _SERIES_2F1 / (_SERIES_2F1 - 1.0)))
    ends = reduce(logical_or, [_ends(p) for p in (a, b, c - a, c - b)])
    known = where(logical_and(inside, logical_not(ends)), dy, math.nan)
    slope = a * b / c * hyp2f1(a + 1.0, b + 1.0, c + 1.0, x)
    return [*ctx.by_vjp(node, known)[:3], unbroadcast(ctx, dy * slope, x)]


@elementwise_operator(
    "Hyp1f1", infer=infer_floating, lower=summed(_lower_1f1), gradient=_1f1_gradient
)
def hyp1f1(a: TensorLike, b: TensorLike, x: TensorLike, *, name: str | None = None) -> Given:
    """Kummer's confluent hypergeometric function 1F1, with broadcasting.

    Accurate for parameters up to about 10 if x is far below 0, else up to about 50. The gradients
    with respect to `a` and `b` are NaN for x >= 100. Source: scipy.special.hyp1f1.

    Examples:
        >>> run(gc.hyp1f1(1.0, 1.0, [0.0, 1.0]))
        Array([1.    , 2.7183], dtype=float32)
    """
    return promote_inexact(a, b, x)


@elementwise_operator(
    "Hyp2f1", infer=infer_floating, lower=summed(_lower_2f1), gradient=_2f1_gradient
)
def hyp2f1(
    a: TensorLike, b: TensorLike, c: TensorLike, x: TensorLike, *, name: str | None = None
) -> Given:
    """Gauss' hypergeometric function 2F1 for x <= 1, with broadcasting; infinite above 1.

    Accurate for parameters up to about 50, and -20 < x < 0.95 or x = 1. For other x the series,
    which has a fixed number of terms, loses digits (at -50 all but three). The gradients with
    respect to `a`, `b` and `c` are NaN outside -9 < x < 0.9. Source: scipy.special.hyp2f1.

    Examples:
        >>> run(gc.hyp2f1(1.0, 1.0, 2.0, [0.5]))
        Array([1.3863], dtype=float32)
    """
    return promote_inexact(a, b, c, x)


OPS: tuple[OpDef, ...] = declared(__name__)
