"""Comparison, logic and choice, elementwise with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import BOOL, DType, is_inexact, is_integer
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Replicated, of_elements
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import (
    Adjoints,
    binary,
    broadcast_all,
    infer_broadcast,
    infer_of,
    infer_ordered,
    require_one_dtype,
    unbroadcast,
)
from graphc.ops.core.emit import convert, emit_one, promote_operands
from graphc.ops.core.layout_rules import SUM, elementwise


def _comparison(
    name: str, lower: Callable[[Any, Any], Any], fold: np.ufunc, doc: str, *, ordered: bool
) -> OpDef:
    """A comparison: operands of one dtype, a bool result."""
    infer_operands = infer_ordered if ordered else infer_broadcast

    def infer(ctx: InferContext, x: TensorType, y: TensorType) -> TensorType:
        return TensorType(BOOL, infer_operands(ctx, x, y).shape)

    return OpDef(
        name=name,
        signature="x, y -> z",
        precision="follow",
        infer=infer,
        lower=binary(lower),
        differentiable=False,
        layout=elementwise,
        fold=fold,
        commutative=not ordered,
        doc=f"{doc}, as bool. {'Real dtypes and bool' if ordered else 'All dtypes'}.",
    )


EQUAL = _comparison("Equal", lax.eq, np.equal, "x == y", ordered=False)
NOT_EQUAL = _comparison("NotEqual", lax.ne, np.not_equal, "x != y", ordered=False)
LESS = _comparison("Less", lax.lt, np.less, "x < y", ordered=True)
LESS_EQUAL = _comparison("LessEqual", lax.le, np.less_equal, "x <= y", ordered=True)
GREATER = _comparison("Greater", lax.gt, np.greater, "x > y", ordered=True)
GREATER_EQUAL = _comparison("GreaterEqual", lax.ge, np.greater_equal, "x >= y", ordered=True)


def _is_logical(dtype: DType) -> bool:
    return dtype == BOOL or is_integer(dtype)


_infer_logical = infer_of(_is_logical, "bool or integer (compare first: gc.not_equal(x, 0))")


def _logical(name: str, lower: Callable[[Any, Any], Any], fold: np.ufunc, word: str) -> OpDef:
    return OpDef(
        name=name,
        signature="x, y -> z",
        precision="wide",
        infer=_infer_logical,
        lower=binary(lower),
        differentiable=False,
        layout=elementwise,
        fold=fold,
        commutative=True,
        doc=f"x {word} y; of integers, bit by bit. Bool and integer dtypes.",
    )


LOGICAL_AND = _logical("LogicalAnd", lax.bitwise_and, np.bitwise_and, "and")
LOGICAL_OR = _logical("LogicalOr", lax.bitwise_or, np.bitwise_or, "or")
LOGICAL_XOR = _logical("LogicalXor", lax.bitwise_xor, np.bitwise_xor, "exclusive or")

LOGICAL_NOT = OpDef(
    name="LogicalNot",
    signature="x -> y",
    precision="wide",
    infer=_infer_logical,
    lower=lambda ctx, x: lax.bitwise_not(x),
    differentiable=False,
    layout=elementwise,
    fold=np.invert,
    doc="not x; of integers, bit by bit. Bool and integer dtypes.",
)


def _infer_where(
    ctx: InferContext, condition: TensorType, x: TensorType, y: TensorType
) -> TensorType:
    ctx.require_dtype((condition,), lambda dtype: dtype == BOOL, "bool")
    if x.dtype != y.dtype:
        require_one_dtype(ctx, x, y)
    return TensorType(x.dtype, ctx.broadcast(condition.shape, x.shape, y.shape))


def _lower_where(ctx: LowerContext, condition: Any, x: Any, y: Any) -> Any:
    if not condition.shape:  # lax repeats a scalar condition itself
        return lax.select(condition, *broadcast_all(x, y))
    return lax.select(*broadcast_all(condition, x, y))


def _where_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    condition, x, y = node.inputs
    return [
        None,
        unbroadcast(ctx, where(condition, dz, 0.0), x),
        unbroadcast(ctx, where(condition, 0.0, dz), y),
    ]


@of_elements
def _where_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    condition, x, y = operands
    if isinstance(condition, Replicated) and x == SUM and y == SUM:
        return LayoutPlan(operands, [SUM])
    return elementwise(ctx, node, *operands)


WHERE = OpDef(
    name="Where",
    signature="condition, x, y -> z",
    precision="follow",
    infer=_infer_where,
    lower=_lower_where,
    gradient=_where_gradient,
    layout=_where_layout,
    fold=np.where,
    doc="x where the condition holds, y elsewhere. The condition is bool; x and y all dtypes.",
)


def _test(name: str, lower: Callable[[Any], Any], fold: Callable[[Any], Any], doc: str) -> OpDef:
    """A test of floats; integers and bools pass through JAX's own."""
    return OpDef(
        name=name,
        signature="x -> y",
        precision="follow",
        infer=lambda ctx, x: TensorType(BOOL, x.shape),
        lower=lambda ctx, x: lower(x),
        differentiable=False,
        layout=elementwise,
        fold=fold,
        doc=f"{doc} All dtypes.",
    )


