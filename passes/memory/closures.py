"""The cheapest set of choices, some of which imply others, found by a minimal cut.

Source: J.-C. Picard, Maximal closure of a graph and applications to combinatorial problems,
Management Science 22, 1976; the cut by E. A. Dinic's algorithm, 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

_ALWAYS = 1 << 200  # more than any sum of costs


def cheapest(
    costs: Sequence[int], implied: Iterable[tuple[int, int]], required: Iterable[int]
) -> set[int]:
    """Returns the choices among 0, 1, ... with the least sum of costs, and of equal sets the
    smallest.

    Args:
        costs: the cost of each choice; a gain is negative.
        implied: pairs (a, b): choice a implies choice b.
        required: choices that must be made in any case.
    """
    source, sink = len(costs), len(costs) + 1
    net = _Network(len(costs) + 2)
    for choice, cost in enumerate(costs):
        if cost < 0:
            net.add(source, choice, -cost)
        elif cost > 0:
            net.add(choice, sink, cost)
    for choice in required:
        net.add(source, choice, _ALWAYS)
    for a, b in implied:
        net.add(a, b, 2 * _ALWAYS)
    while net.augment(source, sink):
        pass
    return {node for node, level in enumerate(net.levels) if level >= 0} - {source, sink}


class _Network:
    """A flow network. Each pipe is stored next to its reverse, `pipe ^ 1`."""

    def __init__(self, nodes: int) -> None:
        self._from: list[list[int]] = [[] for _ in range(nodes)]
        self._to: list[int] = []
        self._room: list[int] = []
        self.levels: list[int] = []

    def add(self, a: int, b: int, room: int) -> None:
        """Adds a pipe from a to b."""
        for start, end, free in ((a, b, room), (b, a, 0)):
            self._from[start].append(len(self._to))
            self._to.append(end)
            self._room.append(free)

    def augment(self, source: int, sink: int) -> bool:
        """Runs one phase of Dinic's algorithm, which fills all shortest paths. Returns False if
        there is no path; `levels` is then negative for the nodes that the source does not reach."""
        self.levels = levels = [-1] * len(self._from)
        levels[source] = 0
        waiting = deque([source])
        while waiting:
            node = waiting.popleft()
            for pipe in self._from[node]:
                if self._room[pipe] and levels[self._to[pipe]] < 0:
                    levels[self._to[pipe]] = levels[node] + 1
                    waiting.append(self._to[pipe])
        if levels[sink] < 0:
            return False
        tried = [0] * len(self._from)
        while self._fill(source, sink, tried):
            pass
        return True

    def _fill(self, source: int, sink: int, tried: list[int]) -> bool:
        """Fills one shortest path; the first `tried` pipes of each node lead nowhere."""
        way: list[int] = []
        node = source
        while node != sink:
            pipes = self._from[node]
            while tried[node] < len(pipes):
                pipe = pipes[tried[node]]
                end = self._to[pipe]
                if self._room[pipe] and self.levels[end] == self.levels[node] + 1:
                    break
                tried[node] += 1
            else:
                if not way:
                    return False
                node = self._to[way.pop() ^ 1]
                tried[node] += 1
                continue
            way.append(pipe)
            node = end
        least = min(self._room[pipe] for pipe in way)
        for pipe in way:
            self._room[pipe] -= least
            self._room[pipe ^ 1] += least
        return True
