"""Whole slices selected by integer tensors: take, and its adjoint scatter_add."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from graphc.errors import AttributeValueError
from graphc.ir.dims import Shape
from graphc.ir.dtypes import is_integer
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Replicated, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.gathering import (
    AXIS,
    MODE,
    SCATTER_MODE,
    SCATTER_OF,
    TAKE_OF,
    check_operands,
    check_updates,
    fill_value_of,
    fold_indices,
    gather,
    gather_indices,
    gather_whole,
    index_tensor,
    scatter,
)
from graphc.ops.arrays.shape import broadcast_to, one_axis
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import Adjoints, broadcast_axes
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import picks, times_operand
from graphc.ops.core.defining import define, rearrangement
from graphc.ops.core.emit import convert, dim_value, emit_one, promote_operands, to_dtype
from graphc.ops.core.layout_rules import SUM, replicated
from graphc.ops.core.precision import summed, wide, wide_integer
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.arithmetic import remainder
from graphc.typing import TensorLike

__all__ = ["scatter_add", "take"]


def _taken_shape(x: Shape, indices: Shape, axis: int) -> Shape:
    return (*x[:axis], *indices, *x[axis + 1 :])


def _infer_take(
    ctx: InferContext, x: TensorType, indices: TensorType, *, axis: int, mode: str
) -> TensorType:
    check_operands(ctx, x, indices, axis)
    # The number of indices may have a name: then it is checked when it is bound.
    none = any(not isinstance(dim, int) or dim == 0 for dim in indices.shape)
    ctx.require(x.shape[axis] != 0 or none, f"axis {axis} has no elements to take")
    return TensorType(x.dtype, _taken_shape(x.shape, indices.shape, axis))


def _windows(rank: int, index_rank: int, axis: int) -> tuple[int, ...]:
    """The axes of the result of a take that are axes of x."""
    return (*range(axis), *range(axis + index_rank, rank + index_rank - 1))


def _lower_take(ctx: LowerContext, x: Any, indices: Any, *, axis: int, mode: str) -> Any:
    if x.shape[axis] == 0:  # and there are no indices
        return lax.full(_taken_shape(x.shape, indices.shape, axis), 0, x.dtype)
    places = gather_indices(indices, x.shape[axis])
    return gather(x, places, mode, (axis,), windows=_windows(x.ndim, indices.ndim, axis))


def _take_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, indices = node.inputs
    axis, mode = node.attrs["axis"], SCATTER_OF[node.attrs["mode"]]
    return [scatter_add(ctx.ops.zeros_like(x), indices, dy, axis, mode=mode), None]


def _take_layout(ctx: LayoutContext, node: Node, x: Layout, indices: Layout) -> LayoutPlan:
    axis: int = node.attrs["axis"]
    rank = len(node.inputs[1].type.shape)
    if isinstance(x, Sharded) and x.axis != axis:
        after = x.axis if x.axis < axis else x.axis + rank - 1
        return LayoutPlan([x, REPLICATED], [Sharded(after)])
    if isinstance(indices, Sharded):
        return LayoutPlan([REPLICATED, indices], [Sharded(axis + indices.axis)])
    return gather_whole(ctx, node, x, indices)


def _fold_take(x: Any, indices: Any, *, axis: int, mode: str) -> Any:
    if x.shape[axis] == 0:
        return None
    places, inside = fold_indices(indices, x.shape[axis], mode)
    taken = np.take(x, places, axis)
    if mode == "clip":
        return taken
    inside = inside.reshape(inside.shape + (1,) * (x.ndim - axis - 1))
    return np.where(inside, taken, fill_value_of(x.dtype, mode))


TAKE = rearrangement(
    "Take(x, indices) -> y",
    attrs={"axis": AXIS, "mode": MODE},
    infer=_infer_take,
    lower=_lower_take,
    gradient=_take_gradient,
    layout=_take_layout,
    fold=_fold_take,
    cost=picks,
    doc="The slices of x at `indices` (integers) along `axis`, which the axes of the indices "
    'replace. Negative indices count from the end. Out of range: "clip" takes the nearest, '
    '"fill" gives NaN (integers: the smallest; unsigned: the largest), "zero" gives 0. '
    "Any dtype. Source: numpy.take, jax.numpy.take.",
)


def take(
    x: TensorLike,
    indices: TensorLike,
    axis: int | None = 0,
    mode: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """The slices of `x` at `indices` along `axis`, such as rows of an embedding table.

    Args:
        x: any tensor.
        indices: integers of any shape, which replaces `axis` in the result. Negative ones count
            from the end.
        axis: the axis to take slices along; None ravels `x` first.
        mode: the result of an index out of range. "clip": the nearest slice; "fill": NaN,
            jax.numpy's default; "zero": 0; "wrap": the index modulo the size. "fill" and "zero"
            cost a pass over the result, "clip" does not. None: "clip", but an index out of range is
            a mistake. An index that is known while the graph is built raises an error; runs with
            `CompileOptions(check_numerics=True)` check the others.

    Raises:
        DTypeError: `indices` are not integers.
        ShapeError: an index known now is out of range.
        AttributeValueError: `axis` is out of range, or `mode` unknown.

    Source: numpy.take, jax.numpy.take.

    Examples:
        >>> run(gc.take([10, 20, 30], [2, 0]))
        Array([30, 10], dtype=int32)
    """
    return take_for("take", x, indices, axis, mode, name=name)


def take_for(
    function: str,
    x: Any,
    indices: Any,
    axis: int | None = 0,
    mode: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`take`, called by the user's `function`, which errors of checked runs name."""
    if mode not in (None, "clip", "fill", "zero", "wrap"):
        must = '"clip", "fill", "zero" or "wrap"'
        refuse(f"Take: mode must be {must}, got {mode!r}", error=AttributeValueError)
    x, place = one_axis("Take", x, axis)
    if mode == "wrap":
        given = convert(indices)
        if is_integer(given.dtype):  # a narrow dtype may not hold the size
            given = to_dtype(given, wide_integer(given.dtype))
        count = dim_value(x.type.shape[place], given.dtype)
        indices, mode = remainder(given, count), "clip"
    size = x.type.shape[place]
    where = index_tensor("Take", indices, size, mode)
    if mode is None:
        where = in_range(where, -size, size, "indices", of=function)
    return emit_one(TAKE, (x, where), name, axis=place, mode=mode or "clip")


