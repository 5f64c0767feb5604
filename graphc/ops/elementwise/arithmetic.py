"""Elementwise arithmetic with NumPy broadcasting. See also `powers` and `rounding`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import BOOL, is_complex, real_of
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import (
    Adjoints,
    align,
    broadcast_all,
    infer_broadcast,
    infer_numeric,
    infer_ordered,
    infer_real,
    unbroadcast,
)
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import times_result
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator, record
from graphc.ops.core.emit import convert, promote_inexact, promote_operands, to_dtype
from graphc.ops.core.layout_rules import additive, linear_in
from graphc.typing import TensorLike

__all__ = [
    "abs",
    "absolute",
    "add",
    "clip",
    "divide",
    "floor_divide",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "remainder",
    "sign",
    "subtract",
    "true_divide",
]

Lowering = Callable[[LowerContext, Any, Any], Any]


def _numeric_or_bool(numeric: Callable[[Any, Any], Any], on_bool: Callable[..., Any]) -> Lowering:
    """Sums and products of bools as in JAX; `jax.lax` does not accept them."""
    return lambda ctx, x, y: (on_bool if x.dtype == BOOL else numeric)(*align(x, y))


def _subtract_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    return [unbroadcast(ctx, dz, x), negative(unbroadcast(ctx, dz, y))]


def _multiply_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    return [unbroadcast(ctx, dz * y, x), unbroadcast(ctx, dz * x, y)]


def _divide_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    quotient = dz / y
    return [
        unbroadcast(ctx, quotient, x),
        negative(unbroadcast(ctx, quotient * node.outputs[0], y)),
    ]


def _remainder_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    return [unbroadcast(ctx, dz, x), negative(unbroadcast(ctx, dz * floor_divide(x, y), y))]


def _not_by_zero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`function`, or None if a divisor is zero, because NumPy and XLA differ there."""
    return lambda x, y: function(x, y) if np.all(y != 0) else None


def _extremum(
    name: str, function: Callable[[Any, Any], Any], fold: np.ufunc, *, greatest: bool
) -> Declaration:
    """The greater (or smaller) operand gets the adjoint; equal ones get half each, as in JAX."""

    def gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
        x, y = node.inputs
        where, before = ctx.ops.where, ctx.ops.greater if greatest else ctx.ops.less
        tied = where(ctx.ops.equal(x, y), dz * 0.5, 0.0)
        return [
            unbroadcast(ctx, where(before(x, y), dz, tied), x),
            unbroadcast(ctx, where(before(y, x), dz, tied), y),
        ]

    return elementwise_operator(
        name,
        function,
        infer=infer_ordered,
        precision="follow",
        gradient=gradient,
        fold=fold,
        commutative=True,
    )


