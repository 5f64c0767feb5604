"""In which order clusters are dispatched, and when each would run: a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from graphc.devices.partition import Cluster
from graphc.passes.core.costs import node_cost, total

_FLOPS_A_BYTE = 8  # what a device calculates in the time that it moves a byte; roughly a CPU's
_OVERHEAD = 1e5  # of starting an executable, in floating-point operations


class Span(NamedTuple):
    """One cluster's time on its device; the unit is that of the durations."""

    cluster: int
    device: str
    start: float
    end: float


def durations(clusters: Sequence[Cluster]) -> list[float]:
    """What each cluster takes, estimated: floating-point operations, or bytes where those take
    longer."""
    found = []
    for cluster in clusters:
        cost = total(map(node_cost, cluster.program.nodes))
        found.append(_OVERHEAD + max(cost.flops, _FLOPS_A_BYTE * cost.bytes))
    return found


def timeline(clusters: Sequence[Cluster], seconds: Sequence[float]) -> list[Span]:
    """When each cluster runs, if each device does one at a time, in the order of their starts.

    Of those that could start at the same time, the one of the earliest micro-batch goes first:
    list scheduling (Graham 1969). For stages in a row and a loss behind the last, all micro-batches
    summed before the update, that is the schedule of GPipe (Huang et al. 2019) or one that is as
    short.
    """
    made_by = {tensor: i for i, cluster in enumerate(clusters) for tensor in cluster.sent}
    needs = [{made_by[t] for t in cluster.takes if t in made_by} for cluster in clusters]
    calling = [i for i, cluster in enumerate(clusters) if cluster.calls_back]
    for first, second in pairwise(calling):
        needs[second].add(first)
    users: dict[int, list[int]] = {}
    for i, needed in enumerate(needs):
        for j in needed:
            users.setdefault(j, []).append(i)
    missing = [len(needed) for needed in needs]
    free: dict[str, float] = {cluster.device: 0.0 for cluster in clusters}
    ends: dict[int, float] = {}
    ready = {i for i, count in enumerate(missing) if not count}
    spans = []

    def start(i: int) -> float:
        return max([free[clusters[i].device], *(ends[j] for j in needs[i])])

    def urgency(i: int) -> tuple[float, int, int]:
        turn = clusters[i].micro_batch
        return start(i), -1 if turn is None else turn, i

    while ready:
        chosen = min(ready, key=urgency)
        begin = start(chosen)
        device, end = clusters[chosen].device, begin + seconds[chosen]
        free[device] = ends[chosen] = end
        spans.append(Span(chosen, device, begin, end))
        ready.remove(chosen)
        for i in users.get(chosen, ()):
            missing[i] -= 1
            if not missing[i]:
                ready.add(i)
    return spans


def idle_part(spans: Sequence[Span]) -> float:
    """The part of all devices' time, from the first start to the last end, in which they wait."""
    if not spans:
        return 0.0
    devices = {span.device for span in spans}
    length = max(span.end for span in spans) - min(span.start for span in spans)
    busy = sum(span.end - span.start for span in spans)
    return 1.0 - busy / (length * len(devices)) if length else 0.0


def bubble(stages: int, micro_batches: int) -> float:
    """The part of the time in which the stages of a pipeline wait, if all take the same:
    `(stages - 1) / (micro_batches + stages - 1)` (Huang et al. 2019, section 2.3).

    >>> bubble(stages=4, micro_batches=8)
    0.2727272727272727
    """
    return (stages - 1) / (micro_batches + stages - 1)
