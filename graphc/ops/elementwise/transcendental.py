"""Exponentials, logarithms, trigonometric and related functions, elementwise.

Derivatives use the result where that is cheaper. Source: Abramowitz & Stegun,
Handbook of Mathematical Functions, chapters 4 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, OpDef
from graphc.ops.core.broadcasting import Adjoints, infer_floating, infer_inexact, unbroadcast
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator, record
from graphc.ops.core.emit import promote_inexact
from graphc.ops.elementwise.powers import rsqrt, square
from graphc.typing import TensorLike

__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sigmoid",
    "sin",
    "sinh",
    "softplus",
    "tan",
    "tanh",
]


def _function(
    name: str,
    function: Callable[[Any], Any],
    derivative: Callable[[Tensor, Tensor, Tensor], Tensor],
    fold: Callable[[Any], Any] | None = None,
    *,
    infer: Callable[..., Any] = infer_inexact,
    precision: str = "wide",
) -> Declaration:
    """A function of one operand; `derivative(dy, x, y)` is the adjoint of x."""
    return elementwise_operator(
        name,
        function,
        infer=infer,
        widen=True,
        derivative=derivative,
        precision=precision,
        fold=fold,
    )


@_function("Exp", lax.exp, lambda dy, x, y: dy * y, np.exp)
def exp(x: TensorLike, *, name: str | None = None) -> Given:
    """e to the power x, elementwise; integers give float32.

    Examples:
        >>> run(gc.exp([0.0, 1.0]))
        Array([1.    , 2.7183], dtype=float32)
    """
    return promote_inexact(x)


@_function("Expm1", lax.expm1, lambda dy, x, y: dy * (y + 1.0), np.expm1)
def expm1(x: TensorLike, *, name: str | None = None) -> Given:
    """exp(x) - 1, elementwise, exact near 0; integers give float32.

    Examples:
        >>> run(gc.expm1([0.0, 1.0]))
        Array([0.    , 1.7183], dtype=float32)
    """
    return promote_inexact(x)


@_function("Log", lax.log, lambda dy, x, y: dy / x, np.log)
def log(x: TensorLike, *, name: str | None = None) -> Given:
    """The natural logarithm, elementwise; integers give float32. NaN below 0, -inf at 0.

    Examples:
        >>> run(gc.log([1.0, np.e]))
        Array([0., 1.], dtype=float32)
    """
    return promote_inexact(x)


@_function("Log1p", lax.log1p, lambda dy, x, y: dy / (x + 1.0), np.log1p)
def log1p(x: TensorLike, *, name: str | None = None) -> Given:
    """log(1 + x), elementwise, exact near 0; integers give float32.

    Examples:
        >>> run(gc.log1p([0.0, 1.0]))
        Array([0.    , 0.6931], dtype=float32)
    """
    return promote_inexact(x)


def _sin_derivative(dy: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dy * cos(x)


@_function("Sin", lax.sin, _sin_derivative, np.sin)
def sin(x: TensorLike, *, name: str | None = None) -> Given:
    """The sine of x radians, elementwise; integers give float32.

    Examples:
        >>> run(gc.sin([0.0, np.pi / 2]))
        Array([0., 1.], dtype=float32)
    """
    return promote_inexact(x)


@_function("Cos", lax.cos, lambda dy, x, y: -(dy * sin(x)), np.cos)
def cos(x: TensorLike, *, name: str | None = None) -> Given:
    """The cosine of x radians, elementwise; integers give float32.

    Examples:
        >>> run(gc.cos([0.0, np.pi]))
        Array([ 1., -1.], dtype=float32)
    """
    return promote_inexact(x)


@_function("Tan", lax.tan, lambda dy, x, y: dy * (1.0 + square(y)), np.tan)
def tan(x: TensorLike, *, name: str | None = None) -> Given:
    """The tangent of x radians, elementwise; integers give float32.

    Examples:
        >>> run(gc.tan([0.0, np.pi / 4]))
        Array([0., 1.], dtype=float32)
    """
    return promote_inexact(x)


@_function("Asin", lax.asin, lambda dy, x, y: dy * rsqrt(1.0 - square(x)), np.arcsin)
def asin(x: TensorLike, *, name: str | None = None) -> Given:
    """The inverse sine in radians, from -pi/2 to pi/2; integers give float32.

    Examples:
        >>> run(gc.asin([0.0, 1.0]))
        Array([0.    , 1.5708], dtype=float32)
    """
    return promote_inexact(x)


@_function("Acos", lax.acos, lambda dy, x, y: -(dy * rsqrt(1.0 - square(x))), np.arccos)
def acos(x: TensorLike, *, name: str | None = None) -> Given:
    """The inverse cosine in radians, from 0 to pi; integers give float32.

    Examples:
        >>> run(gc.acos([1.0, 0.0]))
        Array([0.    , 1.5708], dtype=float32)
    """
    return promote_inexact(x)


@_function("Atan", lax.atan, lambda dy, x, y: dy / (1.0 + square(x)), np.arctan)
def atan(x: TensorLike, *, name: str | None = None) -> Given:
    """The inverse tangent in radians, from -pi/2 to pi/2; integers give float32.

    Examples:
        >>> run(gc.atan([0.0, 1.0]))
        Array([0.    , 0.7854], dtype=float32)
    """
    return promote_inexact(x)


@_function("Asinh", lax.asinh, lambda dy, x, y: dy * rsqrt(square(x) + 1.0), np.arcsinh)
def asinh(x: TensorLike, *, name: str | None = None) -> Given:
    """The inverse hyperbolic sine, elementwise; integers give float32.

    Examples:
        >>> run(gc.asinh([0.0, 1.0]))
        Array([0.    , 0.8814], dtype=float32)
    """
    return promote_inexact(x)


@_function("Acosh", lax.acosh, lambda dy, x, y: dy * rsqrt((x - 1.0) * (x + 1.0)), np.arccosh)
def acosh(x: TensorLike, *, name: str | None = None) -> Given:
    """The inverse hyperbolic cosine, elementwise; integers give float32. NaN below 1.

    Examples:
        >>> run(gc.acosh([1.0, 2.0]))
        Array([0.   , 1.317], dtype=float32)
    """
    return promote_inexact(x)


@_function("Atanh", lax.atanh, lambda dy, x, y: dy / ((1.0 - x) * (1.0 + x)), np.arctanh)
def atanh(x: TensorLike, *, name: str | None = None) -> Given:
    """The inverse hyperbolic tangent, elementwise; integers give float32. NaN outside -1 to 1.

    Examples:
        >>> run(gc.atanh([0.0, 0.5]))
        Array([0.    , 0.5493], dtype=float32)
    """
    return promote_inexact(x)


def _sinh_derivative(dy: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dy * cosh(x)


@_function("Sinh", lax.sinh, _sinh_derivative, np.sinh)
def sinh(x: TensorLike, *, name: str | None = None) -> Given:
    """The hyperbolic sine, elementwise; integers give float32.

    Examples:
        >>> run(gc.sinh([0.0, 1.0]))
        Array([0.    , 1.1752], dtype=float32)
    """
    return promote_inexact(x)


@_function("Cosh", lax.cosh, lambda dy, x, y: dy * sinh(x), np.cosh)
def cosh(x: TensorLike, *, name: str | None = None) -> Given:
    """The hyperbolic cosine, elementwise; integers give float32.

    Examples:
        >>> run(gc.cosh([0.0, 1.0]))
        Array([1.    , 1.5431], dtype=float32)
    """
    return promote_inexact(x)


@_function("Tanh", lax.tanh, lambda dy, x, y: dy * (1.0 - square(y)), np.tanh, precision="follow")
def tanh(x: TensorLike, *, name: str | None = None) -> Given:
    """The hyperbolic tangent, elementwise; integers give float32.

    Examples:
        >>> run(gc.tanh([0.0, 1.0]))
        Array([0.    , 0.7616], dtype=float32)
    """
    return promote_inexact(x)


@_function(
    "Sigmoid",
    lax.logistic,
    lambda dy, x, y: dy * (y * (1.0 - y)),
    lambda x: np.reciprocal(np.exp(-x) + np.ones((), x.dtype)),
    precision="follow",
)
def sigmoid(x: TensorLike, *, name: str | None = None) -> Given:
    """1 / (1 + exp(-x)), elementwise; integers give float32.

    Examples:
        >>> run(gc.sigmoid([0.0, 2.0]))
        Array([0.5   , 0.8808], dtype=float32)
    """
    return promote_inexact(x)


@_function(
    "Erf",
    lax.erf,
    lambda dy, x, y: dy * (2.0 / math.sqrt(math.pi) * exp(-square(x))),
    lambda x: np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),
    infer=infer_floating,
    precision="follow",
)
def erf(x: TensorLike, *, name: str | None = None) -> Given:
    """The error function, elementwise; integers give float32, and complex dtypes are errors.

    Examples:
        >>> run(gc.erf([0.0, 1.0]))
        Array([0.    , 0.8427], dtype=float32)
    """
    return promote_inexact(x)


@_function(
    "Erfc",
    lax.erfc,
    lambda dy, x, y: dy * (-2.0 / math.sqrt(math.pi) * exp(-square(x))),
    lambda x: np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype),
    infer=infer_floating,
)
def erfc(x: TensorLike, *, name: str | None = None) -> Given:
    """1 - erf(x), elementwise, exact where that is near 0; integers give float32.

    Examples:
        >>> run(gc.erfc([0.0, 1.0]))
        Array([1.    , 0.1573], dtype=float32)
    """
    return promote_inexact(x)


@_function(
    "ErfInv",
    lax.erf_inv,
    lambda dy, x, y: dy * (math.sqrt(math.pi) / 2.0 * exp(square(y))),
    infer=infer_floating,
)
def erfinv(x: TensorLike, *, name: str | None = None) -> Given:
    """The y with erf(y) = x, elementwise; integers give float32. NaN outside -1 to 1.

    Examples:
        >>> run(gc.erfinv([0.0, 0.5]))
        Array([0.    , 0.4769], dtype=float32)
    """
    return promote_inexact(x)


@_function(
    "Softplus",
    jax.nn.softplus,
    lambda dy, x, y: dy * sigmoid(x),
    lambda x: np.logaddexp(x.astype(np.float64), 0.0).astype(x.dtype),
    infer=infer_floating,
)
def softplus(x: TensorLike, *, name: str | None = None) -> Given:
    """log(1 + exp(x)), elementwise, without overflow; integers give float32.

    Examples:
        >>> run(gc.softplus([0.0, 2.0]))
        Array([0.6931, 2.1269], dtype=float32)
    """
    return promote_inexact(x)


def _atan2_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    y, x = node.inputs
    scaled = dz / (square(x) + square(y))
    return [unbroadcast(ctx, scaled * x, y), -unbroadcast(ctx, scaled * y, x)]


@elementwise_operator(
    "Atan2", lax.atan2, infer=infer_floating, gradient=_atan2_gradient, fold=np.arctan2
)
def atan2(y: TensorLike, x: TensorLike, *, name: str | None = None) -> Given:
    """The angle of the point (x, y) in radians, from -pi to pi, with broadcasting.

    Examples:
        >>> run(gc.atan2([1.0, -1.0], [1.0, 1.0]))
        Array([ 0.7854, -0.7854], dtype=float32)
    """
    return promote_inexact(y, x)


arcsin = asin
arccos = acos
arctan = atan
arctan2 = atan2
arcsinh = asinh
arccosh = acosh
arctanh = atanh

# Records by name, for passes and for rules of other families.
EXP = record(exp)
LOG = record(log)

OPS: tuple[OpDef, ...] = declared(__name__)
