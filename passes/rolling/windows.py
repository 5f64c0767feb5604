"""Windows at known positions: which elements of an axis a node reads, writes or adds to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from graphc.ir.dtypes import is_integer
from graphc.ir.node import Node, Tensor
from graphc.ops.arrays.dynamic_slicing import DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE
from graphc.ops.arrays.indexing import SCATTER_ADD, TAKE
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.arrays.slicing import PAD, SLICE
from graphc.ops.core.emit import CONSTANT

Makers = Mapping[Tensor, Node]


class Window(NamedTuple):
    """The elements `start` to `start + width` along `axis`, and all elements of the other axes.

    Attributes:
        dropped: whether the piece lacks this axis. The width is then 1.
    """

    axis: int
    start: int
    width: int
    dropped: bool = False

    def overlaps(self, other: Window) -> bool:
        """Whether both may have an element in common."""
        if self.axis != other.axis:
            return True
        return self.start < other.start + other.width and other.start < self.start + self.width


class Piece(NamedTuple):
    """A tensor, and its window in a larger tensor."""

    tensor: Tensor
    window: Window


def read_by(node: Node, makers: Makers) -> Window | None:
    """The window of its first operand that a node returns."""
    if node.op is SLICE and node.attrs["strides"] == (1,) * len(node.attrs["strides"]):
        return _single(node.inputs[0], node.attrs["starts"], node.outputs[0].type.shape)
    if node.op is TAKE:
        return _at_index(node.inputs[0], makers, node.inputs[1], node.attrs["axis"])
    if node.op is DYNAMIC_SLICE:
        starts = _starts(node.inputs[0], makers, node.inputs[1:], node.attrs["sizes"])
        return _single(node.inputs[0], starts, node.attrs["sizes"]) if starts else None
    return None


def written_by(node: Node, makers: Makers) -> Piece | None:
    """The piece that a node writes over a window of its first operand."""
    if node.op is not DYNAMIC_UPDATE_SLICE:
        return None
    x, piece, *places = node.inputs
    starts = _starts(x, makers, places, piece.type.shape)
    window = _single(x, starts, piece.type.shape) if starts else None
    return Piece(piece, window) if window else None


def placed_by(node: Node, makers: Makers) -> Piece | None:
    """The only part of a node's result that is nonzero."""
    if node.op is PAD:
        piece, value = node.inputs
        pads = node.attrs["pads"]
        inside = all(isinstance(n, int) and n >= 0 for pad in pads for n in pad[:2])
        if not inside or any(pad[2] for pad in pads) or not is_zero(value, makers):
            return None
        window = _single(node.outputs[0], [pad[0] for pad in pads], piece.type.shape)
        return Piece(piece, window) if window else None
    if node.op is DYNAMIC_UPDATE_SLICE and is_zero(node.inputs[0], makers):
        return written_by(node, makers)
    if node.op is SCATTER_ADD and is_zero(node.inputs[0], makers):
        x, index, piece = node.inputs
        window = _at_index(x, makers, index, node.attrs["axis"])
        return Piece(piece, window) if window else None
    return None


def is_zero(tensor: Tensor, makers: Makers) -> bool:
    """Whether all elements are known to be zero."""
    node = makers.get(tensor)
    while node is not None and node.op is BROADCAST_TO:
        node = makers.get(node.inputs[0])
    return node is not None and node.op is CONSTANT and not node.attrs["value"].any()


def runs_of(starts: Sequence[int], width: int, fewest: int) -> list[slice]:
    """The ranges of `starts` (in increasing order) in which at least `fewest` windows of this width
    follow each other at a constant distance without overlap."""
    found, first = [], 0
    while first + 1 < len(starts):
        step, last = starts[first + 1] - starts[first], first + 1
        while last + 1 < len(starts) and starts[last + 1] - starts[last] == step:
            last += 1
        if step >= width and last - first + 1 >= fewest:
            found.append(slice(first, last + 1))
            last += 1
        first = last
    return found


def _single(whole: Tensor, starts: Sequence[object], sizes: Sequence[object]) -> Window | None:
    """The window at `starts`, if it covers all axes but one completely."""
    shape = whole.type.shape
    cut = [axis for axis, size in enumerate(sizes) if size != shape[axis]]
    if len(cut) != 1:
        return None
    (axis,) = cut
    start, width = starts[axis], sizes[axis]
    known = isinstance(start, int) and isinstance(width, int) and isinstance(shape[axis], int)
    return Window(axis, start, width) if known and width else None  # type: ignore[arg-type]


def _at_index(x: Tensor, makers: Makers, index: Tensor, axis: int) -> Window | None:
    """The slice at a constant index that is in range."""
    place, size = _scalar(index, makers), x.type.shape[axis]
    if place is None or not isinstance(size, int) or not -size <= place < size:
        return None
    return Window(axis, place % size, 1, dropped=True)


def _starts(
    x: Tensor, makers: Makers, places: Sequence[Tensor], sizes: Sequence[object]
) -> list[int] | None:
    """The start positions of a dynamic window, if they are constants and the sizes there are
    known."""
    starts = []
    for place, size, dim in zip(places, sizes, x.type.shape, strict=True):
        start = 0 if size == dim else _scalar(place, makers)
        if start is None:
            return None
        if size != dim:
            if not isinstance(size, int) or not isinstance(dim, int):
                return None
            start = min(max(start + (dim if start < 0 else 0), 0), dim - size)
        starts.append(start)
    return starts


def _scalar(tensor: Tensor, makers: Makers) -> int | None:
    node = makers.get(tensor)
    if node is None or node.op is not CONSTANT or tensor.type.shape:
        return None
    value = node.attrs["value"]
    return int(value) if is_integer(np.asarray(value).dtype) else None
