"""Which nodes are elementwise."""

from __future__ import annotations

from graphc.ir.node import Node
from graphc.ir.program import is_pure


def is_elementwise(node: Node) -> bool:
    """Whether the single result has the shape of all operands except scalars, and each element
    depends only on the elements of the operands at its position."""
    if not node.op.is_elementwise or len(node.outputs) != 1 or not is_pure(node):
        return False
    shape = node.outputs[0].type.shape
    return all(t.type.shape in (shape, ()) for t in node.inputs)
