"""Modes, checks and index conversion, shared by the operators that gather and scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import DTypeError
from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import BOOL, DType, is_integer, scalar_of, short_name
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Replicated
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext
from graphc.ir.operand import Operand
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.checks import refuse
from graphc.ops.core.defining import at_least, one_of
from graphc.ops.core.emit import as_array, convert
from graphc.ops.core.layout_rules import SUM, replicated

Axes = tuple[int, ...]

AXIS = at_least(0, "be an axis, counted from the front")
MODE = one_of("clip", "fill", "zero", default="clip")
SCATTER_MODE = one_of("clip", "drop", default="drop")

OUT_OF_RANGE = {
    "clip": lax.GatherScatterMode.CLIP,
    "fill": lax.GatherScatterMode.FILL_OR_DROP,
    "zero": lax.GatherScatterMode.FILL_OR_DROP,
    "drop": lax.GatherScatterMode.FILL_OR_DROP,
}
# The mode of the adjoint for each gather mode, and for each scatter mode.
SCATTER_OF = {"clip": "clip", "fill": "drop", "zero": "drop"}
TAKE_OF = {"clip": "clip", "drop": "zero"}


def check_integers(ctx: InferContext, indices: TensorType, of_mask: str) -> None:
    """Raises `DTypeError` unless the indices are integers; `of_mask` is the hint for bools."""
    if not is_integer(indices.dtype):
        hint = of_mask if indices.dtype == BOOL else "gc.cast them to int32"
        got = indices.dtype.name
        ctx.fail(f"indices must be integers, got {got}", error=DTypeError, hint=hint)


def check_operands(ctx: InferContext, x: TensorType, indices: TensorType, axis: int) -> None:
    """Raises unless `indices` are integers and `axis` is an axis of x."""
    of_mask = "a mask has no static number of elements: use gc.where(mask, x, other)"
    check_integers(ctx, indices, of_mask)
    ctx.require(axis < len(x.shape), f"axis {axis} is out of range for rank {len(x.shape)}")


def gather_indices(indices: Any, size: Any) -> Any:
    """Indices in XLA's form: negative ones counted from the front, one trailing axis."""
    if indices.dtype.itemsize < 4:  # may not reach `size`
        indices = lax.convert_element_type(indices, jnp.int32)
    if not jnp.issubdtype(indices.dtype, jnp.unsignedinteger):
        indices = lax.select(indices < 0, indices + size, indices)
    return lax.expand_dims(indices, (indices.ndim,))


def gather(
    x: Any, indices: Any, mode: str, axes: Axes, *, windows: Axes = (), shared: Axes = ()
) -> Any:
    """The elements or windows of x at indices in XLA's form.

    Args:
        axes: the axes of x that are indexed.
        windows: the axes of the result that are axes of x, but not shared.
        shared: the axes that x and the indices share.
    """
    return lax.gather(
        x,
        indices,
        lax.GatherDimensionNumbers(windows, axes, axes, shared, shared),
        slice_sizes=tuple(
            1 if axis in axes or axis in shared else size for axis, size in enumerate(x.shape)
        ),
        mode=OUT_OF_RANGE[mode],
        fill_value=fill_value_of(np.dtype(x.dtype), mode),
    )


def gather_whole(ctx: LayoutContext, node: Node, x: Layout, indices: Layout) -> LayoutPlan:
    """The layout of a gather that is not sharded. A sum of parts stays one, unless elements out of
    range are filled."""
    if x == SUM and isinstance(indices, Replicated) and node.attrs["mode"] != "fill":
        return LayoutPlan([x, indices], [SUM])
    return replicated(ctx, node, x, indices)


def scatter(
    function: Callable[..., Any],
    operand: Any,
    indices: Any,
    updates: Any,
    mode: str,
    axes: Axes,
    *,
    windows: Axes = (),
    shared: Axes = (),
) -> Any:
    """`function`, such as `lax.scatter_add`, writes to where `gather` reads."""
    numbers = lax.ScatterDimensionNumbers(windows, axes, axes, shared, shared)
    return function(operand, indices, updates, numbers, mode=OUT_OF_RANGE[mode])


def scatter_whole(
    ctx: LayoutContext, node: Node, operand: Layout, indices: Layout, updates: Layout
) -> LayoutPlan:
    """The layout of an addition of updates that is not sharded. It is linear in the pair of operand
    and updates."""
    if SUM in (operand, updates):
        return LayoutPlan([SUM, REPLICATED, SUM], [SUM])
    return replicated(ctx, node, operand, indices, updates)


def fold_indices(indices: Any, size: int, mode: str) -> tuple[Any, Any]:
    """On the host: indices clamped to the range, and a mask of those that are used."""
    wide = indices.astype(np.int64)
    wide = np.where(wide < 0, wide + size, wide)
    counts = (wide >= 0) & (wide < size) | (mode == "clip")
    return np.clip(wide, 0, size - 1), counts


