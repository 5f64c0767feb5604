"""How TensorFlow Lite rounds inside an LSTM of integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc import ops
from graphc.importers.tensorflow.registry import Call
from graphc.importers.tflite.reading import Operator, Quantization
from graphc.importers.tflite.schema import ACTIVATIONS
from graphc.importers.tflite.translation import Body, Refused
from graphc.ir.node import Tensor

_GATE = 2.0**-12  # the scale of gates before their activation
_UNIT = 2.0**-15  # the scale of sigmoids and tanhs
Scale = tuple[float, int]
"""The scale and the zero of a tensor."""


@dataclass(frozen=True)
class Rounding:
    """The scales of an LSTM of integers.

    Values stay real here, but are multiples of the scales and within the range of the integers.
    The interpreter copies the integers of the hidden state into the state and into the output. The
    scales of the three may differ, so the same integers stand for other values there.

    Attributes:
        hidden: of the hidden state, before a projection.
        state: of the state that the next step takes.
        output: of the results.
        limits: the lowest and the highest integer of these three.
        cell: the scale of the state of the cell, which is of int16.
        rounds_gates: whether gates are rounded before their activation. With peepholes or layer
            normalisation they have other scales, and are not.
    """

    hidden: Scale
    state: Scale
    output: Scale
    limits: tuple[int, int]
    cell: float
    rounds_gates: bool

    @classmethod
    def of(cls, call: Call, *, rounds_gates: bool) -> Rounding | None:
        """That of a node; None if it has real numbers."""
        found = call.attr("rounding", None)
        if found is None:
            return None
        hidden, state, output, limits, cell = found
        return cls(hidden, state, output, limits, cell, rounds_gates)

    def gate(self, first: Tensor, *others: Tensor) -> Tensor:
        """The sum of the parts of a gate, each rounded."""
        if not self.rounds_gates:
            return sum(others, first)
        total = _limited(_rounded(first, _GATE), _GATE)
        for part in others:
            total = _limited(total + _rounded(part, _GATE), _GATE)
        return total

    def unit(self, x: Tensor) -> Tensor:
        """The result of a sigmoid or tanh."""
        return ops.minimum(_rounded(x, _UNIT), 1 - _UNIT)

    def new_cell(self, kept: Tensor, added: Tensor) -> Tensor:
        """The state of the cell."""
        return _limited(_rounded(kept, self.cell) + _rounded(added, self.cell), self.cell)

    def steps(self, x: Tensor, scale: Scale) -> Tensor:
        """The integers of a value."""
        return ops.clip(_rounded(x, scale[0]) / scale[0] + scale[1], *map(float, self.limits))


def real(steps: Tensor, scale: Scale) -> Tensor:
    """The value of integers."""
    return (steps - float(scale[1])) * scale[0]


def _rounded(x: Tensor, scale: float) -> Tensor:
    """The nearest multiple of a scale. Halves go away from zero."""
    steps = x / scale
    return ops.sign(steps) * ops.floor(ops.abs(steps) + 0.5) * scale


def _limited(x: Tensor, scale: float) -> Tensor:
    return ops.clip(x, -32768 * scale, 32767 * scale)


def rounding_of(b: Body, op: Operator) -> tuple[object, ...] | None:
    """The attribute "rounding" of an LSTM; None if it has real numbers.

    Raises:
        Refused: it has integers and another activation than tanh.
    """
    places = [op.inputs[i] for i in (0, 18, 19)] + op.outputs[:1]
    found = [b.tensor(i).quantization if i >= 0 else None for i in places]
    if any(each is None for each in found):
        return None
    if op.options["activation"] != ACTIVATIONS.index("Tanh"):
        raise Refused("has integers, and another activation than tanh")
    _, state, cell, output = (_scale(each) for each in found)
    inner = b.tensor(op.intermediates[4]).quantization if len(op.intermediates) > 4 else None
    limits = np.iinfo(b.tensor(op.inputs[18]).dtype.dtype)
    hidden = state if inner is None else _scale(inner)
    return hidden, state, output, (int(limits.min), int(limits.max)), cell[0]


def _scale(quantization: Quantization | None) -> Scale:
    if quantization is None or len(quantization.scale) != 1 or not quantization.scale[0]:
        raise Refused("has several scales, or the scale 0, for one of its states")
    return quantization.scale[0], quantization.zero[0]
