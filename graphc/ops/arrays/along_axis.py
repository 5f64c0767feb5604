"""Single elements along one axis: take_along_axis and its adjoint, one_hot."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import FLOAT32, DType, as_dtype, is_integer
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays import gathering
from graphc.ops.arrays.shape import broadcast_to
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import Adjoints, broadcast_axes
from graphc.ops.core.checks import as_dims, insertion_axis
from graphc.ops.core.cost_rules import picks, times_operand
from graphc.ops.core.declaring import Given, Operands, declared, operator
from graphc.ops.core.emit import convert, promote_operands
from graphc.ops.core.layout_rules import SUM, replicated
from graphc.ops.core.precision import summed, wide
from graphc.ops.core.ranges import in_range
from graphc.ops.core.sizes import SIZE
from graphc.typing import DTypeLike, TensorLike

__all__ = ["one_hot", "take_along_axis"]


# -- TakeAlongAxis and ScatterAddAlongAxis ---------------------------------------------------


def _infer_shape(ctx: InferContext, x: TensorType, indices: TensorType, axis: int) -> Shape:
    gathering.check_operands(ctx, x, indices, axis)
    if len(x.shape) != len(indices.shape):
        ctx.fail(
            f"indices must have the rank of x, {len(x.shape)}, got {len(indices.shape)}",
            hint="indices[..., None] adds an axis; gc.take takes whole rows, by any indices",
        )
    for i, (dim, other) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i != axis:
            ctx.unify(dim, other, f"sizes of axis {i}")
    return indices.shape


def _infer_take_along(
    ctx: InferContext, x: TensorType, indices: TensorType, *, axis: int, mode: str
) -> TensorType:
    return TensorType(x.dtype, _infer_shape(ctx, x, indices, axis))


def _others(rank: int, axis: int) -> tuple[int, ...]:
    return (*range(axis), *range(axis + 1, rank))


def _lower_take_along(ctx: LowerContext, x: Any, indices: Any, *, axis: int, mode: str) -> Any:
    places = gathering.gather_indices(indices, x.shape[axis])
    return gathering.gather(x, places, mode, (axis,), shared=_others(x.ndim, axis))


def _take_along_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    return gathering.gather_gradient(ctx, node, dy, scatter_add_along_axis)


def _take_along_layout(ctx: LayoutContext, node: Node, x: Layout, indices: Layout) -> LayoutPlan:
    axis: int = node.attrs["axis"]
    for layout in (x, indices):
        if isinstance(layout, Sharded) and layout.axis != axis:
            return LayoutPlan([layout, layout], [layout])
    if isinstance(indices, Sharded):
        return LayoutPlan([REPLICATED, indices], [indices])
    return gathering.gather_whole(ctx, node, x, indices)


@operator(
    "TakeAlongAxis",
    infer=_infer_take_along,
    lower=_lower_take_along,
    precision="follow",
    attrs={"axis": gathering.AXIS, "mode": gathering.MODE},
    gradient=_take_along_gradient,
    layout=_take_along_layout,
    fold=gathering.fold_gather(np.take_along_axis),
    cost=picks,
)
def take_along_axis(
    x: TensorLike,
    indices: TensorLike,
    axis: int = -1,
    mode: str | None = None,
    *,
    name: str | None = None,
) -> Given:
    """The elements of `x` at `indices` along `axis`. The other axes of both correspond.

    Negative indices count from the end. Any dtype.

    Args:
        x: any tensor.
        indices: integers of the rank of `x`; axes of size 1 are repeated. Negative ones count
            from the end.
        axis: the axis that the indices refer to.
        mode: for indices out of range, as in `take`.

    Raises:
        ShapeError: ranks or sizes differ, or an index known now is out of range.
        DTypeError: `indices` are not integers.

    Source: numpy.take_along_axis.

    Examples:
        >>> run(gc.take_along_axis([[1, 2], [3, 4]], [[1], [0]]))
        Array([[2],
               [3]], dtype=int32)
    """
    x = convert(x)
    place = normalize_axis("TakeAlongAxis", x, axis)
    size = x.type.shape[place]
    where = gathering.index_tensor("TakeAlongAxis", indices, size, mode)
    if mode is None:
        where = in_range(where, -size, size, "indices", of="take_along_axis")
    operands = _aligned(x, where, place)
    return Operands(*operands, axis=place, mode=mode or "clip")


def _aligned(x: Tensor, indices: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Both operands, repeated along their axes of size 1 except `axis`, as in NumPy."""
    pair = []
    for own, other in ((x, indices), (indices, x)):
        shape = tuple(
            b if i != axis and a == 1 else a
            for i, (a, b) in enumerate(zip(own.type.shape, other.type.shape, strict=False))
        )
        fits = own.ndim != other.ndim or shape == own.type.shape
        pair.append(own if fits else broadcast_to(own, shape))
    return pair[0], pair[1]


def _scatter_along_layout(
    ctx: LayoutContext, node: Node, operand: Layout, indices: Layout, updates: Layout
) -> LayoutPlan:
    axis: int = node.attrs["axis"]
    cut = [x for x in (operand, indices, updates) if isinstance(x, Sharded)]
    for layout in cut:
        if layout.axis != axis:
            return LayoutPlan([layout] * 3, [layout])
    if cut and cut != [operand]:
        # Each replica adds its own updates, so the operand itself must be counted only once.
        return LayoutPlan([SUM, Sharded(axis), Sharded(axis)], [SUM], fill={2: "sum"})
    return gathering.scatter_whole(ctx, node, operand, indices, updates)


