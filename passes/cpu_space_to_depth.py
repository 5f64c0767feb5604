"""Convolutions of few channels with large strides, on CPU: blocks of places become channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphc.ir.dtypes import as_dtype
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.conv import CONV, CONV_KERNEL_GRADIENT
from graphc.ops.shape import RESHAPE, TRANSPOSE
from graphc.ops.slicing import PAD
from graphc.passes.base import Pass, PassResult
from graphc.passes.rules import Answer, Rewriter, Rules, change, simplify

Sizes = tuple[int, ...]
_DTYPES = (as_dtype("float32"), as_dtype("float64"))


@dataclass(frozen=True)
class CpuSpaceToDepth(Pass):
    """Makes a convolution of few channels and a large stride, as first layers of image networks
    are, one without a stride: each block of places that a stride steps over becomes one place with
    as many times the channels, in x and in the kernel, which is filled up to whole blocks with
    zeros.

    XLA's convolutions on CPU read the channels of a place as a row; 3 are too few for their units.
    An 11 x 11 window with stride 4 on [32, 224, 224, 3] takes 0.9x the time; 7 x 7 with stride 2
    gains nothing. A window as large as its stride, which cuts images into patches, has one tap
    afterwards, and so has its kernel's gradient: see `CpuPointwise`.

    Must not: touch the gradient of x, which the first layer does not have; the kernel's where
    windows overlap (1.3x the time: blocks are in more windows than places are); more channels, or
    groups, dilations and windows smaller than the stride. Sums are added in another order.

    Attributes:
        channels: the most that are few.
        stride: the least that is large.
    """

    channels: int = 4
    stride: int = 3

    def run(self, program: Program) -> PassResult:
        rules: Rules = {CONV: self._forward, CONV_KERNEL_GRADIENT: self._kernel_gradient}
        return simplify(self, program, rules)

    def _forward(self, rewriter: Rewriter, node: Node) -> Answer:
        x, w = node.inputs
        window = _sizes(w)[:-2]
        if not self._fits(node, window):
            return None
        blocks = _Blocks(rewriter, node, window, _sizes(node.outputs[0])[1:-1])
        return change(node, CONV, (blocks.images(x), blocks.kernel(w)), **blocks.attrs)

    def _kernel_gradient(self, rewriter: Rewriter, node: Node) -> Answer:
        x, dy = node.inputs
        window = node.attrs["size"]
        if window != node.attrs["strides"] or not self._fits(node, window):
            return None
        blocks = _Blocks(rewriter, node, window, _sizes(dy)[1:-1])
        images = blocks.images(x)
        size = (*blocks.taps, _sizes(images)[-1], _sizes(dy)[-1])
        attrs = {**blocks.attrs, "size": blocks.taps}
        inner = blocks.emit(CONV_KERNEL_GRADIENT, (images, dy), size, **attrs)
        return change(node, RESHAPE, (inner,), shape=_sizes(node.outputs[0]))

    def _fits(self, node: Node, window: Sequence[Any]) -> bool:
        x, strides = node.inputs[0].type, node.attrs["strides"]
        types = [t.type for t in (*node.inputs, *node.outputs)]
        return (
            all(isinstance(dim, int) and dim > 0 for type in types for dim in type.shape)
            and x.dtype in _DTYPES
            and _sizes(node.inputs[0])[-1] <= self.channels
            and min(strides) >= self.stride
            and all(n >= step for n, step in zip(window, strides, strict=True))
            and node.attrs["groups"] == 1
            and set(node.attrs["dilation"]) == {1}
        )


def _sizes(tensor: Tensor) -> Sizes:
    return tuple(dim for dim in tensor.type.shape if isinstance(dim, int))


class _Blocks:
    """One convolution in blocks of the size of its strides.

    Attributes:
        taps: the window, in blocks.
        attrs: of the convolution of blocks.
    """

    def __init__(self, rewriter: Rewriter, node: Node, window: Sizes, places: Sizes) -> None:
        self.rewriter, self.node = rewriter, node
        self.window, self.places = window, places
        self.steps: Sizes = node.attrs["strides"]
        self.taps = tuple([-(-n // step) for n, step in zip(window, self.steps, strict=True)])
        ones = (1,) * len(window)
        self.attrs = {"strides": ones, "padding": ((0, 0),) * len(window), "dilation": ones}

    def emit(self, op: OpDef, x: Sequence[Tensor], size: Sizes, /, **attrs: Any) -> Tensor:
        type = TensorType(x[0].type.dtype, size)
        return self.rewriter.emit(self.node, op, x, type, **attrs)

    def images(self, x: Tensor) -> Tensor:
        """x [batch, ..., channels], padded and cut to what the window reads, in blocks."""
        batch, *size, channels = _sizes(x)
        wanted = [n + taps - 1 for n, taps in zip(self.places, self.taps, strict=True)]
        rows = zip(wanted, self.steps, size, self.node.attrs["padding"], strict=True)
        pads = [(low, n * step - dim - low, 0) for n, step, dim, (low, _) in rows]
        whole = self._padded(x, (batch,), wanted, (channels,), [(0, 0, 0), *pads, (0, 0, 0)])
        return self._depth(whole, (batch,), wanted, (channels,))

    def kernel(self, w: Tensor) -> Tensor:
        """w [..., channels, filters], filled up with zeros, in blocks."""
        rest = _sizes(w)[-2:]
        rows = zip(self.taps, self.steps, self.window, strict=True)
        pads = [(0, n * step - size, 0) for n, step, size in rows]
        whole = self._padded(w, (), self.taps, rest, [*pads, (0, 0, 0), (0, 0, 0)])
        return self._depth(whole, (), self.taps, rest)

    def _padded(
        self, x: Tensor, first: Sizes, blocks: Sequence[int], rest: Sizes, pads: Sequence[Any]
    ) -> Tensor:
        filled = [n * step for n, step in zip(blocks, self.steps, strict=True)]
        size = (*first, *filled, *rest)
        if size == _sizes(x):
            return x
        zero = self.rewriter.constant(self.node, 0)
        return self.emit(PAD, (x, zero), size, pads=tuple(pads))

    def _depth(self, x: Tensor, first: Sizes, blocks: Sequence[int], rest: Sizes) -> Tensor:
        """[*first, block, place in it, ..., channels, ...] with the places beside the channels."""
        lead, rank = len(first), len(blocks)
        pairs = [size for pair in zip(blocks, self.steps, strict=True) for size in pair]
        shape = (*first, *pairs, *rest)
        apart = self.emit(RESHAPE, (x,), shape, shape=shape)
        outer = [lead + 2 * axis for axis in range(rank)]
        inner = [axis + 1 for axis in outer]
        perm = (*range(lead), *outer, *inner, *range(lead + 2 * rank, len(shape)))
        mixed = self.emit(TRANSPOSE, (apart,), tuple([shape[i] for i in perm]), perm=perm)
        deep = (*first, *blocks, prod(self.steps) * rest[0], *rest[1:])
        return self.emit(RESHAPE, (mixed,), deep, shape=deep)
