"""Which nodes update state: for `MixedPrecision`, which leaves those in float32."""

from __future__ import annotations

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.structure.training import GRADIENTS


def computes_narrow(node: Node) -> bool:
    """Whether the operator, or one in its bodies, is of those that mixed precision is for."""
    if node.op.precision == "narrow":
        return True
    return any(computes_narrow(inner) for body in node.regions for inner in body.nodes)


def updating(program: Program) -> set[Node]:
    """The nodes that only make new values of state: those after a step's gradients, and those
    that lead to new state and to nothing that is computed narrow.

    What takes a new value, as a second step in the same run does, does not count as leading
    further: it is computed as if it took the variable.
    """
    new_state = {port.tensor for port in program.new_state()}
    return _after_gradients(program, new_state) | _leading_to_state_alone(program, new_state)


def _after_gradients(program: Program, new_state: set[Tensor]) -> set[Node]:
    found: set[Node] = set()
    after: set[Tensor] = set()
    for node in program.nodes:
        if node.op is GRADIENTS or not after.isdisjoint(node.inputs):
            if node.op is not GRADIENTS:
                found.add(node)
            after.update(t for t in node.outputs if t not in new_state)
    return found


def _leading_to_state_alone(program: Program, new_state: set[Tensor]) -> set[Node]:
    found: set[Node] = set()
    to_state, to_narrow = set(new_state), set[Tensor]()
    for node in reversed(program.nodes):
        outputs = [t for t in node.outputs if t not in new_state]
        leads = computes_narrow(node) or not to_narrow.isdisjoint(outputs)
        if leads:
            to_narrow.update(node.inputs)
        if not to_state.isdisjoint(node.outputs):
            to_state.update(node.inputs)
            if not leads:
                found.add(node)
    return found
