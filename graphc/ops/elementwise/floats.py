"""Elementwise functions of floats where plain formulas lose digits, overflow, or miss a sign."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import BOOL, is_floating, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import (
    Adjoints,
    binary,
    infer_floating,
    infer_real,
    unary,
    unary_gradient,
    unbroadcast,
)
from graphc.ops.core.emit import convert, emit_one, promote_inexact, promote_operands
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import in_wider
from graphc.ops.elementwise.arithmetic import absolute, floor_divide, negative
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.elementwise.powers import square
from graphc.ops.elementwise.transcendental import sigmoid

__all__ = ["cbrt", "fmod", "hypot", "ldexp", "logaddexp", "nextafter", "signbit", "sinc"]

CBRT = OpDef(
    name="Cbrt",
    signature="x -> y",
    precision="wide",
    infer=infer_floating,
    lower=in_wider(unary(lax.cbrt)),
    gradient=unary_gradient(lambda dy, x, y: dy / (3.0 * square(y))),
    layout=elementwise,
    fold=np.cbrt,
    doc="The cube root, of x's sign. Floating dtypes.",
)

SINC = OpDef(
    name="Sinc",
    signature="x -> y",
    precision="wide",
    infer=infer_floating,
    lower=in_wider(unary(jnp.sinc)),
    layout=elementwise,
    doc="sin(pi x) / (pi x), and 1 at 0. Floating dtypes.",
)


def _hypot_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    z = node.outputs[0]
    scaled = where(equal(z, 0.0), 0.0, dz / z)
    return [unbroadcast(ctx, scaled * t, t) for t in node.inputs]


HYPOT = OpDef(
    name="Hypot",
    signature="x, y -> z",
    precision="wide",
    infer=infer_floating,
    lower=in_wider(lambda ctx, x, y: jnp.hypot(x, y)),
    gradient=_hypot_gradient,
    layout=elementwise,
    fold=np.hypot,
    commutative=True,
    doc="sqrt(x^2 + y^2) without overflow; at 0 the adjoint is 0. Floating dtypes.",
)


def _logaddexp_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    share = sigmoid(x - y)
    return [unbroadcast(ctx, dz * share, x), unbroadcast(ctx, dz * (1.0 - share), y)]


LOG_ADD_EXP = OpDef(
    name="LogAddExp",
    signature="x, y -> z",
    precision="wide",
    infer=infer_floating,
    lower=in_wider(lambda ctx, x, y: jnp.logaddexp(x, y)),
    gradient=_logaddexp_gradient,
    layout=elementwise,
    fold=np.logaddexp,
    commutative=True,
    doc="log(exp(x) + exp(y)) without overflow. Floating dtypes.",
)


def _fmod_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    whole = floor_divide(absolute(x), absolute(y))
    of_y = dz * where(equal(signbit(x), signbit(y)), negative(whole), whole)
    return [unbroadcast(ctx, dz, x), unbroadcast(ctx, of_y, y)]


FMOD = OpDef(
    name="Fmod",
    signature="x, y -> z",
    precision="wide",
    infer=infer_real,
    lower=in_wider(binary(lax.rem)),
    gradient=_fmod_gradient,
    layout=elementwise,
    doc="What is left of x after whole steps of y towards zero: of x's sign. Integer and "
    "floating dtypes.",
)

NEXT_AFTER = OpDef(
    name="NextAfter",
    signature="x, y -> z",
    precision="wide",
    infer=infer_floating,
    lower=binary(lax.nextafter),
    differentiable=False,
    layout=elementwise,
    fold=np.nextafter,
    doc="The number next to x in the direction of y. Floating dtypes.",
)


def _infer_signbit(ctx: InferContext, x: TensorType) -> TensorType:
    return TensorType(BOOL, infer_real(ctx, x).shape)


def _lower_signbit(ctx: Any, x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return jnp.zeros(x.shape, BOOL)
    return jnp.signbit(x) if is_floating(np.dtype(x.dtype)) else lax.lt(x, np.zeros((), x.dtype))


SIGN_BIT = OpDef(
    name="SignBit",
    signature="x -> y",
    precision="wide",
    infer=_infer_signbit,
    lower=in_wider(_lower_signbit),
    differentiable=False,
    layout=elementwise,
    fold=np.signbit,
    doc="Whether x has a minus sign, -0.0 among them, as bool. Integer and floating dtypes.",
)


def _infer_ldexp(ctx: InferContext, x: TensorType, n: TensorType) -> TensorType:
    ctx.require_dtype([x], is_floating, "floating")
    ctx.require(is_integer(n.dtype), f"n must be integers, got {n.dtype.name}", dtype=True)
    return TensorType(x.dtype, ctx.broadcast(x.shape, n.shape))


LDEXP = OpDef(
    name="Ldexp",
    signature="x, n -> y",
    precision="wide",
    infer=_infer_ldexp,
    lower=in_wider(lambda ctx, x, n: jnp.ldexp(x, n)),
    gradient=lambda ctx, node, dy: [
        unbroadcast(ctx, ldexp(dy, node.inputs[1]), node.inputs[0]),
        None,
    ],
    layout=elementwise,
    doc="x times 2 to the power n, exactly. x floating, n integers.",
)


def cbrt(x: Any, *, name: str | None = None) -> Tensor:
    """The cube root, elementwise, of the sign of `x`; integers give float32."""
    return emit_one(CBRT, promote_inexact(x), name)


def sinc(x: Any, *, name: str | None = None) -> Tensor:
    """sin(pi x) / (pi x), elementwise, and 1 at 0. Source: numpy.sinc."""
    return emit_one(SINC, promote_inexact(x), name)


def hypot(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """sqrt(x^2 + y^2), without overflow, with broadcasting. Source: numpy.hypot."""
    return emit_one(HYPOT, promote_inexact(x, y), name)


def logaddexp(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """log(exp(x) + exp(y)), without overflow, with broadcasting. Source: numpy.logaddexp."""
    return emit_one(LOG_ADD_EXP, promote_inexact(x, y), name)


def fmod(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """What is left of `x` after whole steps of `y`, of the sign of `x`, with broadcasting.

    (`remainder` has the sign of `y`.) Real dtypes, not bool. Source: numpy.fmod.
    """
    return emit_one(FMOD, promote_operands(x, y), name)


def nextafter(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """The number next to `x` in the direction of `y`. Source: numpy.nextafter."""
    return emit_one(NEXT_AFTER, promote_inexact(x, y), name)


def signbit(x: Any, *, name: str | None = None) -> Tensor:
    """Whether `x` has a minus sign, elementwise, as bool: that of -0.0 too. Real dtypes."""
    return emit_one(SIGN_BIT, (convert(x),), name)


def ldexp(x: Any, n: Any, *, name: str | None = None) -> Tensor:
    """`x` times 2 to the power `n` (integers), exactly, with broadcasting.

    Raises:
        DTypeError: `n` are not integers.

    Source: numpy.ldexp.
    """
    return emit_one(LDEXP, (*promote_inexact(x), convert(n)), name)


OPS: tuple[OpDef, ...] = (
    CBRT,
    SINC,
    HYPOT,
    LOG_ADD_EXP,
    FMOD,
    NEXT_AFTER,
    SIGN_BIT,
    LDEXP,
)
