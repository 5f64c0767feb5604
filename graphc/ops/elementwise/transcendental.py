"""Exponentials, logarithms, trigonometry and their kin, elementwise.

Derivatives are written from the result where that is cheaper. Source: Abramowitz & Stegun,
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
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import (
    Adjoints,
    binary,
    infer_floating,
    infer_inexact,
    unary,
    unary_gradient,
    unbroadcast,
)
from graphc.ops.core.emit import emit_one, promote_inexact
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import in_wider
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

Derivative = Callable[[Tensor, Tensor, Tensor], Tensor]


def _function(
    name: str,
    lower: Callable[[Any], Any],
    derivative: Derivative,
    fold: Callable[..., Any] | None,
    doc: str,
    *,
    infer: Callable[..., TensorType] = infer_inexact,
    precision: str = "wide",
) -> OpDef:
    """A function of one operand; `derivative(dy, x, y)` gives the adjoint of x."""
    return OpDef(
        name=name,
        signature="x -> y",
        precision=precision,
        infer=infer,
        lower=in_wider(unary(lower)),
        gradient=unary_gradient(derivative),
        layout=elementwise,
        fold=fold,
        doc=f"{doc} Floating{' and complex' if infer is infer_inexact else ''} dtypes.",
    )


EXP = _function("Exp", lax.exp, lambda dy, x, y: dy * y, np.exp, "e to the power x.")
EXPM1 = _function(
    "Expm1", lax.expm1, lambda dy, x, y: dy * (y + 1.0), np.expm1, "exp(x) - 1, exact near 0."
)
LOG = _function("Log", lax.log, lambda dy, x, y: dy / x, np.log, "The natural logarithm.")
LOG1P = _function(
    "Log1p", lax.log1p, lambda dy, x, y: dy / (x + 1.0), np.log1p, "log(1 + x), exact near 0."
)
SIN = _function("Sin", lax.sin, lambda dy, x, y: dy * cos(x), np.sin, "The sine.")
COS = _function("Cos", lax.cos, lambda dy, x, y: -(dy * sin(x)), np.cos, "The cosine.")
TAN = _function("Tan", lax.tan, lambda dy, x, y: dy * (1.0 + square(y)), np.tan, "The tangent.")
ASIN = _function(
    "Asin",
    lax.asin,
    lambda dy, x, y: dy * rsqrt(1.0 - square(x)),
    np.arcsin,
    "The inverse sine, from -pi/2 to pi/2.",
)
ACOS = _function(
    "Acos",
    lax.acos,
    lambda dy, x, y: -(dy * rsqrt(1.0 - square(x))),
    np.arccos,
    "The inverse cosine, from 0 to pi.",
)
ATAN = _function(
    "Atan",
    lax.atan,
    lambda dy, x, y: dy / (1.0 + square(x)),
    np.arctan,
    "The inverse tangent, from -pi/2 to pi/2.",
)
ASINH = _function(
    "Asinh",
    lax.asinh,
    lambda dy, x, y: dy * rsqrt(square(x) + 1.0),
    np.arcsinh,
    "Inverse hyperbolic sine.",
)
ACOSH = _function(
    "Acosh",
    lax.acosh,
    lambda dy, x, y: dy * rsqrt((x - 1.0) * (x + 1.0)),
    np.arccosh,
    "Inverse hyperbolic cosine; NaN below 1.",
)
ATANH = _function(
    "Atanh",
    lax.atanh,
    lambda dy, x, y: dy / ((1.0 - x) * (1.0 + x)),
    np.arctanh,
    "Inverse hyperbolic tangent, from -1 to 1.",
)
SINH = _function("Sinh", lax.sinh, lambda dy, x, y: dy * cosh(x), np.sinh, "Hyperbolic sine.")
COSH = _function("Cosh", lax.cosh, lambda dy, x, y: dy * sinh(x), np.cosh, "Hyperbolic cosine.")
TANH = _function(
    "Tanh",
    lax.tanh,
    lambda dy, x, y: dy * (1.0 - square(y)),
    np.tanh,
    "Hyperbolic tangent.",
    precision="follow",
)
SIGMOID = _function(
    "Sigmoid",
    lax.logistic,
    lambda dy, x, y: dy * (y * (1.0 - y)),
    lambda x: np.reciprocal(np.exp(-x) + np.ones((), x.dtype)),
    "1 / (1 + exp(-x)), the logistic function.",
    precision="follow",
)
ERF = _function(
    "Erf",
    lax.erf,
    lambda dy, x, y: dy * (2.0 / math.sqrt(math.pi) * exp(-square(x))),
    lambda x: np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),
    "The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
    infer=infer_floating,
    precision="follow",
)
ERFC = _function(
    "Erfc",
    lax.erfc,
    lambda dy, x, y: dy * (-2.0 / math.sqrt(math.pi) * exp(-square(x))),
    lambda x: np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype),
    "1 - erf(x), exact where that is near 0.",
    infer=infer_floating,
)
ERF_INV = _function(
    "ErfInv",
    lax.erf_inv,
    lambda dy, x, y: dy * (math.sqrt(math.pi) / 2.0 * exp(square(y))),
    None,
    "The inverse of the error function, from -1 to 1.",
    infer=infer_floating,
)
SOFTPLUS = _function(
    "Softplus",
    jax.nn.softplus,
    lambda dy, x, y: dy * sigmoid(x),
    lambda x: np.logaddexp(x.astype(np.float64), 0.0).astype(x.dtype),
    "log(1 + exp(x)), without overflow.",
    infer=infer_floating,
)


def _atan2_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    y, x = node.inputs
    scaled = dz / (square(x) + square(y))
    return [unbroadcast(ctx, scaled * x, y), -unbroadcast(ctx, scaled * y, x)]


ATAN2 = OpDef(
    name="Atan2",
    signature="y, x -> z",
    precision="wide",
    infer=infer_floating,
    lower=binary(lax.atan2),
    gradient=_atan2_gradient,
    layout=elementwise,
    fold=np.arctan2,
    doc="The angle of the point (x, y), from -pi to pi. Floating dtypes.",
)


def exp(x: Any, *, name: str | None = None) -> Tensor:
    """e to the power x, elementwise; integers give float32."""
    return emit_one(EXP, promote_inexact(x), name)


def expm1(x: Any, *, name: str | None = None) -> Tensor:
    """exp(x) - 1, elementwise, exact near 0; integers give float32."""
    return emit_one(EXPM1, promote_inexact(x), name)


def log(x: Any, *, name: str | None = None) -> Tensor:
    """The natural logarithm, elementwise; integers give float32. NaN below 0, -inf at 0."""
    return emit_one(LOG, promote_inexact(x), name)


def log1p(x: Any, *, name: str | None = None) -> Tensor:
    """log(1 + x), elementwise, exact near 0; integers give float32."""
    return emit_one(LOG1P, promote_inexact(x), name)


def sin(x: Any, *, name: str | None = None) -> Tensor:
    """The sine of x radians, elementwise; integers give float32."""
    return emit_one(SIN, promote_inexact(x), name)


def cos(x: Any, *, name: str | None = None) -> Tensor:
    """The cosine of x radians, elementwise; integers give float32."""
    return emit_one(COS, promote_inexact(x), name)


def tan(x: Any, *, name: str | None = None) -> Tensor:
    """The tangent of x radians, elementwise; integers give float32."""
    return emit_one(TAN, promote_inexact(x), name)


def asin(x: Any, *, name: str | None = None) -> Tensor:
    """The inverse sine in radians, from -pi/2 to pi/2; integers give float32."""
    return emit_one(ASIN, promote_inexact(x), name)


def acos(x: Any, *, name: str | None = None) -> Tensor:
    """The inverse cosine in radians, from 0 to pi; integers give float32."""
    return emit_one(ACOS, promote_inexact(x), name)


def atan(x: Any, *, name: str | None = None) -> Tensor:
    """The inverse tangent in radians, from -pi/2 to pi/2; integers give float32."""
    return emit_one(ATAN, promote_inexact(x), name)


def atan2(y: Any, x: Any, *, name: str | None = None) -> Tensor:
    """The angle of the point (x, y) in radians, from -pi to pi, with broadcasting."""
    return emit_one(ATAN2, promote_inexact(y, x), name)


def asinh(x: Any, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic sine, elementwise; integers give float32."""
    return emit_one(ASINH, promote_inexact(x), name=name)


