"""Gradients of kernels from one or two images, on CPU: images are cut into strips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphc.ir.dtypes import WIDE_FLOATS
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import reshape
from graphc.ops.arrays.slicing import pad_with, slice_
from graphc.ops.nn.conv_rules import CONV_KERNEL_GRADIENT
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, change, simplify


@dataclass(frozen=True)
class CpuStrips(Pass):
    """Cuts the images of the gradient of a convolution's kernel into strips of rows, if the batch
    has one or two: the strips are the images of a larger batch, whose sum is the same.

    XLA:CPU computes this gradient as a convolution whose channels are the images of the batch. With
    one channel it reaches 25 to 50 % of the speed that it reaches with 8. [1, 256, 256, 64] by
    3 x 3 to 64 takes 0.46x of the time, [1, 56, 56, 64] by 5 x 5 to 64 0.32x, [1, 14, 14, 256] by
    3 x 3 to 256 0.74x; two images 0.6x to 0.85x.

    Must not: cut signals of one axis, groups, or batches of three images, which gain nothing; cut
    what is computed in tiles. Strips repeat the rows at their edges that a window reaches, and sums
    are added in another order.

    Attributes:
        images: about how many strips a batch becomes.
    """

    images: int = 8

    def run(self, program: Program) -> PassResult:
        return simplify(self, program, {CONV_KERNEL_GRADIENT: self._in_strips})

    def _in_strips(self, rewriter: Rewriter, node: Node) -> Answer:
        x, dy = node.inputs
        if not _can_be_cut(node):
            return None
        strips = min(self.images // dy.type.sizes[0], dy.type.sizes[1])
        if strips < max(2, self.images // 2):
            return None
        rows = -(-dy.type.sizes[1] // strips)
        padding = ((0, 0), *node.attrs["padding"][1:])
        operands = (_images_in_strips(node, x, strips, rows), _in_rows(dy, strips, rows))
        return change(node, CONV_KERNEL_GRADIENT, operands, **{**node.attrs, "padding": padding})


def _can_be_cut(node: Node) -> bool:
    types = [t.type for t in (*node.inputs, *node.outputs)]
    return (
        len(types[0].shape) > 3
        and types[0].dtype in WIDE_FLOATS
        and node.attrs["groups"] == 1
        and not node.attrs["tiles"]
        and all(isinstance(dim, int) and dim > 0 for type in types for dim in type.shape)
        and max(node.attrs["size"]) > 1
    )


def _images_in_strips(node: Node, x: Tensor, strips: int, rows: int) -> Tensor:
    """x [batch, height, ...], padded along its rows, as [batch * strips, height of a strip, ...]:
    the rows that the windows of `rows` rows of the result reach."""
    batch, height, *rest = x.type.sizes
    step, dilation = node.attrs["strides"][0], node.attrs["dilation"][0]
    low = node.attrs["padding"][0][0]
    reach = (node.attrs["size"][0] - 1) * dilation + 1
    whole = (strips * rows - 1) * step + reach
    x = _padded(x, low, whole - height - low)
    tall = (rows - 1) * step + reach
    starts = [strip * rows * step for strip in range(strips)]
    parts = [_rows(x, start, start + tall) for start in starts]
    joined = concatenate([reshape(part, (batch, 1, tall, *rest)) for part in parts], axis=1)
    return reshape(joined, (batch * strips, tall, *rest))


def _in_rows(dy: Tensor, strips: int, rows: int) -> Tensor:
    """dy [batch, height, ...] as [batch * strips, rows, ...], with zeros after the last row."""
    batch, height, *rest = dy.type.sizes
    return reshape(_padded(dy, 0, strips * rows - height), (batch * strips, rows, *rest))


def _padded(x: Tensor, low: int, high: int) -> Tensor:
    """x with `low` and `high` rows of zeros, or fewer rows."""
    pads: list[Any] = [(0, 0, 0)] * len(x.type.shape)
    pads[1] = (low, high, 0)
    return pad_with(x, 0, pads) if low or high else x


def _rows(x: Tensor, start: int, stop: int) -> Tensor:
    shape = x.type.sizes
    starts = (0, start, *[0] * (len(shape) - 2))
    return slice_(x, starts, (shape[0], stop, *shape[2:]))
