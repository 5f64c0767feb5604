"""Finds the nodes that read an old value, except the node that computes the new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.joining import SPLIT
from graphc.ops.arrays.shape import RESHAPE, TRANSPOSE
from graphc.ops.arrays.slicing import SLICE
from graphc.ops.arrays.stacking import UNSTACK
from graphc.passes.core.elementwise import is_elementwise
from graphc.passes.core.state_updates import End

# XLA computes these at their users, if at all, so their users are the readers.
MOVES = (RESHAPE, TRANSPOSE, SLICE, SPLIT, UNSTACK)


class Readers:
    """Dependencies among the nodes that read or compute state, as bit sets with one bit for each of
    them.

    Args:
        ends: the state, or the carries, in question.

    Attributes:
        made: tensor -> its producer.
    """

    def __init__(self, program: Program, ends: Iterable[End]) -> None:
        self.made = program.producers()
        self._users: Mapping[Tensor, list[Node]] = program.users()
        self._given = set(program.output_tensors())
        asked = list(ends)
        updates = {self.made[end.new] for end in asked if end.new in self.made}
        self._fused: set[Node] = set()
        self._bit: dict[Node, int] = {}
        self._needs: dict[Node, int] = {}
        old = {end.old for end in asked}  # and values derived from it without computation
        for node in program.nodes:
            reads = not old.isdisjoint(node.inputs)
            if reads and (node.op in MOVES or is_elementwise(node)):
                self._fused.add(node)
                old.update(node.outputs)
            needs = 0
            if reads or node in updates:
                needs = self._bit[node] = 1 << len(self._bit)
            for tensor in node.inputs:
                if tensor in self.made:
                    needs |= self._needs[self.made[tensor]]
            self._needs[node] = needs

    def of(self, old: Tensor, new: Tensor) -> list[Tensor] | None:
        """A result of each node that reads `old` and that `new` does not depend on.

        None if the old value must outlive the new one, because it is an output or a node that
        depends on the new value reads it; and if no node computes `new`.
        """
        update = self.made.get(new)
        if update is None:
            return None
        found: dict[Tensor, None] = {}
        stack, seen = [old], {old}
        while stack:
            tensor = stack.pop()
            if tensor in self._given:
                return None
            for node in self._users.get(tensor, ()):
                if self._needs[update] & self._bit[node]:
                    continue
                if self._needs[node] & self._bit[update]:
                    return None
                if node in self._fused:
                    stack += [t for t in node.outputs if t not in seen]
                    seen.update(node.outputs)
                elif node.outputs:
                    found[node.outputs[0]] = None
        return list(found)
