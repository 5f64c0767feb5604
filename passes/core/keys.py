"""Keys by which equal nodes, attributes and bodies are found."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, cast

import numpy as np

from graphc.ir.node import Node
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program


def kind_key(node: Node) -> Hashable:
    """Equal for nodes that compute the same function of operands of the same types."""
    return key_of(node, tuple([t.type for t in node.inputs]))


def key_of(node: Node, operands: Hashable) -> Hashable:
    """Equal for nodes that compute the same function, if `operands` are equal too."""
    if not node.op.attrs and not node.regions:
        return node.op, operands, node.device
    bodies = tuple(map(body_key, node.regions))
    return node.op, operands, node.device, attrs_key(node.op, node.attrs), bodies


def attrs_key(op: OpDef, attrs: Mapping[str, Any]) -> Hashable:
    """Equal for attributes that are bitwise equal."""
    return tuple(_value_key(attrs[name]) for name in op.attrs)


def _value_key(value: Any) -> Hashable:
    kind = type(value)
    if kind is np.ndarray:
        return _Content(value)
    if kind is float:
        return float.hex(value)  # distinguishes -0.0 from 0.0; a NaN is equal to itself
    if kind is tuple and any(type(item) is not int for item in value):
        return tuple([_value_key(item) for item in value])
    if isinstance(value, Mapping):
        return tuple((name, _value_key(value[name])) for name in sorted(value))
    return cast(Hashable, value)


def body_key(body: Program) -> Hashable:
    """Equal for bodies that differ only in the identity of their tensors."""
    inputs = body.input_tensors()
    number = {tensor: i for i, tensor in enumerate(inputs)}
    rows: list[Hashable] = []
    for node in body.nodes:
        rows.append(key_of(node, tuple(number[t] for t in node.inputs)))
        for tensor in node.outputs:
            number[tensor] = len(number)
    outputs = tuple(number[t] for t in body.output_tensors())
    return tuple(t.type for t in inputs), tuple(rows), outputs


class _Content:
    """An array as a key. The hash covers a sample; whole arrays are compared if the samples
    agree."""

    __slots__ = ("array", "hash")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        sample = array if array.size <= 64 else array.flat[:: array.size // 64]
        self.hash = hash((array.dtype, array.shape, sample.tobytes()))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Content) or self.hash != other.hash:
            return False
        a, b = self.array, other.array
        return a is b or (a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
