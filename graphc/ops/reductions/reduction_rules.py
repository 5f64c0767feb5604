"""What reductions over axes share: types, lowering, gradients, layouts and folding.

(A separate module, because `graphc.ops.reductions.reduction` redefines `all`, `sum` and others.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dims import Dim, Shape, product
from graphc.ir.dtypes import BOOL, FLOAT32, DType, is_floating
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, LayoutRule, Partial, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import broadcast_to, reshape
from graphc.ops.core.broadcasting import (
    Adjoints,
    infer_floating,
    infer_inexact,
    infer_numeric,
    infer_of,
    infer_ordered,
)
from graphc.ops.core.checks import known_alike
from graphc.ops.core.cost_rules import times_operand
from graphc.ops.core.defining import define
from graphc.ops.core.emit import to_dtype
from graphc.ops.core.layout_rules import SUM, map_axis, replicated
from graphc.ops.core.precision import in_wider, summed
from graphc.ops.elementwise.transcendental import exp

AXES = {
    "axes": Attr(
        "ints",
        check=lambda axes: all(a >= 0 for a in axes) and list(axes) == sorted(set(axes)),
        must="be different axes, sorted and counted from the front",
        doc="sorted, counted from the front",
    ),
    "keepdims": Attr("bool", default=False, doc="whether reduced axes are kept, with size 1"),
}


# -- types -----------------------------------------------------------------------------------


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape after the reduction; `keepdims` keeps the reduced axes with size 1."""
    if keepdims:
        return tuple(1 if i in axes else dim for i, dim in enumerate(shape))
    return tuple(dim for i, dim in enumerate(shape) if i not in axes)


def infer_reduction(operand: Callable[..., TensorType]) -> Callable[..., Any]:
    """The inference rule of a reduction. `operand` checks the operand."""

    def infer(
        ctx: InferContext,
        x: TensorType,
        *,
        axes: tuple[int, ...],
        keepdims: bool,
        allow_empty: bool = True,
        **attrs: Any,
    ) -> TensorType:
        operand(ctx, x)
        if axes:
            ctx.require(axes[-1] < x.rank, f"axis {axes[-1]} is out of range for rank {x.rank}")
        if not allow_empty:
            ctx.require(all(x.shape[a] != 0 for a in axes), "there are no elements to reduce")
        return TensorType(x.dtype, reduced_shape(x.shape, axes, keepdims))

    return infer


def may_be_empty(x: Tensor, axes: tuple[int, ...]) -> bool:
    """Whether there may be no elements along `axes`: a size is 0, or a named size."""
    return any(not isinstance(x.shape[axis], int) or x.shape[axis] == 0 for axis in axes)


# -- lowering --------------------------------------------------------------------------------


def _is_narrow(dtype: DType) -> bool:
    return dtype.itemsize < 4 and is_floating(dtype)


def _reduce(
    function: Callable[[Any, tuple[int, ...]], Any], x: Any, axes: tuple[int, ...], keepdims: bool
) -> Any:
    result = function(x, axes)
    return lax.expand_dims(result, axes) if keepdims else result


def lower_reduction(function: Callable[[Any, tuple[int, ...]], Any]) -> Callable[..., Any]:
    """The lowering to a `jax.lax` function of operand and axes."""

    def lower(
        ctx: LowerContext, x: Any, *, axes: tuple[int, ...], keepdims: bool, **attrs: Any
    ) -> Any:
        return _reduce(function, x, axes, keepdims)

    return lower


def lower_mean(
    ctx: LowerContext, x: Any, *, axes: tuple[int, ...], keepdims: bool, count: Dim | None
) -> Any:
    """The sum divided by `count`; narrow floats in float32, as in `jax.numpy`."""
    dtype = np.dtype(x.dtype)
    wide = lax.convert_element_type(x, FLOAT32) if _is_narrow(dtype) else x
    total = _reduce(lax.reduce_sum, wide, axes, keepdims)
    number = product(x.shape[a] for a in axes) if count is None else ctx.dim(count)
    divisor = (
        np.asarray(number, total.dtype) if type(number) is int else jnp.asarray(number, total.dtype)
    )
    return lax.convert_element_type(lax.div(total, divisor), dtype)


# -- gradients -------------------------------------------------------------------------------


