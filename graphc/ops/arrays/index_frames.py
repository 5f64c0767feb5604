"""What GatherNd and ScatterNd share: positions of axes, checks, index conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dims import Shape
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext
from graphc.ir.types import TensorType
from graphc.ops.arrays.gathering import check_integers
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import broadcast_to, expand_dims
from graphc.ops.core.defining import at_least
from graphc.ops.core.emit import convert

Axes = tuple[int, ...]

INDEXED = {
    "axes": Attr(
        "ints",
        check=lambda axes: all(a >= 0 for a in axes) and bool(axes) and list(axes) == sorted(axes),
        must="be axes in order, one or more, counted from the front",
        doc="the axes of x that an index vector refers to",
    ),
    "batch": at_least(
        0,
        "not be negative",
        default=0,
        doc="the number of leading axes that x and the indices share",
    ),
}


class Frame(NamedTuple):
    """The positions of the axes of x and of the indices in the result of a gather.

    Attributes:
        axes: the axes of x that are indexed.
        kept: the other axes of x, in their order.
        place: how many of them precede the axes of the indices. As in NumPy, the axes of the
            indices replace the indexed axes if these are adjacent, and come first otherwise.
        lead: the number of axes of the indices, without the batch and the index vector.
        batch: the number of shared leading axes.
    """

    axes: Axes
    kept: Axes
    place: int
    lead: int
    batch: int

    def of_operand(self, axis: int) -> int:
        """The axis of the result that corresponds to the kept `axis` of x."""
        position = self.kept.index(axis)
        return position if position < self.place else position + self.lead

    def of_indices(self, axis: int) -> int:
        """The axis of the result that corresponds to `axis` of the indices (not the last one)."""
        return axis if axis < self.batch else self.place + axis - self.batch

    def windows(self) -> Axes:
        """The axes of the result that are neither batch axes nor axes of the indices."""
        return tuple(self.of_operand(axis) for axis in self.kept if axis >= self.batch)

    def shape(self, x: Shape, indices: Shape) -> Shape:
        """The shape of the gathered result."""
        kept = [x[axis] for axis in self.kept]
        return (*kept[: self.place], *indices[self.batch : -1], *kept[self.place :])


def frame_of(rank: int, index_rank: int, axes: Axes, batch: int) -> Frame:
    """The frame of a gather from `rank` axes by indices of `index_rank` axes."""
    kept = tuple(axis for axis in range(rank) if axis not in axes)
    neighbours = axes == tuple(range(axes[0], axes[0] + len(axes)))
    return Frame(axes, kept, axes[0] if neighbours else batch, index_rank - 1 - batch, batch)


def check_frame(
    ctx: InferContext, x: TensorType, indices: TensorType, axes: Axes, batch: int
) -> Frame:
    """The frame of the operands. Raises if they do not fit."""
    check_integers(ctx, indices, "gc.extract takes a mask")
    ctx.require(indices.rank > batch, f"indices need another axis after {batch} shared axes")
    ctx.require(
        axes[0] >= batch and axes[-1] < x.rank and len(set(axes)) == len(axes),
        f"axes {axes} are not axes of x, of rank {x.rank}, after {batch} shared axes",
    )
    ctx.require(
        indices.shape[-1] == len(axes),
        f"the last axis of the indices must have an index for each of {len(axes)} axes, got "
        f"{indices.shape[-1]}",
    )
    for axis in range(batch):
        ctx.unify(x.shape[axis], indices.shape[axis], f"sizes of axis {axis}")
    return frame_of(x.rank, indices.rank, axes, batch)


def xla_indices(indices: Any, sizes: Sequence[Any]) -> Any:
    """Index vectors in XLA's form: negative indices counted from the front."""
    if indices.dtype.itemsize < 4:  # may not reach the sizes
        indices = lax.convert_element_type(indices, np.int32)
    if jnp.issubdtype(indices.dtype, jnp.unsignedinteger):
        return indices
    ends = jnp.stack([jnp.asarray(size, indices.dtype) for size in sizes])
    return lax.select(indices < 0, indices + ends, indices)


def index_vectors(places: Sequence[Tensor], shape: Shape) -> Tensor:
    """Indices along several axes, broadcast to `shape`, as one tensor of index vectors."""
    columns = [expand_dims(broadcast_to(convert(p), shape), len(shape)) for p in places]
    return columns[0] if len(columns) == 1 else concatenate(columns, len(shape))
