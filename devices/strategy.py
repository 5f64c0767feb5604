"""Strategies: plain records of how a program is distributed over devices.

`devices.replicate` defines their meaning, and `runtime.replicated` executes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from graphc.config import DEFAULT, Default
from graphc.devices.bucketing import BUCKET_BYTES, GPU_BUCKET_BYTES
from graphc.devices.discovery import find_devices, first_devices, name_of, no_such_device
from graphc.devices.topology import is_here
from graphc.errors import AttributeValueError, DeviceError
from graphc.ir.device_spec import parse_device


@dataclass(frozen=True)
class DataParallel:
    """Splits the batch over devices and replicates variables on each of them.

    A run gives the same results as on one device with the whole batch: means, gradients and batch
    statistics are those of the whole batch; only random streams differ. A batch may have any number
    of rows. If they do not divide by the number of devices, the last devices hold padding that does
    not affect the results (`devices.uneven`). Like every batch size, such a size is compiled once.
    Values that are fetched by rows are then replicated on each device.

    Args:
        devices: how many of this process's devices to use; or a list of `jax.Device`s or names,
            where `/gpu:*` stands for all GPUs. Each device is one replica. `jax.devices()` are
            those of all processes of a cluster (`gc.cluster.join`): each process then feeds its
            share of every batch, all shares of one size, and gets its share of fetched rows.
        bucket_bytes: how many bytes of gradients, and of other sums over the batch, the replicas
            sum in one exchange: see `devices.bucketing`. The default is 25 MiB, and 8 MiB on GPUs.
            None or 0 exchanges each value by itself.
        shard_optimizer: whether each device holds only a piece of the optimizer's slots: see
            `devices.state_pieces`.
        shard_parameters: whether each device holds only a piece of the parameters, too, and gathers
            each layer's when it is used: see `devices.gather_parameters`. Includes
            `shard_optimizer`.

    Raises:
        AttributeValueError: `devices` is neither a positive number nor a sequence of devices,
            `bucket_bytes` is not a valid size, or `shard_optimizer` or `shard_parameters` is not a
            bool.
        DeviceError: a name does not parse.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> session = gc.Session(graph, strategy=gc.devices.DataParallel(2))
        >>> session.run(gc.reduce_sum(x), {x: [1.0, 2.0, 3.0, 4.0]})
        Array(10., dtype=float32)
    """

    devices: int | Sequence[jax.Device | str]
    bucket_bytes: int | Default | None = field(default=DEFAULT, kw_only=True)
    shard_optimizer: bool = field(default=False, kw_only=True)
    shard_parameters: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        size = self.bucket_bytes
        if size not in (None, DEFAULT) and (type(size) is not int or size < 0):
            raise AttributeValueError.here(
                f"DataParallel: bucket_bytes must be a number of bytes, got {size!r}",
                hint="pass an int, such as 25 * 2**20, or None for no buckets",
            )
        for name in ("shard_optimizer", "shard_parameters"):
            if type(getattr(self, name)) is not bool:
                raise AttributeValueError.here(
                    f"DataParallel: {name} must be a bool, got {getattr(self, name)!r}",
                    hint="pass True or False",
                )
        object.__setattr__(self, "devices", checked_devices(self.devices, "DataParallel"))

    def meaning(self) -> dict[str, Any]:
        """The properties on which a compiled program depends, besides the devices themselves."""
        size = "default" if self.bucket_bytes is DEFAULT else self.bucket_bytes or 0
        found = {"bucket_bytes": size, "shard_optimizer": self.shard_optimizer}
        return found | ({"shard_parameters": True} if self.shard_parameters else {})

    def bucket_bytes_on(self, platform: str) -> int:
        """The size of buckets on devices of a platform; 0 for none."""
        if isinstance(self.bucket_bytes, Default):
            return GPU_BUCKET_BYTES if platform == "gpu" else BUCKET_BYTES
        return self.bucket_bytes or 0

    @property
    def replicas(self) -> int:
        """How many pieces the batch is split into."""
        return self.devices if isinstance(self.devices, int) else len(self.resolve())

    def resolve(self) -> tuple[jax.Device, ...]:
        """The devices themselves, one for each replica.

        Raises:
            DeviceError: there are too few devices, or a device does not exist or is given twice.
        """
        return resolve_devices(self.devices, "DataParallel", "replica")

    def on(self, known: Mapping[str, jax.Device]) -> DataParallel:
        """The same strategy over devices of another machine, which `known` lists by name.

        Raises:
            DeviceError: as for `resolve`.
        """
        found = resolve_devices(self.devices, "DataParallel", "replica", known)
        return replace(self, devices=found)


def checked_devices(
    given: Any, what: str, each: str = "device"
) -> int | tuple[jax.Device | str, ...]:
    """Checks the number or the list of devices that a strategy called `what` was given.

    Args:
        each: the word for one device in errors, such as "worker".

    Raises:
        AttributeValueError: it is neither a positive number nor a sequence of devices.
        DeviceError: a name does not parse.
    """
    if type(given) is int:
        if given < 1:
            raise AttributeValueError.here(
                f"{what}: needs at least one {each}, got {given}",
                hint="pass a number of 1 or more, or a list of devices",
            )
        return given
    items = tuple(given) if isinstance(given, (list, tuple)) else ()
    if not items or not all(isinstance(item, (str, jax.Device)) for item in items):
        raise AttributeValueError.here(
            f"{what}: {given!r} is neither a number of {each}s nor a list of devices",
            hint='pass 4, ["/gpu:0", "/gpu:1"] or jax.devices()',
        )
    for item in items:
        if isinstance(item, str):
            parse_device(item)
    return items


def resolve_devices(
    given: int | Sequence[jax.Device | str],
    what: str,
    part: str,
    known: Mapping[str, jax.Device] | None = None,
) -> tuple[jax.Device, ...]:
    """The devices of a strategy called `what`, each for one `part` of it.

    Args:
        known: the available devices by name; by default those of this process.

    Raises:
        DeviceError: there are too few devices, a device does not exist or is given twice, or the
            devices are of several kinds.
    """
    if isinstance(given, int):
        return tuple(first_devices(given, known))
    found: list[jax.Device] = []
    for item in given:
        found += devices_named(item, known)
    foreign = [] if known is None else [d for d in found if d not in known.values()]
    if foreign:
        raise DeviceError(
            f"{what}: {name_of(foreign[0])} is a device of this process, not of the machine",
            hint="give a number of devices, or their names",
        )
    if len(set(found)) < len(found):
        names = [name_of(device) for device in found]
        raise DeviceError(
            f"{what}: a device can hold one {part} only, got {', '.join(names)}",
            hint="name each device once",
        )
    if len({device.platform for device in found}) > 1:
        raise DeviceError(
            f"{what}: {part}s must be devices of one kind",
            details=[", ".join(map(name_of, found))],
        )
    if known is None:
        check_processes(found, what)
    return tuple(found)


def devices_named(
    item: jax.Device | str, known: Mapping[str, jax.Device] | None = None
) -> list[jax.Device]:
    """The devices that match a name, or the device itself.

    Raises:
        DeviceError: there is no such device.
    """
    found = find_devices(item, known) if isinstance(item, str) else [item]
    if not found:
        raise no_such_device(str(item), known=known)
    return found


def check_processes(found: Sequence[jax.Device], what: str) -> None:
    """Checks devices of other processes.

    Raises:
        DeviceError: the strategy cannot use them, or not so many of each process.
    """
    counts = Counter(device.process_index for device in found if is_here(device))
    here = jax.process_index()
    if not counts or set(counts) == {here}:
        return
    if what not in ("DataParallel", "Mesh"):
        other = next(device for device in found if device.process_index != here)
        raise DeviceError(
            f"{what}: {name_of(other)} is a device of another process",
            hint="use the devices of this process: jax.local_devices(); DataParallel and Mesh take "
            "those of all processes",
        )
    if set(counts) != set(range(jax.process_count())) or len(set(counts.values())) > 1:
        each = ", ".join(f"{count} of process {index}" for index, count in sorted(counts.items()))
        raise DeviceError(
            f"{what}: each of the {jax.process_count()} processes must take part with equally "
            f"many devices, got {each}",
            hint="jax.devices() are all devices of all processes",
        )
