"""Comparison, logic and selection, elementwise with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import BOOL, is_inexact, is_integer
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Replicated, of_elements
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import (
    Adjoints,
    broadcast_all,
    infer_broadcast,
    infer_of,
    infer_ordered,
    require_one_dtype,
    unbroadcast,
)
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator, record
from graphc.ops.core.emit import convert, promote_operands
from graphc.ops.core.layout_rules import SUM, elementwise
from graphc.typing import TensorLike

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "invert",
    "isfinite",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "where",
]


def _comparison(
    name: str, function: Callable[[Any, Any], Any], fold: np.ufunc, *, ordered: bool
) -> Declaration:
    """A comparison: operands of one dtype, a bool result."""
    infer = infer_ordered if ordered else infer_broadcast
    return elementwise_operator(
        name,
        function,
        infer=lambda ctx, x, y: TensorType(BOOL, infer(ctx, x, y).shape),
        precision="follow",
        differentiable=False,
        fold=fold,
        commutative=not ordered,
        dtypes="Real dtypes and bool." if ordered else "All dtypes.",
    )


@_comparison("Equal", lax.eq, np.equal, ordered=False)
def equal(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x == y, elementwise with broadcasting and dtype promotion, as bool.

    Examples:
        >>> run(gc.equal([1, 2], [1, 3]))
        Array([ True, False], dtype=bool)
    """
    return promote_operands(x, y)