@elementwise_operator(
    "Add",
    infer=infer_broadcast,
    lower=_numeric_or_bool(lax.add, lax.bitwise_or),
    precision="follow",
    gradient=lambda ctx, node, dz: [unbroadcast(ctx, dz, t) for t in node.inputs],
    layout=additive,
    fold=np.add,
    commutative=True,
)
def add(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x + y with broadcasting and dtype promotion; `or` of bools.

    Raises:
        ShapeError: the shapes do not broadcast together.

    Examples:
        >>> run(gc.add([1, 2], 3))
        Array([4, 5], dtype=int32)
    """
    return promote_operands(x, y)


@elementwise_operator(
    "Subtract",
    lax.sub,
    infer=infer_numeric,
    precision="follow",
    gradient=_subtract_gradient,
    layout=additive,
    fold=np.subtract,
)
def subtract(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x - y with broadcasting and dtype promotion.

    Raises:
        ShapeError: the shapes do not broadcast together.
        DTypeError: both are bool.

    Examples:
        >>> run(gc.subtract([5, 6], 2))
        Array([3, 4], dtype=int32)
    """
    return promote_operands(x, y)


@elementwise_operator(
    "Multiply",
    infer=infer_broadcast,
    lower=_numeric_or_bool(lax.mul, lax.bitwise_and),
    precision="follow",
    gradient=_multiply_gradient,
    layout=linear_in(0, 1),
    fold=np.multiply,
    commutative=True,
)
def multiply(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x * y with broadcasting and dtype promotion; `and` of bools.

    Raises:
        ShapeError: the shapes do not broadcast together.

    Examples:
        >>> run(gc.multiply([1, 2], 3))
        Array([3, 6], dtype=int32)
    """
    return promote_operands(x, y)


@elementwise_operator(
    "Divide",
    lax.div,
    precision="follow",
    gradient=_divide_gradient,
    layout=linear_in(0),
    fold=np.divide,
)
def divide(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x / y with broadcasting and dtype promotion; integers give float32.

    Raises:
        ShapeError: the shapes do not broadcast together.

    Examples:
        >>> run(gc.divide([1, 2], 2))
        Array([0.5, 1. ], dtype=float32)
    """
    return promote_inexact(x, y)


@elementwise_operator(
    "FloorDivide",
    jnp.floor_divide,
    infer=infer_real,
    differentiable=False,
    fold=_not_by_zero(np.floor_divide),
)
def floor_divide(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x // y, rounded down, with broadcasting and dtype promotion; real dtypes, not bool.

    Examples:
        >>> run(gc.floor_divide([7, -7], 2))
        Array([ 3, -4], dtype=int32)
    """
    return promote_operands(x, y)


@elementwise_operator(
    "Remainder",
    jnp.remainder,
    infer=infer_real,
    gradient=_remainder_gradient,
    fold=_not_by_zero(np.remainder),
)
def remainder(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x % y with the sign of y, with broadcasting and dtype promotion; real dtypes, not bool.

    Examples:
        >>> run(gc.remainder([7, -7], 3))
        Array([1, 2], dtype=int32)
    """
    return promote_operands(x, y)


@_extremum("Maximum", lax.max, np.maximum, greatest=True)
def maximum(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """The greater of x and y, elementwise with broadcasting; NaN where either is NaN.

    Equal operands get half of the adjoint each.

    Examples:
        >>> run(gc.maximum([1, 5], 3))
        Array([3, 5], dtype=int32)
    """
    return promote_operands(x, y)


@_extremum("Minimum", lax.min, np.minimum, greatest=False)
def minimum(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """The smaller of x and y, elementwise with broadcasting; NaN where either is NaN.

    Equal operands get half of the adjoint each.

    Examples:
        >>> run(gc.minimum([1, 5], 3))
        Array([1, 3], dtype=int32)
    """
    return promote_operands(x, y)


def _lower_clip(ctx: LowerContext, x: Any, lo: Any, hi: Any) -> Any:
    x, lo, hi = broadcast_all(x, lo, hi)
    return lax.clamp(lo, x, hi)


def _clip_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, lo, hi = node.inputs
    inside = ctx.ops.logical_and(x > lo, x < hi)
    masks = (inside, x < lo, x > hi)
    return [
        unbroadcast(ctx, ctx.ops.where(mask, dz, 0.0), t)
        for mask, t in zip(masks, node.inputs, strict=True)
    ]


@elementwise_operator(
    "Clip",
    signature="x, lo, hi -> z",
    infer=infer_real,
    lower=_lower_clip,
    precision="follow",
    gradient=_clip_gradient,
    fold=lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
    cost=times_result(2),
)
def clip(
    x: TensorLike,
    lo: TensorLike | None = None,
    hi: TensorLike | None = None,
    *,
    name: str | None = None,
) -> Given:
    """x limited to lo <= x <= hi, with broadcasting; None means no bound.

    At a bound no operand gets the adjoint, as in `jax.lax.clamp`.

    Raises:
        AttributeValueError: neither bound is given.

    Examples:
        >>> run(gc.clip([-1, 2, 9], 0, 5))
        Array([0, 2, 5], dtype=int32)
    """
    if lo is None and hi is None:
        refuse("Clip: no bound is given", error=AttributeValueError, hint="give lo, hi or both")
    if lo is None:
        return minimum(x, cast(TensorLike, hi), name=name)
    if hi is None:
        return maximum(x, lo, name=name)
    return promote_operands(x, lo, hi)


@elementwise_operator(
    "Negative",
    lax.neg,
    infer=infer_numeric,
    precision="follow",
    derivative=lambda dy, x, y: -dy,
    layout=additive,
    fold=np.negative,
)
def negative(x: TensorLike, *, name: str | None = None) -> Given:
    """-x, elementwise; numeric dtypes.

    Examples:
        >>> run(gc.negative([1, -2]))
        Array([-1,  2], dtype=int32)
    """
    return (convert(x),)


def _abs_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, y = node.inputs[0], node.outputs[0]
    if not is_complex(x.type.dtype):
        return [ctx.ops.where(x >= 0.0, dy, -dy)]  # 1 at zero, as in JAX
    # The direction conj(x) / |x|; at zero the adjoint is zero, as in JAX.
    length = ctx.ops.where(ctx.ops.equal(y, 0.0), 1.0, y)
    return [to_dtype(dy / length, x.type.dtype) * ctx.ops.conj(x)]


@elementwise_operator(
    "Abs",
    infer=lambda ctx, x: TensorType(real_of(x.dtype), x.shape) if is_complex(x.dtype) else x,
    lower=lambda ctx, x: (
        x if x.dtype == BOOL or jnp.issubdtype(x.dtype, jnp.unsignedinteger) else lax.abs(x)
    ),
    widen=True,
    precision="follow",
    gradient=_abs_gradient,
    fold=np.absolute,
    dtypes="All dtypes.",
)
def absolute(x: TensorLike, *, name: str | None = None) -> Given:
    """|x|, elementwise; real for complex x.

    Examples:
        >>> run(gc.absolute([-2, 3]))
        Array([2, 3], dtype=int32)
    """
    return (convert(x),)


@elementwise_operator(
    "Sign", lax.sign, infer=infer_numeric, precision="follow", differentiable=False, fold=np.sign
)
def sign(x: TensorLike, *, name: str | None = None) -> Given:
    """-1, 0 or 1, elementwise; x / |x| for complex x.

    Examples:
        >>> run(gc.sign([-2.0, 0.0, 3.0]))
        Array([-1.,  0.,  1.], dtype=float32)
    """
    return (convert(x),)


true_divide = divide
mod = remainder
abs = absolute

# Records by name, for passes and for rules of other families.
ADD = record(add)
SUBTRACT = record(subtract)
MULTIPLY = record(multiply)
DIVIDE = record(divide)
FLOOR_DIVIDE = record(floor_divide)
MAXIMUM = record(maximum)
MINIMUM = record(minimum)
NEGATIVE = record(negative)
ABS = record(absolute)

OPS: tuple[OpDef, ...] = declared(__name__)