def _fold_scatter_along(operand: Any, indices: Any, updates: Any, *, axis: int, mode: str) -> Any:
    if operand.shape[axis] == 0:
        return None
    places, inside = gathering.fold_indices(indices, operand.shape[axis], mode)
    grid = list(np.indices(indices.shape, sparse=False))
    grid[axis] = places
    result = operand.astype(wide(operand.dtype))
    np.add.at(result, tuple(g[inside] for g in grid), updates[inside])
    return result.astype(operand.dtype)


@operator(
    "ScatterAddAlongAxis",
    infer=gathering.infer_scatter(_infer_shape),
    lower=summed(gathering.lower_scatter(lambda rank, _, axis: {"shared": _others(rank, axis)})),
    precision="wide",
    attrs={"axis": gathering.AXIS, "mode": gathering.SCATTER_MODE},
    gradient=lambda ctx, node, dy: gathering.scatter_gradient(node, dy, take_along_axis),
    layout=_scatter_along_layout,
    fold=_fold_scatter_along,
    cost=times_operand(1, position=2),
)
def scatter_add_along_axis(
    operand: Any, indices: Any, updates: Any, axis: int = -1, mode: str = "drop"
) -> Given:
    """`operand` with `updates` added at `indices` along `axis`; duplicates add up.

    The other axes of the operands correspond. This is the adjoint of `take_along_axis`. Numeric
    dtypes.

    Args:
        operand: numeric.
        indices: integers with the rank of `operand` and the same sizes of the other axes.
        updates: of the shape of `indices`, or broadcast to it.
        axis: the axis that the indices refer to.
        mode: an index out of range is ignored ("drop") or clamped ("clip").

    Raises:
        ShapeError, DTypeError: the operands do not fit, or the indices are not integers.
    """
    target, added = promote_operands(operand, updates)
    place = normalize_axis("ScatterAddAlongAxis", target, axis)
    where = gathering.index_tensor("ScatterAddAlongAxis", indices, target.type.shape[place], mode)
    shape = where.type.shape
    if len(added.type.shape) < len(shape) or broadcast_axes(added.type.shape, shape):
        added = broadcast_to(added, shape)
    operands = (target, where, added)
    return Operands(*operands, axis=place, mode=mode)


# -- OneHot ----------------------------------------------------------------------------------


def _infer_one_hot(
    ctx: InferContext, indices: TensorType, *, depth: Dim, dtype: DType, axis: int
) -> TensorType:
    ctx.require_dtype([indices], is_integer, "integers")
    ctx.require(axis <= len(indices.shape), f"axis {axis} is out of range for the result")
    return TensorType(dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))


def _lower_one_hot(ctx: LowerContext, indices: Any, *, depth: Dim, dtype: DType, axis: int) -> Any:
    if indices.dtype.itemsize < 4:  # may not reach `depth`
        indices = lax.convert_element_type(indices, np.int32)
    shape = (*indices.shape[:axis], ctx.dim(depth), *indices.shape[axis:])
    places = lax.broadcast_in_dim(indices, shape, _others(len(shape), axis))
    return lax.convert_element_type(
        lax.eq(places, lax.broadcasted_iota(indices.dtype, shape, axis)), dtype
    )


def _one_hot_layout(ctx: LayoutContext, node: Node, indices: Layout) -> LayoutPlan:
    if isinstance(indices, Sharded):
        return LayoutPlan([indices], [Sharded(indices.axis + (indices.axis >= node.attrs["axis"]))])
    return replicated(ctx, node, indices)


def _fold_one_hot(indices: Any, *, depth: Any, dtype: DType, axis: int) -> Any:
    places = np.expand_dims(indices.astype(np.int64), axis)
    column = np.arange(depth).reshape([-1] + [1] * (indices.ndim - axis))
    return (places == column).astype(dtype)


@operator(
    "OneHot",
    infer=_infer_one_hot,
    lower=_lower_one_hot,
    precision="wide",
    attrs={"depth": SIZE, "dtype": Attr("dtype", default=FLOAT32), "axis": gathering.AXIS},
    differentiable=False,
    layout=_one_hot_layout,
    fold=_fold_one_hot,
)
def one_hot(
    indices: TensorLike,
    depth: Dim,
    dtype: DTypeLike = FLOAT32,
    axis: int = -1,
    *,
    name: str | None = None,
) -> Given:
    """1 at each index along a new axis of size `depth`, 0 elsewhere.

    An index outside 0 <= index < depth gives zeros only. Integers to any dtype.

    Args:
        indices: integers.
        depth: the size of the new axis.
        dtype: of the result.
        axis: the position of the new axis in the result; last by default.

    Raises:
        DTypeError: `indices` are not integers.
        AttributeValueError: `axis` is out of range.

    Source: jax.nn.one_hot.

    Examples:
        >>> run(gc.one_hot([1, 0], 3))
        Array([[0., 1., 0.],
               [1., 0., 0.]], dtype=float32)
    """
    where = convert(indices)
    (size,) = as_dims("OneHot", (depth,))
    place = insertion_axis("OneHot", where, axis, where.ndim + 1)
    return Operands(where, depth=size, dtype=as_dtype(dtype), axis=place)


OPS: tuple[OpDef, ...] = declared(__name__)