@_comparison("NotEqual", lax.ne, np.not_equal, ordered=False)
def not_equal(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x != y, elementwise with broadcasting and dtype promotion, as bool.

    Examples:
        >>> run(gc.not_equal([1, 2], [1, 3]))
        Array([False,  True], dtype=bool)
    """
    return promote_operands(x, y)


@_comparison("Less", lax.lt, np.less, ordered=True)
def less(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x < y, elementwise with broadcasting and dtype promotion, as bool; not complex.

    Examples:
        >>> run(gc.less([1, 2], 2))
        Array([ True, False], dtype=bool)
    """
    return promote_operands(x, y)


@_comparison("LessEqual", lax.le, np.less_equal, ordered=True)
def less_equal(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x <= y, elementwise with broadcasting and dtype promotion, as bool; not complex.

    Examples:
        >>> run(gc.less_equal([1, 2], 1))
        Array([ True, False], dtype=bool)
    """
    return promote_operands(x, y)


@_comparison("Greater", lax.gt, np.greater, ordered=True)
def greater(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x > y, elementwise with broadcasting and dtype promotion, as bool; not complex.

    Examples:
        >>> run(gc.greater([1, 2], 1))
        Array([False,  True], dtype=bool)
    """
    return promote_operands(x, y)


@_comparison("GreaterEqual", lax.ge, np.greater_equal, ordered=True)
def greater_equal(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x >= y, elementwise with broadcasting and dtype promotion, as bool; not complex.

    Examples:
        >>> run(gc.greater_equal([1, 2], 2))
        Array([False,  True], dtype=bool)
    """
    return promote_operands(x, y)


_infer_logical = infer_of(lambda dtype: dtype == BOOL or is_integer(dtype), "bool or integer")


def _logical(name: str, function: Callable[..., Any], fold: np.ufunc) -> Declaration:
    return elementwise_operator(
        name,
        function,
        infer=_infer_logical,
        differentiable=False,
        fold=fold,
        commutative=fold.nin == 2,
        dtypes="Bool and integer dtypes.",
    )


@_logical("LogicalAnd", lax.bitwise_and, np.bitwise_and)
def logical_and(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x and y, elementwise with broadcasting; bitwise for integers.

    Raises:
        DTypeError: floating or complex operands.

    Examples:
        >>> run(gc.logical_and([True, True], [True, False]))
        Array([ True, False], dtype=bool)
    """
    return promote_operands(x, y)


@_logical("LogicalOr", lax.bitwise_or, np.bitwise_or)
def logical_or(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x or y, elementwise with broadcasting; bitwise for integers.

    Raises:
        DTypeError: floating or complex operands.

    Examples:
        >>> run(gc.logical_or([True, False], False))
        Array([ True, False], dtype=bool)
    """
    return promote_operands(x, y)


@_logical("LogicalXor", lax.bitwise_xor, np.bitwise_xor)
def logical_xor(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """Either x or y, elementwise with broadcasting; bitwise for integers.

    Raises:
        DTypeError: floating or complex operands.

    Examples:
        >>> run(gc.logical_xor([True, False], True))
        Array([False,  True], dtype=bool)
    """
    return promote_operands(x, y)


@_logical("LogicalNot", lax.bitwise_not, np.invert)
def logical_not(x: TensorLike, *, name: str | None = None) -> Given:
    """Not x, elementwise; bitwise for integers.

    Raises:
        DTypeError: a floating or complex operand.

    Examples:
        >>> run(gc.logical_not([True, False]))
        Array([False,  True], dtype=bool)
    """
    return (convert(x),)


def _infer_where(
    ctx: InferContext, condition: TensorType, x: TensorType, y: TensorType
) -> TensorType:
    ctx.require_dtype((condition,), lambda dtype: dtype == BOOL, "bool")
    if x.dtype != y.dtype:
        require_one_dtype(ctx, x, y)
    return TensorType(x.dtype, ctx.broadcast(condition.shape, x.shape, y.shape))


def _lower_where(ctx: LowerContext, condition: Any, x: Any, y: Any) -> Any:
    if not condition.shape:  # lax broadcasts a scalar condition itself
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


@elementwise_operator(
    "Where",
    infer=_infer_where,
    lower=_lower_where,
    precision="follow",
    gradient=_where_gradient,
    layout=_where_layout,
    fold=np.where,
    dtypes="The node takes a bool condition; x and y of all dtypes.",
)
def where(condition: TensorLike, x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x where the condition is true, y elsewhere; all three broadcast, x and y promote.

    A condition of another dtype than bool is true where it is not zero.

    Raises:
        ShapeError: the shapes do not broadcast together.

    Examples:
        >>> run(gc.where([True, False], [1, 2], 0))
        Array([1, 0], dtype=int32)
    """
    test = convert(condition)
    if test.type.dtype != BOOL:
        test = not_equal(test, 0)
    return (test, *promote_operands(x, y))


def _test(name: str, function: Callable[[Any], Any], fold: Callable[[Any], Any]) -> Declaration:
    """A test of floats, for all dtypes."""
    return elementwise_operator(
        name,
        function,
        infer=lambda ctx, x: TensorType(BOOL, x.shape),
        precision="follow",
        differentiable=False,
        fold=fold,
        dtypes="All dtypes.",
    )


def _fold_is_finite(x: np.ndarray[Any, Any]) -> Any:
    return np.isfinite(x) if is_inexact(x.dtype) else np.ones(x.shape, BOOL)


@_test("IsFinite", jnp.isfinite, _fold_is_finite)
def isfinite(x: TensorLike, *, name: str | None = None) -> Given:
    """Whether x is neither infinite nor NaN, elementwise, as bool.

    Examples:
        >>> run(gc.isfinite([1.0, np.inf]))
        Array([ True, False], dtype=bool)
    """
    return (convert(x),)


@_test("IsNan", lambda x: lax.ne(x, x), lambda x: x != x)
def isnan(x: TensorLike, *, name: str | None = None) -> Given:
    """Whether x is NaN, elementwise, as bool.

    Examples:
        >>> run(gc.isnan([1.0, np.nan]))
        Array([False,  True], dtype=bool)
    """
    return (convert(x),)


bitwise_and = logical_and
bitwise_or = logical_or
bitwise_xor = logical_xor
bitwise_not = logical_not
bitwise_invert = invert = logical_not

# Records by name, for passes and for rules of other families.
LESS = record(less)
LESS_EQUAL = record(less_equal)
GREATER = record(greater)
GREATER_EQUAL = record(greater_equal)
LOGICAL_AND = record(logical_and)
LOGICAL_OR = record(logical_or)
LOGICAL_NOT = record(logical_not)
WHERE = record(where)
IS_FINITE = record(isfinite)

OPS: tuple[OpDef, ...] = declared(__name__)
