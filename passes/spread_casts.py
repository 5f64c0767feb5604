"""Spread casts: each user of a value in another precision makes it for itself."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.emit import CAST
from graphc.passes.base import Pass, PassResult
from graphc.passes.lossless import holds_all


@dataclass(frozen=True)
class SpreadCasts(Pass):
    """Copies each cast that widens a float, or that rounds a variable, to right before each of its
    users.

    The backward pass uses values of the forward pass. Where both become loops (`RollRepeats`), the
    forward loop stacks what the backward loop takes of it: this makes that the narrow value, half
    as large, and of a variable nothing, since both loops take slices of the variable. XLA merges
    the copies in programs without loops, and cannot change what a loop stacks.

    Must not: run where nothing is rolled; copy the cast of a computed value to a narrower type.
    """

    def run(self, program: Program) -> PassResult:
        state = set(program.input_tensors("state"))
        casts = {n.outputs[0]: n for n in program.nodes if _cheap(n, state)}
        nodes: list[Node] = []
        changed = 0
        used = set(program.output_tensors())
        for node in program.nodes:
            if node.outputs and node.outputs[0] in casts:
                if node.outputs[0] in used:
                    nodes.append(node)
                continue
            found = [t for t in dict.fromkeys(node.inputs) if t in casts]
            if found:
                own: dict[Tensor, Tensor] = {}
                for tensor in found:
                    if tensor in used:  # the cast itself serves its first user
                        copy = Tensor(tensor.type, tensor.name)
                        changed += 1
                    else:
                        copy = tensor
                        used.add(tensor)
                    own[tensor] = copy
                    nodes.append(casts[tensor].replace(outputs=(copy,)))
                node = node.replace(inputs=tuple([own.get(t, t) for t in node.inputs]))
            nodes.append(node)
        if not changed:
            return PassResult(program, 0)
        return PassResult(program.replace(nodes=tuple(nodes)), changed)


def _cheap(node: Node, state: set[Tensor]) -> bool:
    if node.op is not CAST:
        return False
    (x,), dtype = node.inputs, node.attrs["dtype"]
    if not (is_floating(x.type.dtype) and is_floating(dtype)):
        return False
    return x in state or (x.type.dtype != dtype and holds_all(dtype, x.type.dtype))