def _kept(node: Node, reduced: Tensor) -> Tensor:
    """`reduced`, which has the result's shape, reshaped to broadcast against the operand."""
    axes, shape = node.attrs["axes"], node.inputs[0].type.shape
    if node.attrs["keepdims"] or axes == tuple(range(len(axes))):
        return reduced
    return reshape(reduced, reduced_shape(shape, axes, True))


def spread(node: Node, reduced: Tensor) -> Tensor:
    """`reduced`, which has the result's shape, repeated to the operand's shape."""
    shape = node.inputs[0].type.shape
    if known_alike(reduced.shape, shape, reduced):
        return reduced
    return broadcast_to(_kept(node, reduced), shape)


def mean_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    """The adjoint, divided by the count before it is repeated."""
    x, dtype = node.inputs[0], dy.type.dtype
    count = node.attrs["count"]
    if count is None:
        count = product(x.type.shape[a] for a in node.attrs["axes"])
    wide = to_dtype(dy, FLOAT32) if _is_narrow(dtype) else dy
    if isinstance(count, int):
        wide = wide * (1.0 / count if count else 0.0)
    else:
        wide = wide / ctx.ops.dim_value(count, wide.type.dtype)
    return [spread(node, to_dtype(wide, dtype))]


def extreme_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    """All elements that are equal to the extreme get equal shares, as in JAX."""
    x, y = node.inputs[0], node.outputs[0]
    hit = ctx.ops.equal(x, _kept(node, y))
    hits = ctx.ops.reduce_sum(
        to_dtype(hit, x.type.dtype), node.attrs["axes"], keepdims=node.attrs["keepdims"]
    )
    return [ctx.ops.where(hit, _kept(node, dy / hits), 0.0)]


def logsumexp_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    """The adjoint times the softmax, `exp(x - y)`."""
    x, y = node.inputs[0], node.outputs[0]
    return [_kept(node, dy) * exp(x - _kept(node, y))]


# -- layouts ---------------------------------------------------------------------------------


def result_axis(node: Node, axis: int) -> int | None:
    """The axis of the result that corresponds to the operand's `axis`; None if it is reduced."""
    axes = node.attrs["axes"]
    if axis in axes:
        return None
    return axis if node.attrs["keepdims"] else axis - len([a for a in axes if a < axis])


