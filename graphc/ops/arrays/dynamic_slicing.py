"""Windows at computed positions: `dynamic_slice`, and its adjoint `dynamic_update_slice`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import is_integer
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Partial, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints, require_one_dtype
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.cost_rules import picks
from graphc.ops.core.defining import rearrangement
from graphc.ops.core.emit import convert, emit_one, promote_operands, to_dtype
from graphc.ops.core.layout_rules import SUM, local_dims, replicated
from graphc.typing import TensorLike

__all__ = ["dynamic_slice", "dynamic_update_slice"]


def _check_window(
    ctx: InferContext, x: TensorType, starts: Sequence[TensorType], sizes: Shape
) -> None:
    if not len(starts) == len(sizes) == x.rank:
        ctx.fail(f"needs a start and a size for each of the {x.rank} axes")
    for start in starts:
        ctx.require(start.shape == (), f"a start must be a scalar, got shape {start.shape}")
        ctx.require(is_integer(start.dtype), f"starts are {start.dtype.name}", dtype=True)
    if starts:
        require_one_dtype(ctx, *starts)
    for axis, (size, dim) in enumerate(zip(sizes, x.shape, strict=True)):
        known = [value for value in (0, size, dim) if isinstance(value, int)]
        ctx.require(
            known == sorted(known),
            f"a window of {size} does not lie in axis {axis}, of size {dim}",
        )


def _fold_starts(
    shape: Sequence[int], starts: Sequence[Any], sizes: Sequence[int]
) -> tuple[slice, ...]:
    places = []
    for start, size, dim in zip(starts, sizes, shape, strict=True):
        low = int(start) + (dim if start < 0 else 0)
        low = min(max(low, 0), dim - size)
        places.append(slice(low, low + size))
    return tuple(places)


# -- DynamicSlice ----------------------------------------------------------------------------


def _infer_slice(
    ctx: InferContext, x: TensorType, *starts: TensorType, sizes: Shape, inside: bool
) -> TensorType:
    _check_window(ctx, x, starts, sizes)
    return TensorType(x.dtype, sizes)


def _lower_slice(ctx: LowerContext, x: Any, *starts: Any, sizes: Shape, inside: bool) -> Any:
    window = ctx.shape(sizes)
    if not inside:
        starts = tuple(_inside(*row) for row in zip(starts, window, x.shape, strict=True))
    return lax.dynamic_slice(x, starts, window)


def _inside(start: Any, size: Any, dim: Any) -> Any:
    """`start` clamped so that the window is inside the axis.

    XLA does that too, except when it merges a slice of a slice. Then the window may begin too late
    (jaxlib 0.10: the first 2 elements of a slice of 4 that begins at element 5 of 7).
    """
    if not isinstance(start, jax.Array) or start.dtype.itemsize < 4:
        start = jnp.asarray(start, jnp.int32)  # so that sizes fit
    return jnp.clip(jnp.where(start < 0, start + dim, start), 0, dim - size)


def _slice_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, *starts = node.inputs
    return [dynamic_update_slice(ctx.ops.zeros_like(x), dy, starts), *[None] * len(starts)]


def _slice_layout(ctx: LayoutContext, node: Node, x: Layout, *starts: Layout) -> LayoutPlan:
    whole = [REPLICATED] * len(starts)
    if isinstance(x, Partial):
        return LayoutPlan([x, *whole], [x])
    sizes = node.attrs["sizes"]
    if isinstance(x, Sharded) and sizes[x.axis] == node.inputs[0].type.shape[x.axis]:
        return LayoutPlan([x, *whole], [x], {"sizes": local_dims(sizes, x.axis, ctx.replicas)})
    return replicated(ctx, node, x, *starts)


DYNAMIC_SLICE = rearrangement(
    "DynamicSlice(x, *starts) -> y",
    attrs={
        "sizes": Attr("dims"),
        "inside": Attr(
            "bool", default=False, doc="whether passes know that the window is inside x"
        ),
    },
    infer=_infer_slice,
    lower=_lower_slice,
    gradient=_slice_gradient,
    layout=_slice_layout,
    fold=lambda x, *starts, sizes, inside: x[_fold_starts(x.shape, starts, sizes)],
    cost=picks,
    doc="The window of `sizes` at `starts`: a scalar integer for each axis, all of one dtype. "
    "Negative ones count from the end; a window that would exceed x is moved into it. All dtypes. "
    "Source: jax.lax.dynamic_slice.",
)


def dynamic_slice(
    x: TensorLike, starts: Sequence[TensorLike], sizes: Sequence[Dim], *, name: str | None = None
) -> Tensor:
    """The window of `x` with the shape `sizes` at `starts`, which the graph may compute.

    Args:
        x: any tensor.
        starts: a scalar integer for each axis: numbers or tensors. Negative ones count from
            the end. A window that would exceed `x` is moved inside.
        sizes: static: ints or named sizes, at most those of `x`.

    Raises:
        ShapeError: not a start and a size for each axis, or a size greater than that of `x`.
        DTypeError: `starts` are not integers.

    Source: jax.lax.dynamic_slice.

    Examples:
        >>> run(gc.dynamic_slice([1, 2, 3, 4], [1], [2]))
        Array([2, 3], dtype=int32)
    """
    x = convert(x)
    operands = (x, *_start_tensors("DynamicSlice", starts))
    return emit_one(DYNAMIC_SLICE, operands, name, sizes=as_dims("DynamicSlice", sizes))


def _start_tensors(op: str, starts: Any) -> list[Tensor]:
    """One tensor for each start, all of one dtype."""
    if isinstance(starts, Tensor):
        refuse(
            f"{op}: starts must be a sequence of scalars, got one tensor",
            hint="give a scalar for each axis: (i, 0)",
            starts=starts,
        )
    given = list(starts)
    return promote_operands(*given) if given else []


# -- DynamicUpdateSlice ----------------------------------------------------------------------


def _infer_update(
    ctx: InferContext, x: TensorType, update: TensorType, *starts: TensorType
) -> TensorType:
    require_one_dtype(ctx, x, update)
    _check_window(ctx, x, starts, update.shape)
    return x


def _update_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    _, update, *starts = node.inputs
    dx = dynamic_update_slice(dy, ctx.ops.zeros_like(update), starts)
    return [dx, dynamic_slice(dy, starts, update.type.shape), *[None] * len(starts)]


def _update_layout(
    ctx: LayoutContext, node: Node, x: Layout, update: Layout, *starts: Layout
) -> LayoutPlan:
    whole = [REPLICATED] * len(starts)
    if SUM in (x, update) and {x, update} <= {SUM, REPLICATED}:  # linear in the pair
        return LayoutPlan([SUM, SUM, *whole], [SUM])
    large, small = (tensor.type.shape for tensor in node.inputs[:2])
    for layout in (x, update):
        if isinstance(layout, Sharded) and large[layout.axis] == small[layout.axis]:
            return LayoutPlan([layout, layout, *whole], [layout])
    return replicated(ctx, node, x, update, *starts)


def _fold_update(x: Any, update: Any, *starts: Any) -> Any:
    result: np.ndarray[Any, Any] = x.copy()
    result[_fold_starts(x.shape, starts, update.shape)] = update
    return result


DYNAMIC_UPDATE_SLICE = rearrangement(
    "DynamicUpdateSlice(x, update, *starts) -> y",
    infer=_infer_update,
    lower=lambda ctx, x, update, *starts: lax.dynamic_update_slice(x, update, starts),
    gradient=_update_gradient,
    layout=_update_layout,
    fold=_fold_update,
    doc="x with its window at `starts` replaced by `update`. `starts` are those of "
    "`DynamicSlice`. All dtypes. Source: jax.lax.dynamic_update_slice.",
)


def dynamic_update_slice(
    x: TensorLike, update: TensorLike, starts: Sequence[TensorLike], *, name: str | None = None
) -> Tensor:
    """`x` with its window at `starts` replaced by `update`. The graph may compute `starts`.

    Args:
        x: any tensor.
        update: has the rank of `x` and no larger sizes; cast to the dtype of `x`.
        starts: as for `dynamic_slice`.

    Raises:
        ShapeError: not a start for each axis, or the update does not fit into `x`.
        DTypeError: `starts` are not integers.

    Source: jax.lax.dynamic_update_slice.

    Examples:
        >>> run(gc.dynamic_update_slice([1, 2, 3, 4], [8, 9], [1]))
        Array([1, 8, 9, 4], dtype=int32)
    """
    x = convert(x)
    operands = (x, to_dtype(update, x.type.dtype), *_start_tensors("DynamicUpdateSlice", starts))
    return emit_one(DYNAMIC_UPDATE_SLICE, operands, name)


OPS: tuple[OpDef, ...] = (DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE)
