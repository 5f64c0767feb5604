"""Fold norms: factors of the channels of a layer's result are multiplied into its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from graphc.ir.dims import Dim
from graphc.ir.dtypes import DType, is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ops.arrays.shape import (
    BROADCAST_TO,
    RESHAPE,
    broadcast_to,
    reshape,
    reshaped,
    transpose,
)
from graphc.ops.core.emit import cast, constant
from graphc.ops.elementwise.arithmetic import (
    ADD,
    DIVIDE,
    MULTIPLY,
    NEGATIVE,
    SUBTRACT,
    add,
    multiply,
)
from graphc.ops.elementwise.powers import rsqrt
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.nn.conv_rules import CONV, CONV_INPUT_GRADIENT
from graphc.ops.nn.normalization import BATCH_NORM
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.loop_stacks import uses_of
from graphc.passes.core.rules import Answer, Rewriter, change, simplify
from graphc.passes.frozen.frozen import frozen_tensors, stays


@dataclass(frozen=True)
class FoldNorms(Pass):
    """Folds batch normalization with known statistics, and other products and sums with per-channel
    state, into the kernel and the bias of the layer before: a convolution (also grouped or
    transposed) or a product. norm(conv(x, w) + b) becomes conv(x, w') + b'.

    XLA cannot do this: weights are arguments of a program, so it would compute w' in each run, and
    it may not reorder roundings. Here w' and b' are computed once (see `frozen.split_frozen`).

    It assumes that all state is constant, so it is for `gc.freeze`. Results differ only by
    rounding, more so if a mean is large compared with its deviation.

    Must not: fold across other nodes (an activation, a padding); fold if the layer's result has
    other users, because it would be computed twice; fold into a kernel that changes between runs.
    Source: Jacob et al., 2018, arXiv:1712.05877, section 3.2.

    Attributes:
        moving: names of state that is not constant.
    """

    moving: tuple[str, ...] = ()

    def run(self, program: Program) -> PassResult:
        folding = _Folding(program, self.moving)
        rules = dict.fromkeys((ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATIVE, BATCH_NORM), folding.rule)
        return simplify(self, program, rules)


class _Step(NamedTuple):
    """`x * scale + shift` for each channel, both [channels] or None, in the dtype of the sum."""

    x: Tensor
    scale: Tensor | None
    shift: Tensor | None


class _Layer(NamedTuple):
    """The linear node before a step, and a bias in between."""

    node: Node
    kernel: Kernel
    bias: Tensor | None  # [channels]


class _Folding:
    def __init__(self, program: Program, moving: tuple[str, ...]) -> None:
        self.frozen = frozen_tensors(program, moving)
        self.uses = uses_of(program)

    def rule(self, rewriter: Rewriter, node: Node) -> Answer:
        type = node.outputs[0].type
        if not is_floating(type.dtype) or not type.shape or node.outputs[0] in self.frozen:
            return None
        data = [t for t in node.inputs if t not in self.frozen]
        if len(data) != 1 or data[0].type != type:
            return None
        first = len(rewriter.nodes)
        answer = self._step(_Writer(rewriter, self.frozen), node, data[0])
        for new in rewriter.nodes[first:]:
            if stays(new, self.frozen):
                self.frozen.update(new.outputs)
        return answer

    def _step(self, writer: _Writer, node: Node, x: Tensor) -> Answer:
        layer = self._layer(writer, x)
        if layer is None:
            return None
        step = _STEPS[node.op](writer, node, x, layer.kernel.channels)
        if step is None:
            return None
        if node.op is ADD and step.scale is None and layer.bias is None:
            return None  # a layer's own bias
        return _folded(writer, node, layer, step)

    def _layer(self, writer: _Writer, tensor: Tensor) -> _Layer | None:
        """The layer with the result `tensor`, looking through a bias and reshapes of leading
        axes."""
        bias: Tensor | None = None
        while self.uses.get(tensor, 1) == 1:
            node = writer.rewriter.made.get(tensor)
            if node is None:
                return None
            if node.op is RESHAPE and _same_channels(node):
                tensor = node.inputs[0]
                continue
            if node.op is ADD and bias is None:
                data = [t for t in node.inputs if t not in self.frozen]
                channels = tensor.type.shape[-1]
                if len(data) != 1 or data[0].type != tensor.type or not isinstance(channels, int):
                    return None
                (other,) = (t for t in node.inputs if t is not data[0])
                bias = writer.per_channel(other, tensor, channels)
                if bias is None:
                    return None
                tensor = data[0]
                continue
            kernel = kernel_of(node)
            if kernel is None or kernel.tensor not in self.frozen:
                return None
            return _Layer(node, kernel, bias)
        return None


def _same_channels(node: Node) -> bool:
    """Whether a reshape keeps the last axis."""
    before, after = node.inputs[0].type.shape, node.outputs[0].type.shape
    return bool(before and after) and before[-1] == after[-1]


class _Writer:
    """Helpers for the steps.

    Attributes:
        frozen: the tensors that are the same in every run, except those just written.
    """

    def __init__(self, rewriter: Rewriter, frozen: set[Tensor]) -> None:
        self.rewriter, self.frozen = rewriter, frozen

    def copy(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor:
        """The result of `node` for other operands."""
        result = Tensor(node.outputs[0].type, node.outputs[0].name)
        self.rewriter.append(node.replace(inputs=inputs, outputs=(result,)))
        return result

    def per_channel(self, tensor: Tensor, beside: Tensor, channels: int) -> Tensor | None:
        """A frozen operand as [channels], if it has or broadcasts to this shape; otherwise None."""
        made = self.rewriter.made
        while (maker := made.get(tensor)) is not None and maker.op is BROADCAST_TO:
            if not maker.inputs[0].type.is_static:
                break
            tensor = maker.inputs[0]
        shape = tensor.type.shape
        if tensor not in self.frozen or len(shape) > beside.ndim:
            return None
        last = shape[-1] if shape else 1
        if any(dim != 1 for dim in shape[:-1]) or last not in (1, channels):
            return None
        if shape != (last,):
            tensor = reshape(tensor, (last,))
        return tensor if last == channels else broadcast_to(tensor, (channels,))


def _combined(op: Callable[..., Tensor], a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The combination of two values; None is the neutral value."""
    if a is None or b is None:
        return b if a is None else a
    return _in_wider(op, a, b)


def _in_wider(op: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
    dtype = max(a.type.dtype, b.type.dtype, key=lambda d: d.itemsize)
    return op(cast(a, dtype), cast(b, dtype))


def _minus_one(dtype: DType, channels: int) -> Tensor:
    """A tensor [channels] of -1."""
    return broadcast_to(constant(-1, dtype), (channels,))


# -- steps ----------------------------------------------------------------------------------


def _batch_norm(writer: _Writer, node: Node, x: Tensor, channels: int) -> _Step | None:
    given, mean, variance, scale, offset = node.inputs
    if given is not x:
        return None
    epsilon = writer.rewriter.constant(node.attrs["epsilon"], variance.type.dtype)
    factor = rsqrt(variance + epsilon) * scale
    return _Step(x, factor, offset - mean * factor)


def _binary(writer: _Writer, node: Node, x: Tensor, channels: int) -> _Step | None:
    is_first = node.inputs[0] is x
    (operand,) = (t for t in node.inputs if t is not x)
    if node.op is DIVIDE and not is_first:
        return None
    other = writer.per_channel(operand, x, channels)
    if other is None:
        return None
    if node.op is ADD:
        return _Step(x, None, other)
    if node.op is MULTIPLY:
        return _Step(x, other, None)
    if node.op is DIVIDE:
        return _Step(x, 1 / other, None)
    if is_first:  # x - other
        return _Step(x, None, -other)
    return _Step(x, _minus_one(other.type.dtype, channels), other)


_STEPS: dict[OpDef, Callable[[_Writer, Node, Tensor, int], _Step | None]] = {
    BATCH_NORM: _batch_norm,
    **dict.fromkeys((ADD, SUBTRACT, MULTIPLY, DIVIDE), _binary),
    NEGATIVE: lambda writer, node, x, channels: _Step(x, _minus_one(x.dtype, channels), None),
}


# -- folding --------------------------------------------------------------------------------


def _folded(writer: _Writer, node: Node, layer: _Layer, step: _Step) -> Answer:
    """`node` as the layer with its own kernel and bias."""
    linear, kernel, type = layer.node, layer.kernel, node.outputs[0].type
    y = linear.outputs[0]
    if step.scale is not None:
        with writer.rewriter.at(node, kernel.tensor.name.removesuffix(":0")):
            product = _in_wider(multiply, kernel.tensor, kernel.spread(step.scale))
            scaled = cast(product, kernel.tensor.type.dtype)
        y = writer.copy(linear, (linear.inputs[0], scaled))
    if y.type != type:
        y = reshape(y, type.shape)
    bias = layer.bias
    if bias is not None:
        bias = _combined(multiply, bias, step.scale)
    shift = _combined(add, bias, step.shift)
    if shift is None:
        return y
    return change(node, ADD, (y, cast(shift, type.dtype)))


# -- kernels: operators that multiply channels by one kernel ----------------------------------


class Kernel(NamedTuple):
    """The kernel of a linear node whose result has channels as its last axis.

    Attributes:
        tensor: the operand.
        channels: the size of that axis.
        spread: reshapes a factor [channels] so that it multiplies the kernel.
    """

    tensor: Tensor
    channels: int
    spread: Callable[[Tensor], Tensor]


def kernel_of(node: Node) -> Kernel | None:
    """The kernel of a convolution, a transposed convolution or a product: its second operand.

    None for other nodes, or if the last axis of the result is not an axis of only the kernel.
    """
    find = _KINDS.get(node.op)
    channels: Dim = node.outputs[0].type.shape[-1] if node.outputs[0].ndim else 0
    if find is None or not isinstance(channels, int) or not node.inputs[1].type.is_static:
        return None
    return find(node, node.inputs[1], channels)


def _along(kernel: Tensor, channels: int, axis: int) -> Kernel:
    """A kernel whose axis `axis` holds the channels of the result."""
    shape = (channels, *[1] * (kernel.ndim - axis - 1))

    def spread(factor: Tensor) -> Tensor:
        return reshaped(factor, shape)

    return Kernel(kernel, channels, spread)


def _transposed_conv(node: Node, kernel: Tensor, channels: int) -> Kernel | None:
    """The kernel is [..., filters / groups, channels]; both axes are divided into groups."""
    groups = node.attrs["groups"]
    if groups == 1:
        return _along(kernel, channels, kernel.ndim - 2)
    each, taken = channels // groups, kernel.type.shape[-1]
    if not isinstance(taken, int):
        return None
    in_group = taken // groups

    def spread(factor: Tensor) -> Tensor:
        columns = transpose(reshaped(factor, (groups, each)), (1, 0))
        narrow = reshaped(columns, (each, groups, 1))
        repeated = broadcast_to(narrow, (each, groups, in_group))
        return reshaped(repeated, (each, groups * in_group))

    return Kernel(kernel, channels, spread)


def _matmul(node: Node, kernel: Tensor, channels: int) -> Kernel | None:
    return _along(kernel, channels, kernel.ndim - (2 if node.attrs["transpose_b"] else 1))


def _dot_general(node: Node, kernel: Tensor, channels: int) -> Kernel | None:
    """The free axes of b come last in the result, in their order."""
    taken = (*node.attrs["rhs_contract"], *node.attrs["rhs_batch"])
    free = [axis for axis in range(kernel.ndim) if axis not in taken]
    return _along(kernel, channels, free[-1]) if free else None


_KINDS: dict[OpDef, Callable[[Node, Tensor, int], Kernel | None]] = {
    CONV: lambda node, kernel, channels: _along(kernel, channels, kernel.ndim - 1),
    CONV_INPUT_GRADIENT: _transposed_conv,
    MATMUL: _matmul,
    DOT_GENERAL: _dot_general,
}