def _infer_scatter_add(
    ctx: InferContext,
    operand: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    axis: int,
    mode: str,
) -> TensorType:
    check_operands(ctx, operand, indices, axis)
    check_updates(ctx, operand, updates, _taken_shape(operand.shape, indices.shape, axis))
    return operand


def _lower_scatter_add(
    ctx: LowerContext, operand: Any, indices: Any, updates: Any, *, axis: int, mode: str
) -> Any:
    places = gather_indices(indices, operand.shape[axis])
    windows = _windows(operand.ndim, indices.ndim, axis)
    return scatter(lax.scatter_add, operand, places, updates, mode, (axis,), windows=windows)


def _scatter_add_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    mode = TAKE_OF[node.attrs["mode"]]
    return [dy, None, take(dy, node.inputs[1], node.attrs["axis"], mode)]


def _scatter_add_layout(
    ctx: LayoutContext, node: Node, operand: Layout, indices: Layout, updates: Layout
) -> LayoutPlan:
    axis: int = node.attrs["axis"]
    rank = len(node.inputs[1].type.shape)
    if isinstance(indices, Replicated) and isinstance(updates, Sharded):
        if axis <= updates.axis < axis + rank:
            indices = Sharded(updates.axis - axis)
        else:
            own = updates.axis if updates.axis < axis else updates.axis - rank + 1
            return LayoutPlan([Sharded(own), REPLICATED, updates], [Sharded(own)])
    if isinstance(indices, Sharded):
        # Each replica adds its own updates, so the operand itself must be counted only once.
        return LayoutPlan([SUM, indices, Sharded(axis + indices.axis)], [SUM], fill={2: "sum"})
    if isinstance(operand, Sharded) and operand.axis != axis:
        after = operand.axis if operand.axis < axis else operand.axis + rank - 1
        return LayoutPlan([operand, REPLICATED, Sharded(after)], [operand])
    if SUM in (operand, updates):  # linear in the pair
        return LayoutPlan([SUM, REPLICATED, SUM], [SUM])
    return replicated(ctx, node, operand, indices, updates)


def _fold_scatter_add(operand: Any, indices: Any, updates: Any, *, axis: int, mode: str) -> Any:
    if operand.shape[axis] == 0:
        return None
    places, inside = fold_indices(indices, operand.shape[axis], mode)
    rows = np.moveaxis(operand, axis, 0).astype(wide(operand.dtype))
    last = axis + indices.ndim
    added = np.moveaxis(updates, range(axis, last), range(indices.ndim))
    np.add.at(rows, places[inside], added[inside])
    return np.moveaxis(rows, 0, axis).astype(operand.dtype)


SCATTER_ADD = define(
    "ScatterAdd(operand, indices, updates) -> y",
    precision="wide",
    attrs={"axis": AXIS, "mode": SCATTER_MODE},
    infer=_infer_scatter_add,
    lower=summed(_lower_scatter_add),
    gradient=_scatter_add_gradient,
    layout=_scatter_add_layout,
    fold=_fold_scatter_add,
    cost=times_operand(1, position=2),
    doc="The operand with the slices of `updates` added at `indices` along `axis`; what several "
    "indices name is added several times. Negative indices count from the end. Out of range: "
    '"drop" adds nothing, "clip" adds to the nearest. The adjoint of Take. Numeric dtypes. '
    "Source: jax.numpy.ndarray.at[].add.",
)


def scatter_add(
    operand: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    axis: int = 0,
    mode: str = "drop",
    *,
    name: str | None = None,
) -> Tensor:
    """`operand` with `updates` added to its slices at `indices` along `axis`; duplicates add up.

    Args:
        operand: numeric.
        indices: integers; negative ones count from the end.
        updates: of the shape of `take(operand, indices, axis)`, or broadcast to it.
        axis: the axis that the indices refer to.
        mode: an index out of range is ignored ("drop") or clamped ("clip").

    Raises:
        ShapeError, DTypeError: the updates do not fit, or the indices are not integers.

    Source: jax.numpy.ndarray.at[].add.

    Examples:
        >>> run(gc.scatter_add([1, 2, 3], [0, 0], [10, 10]))
        Array([21,  2,  3], dtype=int32)
    """
    target, added = promote_operands(operand, updates)
    place = normalize_axis("ScatterAdd", target, axis)
    where = index_tensor("ScatterAdd", indices, target.type.shape[place], mode)
    expected = _taken_shape(target.type.shape, where.type.shape, place)
    if len(added.type.shape) < len(expected) or broadcast_axes(added.type.shape, expected):
        added = broadcast_to(added, expected)
    return emit_one(SCATTER_ADD, (target, where, added), name, axis=place, mode=mode)


OPS: tuple[OpDef, ...] = (TAKE, SCATTER_ADD)
