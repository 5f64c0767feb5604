"""Elements and windows chosen by index vectors, along several axes at once: gather_nd."""

from __future__ import annotations

from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.gathering import MODE, SCATTER_OF, gather, gather_whole
from graphc.ops.arrays.index_frames import INDEXED, Axes, check_frame, frame_of, xla_indices
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import picks
from graphc.ops.core.defining import rearrangement
from graphc.ops.core.emit import convert, emit_one
from graphc.ops.core.ranges import in_range
from graphc.typing import TensorLike

__all__ = ["gather_nd"]


def _lower_gather(
    ctx: LowerContext, x: Any, indices: Any, *, axes: Axes, batch: int, mode: str
) -> Any:
    places = xla_indices(indices, [x.shape[axis] for axis in axes])
    windows = frame_of(x.ndim, indices.ndim, axes, batch).windows()
    return gather(x, places, mode, axes, windows=windows, shared=tuple(range(batch)))


def _gather_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, indices = node.inputs
    attrs = {**node.attrs, "mode": SCATTER_OF[node.attrs["mode"]]}
    return [ctx.ops.scatter_at(ctx.ops.zeros_like(x), indices, dy, "add", **attrs), None]


def _gather_layout(ctx: LayoutContext, node: Node, x: Layout, indices: Layout) -> LayoutPlan:
    axes, batch = node.attrs["axes"], node.attrs["batch"]
    rank, index_rank = (t.ndim for t in node.inputs)
    frame = frame_of(rank, index_rank, axes, batch)
    if isinstance(x, Sharded) and x.axis not in axes:
        needed = x if x.axis < batch else REPLICATED
        return LayoutPlan([x, needed], [Sharded(frame.of_operand(x.axis))])
    if isinstance(indices, Sharded) and indices.axis < index_rank - 1:
        needed = indices if indices.axis < batch else REPLICATED
        return LayoutPlan([needed, indices], [Sharded(frame.of_indices(indices.axis))])
    return gather_whole(ctx, node, x, indices)


GATHER_ND = rearrangement(
    "GatherNd(x, indices) -> y",
    attrs={**INDEXED, "mode": MODE},
    infer=lambda ctx, x, indices, *, axes, batch, mode: TensorType(
        x.dtype, check_frame(ctx, x, indices, axes, batch).shape(x.shape, indices.shape)
    ),
    lower=_lower_gather,
    gradient=_gather_gradient,
    layout=_gather_layout,
    cost=picks,
    doc="For each vector along the last axis of `indices` (integers), the window of x at these "
    "indices along `axes`. The other axes of the indices replace `axes` if these are adjacent; "
    "otherwise they come first, after the `batch` axes. Negative indices count from the end; "
    "modes as in Take. Any dtype. Source: numpy's advanced indexing, tf.gather_nd.",
)


def gather_at(
    x: Any, indices: Any, axes: Axes, batch: int = 0, mode: str = "clip", *, name: str | None = None
) -> Tensor:
    """The windows of `x` at index vectors along any `axes`; see `gather_nd` for the rest."""
    operands = (convert(x), convert(indices))
    return emit_one(GATHER_ND, operands, name, axes=tuple(axes), batch=batch, mode=mode)


def vector_axes(op: str, indices: Tensor, batch_dims: int) -> Axes:
    """The axes that index vectors refer to: the first ones after the batch axes."""
    size = indices.type.shape[-1] if indices.ndim else None
    if not isinstance(size, int) or size < 1:
        refuse(
            f"{op}: the last axis of the indices must have a known size, 1 or more",
            error=AttributeValueError,
            indices=indices,
            hint="it holds one index for each indexed axis",
        )
    return tuple(range(batch_dims, batch_dims + size))


def gather_nd(
    x: TensorLike,
    indices: TensorLike,
    batch_dims: int = 0,
    mode: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """The elements or windows of `x` at the index vectors `indices[..., :]`.

    Args:
        x: any tensor.
        indices: integers [..., k]: indices along the first k axes of `x` after `batch_dims`.
            Negative ones count from the end.
        batch_dims: how many leading axes `x` and `indices` share.
        mode: for indices out of range, as in `take`. Without a mode they are clamped, and raise an
            error in runs with `CompileOptions(check_numerics=True)`.

    Returns:
        [..., *x.shape[batch_dims + k:]], in the dtype of `x`.

    Raises:
        DTypeError: `indices` are not integers.
        ShapeError: more indices than axes, or the sizes of batch axes differ.
        AttributeValueError: k or the `mode` is unknown.

    Source: tf.gather_nd.

    Examples:
        >>> run(gc.gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]))
        Array([2, 3], dtype=int32)
    """
    where = convert(indices)
    axes = vector_axes("GatherNd", where, batch_dims)
    shape = convert(x).type.shape
    if mode is None and axes[-1] < len(shape):
        sizes = tuple(shape[axis] for axis in axes)
        low = tuple(-size for size in sizes)
        where = in_range(where, low, sizes, "indices", of="gather_nd")
    return gather_at(x, where, axes, batch_dims, mode or "clip", name=name)


OPS: tuple[OpDef, ...] = (GATHER_ND,)
