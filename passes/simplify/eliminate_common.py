"""Eliminate common subexpressions: nodes that compute the same value become one node."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes
from graphc.passes.core.keys import key_of


@dataclass(frozen=True)
class EliminateCommon(Pass):
    """Keeps the first of several equal nodes: same operator, operands, attributes, device and
    bodies. The operands of a commutative operator may be in either order. Arrays among the
    attributes are compared by content, bodies by structure.

    XLA does the same, but only after JAX has traced and lowered each copy. Gradients contain many
    copies, because each adjoint has its own constants, masks and reshapes.

    Must not: merge nodes with effects, nodes on different devices, or a node of a body with a node
    outside (a body receives outside values as explicit inputs). Two draws of random numbers differ,
    because their keys are operands.
    """

    def run(self, program: Program) -> PassResult:
        first: dict[Hashable, Node] = {}
        instead: dict[Tensor, Tensor] = {}

        def first_of(node: Node) -> Node | tuple[()]:
            if not is_pure(node):
                return node
            known = first.setdefault(_key(node), node)
            if known is node:
                return node
            instead.update(zip(node.outputs, known.outputs, strict=True))
            return ()

        return rewrite_nodes(self, program, first_of, instead=instead)


def _key(node: Node) -> Hashable:
    """A key that is equal for nodes that compute the same value."""
    inputs = node.inputs
    if node.op.commutative and len(inputs) == 2 and id(inputs[0]) > id(inputs[1]):
        inputs = (inputs[1], inputs[0])
    return key_of(node, inputs)
