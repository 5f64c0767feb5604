"""The operations of a program on each slice of stacks of one length: the bodies of maps, split into
nodes, and elementwise nodes on whole stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.control.mapping import MAP
from graphc.passes.core.elementwise import is_elementwise


@dataclass(frozen=True, eq=False)
class Cell:
    """One node of a map's body, or a node of the program that works on whole stacks.

    A value is represented by the tensor of the program, or by the tensor of the body if the program
    has none for it.

    Attributes:
        node: the original node.
        at: the node with values as operands and results.
        owner: the node of the program.
        is_sliced: whether the result differs between slices.
    """

    node: Node
    at: Node
    owner: Node
    is_sliced: bool

    @property
    def is_inner(self) -> bool:
        """Whether the node is in the body of a map."""
        return self.owner is not self.node

    @cached_property
    def is_local(self) -> bool:
        """Whether each element of the result depends only on elements in the same position."""
        if self.is_sliced:
            return is_elementwise(self.node) or _spreads(self.node)
        return is_pure(self.node) and all(not t.type.shape for t in self.node.outputs)


def _spreads(node: Node) -> bool:
    return node.op is BROADCAST_TO and not node.inputs[0].type.shape


class Cells:
    """The cells of a program for stacks of one length.

    Attributes:
        all: the cells in topological order.
        of: node of the program -> its cells.
        sliced: the values that are stacks outside of the cells.
        aliases: other names of values: tensor of the program -> value.
        users: value -> the cells that use it.
        made: value -> the cell that computes it.
    """

    def __init__(self, program: Program, length: int) -> None:
        self.all: list[Cell] = []
        self.of: dict[Node, list[Cell]] = {}
        self.sliced: set[Tensor] = set()
        self.aliases: dict[Tensor, Tensor] = {}
        self.users: dict[Tensor, list[Cell]] = {}
        self.made: dict[Tensor, Cell] = {}
        for node in program.nodes:
            if node.op is MAP and node.attrs["length"] == length:
                self.of[node] = self._in_map(node)
            elif _is_whole(node, length):
                values = self.values(node.inputs)
                self.sliced.update(t for t in values if t.type.shape)
                self.sliced.update(node.outputs)
                self.of[node] = [Cell(node, node.replace(inputs=values), node, True)]
            for cell in self.of.get(node, ()):
                self.all.append(cell)
                self.made.update(dict.fromkeys(cell.at.outputs, cell))
                for value in cell.at.inputs:
                    self.users.setdefault(value, []).append(cell)

    def values(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The values that the program's tensors represent."""
        return tuple(self.aliases.get(t, t) for t in tensors)

    def _in_map(self, node: Node) -> list[Cell]:
        (body,), mapped = node.regions, node.attrs["mapped"]
        values = self.values(node.inputs)
        self.sliced.update(values[:mapped])
        known = dict(zip(body.input_tensors(), values, strict=True))
        given: dict[Tensor, Tensor] = {}
        for inside, outside in zip(body.output_tensors(), node.outputs, strict=True):
            if inside in known or inside in given:
                self.aliases[outside] = known.get(inside, given.get(inside, inside))
            else:
                given[inside] = outside
        found = []
        for inner in body.nodes:
            known.update((t, given.get(t, t)) for t in inner.outputs)
            inputs = tuple(known[t] for t in inner.inputs)
            outputs = tuple(known[t] for t in inner.outputs)
            is_sliced = _spreads(inner) or not self.sliced.isdisjoint(inputs)
            if is_sliced:
                self.sliced.update(outputs)
            at = inner.replace(inputs=inputs, outputs=outputs)
            found.append(Cell(inner, at, node, is_sliced))
        return found


def _is_whole(node: Node, length: int) -> bool:
    """Whether a node of a program works on whole stacks, slice by slice."""
    if len(node.outputs) != 1 or node.outputs[0].type.shape[:1] != (length,):
        return False
    return _spreads(node) or is_elementwise(node)
