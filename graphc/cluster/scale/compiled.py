"""How long one run of a compiled program takes, with the collectives that it contains."""

from __future__ import annotations

from graphc.cluster.scale.collectives import Group, all_gather, all_reduce, reduce_scatter, send
from graphc.cluster.scale.hardware import Hardware
from graphc.cluster.scale.schedule import exposed
from graphc.cluster.scale.workload import Exchange, kernel_seconds
from graphc.runtime.hlo.hlo_cost import HloCost
from graphc.runtime.hlo.hlo_kernels import COLLECTIVES, Kernel


def run_seconds(cost: HloCost, hardware: Hardware, devices: int) -> float:
    """The estimated time of a run on `devices` devices: the kernels one after the other, and the
    collectives beside those kernels that the schedule puts between their start and their end."""
    ends = [0.0]
    for kernel in cost.launches:
        ends.append(ends[-1] + kernel_seconds([kernel], hardware))
    total = ends[-1]
    group = Group.of(devices, hardware)
    exchanges: list[Exchange] = []
    seconds: list[float] = []
    for place, kernel in enumerate(cost.launches):
        if kernel.opcode in COLLECTIVES:
            until = ends[min(place + 1 + kernel.beside, len(cost.launches))]
            moments = (ends[place] / total, until / total) if total else (0.0, 0.0)
            exchanges.append(Exchange(len(seconds), *moments, gradient=False))
            seconds.append(kernel.times * _collective_seconds(kernel, group, hardware))
    overlap = hardware.overlap
    # `bytes` of these exchanges is their position in `seconds`.
    return total + exposed(exchanges, total, lambda exchange: seconds[exchange.bytes], overlap)


def _collective_seconds(kernel: Kernel, group: Group, hardware: Hardware) -> float:
    size = kernel.operand_bytes
    if kernel.opcode == "all-reduce":
        return all_reduce(size, group, hardware)
    if kernel.opcode == "reduce-scatter":
        return reduce_scatter(size, group, hardware)
    if kernel.opcode == "all-gather":
        return all_gather(size * group.size, group, hardware)
    return send(size, hardware, group.machines > 1)
