"""Which nodes work element by element."""

from __future__ import annotations

from graphc.ir.node import Node
from graphc.ir.program import is_pure


def is_elementwise(node: Node) -> bool:
    """Whether the single result has the shape of all operands but scalars, and each element
    depends on the operands' elements in its place alone."""
    if not node.op.is_elementwise or len(node.outputs) != 1 or not is_pure(node):
        return False
    shape = node.outputs[0].type.shape
    return all(t.type.shape in (shape, ()) for t in node.inputs)
