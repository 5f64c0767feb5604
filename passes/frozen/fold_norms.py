"""Fold norms: what scales the channels that a layer gives goes into the layer's own kernel."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE
from graphc.ops.core.emit import CAST, CONSTANT
from graphc.ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from graphc.ops.elementwise.powers import RSQRT
from graphc.ops.nn.normalization import BATCH_NORM
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, change, simplify
from graphc.passes.frozen.frozen import frozen_tensors, stays
from graphc.passes.frozen.kernels import Kernel, kernel_of


@dataclass(frozen=True)
class FoldNorms(Pass):
    """Batch normalisation by known statistics, and other products and sums with state for each
    channel, go into the kernel and the bias of the layer before them: a convolution (of groups
    and transposed ones too) or a product. norm(conv(x, w) + b) becomes conv(x, w') + b'.

    XLA cannot: weights are arguments of a program, so what it makes of them it makes in each run;
    and it may not reorder roundings. Here w' and b' are computed once (see `frozen.split_frozen`).

    It takes all state for constant, so it is for `gc.freeze`. What is computed is the same but
    for rounding, of which there is more where a mean is large beside its deviation.

    Must not: fold where something stands between (an activation, a padding), where the
    layer's own result is used elsewhere (it would be computed twice), or into a kernel that is
    not the same in every run. Source: Jacob et al., 2018, arXiv:1712.05877, section 3.2.

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
    """The linear node before a step, and what stands between: a bias, or new leading axes."""

    node: Node
    kernel: Kernel
    bias: Tensor | None  # [channels]


class _Folding:
    def __init__(self, program: Program, moving: tuple[str, ...]) -> None:
        self.frozen = frozen_tensors(program, moving)
        self.uses = Counter(t for node in program.nodes for t in node.inputs)
        self.uses.update(program.output_tensors())

    def rule(self, rewriter: Rewriter, node: Node) -> Answer:
        type = node.outputs[0].type
        if not is_floating(type.dtype) or not type.shape or node.outputs[0] in self.frozen:
            return None
        data = [t for t in node.inputs if t not in self.frozen]
        if len(data) != 1 or data[0].type != type:
            return None
        writer = _Writer(rewriter, self, node)
        layer = self._layer(writer, data[0])
        if layer is None:
            return None
        step = _STEPS[node.op](writer, node, data[0], layer.kernel.channels)
        if step is None:
            return None
        if node.op is ADD and step.scale is None and layer.bias is None:
            return None  # a layer's own bias
        return _folded(writer, node, layer, step)

    def _layer(self, writer: _Writer, tensor: Tensor) -> _Layer | None:
        """The layer whose result `tensor` is, but for a bias and leading axes."""
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
    """Whether a reshape leaves the last axis as it is."""
    before, after = node.inputs[0].type.shape, node.outputs[0].type.shape
    return bool(before and after) and before[-1] == after[-1]


class _Writer:
    """Adds nodes before `node`; what they make of frozen tensors is frozen."""

    def __init__(self, rewriter: Rewriter, folding: _Folding, node: Node) -> None:
        self.rewriter, self.folding, self.node = rewriter, folding, node

    def emit(self, op: OpDef, inputs: Any, type: TensorType, **attrs: Any) -> Tensor:
        result = self.rewriter.emit(self.node, op, inputs, type, **attrs)
        if stays(self.rewriter.made[result], self.folding.frozen):
            self.folding.frozen.add(result)
        return result

    def named(self, name: str) -> _Writer:
        """One whose nodes are named after something else than the node."""
        return _Writer(self.rewriter, self.folding, self.node.replace(name=name))

    def copy(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor:
        """The result of `node` from other operands."""
        result = Tensor(node.outputs[0].type, node.outputs[0].name)
        copied = node.replace(inputs=inputs, outputs=(result,))
        self.rewriter.nodes.append(copied)
        self.rewriter.made[result] = copied
        return result

    def number(self, value: float, dtype: Any) -> Tensor:
        """A scalar constant."""
        array = np.asarray(value, dtype)
        array.flags.writeable = False
        return self.emit(CONSTANT, (), TensorType(dtype, ()), value=array)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        if x.type.dtype == dtype:
            return x
        return self.emit(CAST, (x,), TensorType(dtype, x.type.shape), dtype=dtype)

    def binary(self, op: OpDef, a: Tensor | None, b: Tensor | None) -> Tensor | None:
        """Of two [channels], in the wider dtype; None is nothing to add or multiply by."""
        if a is None or b is None:
            return b if a is None else a
        dtype = max(a.type.dtype, b.type.dtype, key=lambda d: d.itemsize)
        type = TensorType(dtype, a.type.shape)
        return self.emit(op, (self.cast(a, dtype), self.cast(b, dtype)), type)

    def negative(self, x: Tensor) -> Tensor:
        return self.emit(NEGATIVE, (x,), x.type)

    def minus_one(self, dtype: Any, channels: int) -> Tensor:
        """[channels]."""
        shape = (channels,)
        number = self.number(-1, dtype)
        return self.emit(BROADCAST_TO, (number,), TensorType(dtype, shape), shape=shape)

    def per_channel(self, tensor: Tensor, beside: Tensor, channels: int) -> Tensor | None:
        """A frozen operand that is [channels], or as if it were beside another; else None."""
        made = self.rewriter.made
        while (maker := made.get(tensor)) is not None and maker.op is BROADCAST_TO:
            if not maker.inputs[0].type.is_static:
                break
            tensor = maker.inputs[0]
        shape = tensor.type.shape
        if tensor not in self.folding.frozen or len(shape) > beside.ndim:
            return None
        last = shape[-1] if shape else 1
        if any(dim != 1 for dim in shape[:-1]) or last not in (1, channels):
            return None
        flat = (last,)
        dtype = tensor.type.dtype
        if shape != flat:
            tensor = self.emit(RESHAPE, (tensor,), TensorType(dtype, flat), shape=flat)
        if last == channels:
            return tensor
        full = (channels,)
        return self.emit(BROADCAST_TO, (tensor,), TensorType(dtype, full), shape=full)


# -- steps ----------------------------------------------------------------------------------


def _batch_norm(writer: _Writer, node: Node, x: Tensor, channels: int) -> _Step | None:
    given, mean, variance, scale, offset = node.inputs
    if given is not x:
        return None
    type = variance.type
    epsilon = writer.number(node.attrs["epsilon"], type.dtype)
    raised = writer.emit(ADD, (variance, epsilon), type)
    factor = writer.emit(MULTIPLY, (writer.emit(RSQRT, (raised,), type), scale), type)
    moved = writer.emit(MULTIPLY, (mean, factor), type)
    return _Step(x, factor, writer.emit(SUBTRACT, (offset, moved), type))


def _add(writer: _Writer, node: Node, x: Tensor, channels: int) -> _Step | None:
    other = _other(writer, node, x, channels)
    return None if other is None else _Step(x, None, other)


def _subtract(writer: _Writer, node: Node, x: Tensor, channels: int) -> _Step | None:
    other = _other(writer, node, x, channels)
    if other is None:
        return None
    if node.inputs[0] is x:
        return _Step(x, None, writer.negative(other))
    return _Step(x, writer.minus_one(other.type.dtype, channels), other)


def _multiply(writer: _Writer, node: Node, x: Tensor, channels: int) -> _Step | None:
    other = _other(writer, node, x, channels)
    return None if other is None else _Step(x, other, None)


def _divide(writer: _Writer, node: Node, x: Tensor, channels: int) -> _Step | None:
    other = _other(writer, node, x, channels) if node.inputs[0] is x else None
    if other is None:
        return None
    one = writer.number(1, other.type.dtype)
    return _Step(x, writer.emit(DIVIDE, (one, other), other.type), None)


def _negative(writer: _Writer, node: Node, x: Tensor, channels: int) -> _Step | None:
    return _Step(x, writer.minus_one(x.type.dtype, channels), None)


def _other(writer: _Writer, node: Node, x: Tensor, channels: int) -> Tensor | None:
    (other,) = (t for t in node.inputs if t is not x)
    return writer.per_channel(other, x, channels)


_STEPS = {
    BATCH_NORM: _batch_norm,
    ADD: _add,
    SUBTRACT: _subtract,
    MULTIPLY: _multiply,
    DIVIDE: _divide,
    NEGATIVE: _negative,
}


# -- folding --------------------------------------------------------------------------------


def _folded(writer: _Writer, node: Node, layer: _Layer, step: _Step) -> Answer:
    """`node` as the layer with a kernel and a bias of its own."""
    linear, kernel, type = layer.node, layer.kernel, node.outputs[0].type
    y = linear.outputs[0]
    if step.scale is not None:
        at_kernel = writer.named(kernel.tensor.name.removesuffix(":0"))
        factor = kernel.spread(at_kernel.emit, step.scale)
        scaled = _scaled(at_kernel, kernel.tensor, factor)
        y = writer.copy(linear, (linear.inputs[0], scaled))
    if y.type != type:
        y = writer.emit(RESHAPE, (y,), type, shape=type.shape)
    bias = layer.bias
    if bias is not None:
        bias = writer.binary(MULTIPLY, bias, step.scale)
    shift = writer.binary(ADD, bias, step.shift)
    if shift is None:
        return y
    return change(node, ADD, (y, writer.cast(shift, type.dtype)))


def _scaled(writer: _Writer, kernel: Tensor, factor: Tensor) -> Tensor:
    """Their product in the wider of their dtypes, in that of the kernel."""
    dtype = max(kernel.type.dtype, factor.type.dtype, key=lambda d: d.itemsize)
    operands = (writer.cast(kernel, dtype), writer.cast(factor, dtype))
    product = writer.emit(MULTIPLY, operands, TensorType(dtype, kernel.type.shape))
    return writer.cast(product, kernel.type.dtype)
