"""CPU: bfloat16 stacks of loops as integers, so that XLA keeps them in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import ml_dtypes
import numpy as np

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.types import TensorType
from graphc.ops.control.scan import SCAN
from graphc.ops.elementwise.bits import BITCAST
from graphc.passes.core.base import Pass, PassResult, run_bodies
from graphc.passes.core.building import node_of

_BF16: Final = np.dtype(ml_dtypes.bfloat16)
_BITS: Final = np.dtype(np.uint16)


@dataclass(frozen=True)
class CpuStackedBits(Pass):
    """Loops take and stack bfloat16 slices by their bits, as uint16, and turn them back inside.

    XLA:CPU widens every bfloat16 operation to float32, the update of a slice too, so the whole
    stack that a forward loop keeps for a backward one becomes float32: no memory is saved. Integers
    it leaves alone; float16 it does not widen.

    Must not: run for other devices, or in programs that JAX is to differentiate: bits have no
    gradient.
    """

    def run(self, program: Program) -> PassResult:
        nodes: list[Node] = []
        bits: dict[Tensor, Tensor] = {}  # what a loop stacked -> the integers it is made of
        changed = 0
        for node in program.nodes:
            if node.regions:
                node, inside = run_bodies(self, node)
                changed += inside
            if node.op is SCAN:
                before, loop, behind = _by_bits(node, bits)
                nodes += [*before, loop, *behind]
                changed += loop is not node
            else:
                nodes.append(node)
        if not changed:
            return PassResult(program, 0)
        return PassResult(program.replace(nodes=tuple(nodes)), changed)


def _by_bits(node: Node, bits: dict[Tensor, Tensor]) -> tuple[list[Node], Node, list[Node]]:
    """Nodes before it, the loop, nodes behind it."""
    (body,), held = node.regions, node.attrs["consts"] + node.attrs["carries"]
    inputs, taken = list(node.inputs), body.input_tensors()
    outputs, given = list(node.outputs), body.output_tensors()
    before: list[Node] = []
    first: list[Node] = []
    last: list[Node] = []
    behind: list[Node] = []
    for i in range(held, len(inputs)):
        if inputs[i].type.dtype != _BF16:
            continue
        if inputs[i] not in bits:
            before.append(node_of(BITCAST, (inputs[i],), like=node, dtype=_BITS))
            bits[inputs[i]] = before[-1].outputs[0]
        inputs[i] = bits[inputs[i]]
        piece = Tensor(TensorType(_BITS, taken[i].type.shape), taken[i].name)
        first.append(node_of(BITCAST, (piece,), (taken[i],), like=node, dtype=_BF16))
        taken[i] = piece
    for i in range(node.attrs["carries"], len(outputs)):
        if outputs[i].type.dtype != _BF16:
            continue
        last.append(node_of(BITCAST, (given[i],), like=node, dtype=_BITS))
        given[i] = last[-1].outputs[0]
        stack = Tensor(TensorType(_BITS, outputs[i].type.shape), outputs[i].name)
        behind.append(node_of(BITCAST, (stack,), (outputs[i],), like=node, dtype=_BF16))
        bits[outputs[i]] = stack
        outputs[i] = stack
    if not (first or last):
        return [], node, []
    new = region(body.name, taken, [*first, *body.nodes, *last], given)
    loop = node.replace(inputs=tuple(inputs), outputs=tuple(outputs), regions=(new,))
    return before, loop, behind
