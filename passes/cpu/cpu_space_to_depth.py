"""Convolutions that cut images into patches, on CPU: the positions of a patch become channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphc.ir.dtypes import WIDE_FLOATS
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.shape import RESHAPE, reshape, transpose
from graphc.ops.arrays.slicing import pad_with
from graphc.ops.core.emit import emit_one
from graphc.ops.nn.conv_rules import CONV, CONV_KERNEL_GRADIENT
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, Rules, change, simplify

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class CpuSpaceToDepth(Pass):
    """Rewrites a convolution of few channels whose window equals its stride, as in the first layers
    of vision transformers, and the gradient of its kernel, to windows of one position: the
    positions of a window become one position with as many times the channels. `CpuPointwise` makes
    products of these.

    XLA's convolutions on CPU read the channels of a position as a row, and 3 channels are too few
    for their units. Patches of 4 x 4 of [32, 224, 224, 3] to 96 filters take 0.86x the time, 0.61x
    with the gradient of the kernel; patches of 16 x 16 to 768 filters 0.91x.

    Must not: change the gradient of x, which the first layer does not need; change convolutions
    with more channels, groups or dilations; change overlapping windows, which multiply the data:
    the 11 x 11 window with stride 4 of AlexNet took 1.4x the time forward, and 1.3x for the
    gradient of its kernel (7 x 7 with stride 2 gained nothing either). Sums are added in another
    order.

    Attributes:
        channels: the maximum number of channels.
    """

    channels: int = 4

    def run(self, program: Program) -> PassResult:
        rules: Rules = {CONV: self._forward, CONV_KERNEL_GRADIENT: self._kernel_gradient}
        return simplify(self, program, rules)

    def _forward(self, rewriter: Rewriter, node: Node) -> Answer:
        x, w = node.inputs
        if not self._fits(node, w.type.sizes[:-2]):
            return None
        patches = _Patches(node, node.outputs[0].type.sizes[1:-1])
        kernel = reshape(w, (*patches.taps, patches.channels, w.type.sizes[-1]))
        return change(node, CONV, (patches.images(x), kernel), **patches.attrs)

    def _kernel_gradient(self, rewriter: Rewriter, node: Node) -> Answer:
        x, dy = node.inputs
        if not self._fits(node, node.attrs["size"]):
            return None
        patches = _Patches(node, dy.type.sizes[1:-1])
        operands = (patches.images(x), dy)
        attrs = {**patches.attrs, "size": patches.taps}
        inner = emit_one(CONV_KERNEL_GRADIENT, operands, **attrs)
        return change(node, RESHAPE, (inner,), shape=node.outputs[0].type.sizes)

    def _fits(self, node: Node, window: Sequence[Any]) -> bool:
        x = node.inputs[0]
        types = [t.type for t in (*node.inputs, *node.outputs)]
        return (
            all(isinstance(dim, int) and dim > 0 for type in types for dim in type.shape)
            and x.type.dtype in WIDE_FLOATS
            and x.type.sizes[-1] <= self.channels
            and tuple(window) == node.attrs["strides"]
            and max(window) > 1
            and node.attrs["groups"] == 1
            and set(node.attrs["dilation"]) == {1}
        )


class _Patches:
    """One convolution over patches, with `places` positions along each spatial axis.

    Attributes:
        taps: the remaining window.
        channels: the number of channels of a patch.
        attrs: the attributes of the remaining convolution.
    """

    def __init__(self, node: Node, places: Sizes) -> None:
        self.node, self.places = node, places
        self.steps: Sizes = node.attrs["strides"]
        self.taps = (1,) * len(places)
        self.channels = prod(self.steps) * node.inputs[0].type.sizes[-1]
        padding = ((0, 0),) * len(places)
        self.attrs: dict[str, Any] = {
            "strides": self.taps,
            "padding": padding,
            "dilation": self.taps,
        }

    def images(self, x: Tensor) -> Tensor:
        """x [batch, ..., channels], padded and cut to whole patches: [batch, *places, channels of a
        patch]."""
        batch, *size, channels = x.type.sizes
        rank = len(size)
        whole = [n * step for n, step in zip(self.places, self.steps, strict=True)]
        rows = zip(whole, size, self.node.attrs["padding"], strict=True)
        pads = ((0, 0, 0), *[(low, n - dim - low, 0) for n, dim, (low, _) in rows], (0, 0, 0))
        if any(map(any, pads)):
            x = pad_with(x, 0, pads)
        pairs = [n for pair in zip(self.places, self.steps, strict=True) for n in pair]
        apart = reshape(x, (batch, *pairs, channels))
        outer = [1 + 2 * axis for axis in range(rank)]
        perm = (0, *outer, *[axis + 1 for axis in outer], 2 * rank + 1)
        return reshape(transpose(apart, perm), (batch, *self.places, self.channels))
