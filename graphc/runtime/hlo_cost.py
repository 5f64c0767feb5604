"""What one run of an optimised HLO program costs a device: counted from the program's text.

XLA's own `cost_analysis` is empty for programs that are compiled for GPUs which are not present.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from graphc.devices.machine import Gpu
from graphc.errors import ExecutionError
from graphc.runtime.hlo_kernels import COLLECTIVES, Kernel, Walk
from graphc.runtime.hlo_text import parse


class Collective(NamedTuple):
    """How often a kind of collective runs, and the bytes of its operands in all runs."""

    runs: int
    bytes: int


@dataclass(frozen=True)
class HloCost:
    """What one run costs one device.

    Attributes:
        matrix_flops: FLOPs of matrix units by the dtype they work in: "f64", "tf32", "f16", "bf16",
            "f8", "i8".
        vector_flops: FLOPs of the other units.
        bytes_accessed: bytes that kernels read from and write to the device's memory. Caches are
            ignored.
        kernels: kernel launches, copies included.
        collectives: by kind, such as "all-reduce".
        overlapped: how many of these collectives run beside other kernels: in the schedule, another
            kernel is between their start and their end.
        host_transfers: how often data goes between host and device.
        custom_calls: how often each target is called.
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

    Loops count as often as they run. A conditional counts as its costliest branch. An unknown
    opcode counts as an elementwise kernel.

    Args:
        replicas: how many devices a collective without groups joins, if the text does not say.

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
    """The cost of several programs together, each with how often it runs."""
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
        overlapped=sum(k.times for k in launches if k.hidden),
        host_transfers=sum(k.times for k in launches if k.host),
        custom_calls=calls,
        transposes=sum(k.times * k.bytes for k in launches if k.transposes),
        notes=tuple(dict.fromkeys(notes)),
        launches=tuple(launches),
    )


def roofline_seconds(cost: HloCost, gpu: Gpu) -> float:
    """An estimate of a run's time, which a real run does not reach.

    Kernels run one after the other. Each takes the longest of three times: its matrix FLOPs at the
    peak rates of their dtypes, its vector FLOPs at the peak rate of float32, its bytes at the
    bandwidth of the memory. A collective takes the time of its bytes on the links, as a ring sends
    them; one that runs beside other kernels takes none. What a launch costs, caches, and
    kernels that do not reach the peak are left out. Without a known `link_bandwidth`, collectives
    cost only their access to memory.
    """
    vector = gpu.vector_flops or 2e9 * gpu.cores * gpu.fpus_per_core * gpu.clock_ghz
    total = 0.0
    for kernel in cost.launches:
        if kernel.hidden:
            continue
        matrix = sum(n / _rate(gpu, dtype, vector) for dtype, n in kernel.matrix_flops.items())
        link = kernel.link_bytes / gpu.link_bandwidth if gpu.link_bandwidth else 0.0
        seconds = max(
            matrix, kernel.vector_flops / vector, kernel.bytes / gpu.memory_bandwidth, link
        )
        total += kernel.times * seconds
    return total


def _rate(gpu: Gpu, dtype: str, vector: float) -> float:
    """The peak rate of matrix units; where they do not have a dtype, of the next wider one."""
    order = ("i8", "f8", "f16", "bf16", "tf32")
    candidates = order[order.index(dtype) :] if dtype in order else (dtype,)
    return next((gpu.matrix_flops[name] for name in candidates if name in gpu.matrix_flops), vector)
