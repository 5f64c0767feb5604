"""The gradients of a graph's training steps, by the names of their variables."""

from __future__ import annotations

from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ops.structure.training import GRADIENTS, UPDATED


def gradients_in(graph: Graph) -> dict[str, Tensor]:
    """Variable -> its gradient, of the steps by `minimize` and `apply_gradients`. If a variable is
    in several steps, the later ones have the step's name before that of the variable."""
    assigned = {
        node.inputs[0]: node.attrs["variable"]
        for node in graph.nodes
        if node.op.name == "Assign" and node.inputs
    }
    updates = {node.attrs["step"]: node for node in graph.nodes if node.op is UPDATED}
    found: dict[str, Tensor] = {}
    for node in graph.nodes:
        step = node.attrs.get("step", "")
        if node.op is not GRADIENTS or step not in updates:
            continue
        # The parameters come first among the values that a step updates.
        for gradient, updated in zip(node.outputs, updates[step].outputs, strict=False):
            if (name := assigned.get(updated)) is not None:
                found[f"{step}/{name}" if name in found else name] = gradient
    return found
