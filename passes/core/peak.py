"""The peak memory of a program in addition to its arguments, estimated from its types.

Nodes run in order. A value is live from the node that produces it to its last user. As in XLA, an
elementwise result that only elementwise nodes use is not an array, a node may overwrite an operand
of which it is the last user, and the new value of donated state overwrites the old one.
`Executable.memory` gives XLA's own figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program
from graphc.ops.arrays.dynamic_slicing import DYNAMIC_UPDATE_SLICE
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.mapping import MAP
from graphc.ops.core.emit import CONSTANT
from graphc.ops.matrices.row_updates import UPDATE_BY_ROWS
from graphc.ops.structure.ordering import AFTER
from graphc.passes.core.elementwise import is_elementwise


class Moment(NamedTuple):
    """The memory while one node of a program runs.

    Attributes:
        live: bytes of live values, with the node's results and what its bodies need.
        inside: bytes that the bodies of the node need besides its operands and results.
        ends: the number of the last node that uses the values that this one creates, for each of
            its results that is an array of its own.
    """

    live: int
    inside: int
    ends: Mapping[Tensor, int]


def peak(program: Program) -> int:
    """The maximum number of bytes of live values in a bound program. Inputs, and state outputs that
    replace inputs, are not counted."""
    return max((moment.live for moment in moments(program)), default=0)


def moments(program: Program) -> list[Moment]:
    """The memory while each node of a bound program runs, in program order; see `peak`."""
    names = {port.name for port in program.ports("state")}
    in_place = [port.tensor for port in program.new_state() if port.name in names]
    return list(_Lives(program, in_place).moments())


class _Lives:
    """The lifetimes of the values of a program.

    Args:
        elsewhere: values in memory that is counted elsewhere.
    """

    def __init__(self, program: Program, elsewhere: Iterable[Tensor] = ()) -> None:
        self._program = program
        self._fused = _fused(program)
        self._free = {*program.input_tensors(), *elsewhere}
        self._carries = set(program.input_tensors("arg"))
        self._roots: dict[Tensor, frozenset[Tensor]] = {}
        self._last: dict[Tensor, int] = {}

    def most(self) -> int:
        """The maximum number of live bytes."""
        return max((moment.live for moment in self.moments()), default=0)

    def moments(self) -> Iterator[Moment]:
        """The live bytes while each node runs."""
        nodes = self._program.nodes
        for i, node in enumerate(nodes):
            for root in self._operands(node):
                self._last[root] = i
        for tensor in self._program.output_tensors():
            for root in self._roots.get(tensor, frozenset((tensor,))):
                self._last[root] = len(nodes)
        ends: dict[int, list[Tensor]] = {}
        for tensor, i in self._last.items():
            ends.setdefault(i, []).append(tensor)
        live = 0
        alive: set[Tensor] = set()
        for i, node in enumerate(nodes):
            made = [t for t in node.outputs if t not in self._roots and t not in self._free]
            ending = [t for t in ends.get(i, ()) if t in alive]
            taken_over = _taken_over(node, ending, made)
            live += bytes_of(*made) - taken_over
            alive.update(made)
            inside = _inside(node)
            yield Moment(live + inside, inside, {t: self._last.get(t, i) for t in made})
            gone = [*ending, *(t for t in made if t not in self._last)]
            live += taken_over - bytes_of(*gone)
            alive.difference_update(gone)

    def _operands(self, node: Node) -> frozenset[Tensor]:
        """The arrays that a node reads; none for a node that only reinterprets its operands."""
        inputs = node.inputs[:1] if node.op is AFTER else node.inputs  # one element of the others
        found: frozenset[Tensor] = frozenset().union(
            *(self._roots.get(t, frozenset((t,))) for t in inputs)
        )
        if node.op is DYNAMIC_UPDATE_SLICE and inputs[0] in self._carries:
            # Written into the carry of a loop, as by `UpdateInLoop`.
            self._roots[node.outputs[0]] = frozenset((inputs[0],))
        if node in self._fused:
            self._roots.update(dict.fromkeys(node.outputs, found))
            return frozenset()
        return found


def _taken_over(node: Node, ending: Sequence[Tensor], made: Sequence[Tensor]) -> int:
    """The number of bytes of operands used for the last time that the node's results overwrite."""
    if _is_plain(node):
        return min(bytes_of(*ending), bytes_of(*made))
    own, carried = _carried(node)
    freed = bytes_of(*(t for t in ending if is_among(t, carried)))
    return min(freed, bytes_of(*(t for t in made if is_among(t, own))))


def _is_plain(node: Node) -> bool:
    return node.op is AFTER or is_elementwise(node)


def _carried(node: Node) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The results of a node that are written over operands, and those operands."""
    if node.op is UPDATE_BY_ROWS:
        return node.outputs, node.inputs[2:][: len(node.outputs)]
    if not node.regions or "carries" not in node.attrs:
        return (), ()
    view = LoopView.of(node)
    return view.finals, view.outer.carries


def _fused(program: Program) -> set[Node]:
    """The nodes whose results are not separate arrays."""
    outputs = set(program.output_tensors())
    users = program.users()
    fused: set[Node] = set()
    elementwise: set[Node] = set()
    for node in reversed(program.nodes):
        if node.op is RESHAPE or node.op is CONSTANT:
            fused.add(node)
            continue
        plain = _is_plain(node)
        if plain:
            elementwise.add(node)
        if not (plain or node.op is BROADCAST_TO) or not outputs.isdisjoint(node.outputs):
            continue
        if all(user in elementwise for user in users.get(node.outputs[0], ())):
            fused.add(node)
    return fused


def _inside(node: Node) -> int:
    """The memory of the bodies of a node in addition to its operands and results."""
    if not node.regions:
        return 0
    if node.op is MAP:  # all iterations at once; its outputs are results of the node
        body = node.regions[0]
        length = node.attrs["length"]
        return int(length) * _Lives(body, body.output_tensors()).most()
    return max(_Lives(body).most() for body in node.regions)
