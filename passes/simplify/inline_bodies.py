"""Inline bodies: bodies that certainly run, exactly once, replace their node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import clone, substitute
from graphc.ops.control.branching import SWITCH
from graphc.ops.control.calling import CALL
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes, with_bodies
from graphc.passes.core.keys import body_key

Constants = Mapping[Tensor, np.ndarray[Any, Any]]
# The number of nodes that call an equal body. A body that this pass has changed has several callers
# and is not in it.
Callers = Mapping[Program, int]


@dataclass(frozen=True)
class InlineBodies(Pass):
    """Replaces a call by the body of its function if no other node calls it, and a switch with a
    constant index by the selected branch.

    XLA does this too, but only after JAX has traced and lowered all branches. Other passes see only
    inlined code.

    Must not: inline a body that several nodes call, because it is traced and lowered once for all
    of them; inline a node with a device, whose body runs there as a whole.
    """

    def run(self, program: Program) -> PassResult:
        if not any([node.regions for node in program.nodes]):
            return PassResult(program, 0)
        bodies = [node.regions[0] for node in program.walk() if node.op is CALL]
        keys = {body: body_key(body) for body in dict.fromkeys(bodies)}
        counts = Counter(keys[body] for body in bodies)
        return self._inline(program, {body: counts[key] for body, key in keys.items()})

    def _inline(self, program: Program, callers: Callers) -> PassResult:
        constants: dict[Tensor, np.ndarray[Any, Any]] = {}
        instead: dict[Tensor, Tensor] = {}

        def enter(node: Node) -> tuple[Node, int]:
            if _only_body(node, constants, callers) is not None:
                return node, 0  # its other bodies are removed
            return with_bodies(node, [self._inline(body, callers) for body in node.regions])

        def opened(node: Node) -> Node | tuple[Node, ...]:
            if node.op is CONSTANT:
                constants[node.outputs[0]] = node.attrs["value"]
            body = _only_body(node, constants, callers)
            if body is None:
                return node
            inside, results = _opened(node, self._inline(body, callers).program)
            instead.update(zip(node.outputs, results, strict=True))
            return inside

        only = (CONSTANT, CALL, SWITCH)
        return rewrite_nodes(self, program, opened, only=only, enter=enter, instead=instead)


def _only_body(node: Node, constants: Constants, callers: Callers) -> Program | None:
    """The body that certainly runs, and only in this node; None if there is none."""
    if node.device:
        return None
    if node.op is CALL and callers.get(node.regions[0]) == 1:
        return node.regions[0]
    if node.op is SWITCH and node.inputs[0] in constants:
        index = int(constants[node.inputs[0]])
        return node.regions[min(max(index, 0), len(node.regions) - 1)]
    return None


def _opened(node: Node, body: Program) -> tuple[tuple[Node, ...], list[Tensor]]:
    """A copy of the body's nodes that takes the node's operands, and its results."""
    copy = clone(body)
    taken = copy.input_tensors()
    operands = node.inputs[len(node.inputs) - len(taken) :]
    outer = dict(zip(taken, operands, strict=True))
    return substitute(copy.nodes, outer), [outer.get(t, t) for t in copy.output_tensors()]