def acosh(x: Any, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic cosine, elementwise; integers give float32. NaN below 1."""
    return emit_one(ACOSH, promote_inexact(x), name=name)


def atanh(x: Any, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic tangent, elementwise; integers give float32. NaN outside -1 to 1."""
    return emit_one(ATANH, promote_inexact(x), name=name)


def sinh(x: Any, *, name: str | None = None) -> Tensor:
    """The hyperbolic sine, elementwise; integers give float32."""
    return emit_one(SINH, promote_inexact(x), name)


def cosh(x: Any, *, name: str | None = None) -> Tensor:
    """The hyperbolic cosine, elementwise; integers give float32."""
    return emit_one(COSH, promote_inexact(x), name)


def tanh(x: Any, *, name: str | None = None) -> Tensor:
    """The hyperbolic tangent, elementwise; integers give float32."""
    return emit_one(TANH, promote_inexact(x), name)


def sigmoid(x: Any, *, name: str | None = None) -> Tensor:
    """1 / (1 + exp(-x)), elementwise; integers give float32."""
    return emit_one(SIGMOID, promote_inexact(x), name)


def erf(x: Any, *, name: str | None = None) -> Tensor:
    """The error function, elementwise; integers give float32, complex is refused."""
    return emit_one(ERF, promote_inexact(x), name)


def erfc(x: Any, *, name: str | None = None) -> Tensor:
    """1 - erf(x), elementwise, exact where that is near 0; integers give float32."""
    return emit_one(ERFC, promote_inexact(x), name=name)


def erfinv(x: Any, *, name: str | None = None) -> Tensor:
    """The y with erf(y) = x, elementwise; integers give float32. NaN outside -1 to 1."""
    return emit_one(ERF_INV, promote_inexact(x), name=name)


def softplus(x: Any, *, name: str | None = None) -> Tensor:
    """log(1 + exp(x)), elementwise, without overflow; integers give float32."""
    return emit_one(SOFTPLUS, promote_inexact(x), name)


arcsin = asin
arccos = acos
arctan = atan
arctan2 = atan2
arcsinh = asinh
arccosh = acosh
arctanh = atanh

OPS: tuple[OpDef, ...] = (
    EXP,
    EXPM1,
    LOG,
    LOG1P,
    SIN,
    COS,
    TAN,
    ASIN,
    ACOS,
    ATAN,
    ATAN2,
    ASINH,
    ACOSH,
    ATANH,
    SINH,
    COSH,
    TANH,
    SIGMOID,
    ERF,
    ERFC,
    ERF_INV,
    SOFTPLUS,
)
