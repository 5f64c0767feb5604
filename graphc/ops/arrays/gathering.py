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
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Replicated
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import InferContext
from graphc.ir.operand import Operand
from graphc.ir.types import TensorType
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
