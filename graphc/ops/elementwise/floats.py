"""Elementwise functions of floats whose plain formulas lose digits, overflow or miss a sign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import BOOL, is_floating, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints, infer_floating, infer_real, unbroadcast
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator
from graphc.ops.core.emit import convert, promote_inexact, promote_operands
from graphc.ops.elementwise.arithmetic import absolute, floor_divide, negative
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.elementwise.powers import square
from graphc.ops.elementwise.transcendental import sigmoid
from graphc.typing import TensorLike

__all__ = ["cbrt", "fmod", "hypot", "ldexp", "logaddexp", "nextafter", "signbit", "sinc"]


@elementwise_operator(
    "Cbrt",
    lax.cbrt,
    infer=infer_floating,
    widen=True,
    derivative=lambda dy, x, y: dy / (3.0 * square(y)),
    fold=np.cbrt,
)
def cbrt(x: TensorLike, *, name: str | None = None) -> Given:
    """The cube root, elementwise, with the sign of `x`; integers give float32.

    Examples:
        >>> run(gc.cbrt([8.0, -27.0]))
        Array([ 2., -3.], dtype=float32)
    """
    return promote_inexact(x)


@elementwise_operator("Sinc", jnp.sinc, infer=infer_floating, widen=True)
def sinc(x: TensorLike, *, name: str | None = None) -> Given:
    """sin(pi x) / (pi x), elementwise, and 1 at 0. Source: numpy.sinc.

    Examples:
        >>> run(gc.sinc([0.0, 0.5]))
        Array([1.    , 0.6366], dtype=float32)
    """
    return promote_inexact(x)


def _symmetric(
    name: str, function: Callable[..., Any], gradient: Callable[..., Adjoints], fold: np.ufunc
) -> Declaration:
    return elementwise_operator(
        name,
        function,
        infer=infer_floating,
        widen=True,
        gradient=gradient,
        fold=fold,
        commutative=True,
    )


def _hypot_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    z = node.outputs[0]
    scaled = where(equal(z, 0.0), 0.0, dz / z)
    return [unbroadcast(ctx, scaled * t, t) for t in node.inputs]


@_symmetric("Hypot", jnp.hypot, _hypot_gradient, np.hypot)
def hypot(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """sqrt(x^2 + y^2), without overflow, with broadcasting; at 0 the adjoint is 0.

    Source: numpy.hypot.

    Examples:
        >>> run(gc.hypot(3.0, 4.0))
        Array(5., dtype=float32)
    """
    return promote_inexact(x, y)


def _logaddexp_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    share = sigmoid(x - y)
    return [unbroadcast(ctx, dz * share, x), unbroadcast(ctx, dz * (1.0 - share), y)]


@_symmetric("LogAddExp", jnp.logaddexp, _logaddexp_gradient, np.logaddexp)
def logaddexp(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """log(exp(x) + exp(y)), without overflow, with broadcasting. Source: numpy.logaddexp.

    Examples:
        >>> run(gc.logaddexp([0.0], [0.0]))
        Array([0.6931], dtype=float32)
    """
    return promote_inexact(x, y)


def _fmod_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    whole = floor_divide(absolute(x), absolute(y))
    of_y = dz * where(equal(signbit(x), signbit(y)), negative(whole), whole)
    return [unbroadcast(ctx, dz, x), unbroadcast(ctx, of_y, y)]


def _rem(x: Any, y: Any) -> Any:
    """`lax.rem`. XLA evaluates that of two constants on the host, where a division of integers by
    0 ends the process."""
    if not jnp.issubdtype(y.dtype, jnp.integer):
        return lax.rem(x, y)
    zero = lax.eq(y, lax.full_like(y, 0))
    return jnp.where(zero, x, lax.rem(x, lax.select(zero, lax.full_like(y, 1), y)))


@elementwise_operator("Fmod", _rem, infer=infer_real, widen=True, gradient=_fmod_gradient)
def fmod(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """The remainder of x / y, with the sign of `x`, with broadcasting.

    `remainder` has the sign of `y`. Real dtypes, not bool. Source: numpy.fmod.

    Examples:
        >>> run(gc.fmod([7.0, -7.0], 3.0))
        Array([ 1., -1.], dtype=float32)
    """
    return promote_operands(x, y)


@elementwise_operator(
    "NextAfter", lax.nextafter, infer=infer_floating, differentiable=False, fold=np.nextafter
)
def nextafter(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """The number next to `x` in the direction of `y`. Source: numpy.nextafter.

    Examples:
        >>> run(gc.nextafter(1.0, 2.0) > 1.0)
        Array(True, dtype=bool)
    """
    return promote_inexact(x, y)


def _lower_signbit(ctx: Any, x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return jnp.zeros(x.shape, BOOL)
    return jnp.signbit(x) if is_floating(np.dtype(x.dtype)) else lax.lt(x, np.zeros((), x.dtype))


@elementwise_operator(
    "SignBit",
    infer=lambda ctx, x: TensorType(BOOL, infer_real(ctx, x).shape),
    lower=_lower_signbit,
    widen=True,
    differentiable=False,
    fold=np.signbit,
)
def signbit(x: TensorLike, *, name: str | None = None) -> Given:
    """Whether `x` has a minus sign, elementwise, as bool; also for -0.0. Real dtypes.

    Examples:
        >>> run(gc.signbit([-1.0, 2.0]))
        Array([ True, False], dtype=bool)
    """
    return (convert(x),)


def _infer_ldexp(ctx: InferContext, x: TensorType, n: TensorType) -> TensorType:
    ctx.require_dtype([x], is_floating, "floating")
    ctx.require(is_integer(n.dtype), f"n must be integers, got {n.dtype.name}", dtype=True)
    return TensorType(x.dtype, ctx.broadcast(x.shape, n.shape))


def _ldexp_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, n = node.inputs
    return [unbroadcast(ctx, ldexp(dy, n), x), None]


@elementwise_operator(
    "Ldexp",
    jnp.ldexp,
    infer=_infer_ldexp,
    widen=True,
    gradient=_ldexp_gradient,
)
def ldexp(x: TensorLike, n: TensorLike, *, name: str | None = None) -> Given:
    """`x` times 2 to the power `n` (integers), exactly, with broadcasting.

    Raises:
        DTypeError: `n` does not hold integers.

    Source: numpy.ldexp.

    Examples:
        >>> run(gc.ldexp([1.5, 3.0], 2))
        Array([ 6., 12.], dtype=float32)
    """
    return (*promote_inexact(x), convert(n))


OPS: tuple[OpDef, ...] = declared(__name__)
