"""Operators that multiply channels by a kernel: how a factor for each channel goes into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphc.ir.dims import Dim
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ops.arrays.shape import broadcast_to, reshape, transpose
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.nn.conv import CONV, CONV_INPUT_GRADIENT


class Kernel(NamedTuple):
    """The kernel of a linear node whose result has channels as its last axis.

    Attributes:
        tensor: the operand.
        channels: the size of that axis.
        spread: gives a factor of shape [channels] the shape in which it multiplies the kernel.
    """

    tensor: Tensor
    channels: int
    spread: Callable[[Tensor], Tensor]


def kernel_of(node: Node) -> Kernel | None:
    """The kernel of a convolution, a transposed convolution or a product, its second operand.

    None for other nodes, or where the result's last axis is not one of the kernel's alone.
    """
    find = _KINDS.get(node.op)
    channels: Dim = node.outputs[0].type.shape[-1] if node.outputs[0].ndim else 0
    if find is None or not isinstance(channels, int) or not node.inputs[1].type.is_static:
        return None
    return find(node, node.inputs[1], channels)


def _along(kernel: Tensor, channels: int, axis: int) -> Kernel:
    """The result's channels are the kernel's along `axis`."""
    shape = (channels, *[1] * (kernel.ndim - axis - 1))

    def spread(factor: Tensor) -> Tensor:
        return _reshaped(factor, shape)

    return Kernel(kernel, channels, spread)


def _reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.type.shape == shape else reshape(x, shape)


def _conv(node: Node, kernel: Tensor, channels: int) -> Kernel | None:
    return _along(kernel, channels, kernel.ndim - 1)


def _transposed_conv(node: Node, kernel: Tensor, channels: int) -> Kernel | None:
    """The kernel is [..., filters / groups, channels], both in groups."""
    groups = node.attrs["groups"]
    if groups == 1:
        return _along(kernel, channels, kernel.ndim - 2)
    each, taken = channels // groups, kernel.type.shape[-1]
    if not isinstance(taken, int):
        return None
    in_group = taken // groups

    def spread(factor: Tensor) -> Tensor:
        columns = transpose(_reshaped(factor, (groups, each)), (1, 0))
        narrow = _reshaped(columns, (each, groups, 1))
        repeated = broadcast_to(narrow, (each, groups, in_group))
        return _reshaped(repeated, (each, groups * in_group))

    return Kernel(kernel, channels, spread)


def _matmul(node: Node, kernel: Tensor, channels: int) -> Kernel | None:
    return _along(kernel, channels, kernel.ndim - (2 if node.attrs["transpose_b"] else 1))


def _dot_general(node: Node, kernel: Tensor, channels: int) -> Kernel | None:
    """The free axes of b stand last in the result, in their order."""
    taken = (*node.attrs["rhs_contract"], *node.attrs["rhs_batch"])
    free = [axis for axis in range(kernel.ndim) if axis not in taken]
    return _along(kernel, channels, free[-1]) if free else None


_KINDS: dict[OpDef, Callable[[Node, Tensor, int], Kernel | None]] = {
    CONV: _conv,
    CONV_INPUT_GRADIENT: _transposed_conv,
    MATMUL: _matmul,
    DOT_GENERAL: _dot_general,
}
