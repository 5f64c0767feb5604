"""Simulates the order in which clusters are dispatched, and the time at which each runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from graphc.devices.admission import Admission
from graphc.devices.partition import Cluster, Partition
from graphc.passes.core.costs import node_cost, total

_FLOPS_A_BYTE = 8  # operations in the time to move a byte; roughly as on a CPU
_OVERHEAD = 1e5  # cost of starting an executable, in floating-point operations


class Span(NamedTuple):
    """The time of one cluster on its device; `Executable.timeline` measures it.

    Attributes:
        cluster: the number of the cluster in `Partition.clusters`.
        device: the name of the device.
        start, end: seconds since the beginning of the step, or the unit of the estimates.

    Examples:
        >>> gc.devices.Span(cluster=0, device="/device:CPU:0", start=0.0, end=0.5)
        Span(cluster=0, device='/device:CPU:0', start=0.0, end=0.5)
    """

    cluster: int
    device: str
    start: float
    end: float


def durations(clusters: Sequence[Cluster]) -> list[float]:
    """The estimated duration of each cluster, from its floating-point operations, or from its bytes
    if moving them takes longer."""
    found = []
    for cluster in clusters:
        cost = total(map(node_cost, cluster.program.nodes))
        found.append(_OVERHEAD + max(cost.flops, _FLOPS_A_BYTE * cost.bytes))
    return found


def timeline(
    clusters: Sequence[Cluster], seconds: Sequence[float], schedule: str = "gpipe"
) -> list[Span]:
    """The time at which each cluster runs, if each device runs one at a time, sorted by start time.

    This is list scheduling (Graham 1969): of clusters that could start at the same time, the one of
    the earliest micro-batch starts first. For consecutive stages with a loss after the last one,
    and an update after all micro-batches, the result is the schedule of GPipe (Huang et al. 2019)
    or one of equal length. Under "1f1b", stages admit only a few micro-batches at a time, see
    `Admission`; the result is then that of Narayanan et al. (2019).
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
    admission = Admission(clusters, needs) if schedule == "1f1b" else None
    missing = [len(needed) for needed in needs]
    free: dict[str, float] = {cluster.device: 0.0 for cluster in clusters}
    ends: dict[int, float] = {}
    ready = {i for i, count in enumerate(missing) if not count}
    spans = []

    def start(i: int) -> float:
        return max([free[clusters[i].device], *(ends[j] for j in needs[i])])

    def urgency(i: int) -> tuple[float, bool, int, int]:
        turn = clusters[i].micro_batch
        # A stage that may admit a micro-batch does so before a backward pass: others wait for it.
        later = admission is not None and not admission.begins(i)
        return start(i), later, -1 if turn is None else turn, i

    while ready:
        # If a stage cannot go on without one more micro-batch, it admits it.
        admitted = ready if admission is None else set(filter(admission.admits, ready)) or ready
        chosen = min(admitted, key=urgency)
        begin = start(chosen)
        device, end = clusters[chosen].device, begin + seconds[chosen]
        free[device] = ends[chosen] = end
        spans.append(Span(chosen, device, begin, end))
        if admission is not None:
            admission.started(chosen)
        ready.remove(chosen)
        for i in users.get(chosen, ()):
            missing[i] -= 1
            if not missing[i]:
                ready.add(i)
    return spans


def dispatch_order(partition: Partition) -> list[int]:
    """The order in which the host starts the clusters of a partition."""
    clusters = partition.clusters
    return [span.cluster for span in timeline(clusters, durations(clusters), partition.schedule)]


def idle_part(spans: Sequence[Span]) -> float:
    """The fraction of time in which devices are idle, from the first start to the last end.

    Args:
        spans: such as those of `Executable.timeline`.

    Returns:
        A number in [0, 1); 0 if there are no spans.

    Examples:
        >>> Span = gc.devices.Span
        >>> gc.devices.idle_part([Span(0, "/cpu:0", 0.0, 1.0), Span(1, "/cpu:1", 1.0, 2.0)])
        0.5
    """
    if not spans:
        return 0.0
    devices = {span.device for span in spans}
    length = max(span.end for span in spans) - min(span.start for span in spans)
    busy = sum(span.end - span.start for span in spans)
    return 1.0 - busy / (length * len(devices)) if length else 0.0


def bubble(stages: int, micro_batches: int) -> float:
    """The fraction of time in which the stages of a pipeline are idle, if all take the same time:
    `(stages - 1) / (micro_batches + stages - 1)` (Huang et al. 2019, section 2.3).

    Examples:
        >>> round(gc.devices.bubble(stages=4, micro_batches=8), 4)  # 3 / 11
        0.2727
    """
    return (stages - 1) / (micro_batches + stages - 1)