def fill_value_of(dtype: DType, mode: str) -> Any:
    """The value for an element out of range, as in jax.numpy.take; None if there is none."""
    if mode == "clip":
        return None
    if mode == "zero":
        return scalar_of(0, dtype)
    if dtype == BOOL:
        return True
    if is_integer(dtype):
        kind, bits = short_name(dtype)[0], int(short_name(dtype)[1:])
        return scalar_of(2**bits - 1 if kind == "u" else -(2 ** (bits - 1)), dtype)
    return scalar_of(np.nan, dtype)


def index_tensor(op: str, indices: Any, size: Dim, mode: str | None) -> Tensor:
    """`indices` as a tensor. Without a mode, known indices must be in range."""
    if isinstance(indices, Operand):
        return convert(indices)
    array = as_array(indices)
    if mode is None and isinstance(size, int) and array.size and is_integer(array.dtype):
        low, high = int(array.min()), int(array.max())
        if low < -size or high >= size:
            refuse(
                f"{op}: index {low if low < -size else high} is out of range for size {size}",
                hint=f"indices run from {-size} to {size - 1}",
            )
    return convert(array)


def check_updates(
    ctx: InferContext, operand: TensorType, updates: TensorType, expected: Shape
) -> None:
    """Raises unless the updates have the operand's numeric dtype and the `expected` shape."""
    if operand.dtype != updates.dtype or operand.dtype == BOOL:
        ctx.require(
            False,
            "operand and updates must have one numeric dtype, got "
            f"{operand.dtype.name} and {updates.dtype.name}",
            dtype=True,
        )
    if len(updates.shape) != len(expected):
        shape = ", ".join(map(str, expected))
        ctx.fail(
            f"updates must have rank {len(expected)}, got {len(updates.shape)}",
            hint=f"their shape is ({shape})",
        )
    for i, (dim, wanted) in enumerate(zip(updates.shape, expected, strict=True)):
        ctx.unify(wanted, dim, f"sizes of axis {i} of the updates")


# -- operators that read along one axis, and those that add where they read -------------------


def gather_gradient(
    ctx: GradientContext, node: Node, dy: Tensor, scatter_add: Callable[..., Tensor]
) -> Adjoints:
    """The adjoints of x and the indices; `scatter_add` adds where the operator reads."""
    x, indices = node.inputs
    axis, mode = node.attrs["axis"], SCATTER_OF[node.attrs["mode"]]
    return [scatter_add(ctx.ops.zeros_like(x), indices, dy, axis, mode), None]


def fold_gather(function: Callable[..., Any]) -> Callable[..., Any]:
    """Folds by a function of NumPy."""

    def fold(x: Any, indices: Any, *, axis: int, mode: str) -> Any:
        if x.shape[axis] == 0:
            return None
        places, inside = fold_indices(indices, x.shape[axis], mode)
        taken = function(x, places, axis)
        if mode == "clip":
            return taken
        after = taken.ndim - axis - inside.ndim  # axes of slices, which an index takes whole
        inside = inside.reshape(inside.shape + (1,) * after)
        return np.where(inside, taken, fill_value_of(x.dtype, mode))

    return fold


def scatter_gradient(node: Node, dy: Tensor, take: Callable[..., Tensor]) -> Adjoints:
    """The adjoints of operand, indices and updates; `take` reads where the operator adds."""
    mode = TAKE_OF[node.attrs["mode"]]
    return [dy, None, take(dy, node.inputs[1], node.attrs["axis"], mode)]


def infer_scatter(
    updated: Callable[[InferContext, TensorType, TensorType, int], Shape],
) -> Callable[..., TensorType]:
    """The inference of an operator that adds updates; `updated` checks the operand and the indices,
    and returns the shape of the updates."""

    def infer(
        ctx: InferContext,
        operand: TensorType,
        indices: TensorType,
        updates: TensorType,
        *,
        axis: int,
        mode: str,
    ) -> TensorType:
        check_updates(ctx, operand, updates, updated(ctx, operand, indices, axis))
        return operand

    return infer


def lower_scatter(axes_of: Callable[[int, int, int], dict[str, Axes]]) -> Callable[..., Any]:
    """The lowering of an operator that adds updates. `axes_of(rank, rank of the indices, axis)`
    gives the `windows` or `shared` axes of `scatter`."""

    def lower(
        ctx: LowerContext, operand: Any, indices: Any, updates: Any, *, axis: int, mode: str
    ) -> Any:
        places = gather_indices(indices, operand.shape[axis])
        axes = axes_of(operand.ndim, indices.ndim, axis)
        return scatter(lax.scatter_add, operand, places, updates, mode, (axis,), **axes)

    return lower
