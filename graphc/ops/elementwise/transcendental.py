"""Exponentials, logarithms, trigonometry and their kin, elementwise.

Derivatives are written from the result where that is cheaper. Source: Abramowitz & Stegun,
Handbook of Mathematical Functions, chapters 4 and 7.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import lax

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, OpDef
from graphc.ops.core.broadcasting import (
    Adjoints,
    infer_floating,
    unbroadcast,
)
from graphc.ops.core.declaring import Given, declared, elementwise_operator, record
from graphc.ops.core.emit import promote_inexact
from graphc.ops.elementwise.powers import rsqrt, square

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


@elementwise_operator("Exp", lax.exp, derivative=lambda dy, x, y: dy * y, fold=np.exp, widen=True)
def exp(x: Any, *, name: str | None = None) -> Given:
    """e to the power x, elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Expm1", lax.expm1, derivative=lambda dy, x, y: dy * (y + 1.0), fold=np.expm1, widen=True
)
def expm1(x: Any, *, name: str | None = None) -> Given:
    """exp(x) - 1, elementwise, exact near 0; integers give float32."""
    return promote_inexact(x)


@elementwise_operator("Log", lax.log, derivative=lambda dy, x, y: dy / x, fold=np.log, widen=True)
def log(x: Any, *, name: str | None = None) -> Given:
    """The natural logarithm, elementwise; integers give float32. NaN below 0, -inf at 0."""
    return promote_inexact(x)


@elementwise_operator(
    "Log1p", lax.log1p, derivative=lambda dy, x, y: dy / (x + 1.0), fold=np.log1p, widen=True
)
def log1p(x: Any, *, name: str | None = None) -> Given:
    """log(1 + x), elementwise, exact near 0; integers give float32."""
    return promote_inexact(x)


