"""Groups nodes into as few clusters as can run one after the other."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Effects
from graphc.ir.program import Program, effects_of, is_pure


class Key(NamedTuple):
    """The device and the micro-batch that all nodes of a cluster share."""

    device: str
    micro_batch: int | None = None


def grouped(program: Program, keys: Mapping[Node, Key]) -> list[list[Node]]:
    """The nodes of each cluster, in an order in which the clusters can run.

    First, each node gets a level: the largest number of key changes on any path to it. No edge
    leads to a lower level, and an edge between two keys leads to a higher level. So nodes with the
    same key and level can run together. For a micro-batch only the part of the path inside it
    counts, since no path that leaves a micro-batch comes back. So all micro-batches are divided
    in the same way, and share executables. Then clusters of one key are joined wherever no path
    leads from one to the other through a third. What runs before the micro-batches is not joined
    with what runs after them: the first of them would wait for the last. (The minimum is a shortest
    common supersequence, for which no fast algorithm is known: Maier 1978. For two alternating
    keys, levels give the minimum.)

    Args:
        keys: the key of each node. Nodes without a key are left out.
    """
    makers: dict[Tensor, Node] = {}
    earlier: dict[Node, list[Node]] = {}  # the nodes that each node depends on
    last_effect: list[Node] = []
    level: dict[Node, int] = {}
    inside: dict[Node, int] = {}  # counted from the start of the micro-batch
    loops: dict[Node, int] = {}  # how many loops over micro-batches a path to it may have left
    groups: dict[tuple[Key, int, int], list[Node]] = {}
    for node in program.nodes:
        if node not in keys:
            continue
        key = keys[node]
        before = [makers[t] for t in node.inputs if t in makers]
        if effects_of(node) & Effects.HOST:  # in program order, on any device
            before += last_effect
            last_effect = [node]
        earlier[node] = before
        level[node] = max((level[b] + (keys[b] != key) for b in before), default=0)
        near = [b for b in before if keys[b].micro_batch == key.micro_batch]
        inside[node] = max((inside[b] + (keys[b] != key) for b in near), default=0)
        is_outside = key.micro_batch is None
        loops[node] = max(
            (loops[b] + (is_outside and keys[b].micro_batch is not None) for b in before), default=0
        )
        own = level if is_outside else inside
        groups.setdefault((key, loops[node] * is_outside, own[node]), []).append(node)
        makers.update(dict.fromkeys(node.outputs, node))
    found = _Joining(groups, earlier).run([(key, left) for key, left, _ in groups])
    return _late(program, found, keys)


def _late(program: Program, groups: list[list[Node]], keys: Mapping[Node, Key]) -> list[list[Node]]:
    """Moves nodes that only a later cluster of their key uses into that cluster, if their operands
    are not larger than their results.

    So only the operands, which may be stored anyway, are stored between two clusters. State is then
    read where it is updated, so that it can be overwritten.
    """
    of = {node: i for i, group in enumerate(groups) for node in group}
    users, outputs = program.users(), set(program.output_tensors())
    made = {t for node in of for t in node.outputs}.union(program.input_tensors())
    takes = [{t for node in group for t in node.inputs} for group in groups]
    for node in reversed(program.nodes):
        if node not in of or not outputs.isdisjoint(node.outputs) or not is_pure(node):
            continue
        into = {of.get(user) for tensor in node.outputs for user in users.get(tensor, ())}
        target = next(iter(into), None)
        if len(into) != 1 or target is None or target == of[node]:
            continue
        if keys[groups[target][0]] != keys[node]:
            continue
        new = [t for t in node.inputs if t not in takes[target]]
        more = bytes_of(*(t for t in dict.fromkeys(new) if t in made))
        if more <= bytes_of(*node.outputs):
            groups[of[node]].remove(node)
            groups[target].append(node)
            of[node] = target
            takes[target].update(node.inputs)
    return [group for group in groups if group]


class _Joining:
    """Clusters by number, their direct successors, and the operation that joins two clusters."""

    def __init__(
        self, groups: Mapping[tuple[Key, int, int], list[Node]], earlier: Mapping[Node, list[Node]]
    ) -> None:
        self._nodes: dict[int, list[Node]] = dict(enumerate(groups.values()))
        number = {node: i for i, nodes in self._nodes.items() for node in nodes}
        self._after: dict[int, set[int]] = {i: set() for i in self._nodes}
        for i, nodes in self._nodes.items():
            for before in {number[other] for node in nodes for other in earlier[node]} - {i}:
                self._after[before].add(i)

    def run(self, keys: list[tuple[Key, int]]) -> list[list[Node]]:
        by_key: dict[tuple[Key, int], list[int]] = {}
        for i, key in enumerate(keys):
            by_key.setdefault(key, []).append(i)
        for alike in by_key.values():
            kept: list[int] = []
            for i in alike:
                into = next((j for j in kept if self._may_join(j, i)), None)
                if into is None:
                    kept.append(i)
                else:
                    self._join(into, i)
        return [self._nodes[i] for i in earliest_first(self._after)]

    def _may_join(self, one: int, other: int) -> bool:
        """Whether no path leads from one to the other through a third."""
        pairs = ((one, other), (other, one))
        return not any(self._reaches(self._after[a] - {b}, b) for a, b in pairs)

    def _join(self, into: int, other: int) -> None:
        self._nodes[into] += self._nodes.pop(other)
        self._after[into] = (self._after[into] | self._after.pop(other)) - {into, other}
        for i, after in self._after.items():
            if other in after:
                after.discard(other)
                after.update({into} - {i})

    def _reaches(self, starts: Iterable[int], end: int) -> bool:
        seen = set(starts)
        pending = list(seen)
        while pending:
            i = pending.pop()
            if i == end:
                return True
            pending += self._after[i] - seen
            seen |= self._after[i]
        return False


def earliest_first(after: Mapping[int, Iterable[int]]) -> list[int]:
    """The keys in an order in which each comes before those in its value.

    Kahn's algorithm (CACM 5, 1962), which takes the smallest of the keys that may come next.
    """
    waits = dict.fromkeys(after, 0)
    for later in after.values():
        for i in later:
            waits[i] += 1
    ready = [i for i, count in waits.items() if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        i = heapq.heappop(ready)
        found.append(i)
        for j in after[i]:
            waits[j] -= 1
            if not waits[j]:
                heapq.heappush(ready, j)
    return found
