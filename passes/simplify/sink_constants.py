"""Sink constants: small constants from outside move into the bodies that use them."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import substitute
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes, with_bodies
from graphc.passes.core.invariants import inner, invariants


@dataclass(frozen=True)
class SinkConstants(Pass):
    """Copies a constant that the body of a loop, branch or function takes from outside into the
    body, where other passes see it: a flag then decides branches there too.

    XLA also knows constants of loops, after JAX has traced all branches. The pass is for
    `gc.freeze`, where the given values decide branches.

    Must not: copy arrays into bodies, because XLA would keep one for each body.

    Attributes:
        limit: the maximum size of a constant in bytes.
    """

    limit: int = 64

    def run(self, program: Program) -> PassResult:
        constants: dict[Tensor, Node] = {}

        def enter(node: Node) -> tuple[Node, int]:
            places = [i for i in invariants(node) if node.inputs[i] in constants]
            results = []
            for body in node.regions:
                given = {inner(node, i, body): constants[node.inputs[i]] for i in places}
                results.append(self._sunk(body, given))
            return with_bodies(node, results)

        def noted(node: Node) -> Node:
            if node.op is CONSTANT and node.attrs["value"].nbytes <= self.limit:
                constants[node.outputs[0]] = node
            return node

        return rewrite_nodes(self, program, noted, enter=enter)

    def _sunk(self, body: Program, given: dict[Tensor, Node]) -> PassResult:
        used = {t for node in body.nodes for t in node.inputs} | set(body.output_tensors())
        copies: list[Node] = []
        instead: dict[Tensor, Tensor] = {}
        for taken, constant in given.items():
            if taken in used:
                instead[taken] = Tensor(taken.type, taken.name)
                copies.append(constant.replace(outputs=(instead[taken],)))
        if instead:
            body = substitute(body, instead)
            body = body.replace(nodes=(*copies, *body.nodes))
        result = self.run(body)
        return PassResult(result.program, result.changed + len(instead))