def _sin_slope(dy: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dy * cos(x)


@elementwise_operator("Sin", lax.sin, derivative=_sin_slope, fold=np.sin, widen=True)
def sin(x: Any, *, name: str | None = None) -> Given:
    """The sine of x radians, elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Cos", lax.cos, derivative=lambda dy, x, y: -(dy * sin(x)), fold=np.cos, widen=True
)
def cos(x: Any, *, name: str | None = None) -> Given:
    """The cosine of x radians, elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Tan", lax.tan, derivative=lambda dy, x, y: dy * (1.0 + square(y)), fold=np.tan, widen=True
)
def tan(x: Any, *, name: str | None = None) -> Given:
    """The tangent of x radians, elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Asin",
    lax.asin,
    derivative=lambda dy, x, y: dy * rsqrt(1.0 - square(x)),
    fold=np.arcsin,
    widen=True,
)
def asin(x: Any, *, name: str | None = None) -> Given:
    """The inverse sine in radians, from -pi/2 to pi/2; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Acos",
    lax.acos,
    derivative=lambda dy, x, y: -(dy * rsqrt(1.0 - square(x))),
    fold=np.arccos,
    widen=True,
)
def acos(x: Any, *, name: str | None = None) -> Given:
    """The inverse cosine in radians, from 0 to pi; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Atan", lax.atan, derivative=lambda dy, x, y: dy / (1.0 + square(x)), fold=np.arctan, widen=True
)
def atan(x: Any, *, name: str | None = None) -> Given:
    """The inverse tangent in radians, from -pi/2 to pi/2; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Asinh",
    lax.asinh,
    derivative=lambda dy, x, y: dy * rsqrt(square(x) + 1.0),
    fold=np.arcsinh,
    widen=True,
)
def asinh(x: Any, *, name: str | None = None) -> Given:
    """The inverse hyperbolic sine, elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Acosh",
    lax.acosh,
    derivative=lambda dy, x, y: dy * rsqrt((x - 1.0) * (x + 1.0)),
    fold=np.arccosh,
    widen=True,
)
def acosh(x: Any, *, name: str | None = None) -> Given:
    """The inverse hyperbolic cosine, elementwise; integers give float32. NaN below 1."""
    return promote_inexact(x)


@elementwise_operator(
    "Atanh",
    lax.atanh,
    derivative=lambda dy, x, y: dy / ((1.0 - x) * (1.0 + x)),
    fold=np.arctanh,
    widen=True,
)
def atanh(x: Any, *, name: str | None = None) -> Given:
    """The inverse hyperbolic tangent, elementwise; integers give float32. NaN outside -1 to 1."""
    return promote_inexact(x)


def _sinh_slope(dy: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dy * cosh(x)


@elementwise_operator("Sinh", lax.sinh, derivative=_sinh_slope, fold=np.sinh, widen=True)
def sinh(x: Any, *, name: str | None = None) -> Given:
    """The hyperbolic sine, elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Cosh", lax.cosh, derivative=lambda dy, x, y: dy * sinh(x), fold=np.cosh, widen=True
)
def cosh(x: Any, *, name: str | None = None) -> Given:
    """The hyperbolic cosine, elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Tanh",
    lax.tanh,
    derivative=lambda dy, x, y: dy * (1.0 - square(y)),
    fold=np.tanh,
    precision="follow",
    widen=True,
)
def tanh(x: Any, *, name: str | None = None) -> Given:
    """The hyperbolic tangent, elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Sigmoid",
    lax.logistic,
    derivative=lambda dy, x, y: dy * (y * (1.0 - y)),
    fold=lambda x: np.reciprocal(np.exp(-x) + np.ones((), x.dtype)),
    precision="follow",
    widen=True,
)
def sigmoid(x: Any, *, name: str | None = None) -> Given:
    """1 / (1 + exp(-x)), elementwise; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "Erf",
    lax.erf,
    derivative=lambda dy, x, y: dy * (2.0 / math.sqrt(math.pi) * exp(-square(x))),
    fold=lambda x: np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),
    infer=infer_floating,
    precision="follow",
    widen=True,
)
def erf(x: Any, *, name: str | None = None) -> Given:
    """The error function, elementwise; integers give float32, complex is refused."""
    return promote_inexact(x)


@elementwise_operator(
    "Erfc",
    lax.erfc,
    derivative=lambda dy, x, y: dy * (-2.0 / math.sqrt(math.pi) * exp(-square(x))),
    fold=lambda x: np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype),
    infer=infer_floating,
    widen=True,
)
def erfc(x: Any, *, name: str | None = None) -> Given:
    """1 - erf(x), elementwise, exact where that is near 0; integers give float32."""
    return promote_inexact(x)


@elementwise_operator(
    "ErfInv",
    lax.erf_inv,
    derivative=lambda dy, x, y: dy * (math.sqrt(math.pi) / 2.0 * exp(square(y))),
    infer=infer_floating,
    widen=True,
)
def erfinv(x: Any, *, name: str | None = None) -> Given:
    """The y with erf(y) = x, elementwise; integers give float32. NaN outside -1 to 1."""
    return promote_inexact(x)


@elementwise_operator(
    "Softplus",
    jax.nn.softplus,
    derivative=lambda dy, x, y: dy * sigmoid(x),
    fold=lambda x: np.logaddexp(x.astype(np.float64), 0.0).astype(x.dtype),
    infer=infer_floating,
    widen=True,
)
def softplus(x: Any, *, name: str | None = None) -> Given:
    """log(1 + exp(x)), elementwise, without overflow; integers give float32."""
    return promote_inexact(x)


def _atan2_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    y, x = node.inputs
    scaled = dz / (square(x) + square(y))
    return [unbroadcast(ctx, scaled * x, y), -unbroadcast(ctx, scaled * y, x)]


@elementwise_operator(
    "Atan2", lax.atan2, infer=infer_floating, gradient=_atan2_gradient, fold=np.arctan2
)
def atan2(y: Any, x: Any, *, name: str | None = None) -> Given:
    """The angle of the point (x, y) in radians, from -pi to pi, with broadcasting."""
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
TANH = record(tanh)

OPS: tuple[OpDef, ...] = declared(__name__)
