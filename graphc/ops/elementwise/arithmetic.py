"""Arithmetic, elementwise with NumPy broadcasting. Powers are in `powers.py`, rounding in
`rounding.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import BOOL, is_complex, real_of
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import (
    Adjoints,
    align,
    binary,
    broadcast_all,
    infer_broadcast,
    infer_inexact,
    infer_numeric,
    infer_ordered,
    infer_real,
    unary,
    unary_gradient,
    unbroadcast,
)
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import times_result
from graphc.ops.core.emit import convert, emit_one, promote_inexact, promote_operands, to_dtype
from graphc.ops.core.layout_rules import additive, elementwise, linear_in
from graphc.ops.core.precision import in_wider

Lowering = Callable[[LowerContext, Any, Any], Any]


def _numeric_or_bool(numeric: Callable[[Any, Any], Any], on_bool: Callable[..., Any]) -> Lowering:
    """JAX's meaning of a sum and a product of bools, which `jax.lax` does not take."""
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
    """`function`, or None for a zero divisor, where NumPy and XLA differ."""
    return lambda x, y: function(x, y) if np.all(y != 0) else None


def _extremum_gradient(wins: str) -> Callable[[GradientContext, Node, Tensor], Adjoints]:
    """The greater (or smaller) operand takes the adjoint; equal ones take half each, as in JAX."""

    def rule(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
        x, y = node.inputs
        where, before = ctx.ops.where, getattr(ctx.ops, wins)
        tied = where(ctx.ops.equal(x, y), dz * 0.5, 0.0)
        return [
            unbroadcast(ctx, where(before(x, y), dz, tied), x),
            unbroadcast(ctx, where(before(y, x), dz, tied), y),
        ]

    return rule


ADD = OpDef(
    name="Add",
    signature="x, y -> z",
    precision="follow",
    infer=infer_broadcast,
    lower=_numeric_or_bool(lax.add, lax.bitwise_or),
    gradient=lambda ctx, node, dz: [unbroadcast(ctx, dz, t) for t in node.inputs],
    layout=additive,
    fold=np.add,
    commutative=True,
    doc="x + y; of bools, or. All dtypes.",
)

SUBTRACT = OpDef(
    name="Subtract",
    signature="x, y -> z",
    precision="follow",
    infer=infer_numeric,
    lower=binary(lax.sub),
    gradient=_subtract_gradient,
    layout=additive,
    fold=np.subtract,
    doc="x - y. Numeric dtypes.",
)

MULTIPLY = OpDef(
    name="Multiply",
    signature="x, y -> z",
    precision="follow",
    infer=infer_broadcast,
    lower=_numeric_or_bool(lax.mul, lax.bitwise_and),
    gradient=_multiply_gradient,
    layout=linear_in(0, 1),
    fold=np.multiply,
    commutative=True,
    doc="x * y; of bools, and. All dtypes.",
)

DIVIDE = OpDef(
    name="Divide",
    signature="x, y -> z",
    precision="follow",
    infer=infer_inexact,
    lower=binary(lax.div),
    gradient=_divide_gradient,
    layout=linear_in(0),
    fold=np.divide,
    doc="x / y. Floating and complex dtypes.",
)

FLOOR_DIVIDE = OpDef(
    name="FloorDivide",
    signature="x, y -> z",
    precision="wide",
    infer=infer_real,
    lower=lambda ctx, x, y: jnp.floor_divide(x, y),
    differentiable=False,
    layout=elementwise,
    fold=_not_by_zero(np.floor_divide),
    doc="The greatest integer not above x / y. Integer and floating dtypes.",
)

REMAINDER = OpDef(
    name="Remainder",
    signature="x, y -> z",
    precision="wide",
    infer=infer_real,
    lower=lambda ctx, x, y: jnp.remainder(x, y),
    gradient=_remainder_gradient,
    layout=elementwise,
    fold=_not_by_zero(np.remainder),
    doc="x - y * floor_divide(x, y): of the divisor's sign. Integer and floating dtypes.",
)

MAXIMUM = OpDef(
    name="Maximum",
    signature="x, y -> z",
    precision="follow",
    infer=infer_ordered,
    lower=binary(lax.max),
    gradient=_extremum_gradient("greater"),
    layout=elementwise,
    fold=np.maximum,
    commutative=True,
    doc="The greater of x and y; NaN where either is. The adjoint of equal operands is halved. "
    "Real dtypes and bool.",
)

MINIMUM = OpDef(
    name="Minimum",
    signature="x, y -> z",
    precision="follow",
    infer=infer_ordered,
    lower=binary(lax.min),
    gradient=_extremum_gradient("less"),
    layout=elementwise,
    fold=np.minimum,
    commutative=True,
    doc="The smaller of x and y; NaN where either is. The adjoint of equal operands is halved. "
    "Real dtypes and bool.",
)


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


CLIP = OpDef(
    name="Clip",
    signature="x, lo, hi -> z",
    precision="follow",
    infer=infer_real,
    lower=_lower_clip,
    gradient=_clip_gradient,
    layout=elementwise,
    fold=lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
    cost=times_result(2),
    doc="min(max(x, lo), hi), as `jax.lax.clamp`: at a bound the adjoint goes to no operand. "
    "Integer and floating dtypes.",
)

NEGATIVE = OpDef(
    name="Negative",
    signature="x -> y",
    precision="follow",
    infer=infer_numeric,
    lower=unary(lax.neg),
    gradient=unary_gradient(lambda dy, x, y: negative(dy)),
    layout=additive,
    fold=np.negative,
    doc="-x. Numeric dtypes.",
)


def _infer_abs(ctx: InferContext, x: TensorType) -> TensorType:
    return TensorType(real_of(x.dtype), x.shape) if is_complex(x.dtype) else x


def _lower_abs(ctx: LowerContext, x: Any) -> Any:
    return x if x.dtype == BOOL or jnp.issubdtype(x.dtype, jnp.unsignedinteger) else lax.abs(x)


def _abs_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, y = node.inputs[0], node.outputs[0]
    if not is_complex(x.type.dtype):
        return [ctx.ops.where(x >= 0.0, dy, -dy)]  # at zero 1, as in JAX
    # The direction conj(x) / |x|; at zero the adjoint is zero, as in JAX.
    length = ctx.ops.where(ctx.ops.equal(y, 0.0), 1.0, y)
    return [to_dtype(dy / length, x.type.dtype) * ctx.ops.conj(x)]


ABS = OpDef(
    name="Abs",
    signature="x -> y",
    precision="follow",
    infer=_infer_abs,
    lower=in_wider(_lower_abs),
    gradient=_abs_gradient,
    layout=elementwise,
    fold=np.absolute,
    doc="The absolute value; real for complex x. All dtypes.",
)

SIGN = OpDef(
    name="Sign",
    signature="x -> y",
    precision="follow",
    infer=infer_numeric,
    lower=unary(lax.sign),
    differentiable=False,
    layout=elementwise,
    fold=np.sign,
    doc="-1, 0 or 1; x / |x| for complex x. Numeric dtypes.",
)


def add(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x + y with broadcasting and dtype promotion; `or` of bools.

    Raises:
        ShapeError: the shapes do not broadcast together.
    """
    return emit_one(ADD, promote_operands(x, y), name)


def subtract(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x - y with broadcasting and dtype promotion.

    Raises:
        ShapeError: the shapes do not broadcast together.
        DTypeError: both are bool.
    """
    return emit_one(SUBTRACT, promote_operands(x, y), name)


def multiply(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x * y with broadcasting and dtype promotion; `and` of bools.

    Raises:
        ShapeError: the shapes do not broadcast together.
    """
    return emit_one(MULTIPLY, promote_operands(x, y), name)


def divide(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x / y with broadcasting and dtype promotion; of integers in float32.

    Raises:
        ShapeError: the shapes do not broadcast together.
    """
    return emit_one(DIVIDE, promote_inexact(x, y), name)


def floor_divide(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x // y, rounded down, with broadcasting and dtype promotion; real dtypes, not bool."""
    return emit_one(FLOOR_DIVIDE, promote_operands(x, y), name)


def remainder(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x % y, of y's sign, with broadcasting and dtype promotion; real dtypes, not bool."""
    return emit_one(REMAINDER, promote_operands(x, y), name)


def maximum(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """The greater of x and y, elementwise with broadcasting; NaN where either is."""
    return emit_one(MAXIMUM, promote_operands(x, y), name)


def minimum(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """The smaller of x and y, elementwise with broadcasting; NaN where either is."""
    return emit_one(MINIMUM, promote_operands(x, y), name)


def clip(x: Any, lo: Any = None, hi: Any = None, *, name: str | None = None) -> Tensor:
    """x limited to lo <= x <= hi, with broadcasting; None leaves a side open.

    Raises:
        AttributeValueError: neither bound is given.
    """
    if lo is None and hi is None:
        refuse("Clip: no bound is given", error=AttributeValueError, hint="give lo, hi or both")
    if hi is None:
        return maximum(x, lo, name=name)
    if lo is None:
        return minimum(x, hi, name=name)
    return emit_one(CLIP, promote_operands(x, lo, hi), name)


def negative(x: Any, *, name: str | None = None) -> Tensor:
    """-x, elementwise; numeric dtypes."""
    return emit_one(NEGATIVE, (convert(x),), name)


def absolute(x: Any, *, name: str | None = None) -> Tensor:
    """|x|, elementwise; real for complex x."""
    return emit_one(ABS, (convert(x),), name)


def sign(x: Any, *, name: str | None = None) -> Tensor:
    """-1, 0 or 1, elementwise; x / |x| for complex x."""
    return emit_one(SIGN, (convert(x),), name)


true_divide = divide
mod = remainder
abs = absolute

OPS: tuple[OpDef, ...] = (
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    FLOOR_DIVIDE,
    REMAINDER,
    MAXIMUM,
    MINIMUM,
    CLIP,
    NEGATIVE,
    ABS,
    SIGN,
)
