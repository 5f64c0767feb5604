"""Rows of nodes that apply the same operation to different values, found from existing stacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor, position_of
from graphc.ir.program import Program, is_pure
from graphc.ops.arrays.stacking import STACK, UNSTACK
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.keys import kind_key

Tensors = tuple[Tensor, ...]

_DEPTH = 100  # how many operands deep the search follows a row
_LARGE = 1 << 20  # bytes


@dataclass(eq=False)
class Row:
    """Nodes of one kind, one for each slice, which can become one node on stacked operands.

    For each operand, `operands` has the tensors of all nodes, or the one tensor that they share.
    """

    nodes: tuple[Node, ...]
    operands: tuple[Tensors | Tensor, ...]

    def results(self) -> list[Tensors]:
        """For each result, the tensors of all nodes."""
        return list(zip(*[node.outputs for node in self.nodes], strict=True))


class Rows:
    """The rows of one program.

    Attributes:
        stacked: stacks that exist: the tensors in order -> the tensor that holds them.
        leaves: stacks of state or constants that must be created.
        results: the results of rows, as tuples of tensors.
        rows: the rows, in the order in which they were found.
    """

    def __init__(self, program: Program, fewest: int) -> None:
        self._fewest = fewest
        self._state = set(program.input_tensors("state"))
        self._producers = program.producers()
        self._users = program.users()
        self._kind = cache(kind_key)
        self._taken: set[Node] = set()  # nodes that are in a row
        self._failed: set[Tensors] = set()
        self.stacked: dict[Tensors, Tensor] = {}
        self.leaves: dict[Tensors, None] = {}
        self.rows: list[Row] = []
        self.results: set[Tensors] = set()
        self._owned: set[Tensor] = set()  # tensors of state that are in some stack
        for node in program.nodes:
            if node.op is STACK and node.attrs["axis"] == 0:
                self.stacked[node.inputs] = node.outputs[0]
                self._owned.update(self._state.intersection(node.inputs))
            elif node.op is UNSTACK and node.attrs["axis"] == 0:
                self.stacked[node.outputs] = node.inputs[0]

    def follow(self, stacks: Iterable[Tensors]) -> None:
        """Finds the rows that use these stacks, the rows that use their results, and so on."""
        waiting = deque(stacks)
        while waiting:
            for nodes in self._using(waiting.popleft()):
                row = self._commit(nodes)
                if row is not None:
                    waiting.extend(row.results())

    def reach(self, tensors: Tensors) -> None:
        """Finds the rows that compute these tensors, and the rows that use their results."""
        producers = [self._producers.get(t) for t in tensors]
        nodes = tuple([node for node in producers if node is not None])
        if len(nodes) == len(tensors) and self._taken.isdisjoint(nodes):
            row = self._commit(nodes)
            if row is not None and tensors in set(row.results()):
                self.follow(row.results())

    def drop(self, circle: Container[Row]) -> None:
        """Removes these rows, and the rows that use stacks computed by them."""
        gone: set[Tensors | Tensor] = set()
        kept = []
        for row in self.rows:
            if row in circle or not gone.isdisjoint(row.operands):
                gone.update(result for result in row.results() if result not in self.stacked)
            else:
                kept.append(row)
        self.rows = kept
        self.results = {result for row in kept for result in row.results()}
        taken = {operand for row in kept for operand in row.operands}
        self.leaves = {leaf: None for leaf in self.leaves if leaf in taken}

    def _using(self, stack: Tensors) -> list[tuple[Node, ...]]:
        """Candidates: nodes of one kind that use the tensors of a stack as the same operand."""
        if len(stack) < self._fewest:
            return []
        found: list[dict[Hashable, list[Node]]] = []
        for tensor in stack:
            users: dict[Hashable, list[Node]] = {}
            for node in dict.fromkeys(self._users.get(tensor, ())):
                if node not in self._taken and self._fits(node) and not _makes_much(node):
                    place = position_of(tensor, node.inputs)
                    users.setdefault((place, self._kind(node)), []).append(node)
            found.append(users)
            if not users:
                return []
        candidates: list[tuple[Node, ...]] = []
        for key, first in found[0].items():
            lists = [users.get(key, []) for users in found]
            if all(len(nodes) == len(first) for nodes in lists):
                candidates.extend(zip(*lists, strict=True))
        return candidates

    def _commit(self, nodes: tuple[Node, ...]) -> Row | None:
        """The row of these nodes, added with the rows that compute its operands; None if there is
        none."""
        trial = _Trial(self)
        row = trial.row(nodes, 0)
        if row is None:
            return None
        for made in trial.rows:
            self.rows.append(made)
            self._taken.update(made.nodes)
        self.results |= trial.results
        self.leaves.update(trial.leaves)
        self._owned |= trial.owned
        return row

    def _fits(self, node: Node) -> bool:
        """Whether a node may be in a row. Nodes that stack or unstack stay as they are."""
        makes_stacks = node.op is STACK or node.op is UNSTACK
        return bool(node.inputs) and not node.regions and not makes_stacks and is_pure(node)


class _Trial:
    """A group of rows that is accepted or rejected as a whole."""

    def __init__(self, rows: Rows) -> None:
        self._known = rows
        self._taken: set[Node] = set()
        self.rows: list[Row] = []
        self.results: set[Tensors] = set()
        self.leaves: dict[Tensors, None] = {}
        self.owned: set[Tensor] = set()  # tensors of state that are in these

    def row(self, nodes: Sequence[Node], depth: int) -> Row | None:
        """The row of these nodes, with the rows that compute its operands; None if there is
        none."""
        known = self._known
        if (
            depth > _DEPTH
            or len(set(nodes)) < len(nodes)
            or not (known._taken.isdisjoint(nodes) and self._taken.isdisjoint(nodes))
            or not all(map(known._fits, nodes))
            or any(known._kind(node) != known._kind(nodes[0]) for node in nodes[1:])
        ):
            return None
        operands: list[Tensors | Tensor] = []
        for tensors in zip(*[node.inputs for node in nodes], strict=True):
            if all(t is tensors[0] for t in tensors):
                operands.append(tensors[0])
            elif self._stack(tensors, depth + 1):
                operands.append(tensors)
            else:
                return None
        if all(isinstance(operand, Tensor) for operand in operands):
            return None
        row = Row(tuple(nodes), tuple(operands))
        self.rows.append(row)
        self._taken.update(nodes)
        self.results.update(row.results())
        return row

    def _stack(self, tensors: Tensors, depth: int) -> bool:
        """Whether these tensors are a stack, or can be made one without a copy."""
        known = self._known
        if tensors in known.stacked or tensors in known.leaves or tensors in known.results:
            return True
        if tensors in self.leaves or tensors in self.results:
            return True
        if tensors in known._failed or len(set(tensors)) < len(tensors):
            return False
        producers = [known._producers.get(t) for t in tensors]
        if self._is_leaf(tensors, producers):
            self.leaves[tensors] = None
            self.owned.update(known._state.intersection(tensors))
            return True
        nodes = [node for node in producers if node is not None]
        if len(nodes) == len(tensors):
            places = {position_of(t, n.outputs) for n, t in zip(nodes, tensors, strict=True)}
            if len(places) == 1 and self.row(nodes, depth) is not None:
                return True
        known._failed.add(tensors)
        return False

    def _is_leaf(self, tensors: Tensors, producers: Sequence[Node | None]) -> bool:
        """Whether the tensors are constants, or state that is not in any stack yet."""
        known = self._known
        constants = all(node is not None and node.op is CONSTANT for node in producers)
        free = known._owned.isdisjoint(tensors) and self.owned.isdisjoint(tensors)
        return constants or (free and known._state.issuperset(tensors))


def _makes_much(node: Node) -> bool:
    """Whether a node makes a large array of little, such as the first value of a weight of a key.
    As one stack, these arrays would all be in memory at the same time, twice: most uses need them
    apart."""
    made = bytes_of(*node.outputs)
    return made >= _LARGE and made > 4 * bytes_of(*node.inputs)
