"""Finds which variables are updated by the same elementwise operators."""

from __future__ import annotations

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.elementwise import is_elementwise

# A number that identifies how elementwise operators compute a value from state. None means that
# the value is not computed from state in this way.
Role = int | None

_DEEPEST = 40  # the largest number of operators from a state to its update

STATE: Role = 0  # the role of state itself
_READ: Role = -1  # the role of a variable that is not assigned


class Roles:
    """The roles of tensors. A role identifies the operators from state to a tensor, without their
    other inputs (gradients, rates). So the variables of one optimizer have the same role."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._sources: dict[Tensor, frozenset[Tensor]] = {}
        self.producers = program.producers()
        # Each role with the number of operators from state to the tensor.
        self._known: dict[Tensor, tuple[Role, int]] = dict.fromkeys(
            program.input_tensors("state"), (STATE, 0)
        )
        self._numbers: dict[object, int] = {}

    def of_variables(self) -> dict[str, Role]:
        """The role of the update of each variable that the program uses."""
        touched = {port.name: _READ for port in self._program.ports("state")}
        return {**touched, **{p.name: self.of(p.tensor) for p in self._program.new_state()}}

    def sources(self, tensor: Tensor) -> frozenset[Tensor]:
        """The state values with the tensor's shape that elementwise operators compute it from."""
        found = self._sources.get(tensor)
        if found is None:
            role = self.of(tensor)
            if role is None:
                found = frozenset()
            elif role == STATE:
                found = frozenset((tensor,))
            else:
                operands = self.producers[tensor].inputs
                alike = [t for t in operands if t.type.shape == tensor.type.shape]
                found = frozenset().union(*map(self.sources, alike))
            self._sources[tensor] = found
        return found

    def of(self, tensor: Tensor) -> Role:
        """The role of a tensor. It does not depend on the order of the calls."""
        waiting = [tensor]  # a stack instead of recursion: elementwise chains may be long
        while waiting:
            node = self.producers.get(waiting[-1])
            unknown: list[Tensor] = []
            if waiting[-1] not in self._known:
                if node is not None and is_elementwise(node):
                    own = [t for t in node.inputs if not self._is_shared(node, t)]
                    unknown = [t for t in own if t not in self._known]
                if not unknown:
                    self._known[waiting[-1]] = self._found(node)
            if unknown:
                waiting += unknown
            else:
                waiting.pop()
        return self._known[tensor][0]

    def _found(self, node: Node | None) -> tuple[Role, int]:
        """The role of a node's result, and the number of operators from state to it."""
        if node is None or not is_elementwise(node):
            return None, 0
        found = [(t, 0) if self._is_shared(node, t) else self._known[t] for t in node.inputs]
        depths = [depth for role, depth in found if type(role) is int]
        if not depths or max(depths) >= _DEEPEST:
            return None, 0
        row = (node.op.name, tuple(node.attrs.items()), tuple(role for role, _ in found))
        return self._numbers.setdefault(row, len(self._numbers) + 1), max(depths) + 1

    def _is_shared(self, node: Node, operand: Tensor) -> bool:
        """Whether an operand is a scalar that all updates may share. It is then its own role."""
        if operand.type.shape != ():
            return False
        producer = self.producers.get(operand)
        is_constant = producer is not None and producer.op is CONSTANT
        return node.outputs[0].type.shape != () or is_constant
