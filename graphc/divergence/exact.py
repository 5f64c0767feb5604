"""Lowers a program in float64, on request with random rounding errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax import numpy as jnp

from graphc.divergence.rounding import unit_of
from graphc.ir.dtypes import COMPLEX128, FLOAT64, DType, is_complex, is_floating, is_inexact
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ir.rewrite import clone
from graphc.ir.types import TensorType
from graphc.lowering.emit_jax import Emitter

# Their results depend on the dtype, or they hold a program of fixed dtypes.
_OF_FIXED_DTYPE = frozenset(
    (
        *("Bitcast", "RandomBits", "RandomNormal", "TruncatedNormal", "RandomUniform", "Dropout"),
        *("RandomGamma", "RandomPoisson", "RandomBinomial", "RandomMultinomial", "Categorical"),
        *("Primitive", "Lowered", "PyCallback", "PureCallback", "Print"),
    )
)


class Noise:
    """The random rounding errors of one lowering.

    Args:
        amount: an array of three numbers: 1.0 for errors or 0.0 for none; the least rounding unit
            of all values; and the least rounding unit of the operands of products.
        numbers: random numbers around 0, at least as many as most values have elements.
    """

    def __init__(self, amount: Any, numbers: Any) -> None:
        self._on, self._least, self._least_of_products = amount[0], amount[1], amount[2]
        self._numbers = numbers
        self._count = 0

    def rounded(self, value: Any, dtype: DType) -> Any:
        """`value` with the rounding error of a result of a dtype."""
        return self._times(value, jnp.maximum(unit_of(dtype), self._least))

    def as_factor(self, value: Any) -> Any:
        """`value` as the operand of a product."""
        return self._times(value, self._least_of_products)

    def _times(self, value: Any, unit: Any) -> Any:
        # All values share the random numbers, up to a factor, so that there is little to compile.
        self._count += 1
        count = math.prod(value.shape)
        fits = count <= self._numbers.size
        pattern = self._numbers[:count] if fits else jnp.resize(self._numbers, (count,))
        factor = self._numbers[self._count % self._numbers.size]
        return value * (1.0 + self._on * unit * factor * pattern.reshape(value.shape))


class ExactEmitter(Emitter):
    """Lowers a widened program.

    Args:
        originals: node of the widened program -> the node that it was made from.
    """

    def __init__(self, originals: Mapping[Node, Node], noise: Noise) -> None:
        super().__init__()
        self._originals, self._noise = originals, noise

    def run(self, program: Program, args: Sequence[Any]) -> list[Any]:
        values = dict(zip(program.input_tensors(), args, strict=True))
        for node in program.nodes:
            operands = [values[t] for t in node.inputs]
            original = self._originals[node]
            if node.op.precision == "narrow":
                operands = [
                    self._noise.as_factor(x) if is_inexact(x.dtype) else x for x in operands
                ]
            results = self._lowered(node, original, operands)
            for old, new, value in zip(original.outputs, node.outputs, results, strict=True):
                value = jnp.asarray(value).astype(new.type.dtype)
                if is_inexact(old.type.dtype) and node.op.name != "Constant":
                    value = self._noise.rounded(value, old.type.dtype)
                values[new] = value
        return [values[t] for t in program.output_tensors()]

    def _lowered(self, node: Node, original: Node, operands: Sequence[Any]) -> Sequence[Any]:
        if original.op.name not in _OF_FIXED_DTYPE:
            try:
                self.node = node
                return _many(node.op.lower(self, *operands, **node.attrs))
            except Exception:
                pass
        plain = Emitter()
        plain.node, plain.in_loop = original, self.in_loop
        cast = [x.astype(t.type.dtype) for x, t in zip(operands, original.inputs, strict=True)]
        return _many(original.op.lower(plain, *cast, **original.attrs))


def _many(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple) else (result,)


def widened(program: Program) -> tuple[Program, dict[Node, Node]]:
    """The program in float64 and complex128, and the original of each of its nodes."""
    wide = clone(program, lambda t: TensorType(wide_dtype(t.dtype), t.shape), _wide_attrs)
    return wide, dict(_pairs(wide, program))


def wide_dtype(dtype: DType) -> DType:
    """The dtype in which exact results are computed."""
    if is_complex(dtype):
        return COMPLEX128
    return FLOAT64 if is_floating(dtype) else dtype


def _pairs(wide: Program, program: Program) -> Iterator[tuple[Node, Node]]:
    for new, old in zip(wide.nodes, program.nodes, strict=True):
        yield new, old
        for body, old_body in zip(new.regions, old.regions, strict=True):
            yield from _pairs(body, old_body)


def _wide_attrs(node: Node) -> Mapping[str, Any]:
    if node.op.name in _OF_FIXED_DTYPE:
        return node.attrs
    return {name: _wide_value(value) for name, value in node.attrs.items()}


def _wide_value(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return wide_dtype(value)
    if isinstance(value, np.ndarray):
        return value.astype(wide_dtype(value.dtype)) if is_inexact(value.dtype) else value
    if isinstance(value, Mapping):
        return {name: _wide_value(each) for name, each in value.items()}
    return value
