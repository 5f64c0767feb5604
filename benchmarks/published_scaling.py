"""Published scaling tables, and what the scaling model predicts for them.

Each table gives a rate by the number of devices. At most its two smallest points are fitted: the
time of a step on one device, and the cost of sharing at the second point. Everything else, such as
the network's bandwidth, the parameters' bytes and the number of servers, comes from the source.

Sources
    tf: the performance benchmarks of TensorFlow 1 (May 2017), synthetic data: DGX-1 with 8 P100,
        and Amazon p2.8xlarge (8 K80 each, 10 Gbit/s), with the parameter servers that it lists.
    maxtext: the README of MaxText, MFU by pods of 256 TPU v5e.
    horovod: the README of Horovod: 128 servers of 4 P100, RoCE of 25 Gbit/s. It has no smaller
        points, so one device is the same GPU in the table of TensorFlow, and nothing is fitted.
    claims: TensorFlow's own announcements: 16 GPUs 15x, 50 GPUs 40x; parameter servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from graphc.cluster.scale.collectives import Group, all_reduce, server_half
from graphc.cluster.scale.hardware import Hardware, Link
from graphc.cluster.scale.schedule import Split, exposed, predict
from graphc.cluster.scale.workload import Workload

GBIT = 1e9 / 8
MILLION = 4e6  # bytes of a million parameters


@dataclass(frozen=True)
class Table:
    """A published table.

    Attributes:
        rows: the batch of one device.
        rates: by the number of devices; rows a second of all of them, or any number that is
            proportional to it.
        parameters: bytes.
        model: what exchanges gradients: "servers", "ring" or "pods".
        near: the devices of one machine.
        servers: by the number of machines, the number of parameter servers if it differs.
        network: bytes/s of a machine.
        in_field: whether the project's notes list the table's largest point.
    """

    name: str
    rows: int
    rates: Mapping[int, float]
    parameters: float
    model: str = "ring"
    near: int = 1
    servers: Mapping[int, int] = field(default_factory=dict)
    network: float = 10 * GBIT
    in_field: bool = True


def _mfu(*percentages: float) -> dict[int, float]:
    """MFU at 1, 2, 4, ... pods, as a rate of all pods."""
    return {2**i: percentage * 2**i for i, percentage in enumerate(percentages)}


TABLES = (
    Table("Inception v3, 64 K80", 64, {1: 29.7, 8: 229, 16: 459, 32: 902, 64: 1783},
          23.8 * MILLION, servers={8: 6}, model="servers", near=8),
    Table("ResNet-50, 64 K80", 64, {1: 52.4, 8: 378, 16: 751, 32: 1388, 64: 2744},
          25.6 * MILLION, model="servers", near=8),
    Table("ResNet-152, 64 K80", 32, {1: 19.4, 8: 146, 16: 291, 32: 565, 64: 981},
          60.2 * MILLION, servers={8: 4}, model="servers", near=8),
    Table("ResNet-50, 8 P100", 64, {1: 219, 2: 422, 4: 852, 8: 1734}, 25.6 * MILLION, near=8),
    Table("Inception v3, 8 P100", 64, {1: 142, 2: 284, 4: 569, 8: 1131}, 23.8 * MILLION,
          in_field=False, near=8),
    Table("ResNet-152, 8 P100", 64, {1: 91.8, 2: 181, 4: 356, 8: 716}, 60.2 * MILLION,
          in_field=False, near=8),
    Table("VGG-16, 8 P100", 64, {1: 154, 2: 295, 4: 584, 8: 1081}, 138.4 * MILLION,
          in_field=False, near=8),
    Table("AlexNet, 8 P100", 512, {1: 2987, 2: 5658, 4: 10509, 8: 17822}, 61.1 * MILLION,
          in_field=False, near=8),
    Table("Inception v3 (Horovod), 512 P100", 64, {1: 142, 512: 0.90 * 512 * 142},
          23.8 * MILLION, "stated", near=4, network=25 * GBIT),
    Table("VGG-16 (Horovod), 512 P100", 64, {1: 154, 512: 0.68 * 512 * 154},
          138.4 * MILLION, "stated", near=4, network=25 * GBIT),
    Table("MaxText 32B, 32 pods of v5e", 1, _mfu(66.86, 64.81, 64.10, 63.67, 62.26, 60.40),
          1.0, "pods"),
    Table("MaxText 16B, 32 pods of v5e", 1, _mfu(61.10, 59.37, 59.14, 58.27, 56.56, 54.65),
          1.0, "pods", in_field=False),
    Table("MaxText 64B, 32 pods of v5e", 1, _mfu(59.90, 56.66, 55.85, 54.96, 53.29, 50.18),
          1.0, "pods", in_field=False),
    Table("MaxText 128B, 32 pods of v5e", 1, _mfu(56.06, 55.82, 54.93, 52.93, 50.86, 46.25),
          1.0, "pods", in_field=False),
    Table("the classic system's claim, 50 GPUs", 1, {1: 1.0, 16: 15.0, 50: 40.0}, 1.0,
          "fixed servers"),
)  # fmt: skip


def predicted(table: Table) -> float:
    """The rate that the model predicts for the largest number of devices."""
    largest = max(table.rates)
    return largest * table.rows / _MODELS[table.model](table, largest)


def error(table: Table) -> float:
    """The relative error of the prediction."""
    return predicted(table) / table.rates[max(table.rates)] - 1


def _alone(table: Table) -> float:
    """The seconds of a step on one device."""
    return table.rows / table.rates[1]


def _second(table: Table) -> tuple[int, float]:
    """The second smallest number of devices, and the additional time of its step."""
    count = sorted(table.rates)[1]
    return count, count * table.rows / table.rates[count] - _alone(table)


def _hardware(table: Table, link: Link, network: Link) -> Hardware:
    return Hardware(
        table.name, math.inf, math.inf, {}, 1.0, table.near, link, network, efficiency=1.0
    )


def _servers(table: Table, devices: int) -> float:
    """Machines whose devices first sum their gradients, and parameter servers on these machines.
    Pushes run during the backward pass; workers wait for what they pull. The second point, one
    machine, gives the time of the sum inside."""
    machines = devices // table.near
    alone, (_, inside) = _alone(table), _second(table)
    servers = table.servers.get(machines, machines)
    network = Link(14e-6, table.network)
    half = server_half(table.parameters, machines, servers, network)
    work = Workload.of_model(table.rows, alone, table.parameters)
    share = half / len(work.exchanges)
    push = exposed(work.exchanges, alone, lambda exchange: share)
    return alone + inside + push + half


def _ring(table: Table, devices: int) -> float:
    """A ring inside one machine, or over pods; a fixed part of its time is hidden. The second point
    gives the bandwidth of the visible part."""
    count, more = _second(table)
    bandwidth = table.parameters / more if more > 0 else math.inf
    hardware = _hardware(table, Link(0.0, bandwidth * 2 * (count - 1) / count), Link(0, 1))
    return _alone(table) + all_reduce(table.parameters, Group(devices, 1), hardware)


def _stated(table: Table, devices: int) -> float:
    """Rings inside machines and between them. The network's bandwidth is the stated one; PCIe 3.0
    x16 reaches 12 GB/s of its 15.75. Nothing is fitted."""
    network = Link(14e-6, table.network / table.near)
    hardware = _hardware(table, Link(5.7e-6, 12e9), network)
    work = Workload.of_model(table.rows, _alone(table), table.parameters)
    return predict(work, hardware, Split(devices), table.rows * devices).seconds


def _fixed_servers(table: Table, devices: int) -> float:
    """Parameter servers in a constant number: each link carries a part for every worker. The second
    point gives the time of one part."""
    count, more = _second(table)
    link = Link(0.0, table.parameters * (count - 1) / more)
    return _alone(table) + server_half(table.parameters, devices - 1, 1, link)


_MODELS = {
    "servers": _servers,
    "ring": _ring,
    "stated": _stated,
    "pods": _ring,
    "fixed servers": _fixed_servers,
}


def rows() -> Iterator[tuple[str, str, str]]:
    """Rows: the published rate at the largest point, and the error of the prediction."""
    for table in TABLES:
        found, stated = predicted(table), table.rates[max(table.rates)]
        listed = "" if table.in_field else " (further table)"
        name = f"{table.name}{listed}: published {stated:.4g}, predicted {found:.4g}"
        yield name, f"{error(table):+.1%}", "at most 8 %"


if __name__ == "__main__":
    for row in rows():
        print(*row, sep=" | ")
