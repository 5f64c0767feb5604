"""Which micro-batches the stages of a pipeline may hold at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from graphc.devices.partition import Cluster

_Part = tuple[str, int | None]  # what one device computes of one micro-batch


class Admission:
    """The rule of 1F1B (Narayanan et al. 2019): a stage holds at most as many micro-batches as
    there are stages from it to the last, itself included. It takes them in order.

    A stage holds a micro-batch from its first cluster, which is a part of the forward pass, to its
    last one. The stages after it are those that the micro-batch passes in between.

    Args:
        clusters: in an order in which they can run.
        needs: for each, the numbers of those that must run before it.
    """

    def __init__(self, clusters: Sequence[Cluster], needs: Sequence[Collection[int]]) -> None:
        self._parts: list[_Part] = [(c.device, c.micro_batch) for c in clusters]
        self._left = Counter(self._parts)  # the clusters of a part that have not run
        self._waiting: dict[str, list[_Part]] = {}  # the parts of a device that have not started
        for part in dict.fromkeys(self._parts):
            self._waiting.setdefault(part[0], []).append(part)
        self._held: Counter[str] = Counter()
        self._most = {
            device: _stages_from(parts, self._parts, needs)
            for device, parts in self._waiting.items()
        }

    def admits(self, cluster: int) -> bool:
        """Whether a cluster whose operands exist may run now."""
        if not self.begins(cluster):
            return True
        device, _ = part = self._parts[cluster]
        first = next(each for each in self._waiting[device] if each[1] is not None)
        return part == first and self._held[device] < self._most[device]

    def begins(self, cluster: int) -> bool:
        """Whether a cluster is the first of its device and micro-batch to run."""
        part = self._parts[cluster]
        return part[1] is not None and part in self._waiting[part[0]]

    def started(self, cluster: int) -> None:
        """Notes that a cluster runs now."""
        device, micro_batch = part = self._parts[cluster]
        if micro_batch is None:
            return
        if self.begins(cluster):
            self._waiting[device].remove(part)
            self._held[device] += 1
        self._left[part] -= 1
        self._held[device] -= not self._left[part]


def _stages_from(
    parts: Sequence[_Part], all_parts: Sequence[_Part], needs: Sequence[Collection[int]]
) -> int:
    """How many devices a micro-batch visits between the first and the last cluster of one device,
    that device included."""
    part = next((each for each in parts if each[1] is not None), None)
    own = [i for i, each in enumerate(all_parts) if each == part]
    if not own:
        return 0
    near = [i for i, each in enumerate(all_parts) if part is not None and each[1] == part[1]]
    before = _ancestors(own[-1], needs)
    after: set[int] = set()
    for i in near:  # in an order in which they can run
        if i == own[0] or not after.isdisjoint(needs[i]):
            after.add(i)
    return len({all_parts[i][0] for i in after & before})


def _ancestors(start: int, needs: Sequence[Collection[int]]) -> set[int]:
    found = {start}
    pending = [start]
    while pending:
        new = set(needs[pending.pop()]) - found
        found |= new
        pending += new
    return found
