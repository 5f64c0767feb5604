"""Finds the nodes that update state; `MixedPrecision` keeps them in float32."""

from __future__ import annotations

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.structure.training import GRADIENTS


def computes_narrow(node: Node) -> bool:
    """Whether mixed precision applies to the operator, or to one in its bodies."""
    if node.op.precision == "narrow":
        return True
    return any(computes_narrow(inner) for body in node.regions for inner in body.nodes)


def updating(program: Program) -> set[Node]:
    """The nodes that only compute new values of state: nodes after the gradients of a step, and
    nodes that lead to new state and to no narrow computation.

    Users of a new value, such as a second step in the same run, do not count: they are treated as
    users of the variable.
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
