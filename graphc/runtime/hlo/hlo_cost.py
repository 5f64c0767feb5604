"""The cost of one run of an optimised HLO program on a device, counted from the program's text.

XLA's own `cost_analysis` is empty for programs that are compiled for GPUs which are not present.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from graphc.devices.machine import Gpu
from graphc.errors import ExecutionError
from graphc.runtime.hlo.hlo_kernels import COLLECTIVES, Kernel, Walk
from graphc.runtime.hlo.hlo_text import parse


class Collective(NamedTuple):
    """The number of runs of a kind of collective, and the bytes of its operands in all runs."""

    runs: int
    bytes: int


@dataclass(frozen=True)
class HloCost:
    """The cost of one run on one device.

    Attributes:
        matrix_flops: FLOPs of matrix units, by the dtype of the computation: "f64", "tf32", "f16",
            "bf16", "f8", "i8".
        vector_flops: FLOPs of the other units.
        bytes_accessed: bytes that kernels read from and write to the device's memory. Caches are
            ignored.
        kernels: the number of kernel launches, copies included.
        collectives: by kind, such as "all-reduce".
        overlapped: the number of these collectives that may run at the same time as other kernels:
            in the schedule, another kernel is between their start and their end. `timeline`
            estimates how long they overlap.
        host_transfers: the number of transfers between host and device.
        custom_calls: the number of calls of each target.
        transposes: the part of `bytes_accessed` of kernels that only copy or transpose.
        notes: what could not be counted, one line each.
        launches: the kernels in order.
    """

    matrix_flops: Mapping[str, float]
    vector_flops: float
    bytes_accessed: int
    kernels: int
    collectives: Mapping[str, Collective]
    overlapped: int
    host_transfers: int
    custom_calls: Counter[str]
    transposes: int
    notes: tuple[str, ...]
    launches: tuple[Kernel, ...] = field(repr=False)

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return sum(self.matrix_flops.values()) + self.vector_flops


def hlo_cost(text: str, replicas: int = 1) -> HloCost:
    """The cost of a program from its text, as `compiled.as_text()` gives it.

    Loops count as often as they run. A conditional counts as its most expensive branch. An unknown
    opcode counts as an elementwise kernel.

    Args:
        replicas: the number of devices that a collective without groups joins, if the text does not
            say.

    Raises:
        ExecutionError: the text is not HLO.
    """
    walk = Walk(parse(text), replicas)
    try:
        launches = walk.kernels(walk.module.entry)
    except (IndexError, ValueError, KeyError, RecursionError) as error:
        raise ExecutionError(f"the HLO text is malformed: {error!r}") from error
    return _totals(launches, walk.notes)


def summed(parts: Iterable[tuple[HloCost, int]]) -> HloCost:
    """The cost of several programs together. Each comes with the number of its runs."""
    launches: list[Kernel] = []
    notes: list[str] = []
    for cost, runs in parts:
        launches += [replace(kernel, times=runs * kernel.times) for kernel in cost.launches]
        notes += cost.notes
    return _totals(launches, notes)


def _totals(launches: Sequence[Kernel], notes: Sequence[str]) -> HloCost:
    matrix: dict[str, float] = {}
    collectives: dict[str, Collective] = {}
    calls: Counter[str] = Counter()
    for kernel in launches:
        for dtype, flops in kernel.matrix_flops.items():
            matrix[dtype] = matrix.get(dtype, 0.0) + kernel.times * flops
        if kernel.target:
            calls[kernel.target] += kernel.times
        if kernel.opcode in COLLECTIVES:
            runs, size = collectives.get(kernel.opcode, (0, 0))
            collectives[kernel.opcode] = Collective(
                runs + kernel.times, size + kernel.times * kernel.operand_bytes
            )
    return HloCost(
        matrix_flops=matrix,
        vector_flops=sum(k.times * k.vector_flops for k in launches),
        bytes_accessed=sum(k.times * k.bytes for k in launches),
        kernels=sum(k.times for k in launches),
        collectives=collectives,
        overlapped=sum(k.times for i, k in enumerate(launches) if _is_overlapped(launches, i)),
        host_transfers=sum(k.times for k in launches if k.host),
        custom_calls=calls,
        transposes=sum(k.times * k.bytes for k in launches if k.transposes),
        notes=tuple(dict.fromkeys(notes)),
        launches=tuple(launches),
    )


def _is_overlapped(launches: Sequence[Kernel], place: int) -> bool:
    """Whether a launch is a collective that another kernel may overlap."""
    beside = launches[place + 1 : place + 1 + launches[place].beside]
    return any(kernel.opcode not in COLLECTIVES for kernel in beside)


@dataclass(frozen=True)
class Timeline:
    """An estimate of when a run computes and when it communicates, in seconds.

    Attributes:
        seconds: the duration of the whole run.
        computing: the duration of all kernels except collectives.
        communicating: the duration of all collectives.
        waiting: how long a collective runs and no other kernel does.
    """

    seconds: float
    computing: float
    communicating: float
    waiting: float

    @property
    def hidden(self) -> float:
        """The part of `communicating` during which other kernels run, from 0 to 1."""
        return 1 - self.waiting / self.communicating if self.communicating else 1.0


# The time of an all-reduce of a few bytes: the start, and each hop over NVLink. These are NCCL's
# own figures for its protocol with the lowest latency (src/graph/tuning.cc, "LL", ring).
_COLLECTIVE_LATENCY, _HOP = 6.6e-6, 0.6e-6


def timeline(cost: HloCost, gpu: Gpu) -> Timeline:
    """An estimate of a run's time. It is a lower bound that a real run does not reach.

    Kernels run one after the other. Each takes the longest of three times: its matrix FLOPs at the
    peak rates of their dtypes, its vector FLOPs at the peak rate of float32, and its bytes at the
    memory bandwidth.

    Collectives also run one after the other. Each takes the latency of its hops and the time of its
    bytes on the links, as in a ring. It begins where the schedule starts it, or when the previous
    collective has ended. The kernels up to the place where the schedule waits for it run at the
    same time, so it is hidden for at most their duration. Without a known `link_bandwidth`,
    collectives cost their latency and their memory access.

    The estimate ignores the launch overhead, caches, kernels below the peak rates, and the memory
    bandwidth and cores that a collective takes from other kernels.
    """
    vector = gpu.vector_flops or 2e9 * gpu.cores * gpu.fpus_per_core * gpu.clock_ghz
    now = free = computing = communicating = waiting = 0.0
    ends: dict[int, float] = {}  # by the launch before which the device waits: the end of the wait

    def wait(until: float) -> None:
        nonlocal now, waiting
        waiting += max(0.0, until - now)
        now = max(now, until)

    for place, kernel in enumerate(cost.launches):
        wait(ends.pop(place, 0.0))
        seconds = kernel.times * _seconds(kernel, gpu, vector)
        if kernel.opcode not in COLLECTIVES:
            now, computing = now + seconds, computing + seconds
            continue
        communicating += seconds
        free = max(now, free) + seconds
        end = place + 1 + kernel.beside
        ends[end] = max(ends.get(end, 0.0), free)
    wait(max(ends.values(), default=0.0))
    return Timeline(now, computing, communicating, waiting)


def roofline_seconds(cost: HloCost, gpu: Gpu) -> float:
    """The estimate of a run's time: see `timeline`."""
    return timeline(cost, gpu).seconds


def _seconds(kernel: Kernel, gpu: Gpu, vector: float) -> float:
    """The shortest time of one launch."""
    access = kernel.bytes / gpu.memory_bandwidth
    if kernel.opcode in COLLECTIVES:
        latency = _COLLECTIVE_LATENCY + _HOP * kernel.hops if kernel.hops else 0.0
        link = kernel.link_bytes / gpu.link_bandwidth if gpu.link_bandwidth else 0.0
        return latency + max(access, link)
    matrix = sum(n / _rate(gpu, dtype, vector) for dtype, n in kernel.matrix_flops.items())
    return max(matrix, kernel.vector_flops / vector, access)


def _rate(gpu: Gpu, dtype: str, vector: float) -> float:
    """The peak rate of matrix units. If they lack a dtype, the rate of the next wider one."""
    order = ("i8", "f8", "f16", "bf16", "tf32")
    candidates = order[order.index(dtype) :] if dtype in order else (dtype,)
    return next((gpu.matrix_flops[name] for name in candidates if name in gpu.matrix_flops), vector)
