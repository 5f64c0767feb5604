"""`Hardware`: the devices of a cluster and the links between them, as the scaling model sees them.

Figures of known GPUs come from `devices/machines.toml`, which states their sources. A JSON file
describes any other cluster.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from graphc.devices.machine import Machine
from graphc.errors import AttributeValueError, nearest

# The part of the peak FLOP/s that products of large matrices reach in training. Megatron-LM reports
# 44 to 52 % of the peak of A100s for whole steps (Narayanan et al., SC 2021, table 1), MaxText 46
# to 67 % on TPU v5e.
_EFFICIENCY = 0.5
_PCIE = 32e9  # bytes/s of PCIe 4.0 x16 in one direction, for GPUs without another link
_GPU_LINK_LATENCY, _GPU_NETWORK_LATENCY = 3.4e-6, 14e-6


class Link(NamedTuple):
    """The path of a device's messages to another device (Hockney's model).

    Attributes:
        latency: seconds before the first byte of a message arrives.
        bandwidth: bytes/s that one device sends while it receives as many.

    Examples:
        >>> gc.cluster.Link(latency=14e-6, bandwidth=50e9)
        Link(latency=1.4e-05, bandwidth=50000000000.0)
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Hardware:
    """The devices of a cluster, and the links between them.

    Attributes:
        name: the name in reports.
        memory: the bytes of each device that a program may use.
        memory_bandwidth: bytes/s.
        matrix_flops: peak FLOP/s of matrix products by dtype: "f64", "tf32" (products of float32),
            "f16", "bf16", "f8", "i8".
        vector_flops: peak FLOP/s of all other arithmetic.
        devices_per_machine: the number of devices that `link` joins.
        link: between devices of one machine.
        network: between machines; the share of one device if all of them send.
        efficiency: the part of the peak rates that kernels reach.
        launch: seconds that each kernel takes besides its work.
        concurrent: how many devices of a machine can work at full speed at the same time. Virtual
            devices and processes that share the cores of a CPU have less than their number. Nothing
            then overlaps, and links are shared like the cores.
        overlap: whether exchanges run while the devices compute.

    Examples:
        >>> hardware = gc.cluster.Hardware.of(gc.devices.Machine("8xh100"))
        >>> hardware.devices_per_machine, hardware.link.bandwidth, hardware.network.bandwidth
        (8, 450000000000, 50000000000)
    """

    name: str
    memory: float
    memory_bandwidth: float
    matrix_flops: Mapping[str, float] = field(hash=False)
    vector_flops: float
    devices_per_machine: int
    link: Link
    network: Link
    efficiency: float = 1.0
    launch: float = 0.0
    concurrent: float = math.inf
    overlap: bool = True

    @classmethod
    def of(cls, machine: Machine) -> Hardware:
        """Machines of this kind, joined by the network of the GPU's usual server.

        Examples:
            >>> gc.cluster.Hardware.of(gc.devices.Machine("8xa100-80gb")).network.bandwidth
            25000000000
        """
        gpu = machine.model
        link = Link(gpu.link_latency or _GPU_LINK_LATENCY, gpu.link_bandwidth or _PCIE)
        network = Link(
            gpu.network_latency or _GPU_NETWORK_LATENCY, gpu.network_bandwidth or link.bandwidth
        )
        return cls(
            name=str(machine),
            memory=machine.usable_memory,
            memory_bandwidth=gpu.memory_bandwidth,
            matrix_flops=gpu.matrix_flops,
            vector_flops=gpu.vector_flops or 2e9 * gpu.cores * gpu.fpus_per_core * gpu.clock_ghz,
            devices_per_machine=machine.count,
            link=link,
            network=network,
            efficiency=_EFFICIENCY,
        )

    @classmethod
    def read(cls, given: str | os.PathLike[str]) -> Hardware:
        """The hardware of a name such as "8xh100", of a file that `graphc devices --describe` wrote
        (".toml"), or of a file that `to_json` wrote (".json").

        Raises:
            AttributeValueError: there is no such model, or the file is not valid.

        Examples:
            >>> gc.cluster.Hardware.read("4xl4").devices_per_machine
            4
        """
        text = os.fspath(given)
        if not text.lower().endswith(".json"):
            return cls.of(Machine(text))
        try:
            found = json.loads(Path(text).expanduser().read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise _refusal(f"{text!r} cannot be read: {error}") from None
        wrong = _wrong(found)
        if wrong is not None:
            raise _refusal(f"{text!r} does not describe a cluster: {wrong}")
        links = {name: Link(**found[name]) for name in _LINKS}
        return cls(**{**found, **links})

    def to_json(self) -> str:
        """The text of a file that `read` reads.

        Examples:
            >>> text = gc.cluster.Hardware.read("8xh100").to_json()
            >>> json.loads(text)["network"]
            {'latency': 1.4e-05, 'bandwidth': 50000000000}
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {name: values[name]._asdict() for name in _LINKS}
        values["matrix_flops"] = dict(self.matrix_flops)
        finite = {n: v for n, v in values.items() if v != math.inf}
        return json.dumps(finite, indent=1) + "\n"

    def slowdown(self, devices: int) -> float:
        """How many times longer a device takes if so many devices of its machine work."""
        return max(1.0, devices / self.concurrent)

    def rate(self, dtype: str) -> float:
        """FLOP/s of matrix products of a dtype. If there is none, that of the next wider dtype."""
        order = ("i8", "f8", "f16", "bf16", "tf32")
        names = order[order.index(dtype) :] if dtype in order else (dtype,)
        known = (self.matrix_flops[name] for name in names if name in self.matrix_flops)
        return next(known, self.vector_flops) * self.efficiency


_LINKS = ("link", "network")
_NUMBERS = frozenset(
    (
        *("memory", "memory_bandwidth", "vector_flops", "devices_per_machine"),
        *("efficiency", "launch", "concurrent"),
    )
)
_REQUIRED = frozenset(
    ("name", "memory", "memory_bandwidth", "matrix_flops", "vector_flops", "devices_per_machine")
) | set(_LINKS)


def _wrong(found: Any) -> str | None:
    """A description of the first mistake in a description of hardware, or None."""
    if not isinstance(found, dict):
        return "it is not a JSON object"
    known = [f.name for f in fields(Hardware)]
    for name, value in found.items():
        if name not in known:
            return f"unknown field {name!r}; {nearest(name, known) or 'remove it'}"
        zero = name == "launch"
        if name in _NUMBERS and not _is_number(value, zero=zero):
            return f"{name} = {value!r} is not a positive number"
    missing = sorted(_REQUIRED - set(found))
    if missing:
        return f"{missing[0]!r} is missing"
    if type(found["devices_per_machine"]) is not int:
        return f"devices_per_machine = {found['devices_per_machine']!r} is not an int"
    if found.get("efficiency", 1) > 1:
        return f"efficiency = {found['efficiency']!r} is more than 1"
    if type(found.get("overlap", True)) is not bool or type(found["name"]) is not str:
        return "overlap must be a bool, and name a text"
    rates = found["matrix_flops"]
    if not isinstance(rates, dict) or not all(map(_is_number, rates.values())):
        return "matrix_flops must be rates by dtype"
    for name in _LINKS:
        link = found[name]
        if not isinstance(link, dict) or set(link) != set(Link._fields):
            return f"{name} must have a latency and a bandwidth"
        if not _is_number(link["latency"], zero=True) or not _is_number(link["bandwidth"]):
            return f"{name} = {link} does not have positive numbers"
    return None


def _is_number(value: Any, zero: bool = False) -> bool:
    if type(value) not in (int, float) or not math.isfinite(value):
        return False
    return bool(value > 0 or (zero and value == 0))


def _refusal(what: str) -> AttributeValueError:
    return AttributeValueError.here(
        f"Hardware: {what}",
        hint='give "8xh100", or a file of Hardware.to_json() or of graphc devices --describe',
    )
