"""Eliminate common subexpressions: what is computed twice is computed once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import PURE, OpDef
from graphc.ir.program import Program, is_pure
from graphc.passes.base import Pass, PassResult, redirect, run_bodies


@dataclass(frozen=True)
class EliminateCommon(Pass):
    """Lets the first of several equal nodes stand for all: same operator, operands, attributes,
    device and bodies. Operands of a commutative operator may stand in either order, arrays
    among the attributes are compared by content, and bodies by structure.

    XLA does the same to what it is given, after JAX has traced and lowered each copy. Gradients
    make many: each adjoint writes its own constants, masks and reshapes.

    Must not: merge a node with effects, nor nodes asked onto different devices, nor a node of a
    body with one outside (what a body takes from outside is an explicit input of it). Two draws
    of random numbers are different nodes, since their keys are operands.
    """

    def run(self, program: Program) -> PassResult:
        first: dict[Hashable, Node] = {}
        instead: dict[Tensor, Tensor] = {}
        nodes: list[Node] = []
        changed = 0
        node = None
        try:
            for node in program.nodes:
                if instead and not instead.keys().isdisjoint(node.inputs):
                    node = node.replace(inputs=tuple(instead.get(t, t) for t in node.inputs))
                if node.regions:
                    node, inside = run_bodies(self, node)
                    changed += inside
                    pure = is_pure(node)
                else:
                    pure = node.op.effects is PURE
                if pure:
                    known = first.setdefault(_key(node), node)
                    if known is not node:
                        instead.update(zip(node.outputs, known.outputs, strict=True))
                        changed += 1
                        continue
                nodes.append(node)
        except Exception as error:
            raise self.fault(node, error) from error
        if not changed:
            return PassResult(program, 0)
        outputs = redirect(program.outputs, instead)
        return PassResult(program.replace(nodes=tuple(nodes), outputs=outputs), changed)


def _key(node: Node) -> Hashable:
    """Equal for nodes that compute the same."""
    op, inputs = node.op, node.inputs
    if op.commutative and len(inputs) == 2 and id(inputs[0]) > id(inputs[1]):
        inputs = (inputs[1], inputs[0])
    if not op.attrs and not node.regions:
        return op, inputs, node.device
    bodies = tuple(map(_body_key, node.regions))
    return op, inputs, node.device, _attrs_key(op, node.attrs), bodies


def _attrs_key(op: OpDef, attrs: Mapping[str, Any]) -> Hashable:
    return tuple(_value_key(attrs[name]) for name in op.attrs)


def _value_key(value: Any) -> Hashable:
    kind = type(value)
    if kind is np.ndarray:
        return _Content(value)
    if kind is float:
        return float.hex(value)  # tells -0.0 from 0.0, and a NaN is equal to itself
    if isinstance(value, Mapping):
        return tuple((name, _value_key(value[name])) for name in sorted(value))
    return cast(Hashable, value)


def _body_key(body: Program) -> Hashable:
    """Equal for bodies that are the same but for the identity of their tensors."""
    inputs = body.input_tensors()
    number = {tensor: i for i, tensor in enumerate(inputs)}
    rows: list[Hashable] = []
    for node in body.nodes:
        operands = tuple(number[t] for t in node.inputs)
        bodies = tuple(map(_body_key, node.regions))
        rows.append((node.op, operands, node.device, _attrs_key(node.op, node.attrs), bodies))
        for tensor in node.outputs:
            number[tensor] = len(number)
    outputs = tuple(number[t] for t in body.output_tensors())
    return tuple(t.type for t in inputs), tuple(rows), outputs


class _Content:
    """An array as a key. Hashes a sample: whole arrays are compared where samples agree."""

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