def partial_over(op: str) -> LayoutRule:
    """Reducing the sharded axis gives a partial result on each replica: `Partial(op)`."""

    def rule(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
        (x,) = operands
        if x == Partial(op):
            return LayoutPlan([x], [x])
        if not isinstance(x, Sharded):
            return replicated(ctx, node, x)
        axis = result_axis(node, x.axis)
        if axis is None:
            return LayoutPlan([x], [Partial(op)], fill={0: op})
        return LayoutPlan([x], [Sharded(axis)])

    return rule


def mean_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Like a sum, with each replica's part divided by the global count."""
    plan = partial_over("sum")(ctx, node, *operands)
    if operands[0] == SUM or plan.results[0] != SUM or node.attrs["count"] is not None:
        return plan
    count = product(node.inputs[0].type.shape[a] for a in node.attrs["axes"])
    return replace(plan, attrs={"count": count})


# -- folding -------------------------------------------------------------------------------


def fold_reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's reduction; narrow floats in float32, every result of the operand's dtype."""

    def fold(x: np.ndarray[Any, Any], *, axes: tuple[int, ...], keepdims: bool) -> Any:
        wide = x.astype(np.float32) if _is_narrow(x.dtype) else x
        return np.asarray(function(wide, axis=axes, keepdims=keepdims)).astype(x.dtype)

    return fold


def fold_mean(x: np.ndarray[Any, Any], *, count: Dim | None, **attrs: Any) -> Any:
    """NumPy's mean, or None for a count that is a named size."""
    if not isinstance(count, (int, type(None))):
        return None
    wide = x.astype(np.float32) if _is_narrow(x.dtype) else x
    total = fold_reduction(np.sum)(wide, **attrs)
    number = product(x.shape[a] for a in attrs["axes"]) if count is None else count
    return np.asarray(total / np.asarray(number, total.dtype)).astype(x.dtype)


def fold_logsumexp(x: np.ndarray[Any, Any], *, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Folds in float64, after subtracting the greatest element."""
    wide = x.astype(np.float64)
    top = np.max(wide, axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    total = np.log(np.sum(np.exp(wide - top), axis=axes, keepdims=True)) + top
    return (total if keepdims else np.squeeze(total, axes)).astype(x.dtype)


def _numeric(
    name: str,
    word: str,
    lower: Callable[..., Any],
    fold: Callable[..., Any],
    layout: LayoutRule,
    gradient: Callable[..., Adjoints] | None = None,
) -> OpDef:
    return define(
        f"{name}(x) -> y",
        precision="wide",
        attrs=AXES,
        infer=infer_reduction(infer_numeric),
        lower=summed(lower_reduction(lower)),
        gradient=gradient,
        layout=layout,
        fold=fold_reduction(fold),
        cost=times_operand(1),
        doc=f"The {word} over `axes`, in x's dtype. Numeric dtypes.",
    )


REDUCE_SUM = _numeric(
    "ReduceSum",
    "sum",
    lax.reduce_sum,
    np.sum,
    partial_over("sum"),
    gradient=lambda ctx, node, dy: [spread(node, dy)],
)

REDUCE_MEAN = define(
    "ReduceMean(x) -> y",
    precision="wide",
    attrs={
        **AXES,
        "count": Attr("dim", default=None, doc="the divisor; None: the number of reduced elements"),
    },
    infer=infer_reduction(infer_inexact),
    lower=lower_mean,
    gradient=mean_gradient,
    layout=mean_layout,
    fold=fold_mean,
    cost=times_operand(1),
    doc="The sum over `axes` divided by `count`. Floating and complex dtypes.",
)


def _extreme(
    name: str, part: str, lower: Callable[..., Any], fold: Callable[..., Any], doc: str
) -> OpDef:
    def fold_filled(x: np.ndarray[Any, Any], *, allow_empty: bool, **attrs: Any) -> Any:
        """None if there are no elements: NumPy has no extreme of them."""
        return fold_reduction(fold)(x, **attrs) if x.size else None

    return define(
        f"{name}(x) -> y",
        precision="follow",
        attrs={
            **AXES,
            "allow_empty": Attr(
                "bool",
                default=False,
                doc="whether there may be no elements: the result is then the smallest value of "
                "the dtype for ReduceMax, and the greatest for ReduceMin",
            ),
        },
        infer=infer_reduction(infer_ordered),
        lower=lower_reduction(lower),
        gradient=extreme_gradient,
        layout=partial_over(part),
        fold=fold_filled,
        cost=times_operand(1),
        doc=f"{doc} over `axes`; equal elements share the adjoint. Real dtypes and bool.",
    )


REDUCE_MAX = _extreme("ReduceMax", "max", lax.reduce_max, np.max, "The greatest element")
REDUCE_MIN = _extreme("ReduceMin", "min", lax.reduce_min, np.min, "The smallest element")

# No gradient rule: in terms of graph operators it needs y / x, which fails at zeros.
REDUCE_PROD = _numeric("ReduceProd", "product", lax.reduce_prod, np.prod, map_axis(result_axis))


def _logical(name: str, lower: Callable[..., Any], fold: Callable[..., Any], doc: str) -> OpDef:
    return define(
        f"{name}(x) -> y",
        precision="wide",
        attrs=AXES,
        infer=infer_reduction(infer_of(lambda dtype: dtype == BOOL, "bool")),
        lower=lower_reduction(lower),
        differentiable=False,
        layout=map_axis(result_axis),
        fold=fold_reduction(fold),
        cost=times_operand(1),
        doc=doc,
    )


REDUCE_ANY = _logical(
    "ReduceAny", lax.reduce_or, np.any, "Whether any element over `axes` is true. Bool."
)
REDUCE_ALL = _logical(
    "ReduceAll", lax.reduce_and, np.all, "Whether all elements over `axes` are true. Bool."
)

LOG_SUM_EXP = define(
    "LogSumExp(x) -> y",
    precision="wide",
    attrs=AXES,
    infer=partial(infer_reduction(infer_floating), allow_empty=False),
    lower=in_wider(
        lambda ctx, x, *, axes, keepdims: jax.nn.logsumexp(x, axis=axes, keepdims=keepdims)
    ),
    gradient=logsumexp_gradient,
    layout=map_axis(result_axis),
    fold=fold_logsumexp,
    cost=times_operand(4),
    doc="log(sum(exp(x))) over `axes`, without overflow. Floating dtypes.",
)

# The operators that NumPy has too: all but LogSumExp.
PLAIN_REDUCTIONS = (
    REDUCE_SUM,
    REDUCE_MEAN,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_PROD,
    REDUCE_ANY,
    REDUCE_ALL,
)
