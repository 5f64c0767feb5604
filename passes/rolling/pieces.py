"""Nodes that split a tensor into pieces at regular distances, or assemble one from pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from graphc.ir.dims import product
from graphc.ir.node import Node, Tensor
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import RESHAPE, reshape, reshaped
from graphc.ops.arrays.slicing import pad_with, slice_
from graphc.ops.arrays.stacking import stack, unstack
from graphc.passes.rolling.windows import Window


def cut(x: Tensor, first: Window, step: int, count: int) -> tuple[Tensor, ...]:
    """Returns `count` windows of `x`: the first at `first`, each next one `step` elements further.

    Each window except the last must end before the next one starts, and `step * count` elements
    must follow the start of the first.
    """
    shape, axis = x.type.shape, first.axis
    before, behind = shape[:axis], shape[axis + 1 :]
    if step * count != shape[axis]:
        x = _part(x, axis, first.start, step * count)
    size = () if first.dropped else (first.width,)
    if (count, *size) != (step * count,):
        x = reshape(x, (*before, count, step, *behind))
        if step != first.width:
            x = _part(x, axis + 1, 0, first.width)
        if first.dropped:
            x = reshape(x, (*before, count, *behind))
    return unstack(x, axis)


def _part(x: Tensor, axis: int, start: int, size: int) -> Tensor:
    starts, limits = [0] * x.type.rank, list(x.type.shape)
    starts[axis], limits[axis] = start, start + size
    return slice_(x, starts, limits)


class Joined(NamedTuple):
    """Pieces at regular distances: the window of the first, and the step between them."""

    tensors: Sequence[Tensor]
    first: Window
    step: int


def joined(pieces: Joined, type: TensorType, makers: Mapping[Tensor, Node]) -> Tensor:
    """A tensor of `type` with the pieces in their windows, and zeros elsewhere."""
    tensors, window, step = pieces
    axis, width, count = window.axis, window.width, len(tensors)
    before, size, behind = type.shape[:axis], type.shape[axis], type.shape[axis + 1 :]
    sources, place = without_unit_axes(tensors, axis, makers) or (tensors, axis)
    whole = stack(sources, place) if count > 1 else tensors[0]
    if step != width:
        whole = reshaped(whole, (*before, count, width, *behind))
        whole = pad_with(whole, 0, _on_axis(axis + 1, 0, step - width, whole.type.rank))
    whole = reshaped(whole, (*before, step * count, *behind))
    last = window.start + step * count
    if (window.start, last) != (0, size):
        whole = pad_with(whole, 0, _on_axis(axis, window.start, size - last, whole.type.rank))
    return whole


def _on_axis(axis: int, low: int, high: int, rank: int) -> list[tuple[int, int, int]]:
    return [(low, high, 0) if i == axis else (0, 0, 0) for i in range(rank)]


def without_unit_axes(
    tensors: Sequence[Tensor], axis: int, makers: Mapping[Tensor, Node]
) -> tuple[list[Tensor], int] | None:
    """The operands of the reshapes that compute the tensors, and the axis to stack them along so
    that the elements are in the order of the tensors joined along `axis`. None if they differ in
    type."""
    nodes = [makers.get(t) for t in tensors]
    sources = [n.inputs[0] for n in nodes if n is not None and n.op is RESHAPE]
    if len(sources) < len(tensors) or any(t.type != tensors[0].type for t in tensors):
        return None
    shape = sources[0].type.shape
    if any(t.type != sources[0].type for t in sources):
        return None
    wanted = product(tensors[0].type.shape[:axis])
    for place in range(len(shape) + 1):
        if product(shape[:place]) == wanted:
            return sources, place
    return None