def _fold_is_finite(x: np.ndarray[Any, Any]) -> Any:
    return np.isfinite(x) if is_inexact(x.dtype) else np.ones(x.shape, BOOL)


IS_FINITE = _test("IsFinite", jnp.isfinite, _fold_is_finite, "Neither infinite nor NaN, as bool.")
IS_NAN = _test("IsNan", lambda x: lax.ne(x, x), lambda x: x != x, "Whether x is NaN, as bool.")


def equal(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x == y, elementwise with broadcasting and dtype promotion, as bool."""
    return emit_one(EQUAL, promote_operands(x, y), name)


def not_equal(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x != y, elementwise with broadcasting and dtype promotion, as bool."""
    return emit_one(NOT_EQUAL, promote_operands(x, y), name)


def less(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x < y, elementwise with broadcasting and dtype promotion, as bool; not complex."""
    return emit_one(LESS, promote_operands(x, y), name)


def less_equal(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x <= y, elementwise with broadcasting and dtype promotion, as bool; not complex."""
    return emit_one(LESS_EQUAL, promote_operands(x, y), name)


def greater(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x > y, elementwise with broadcasting and dtype promotion, as bool; not complex."""
    return emit_one(GREATER, promote_operands(x, y), name)


def greater_equal(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x >= y, elementwise with broadcasting and dtype promotion, as bool; not complex."""
    return emit_one(GREATER_EQUAL, promote_operands(x, y), name)


def logical_and(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x and y, elementwise with broadcasting; of integers, bit by bit.

    Raises:
        DTypeError: floating or complex operands.
    """
    return emit_one(LOGICAL_AND, promote_operands(x, y), name)


def logical_or(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x or y, elementwise with broadcasting; of integers, bit by bit.

    Raises:
        DTypeError: floating or complex operands.
    """
    return emit_one(LOGICAL_OR, promote_operands(x, y), name)


def logical_xor(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """Either x or y, elementwise with broadcasting; of integers, bit by bit.

    Raises:
        DTypeError: floating or complex operands.
    """
    return emit_one(LOGICAL_XOR, promote_operands(x, y), name)


def logical_not(x: Any, *, name: str | None = None) -> Tensor:
    """Not x, elementwise; of integers, bit by bit.

    Raises:
        DTypeError: a floating or complex operand.
    """
    return emit_one(LOGICAL_NOT, (convert(x),), name)


def where(condition: Any, x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """x where the condition holds, y elsewhere; all three broadcast, x and y promote.

    A condition that is not bool holds where it is not zero.

    Raises:
        ShapeError: the shapes do not broadcast together.
    """
    test = convert(condition)
    if test.type.dtype != BOOL:
        test = not_equal(test, 0)
    return emit_one(WHERE, (test, *promote_operands(x, y)), name)


def isfinite(x: Any, *, name: str | None = None) -> Tensor:
    """Whether x is neither infinite nor NaN, elementwise, as bool."""
    return emit_one(IS_FINITE, (convert(x),), name)


def isnan(x: Any, *, name: str | None = None) -> Tensor:
    """Whether x is NaN, elementwise, as bool."""
    return emit_one(IS_NAN, (convert(x),), name)


bitwise_and = logical_and
bitwise_or = logical_or
bitwise_xor = logical_xor
bitwise_not = logical_not
bitwise_invert = invert = logical_not

OPS: tuple[OpDef, ...] = (
    EQUAL,
    NOT_EQUAL,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
    LOGICAL_AND,
    LOGICAL_OR,
    LOGICAL_NOT,
    LOGICAL_XOR,
    WHERE,
    IS_FINITE,
    IS_NAN,
)
