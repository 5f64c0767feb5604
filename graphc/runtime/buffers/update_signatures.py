"""How variables are updated: which of them by the same elementwise operators."""

from __future__ import annotations

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.elementwise import is_elementwise

# A number that stands for how a value comes from state by elementwise operators; None: in no
# such way.
Role = int | None

_DEEPEST = 40  # operators between a state and its update that are looked through

STATE: Role = 0  # of state itself
_READ: Role = -1  # of a variable that is not assigned


class Roles:
    """The roles of tensors: the operators that lead to them from state, without what enters from
    elsewhere (gradients, rates), so that variables of one optimizer have the same."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._sources: dict[Tensor, frozenset[Tensor]] = {}
        self.producers = program.producers()
        self._known: dict[Tensor, Role] = dict.fromkeys(program.input_tensors("state"), STATE)
        self._numbers: dict[object, int] = {}

    def of_variables(self) -> dict[str, Role]:
        """How each variable that the program touches is updated."""
        touched = {port.name: _READ for port in self._program.ports("state")}
        return {**touched, **{p.name: self.of(p.tensor) for p in self._program.new_state()}}

    def sources(self, tensor: Tensor) -> frozenset[Tensor]:
        """The state of its shape that it comes from by elementwise operators."""
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

    def of(self, tensor: Tensor, depth: int = 0) -> Role:
        """The role of a tensor."""
        if tensor in self._known:
            return self._known[tensor]
        node = self.producers.get(tensor)
        role: Role = None
        if node is not None and depth < _DEEPEST and is_elementwise(node):
            operands = [self._operand(node, t, depth + 1) for t in node.inputs]
            if any(type(operand) is int for operand in operands):
                row = (node.op.name, tuple(node.attrs.items()), tuple(operands))
                role = self._numbers.setdefault(row, len(self._numbers) + 1)
        self._known[tensor] = role
        return role

    def _operand(self, node: Node, tensor: Tensor, depth: int) -> Role | Tensor:
        """The role of an operand; a scalar that all share stands for itself."""
        if tensor.type.shape == ():
            producer = self.producers.get(tensor)
            if node.outputs[0].type.shape != () or (producer and producer.op is CONSTANT):
                return tensor
        return self.of(tensor, depth)
