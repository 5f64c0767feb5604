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
from graphc.ir.opdef import InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays import gathering
from graphc.ops.arrays.shape import broadcast_to, one_axis
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import broadcast_axes
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import picks, times_operand
from graphc.ops.core.defining import define, rearrangement
from graphc.ops.core.emit import convert, dim_value, emit_one, promote_operands, to_dtype
from graphc.ops.core.layout_rules import SUM
from graphc.ops.core.precision import summed, wide, wide_integer
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.arithmetic import remainder
from graphc.typing import TensorLike

__all__ = ["scatter_add", "take"]


def _taken_shape(x: Shape, indices: Shape, axis: int) -> Shape:
    return (*x[:axis], *indices, *x[axis + 1 :])


def _infer_shape(ctx: InferContext, x: TensorType, indices: TensorType, axis: int) -> Shape:
    gathering.check_operands(ctx, x, indices, axis)
    return _taken_shape(x.shape, indices.shape, axis)


def _infer_take(
    ctx: InferContext, x: TensorType, indices: TensorType, *, axis: int, mode: str
) -> TensorType:
    shape = _infer_shape(ctx, x, indices, axis)
    # The number of indices may have a name: then it is checked when it is bound.
    none = any(not isinstance(dim, int) or dim == 0 for dim in indices.shape)
    ctx.require(x.shape[axis] != 0 or none, f"axis {axis} has no elements to take")
    return TensorType(x.dtype, shape)


def _windows(rank: int, index_rank: int, axis: int) -> tuple[int, ...]:
    """The axes of the result of a take that are axes of x."""
    return (*range(axis), *range(axis + index_rank, rank + index_rank - 1))


def _lower_take(ctx: LowerContext, x: Any, indices: Any, *, axis: int, mode: str) -> Any:
    if x.shape[axis] == 0:  # and there are no indices
        return lax.full(_taken_shape(x.shape, indices.shape, axis), 0, x.dtype)
    places = gathering.gather_indices(indices, x.shape[axis])
    return gathering.gather(x, places, mode, (axis,), windows=_windows(x.ndim, indices.ndim, axis))


def _take_layout(ctx: LayoutContext, node: Node, x: Layout, indices: Layout) -> LayoutPlan:
    axis: int = node.attrs["axis"]
    rank = len(node.inputs[1].type.shape)
    if isinstance(x, Sharded) and x.axis != axis:
        after = x.axis if x.axis < axis else x.axis + rank - 1
        return LayoutPlan([x, REPLICATED], [Sharded(after)])
    if isinstance(indices, Sharded):
        return LayoutPlan([REPLICATED, indices], [Sharded(axis + indices.axis)])
    return gathering.gather_whole(ctx, node, x, indices)


TAKE = rearrangement(
    "Take(x, indices) -> y",
    attrs={"axis": gathering.AXIS, "mode": gathering.MODE},
    infer=_infer_take,
    lower=_lower_take,
    gradient=lambda ctx, node, dy: gathering.gather_gradient(ctx, node, dy, scatter_add),
    layout=_take_layout,
    fold=gathering.fold_gather(np.take),
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
    where = gathering.index_tensor("Take", indices, size, mode)
    if mode is None:
        where = in_range(where, -size, size, "indices", of=function)
    return emit_one(TAKE, (x, where), name, axis=place, mode=mode or "clip")


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
    return gathering.scatter_whole(ctx, node, operand, indices, updates)


def _fold_scatter_add(operand: Any, indices: Any, updates: Any, *, axis: int, mode: str) -> Any:
    if operand.shape[axis] == 0:
        return None
    places, inside = gathering.fold_indices(indices, operand.shape[axis], mode)
    rows = np.moveaxis(operand, axis, 0).astype(wide(operand.dtype))
    last = axis + indices.ndim
    added = np.moveaxis(updates, range(axis, last), range(indices.ndim))
    np.add.at(rows, places[inside], added[inside])
    return np.moveaxis(rows, 0, axis).astype(operand.dtype)


SCATTER_ADD = define(
    "ScatterAdd(operand, indices, updates) -> y",
    precision="wide",
    attrs={"axis": gathering.AXIS, "mode": gathering.SCATTER_MODE},
    infer=gathering.infer_scatter(_infer_shape),
    lower=summed(gathering.lower_scatter(lambda *ranks: {"windows": _windows(*ranks)})),
    gradient=lambda ctx, node, dy: gathering.scatter_gradient(node, dy, take),
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
    where = gathering.index_tensor("ScatterAdd", indices, target.type.shape[place], mode)
    expected = _taken_shape(target.type.shape, where.type.shape, place)
    if len(added.type.shape) < len(expected) or broadcast_axes(added.type.shape, expected):
        added = broadcast_to(added, expected)
    return emit_one(SCATTER_ADD, (target, where, added), name, axis=place, mode=mode)


OPS: tuple[OpDef, ...] = (TAKE, SCATTER_ADD)
