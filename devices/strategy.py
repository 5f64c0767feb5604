"""Strategies: plain records of how a program is to be spread over devices.

What they mean is in `devices.replicate`, what carries them out in `runtime.replicated`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from graphc.config import DEFAULT, Default
from graphc.devices.bucketing import BUCKET_BYTES, GPU_BUCKET_BYTES
from graphc.devices.discovery import find_devices, first_devices, name_of, no_such_device
from graphc.errors import AttributeValueError, DeviceError
from graphc.ir.device_spec import parse_device
from graphc.ir.source import current_source


@dataclass(frozen=True)
class DataParallel:
    """The batch shared among devices, variables whole on each of them.

    A run means what it means on one device with the whole batch: means, gradients and batch
    statistics are those of the whole batch; only random streams differ. A batch may have any number
    of rows. Where they do not divide by the devices, all hold as many but for padding at the end,
    which counts for nothing (`devices.uneven`); it is compiled once, as each size is, and what is
    fetched by rows is whole on each device.

    Args:
        devices: how many of this process's devices; or which: `jax.Device`s, or names, where
            `/gpu:*` stands for all GPUs. Each is one replica.
        bucket_bytes: how many bytes of gradients, and of other sums over the batch, the replicas
            add up in one exchange: see `devices.bucketing`. By default 25 MiB, on GPUs 8 MiB. None
            or 0: each by itself.
        shard_optimizer: whether each device keeps a piece of what an optimizer keeps for the
            parameters, not all of it: see `devices.state_pieces`.

    Raises:
        AttributeValueError: neither a positive number nor a sequence of devices; no such size of
            buckets; `shard_optimizer` is no bool.
        DeviceError: a name does not parse.

    >>> DataParallel(["/cpu:0"]).replicas
    1
    """

    devices: int | Sequence[jax.Device | str]
    bucket_bytes: int | Default | None = field(default=DEFAULT, kw_only=True)
    shard_optimizer: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        size = self.bucket_bytes
        if size not in (None, DEFAULT) and (type(size) is not int or size < 0):
            raise AttributeValueError(
                f"DataParallel: bucket_bytes must be a number of bytes, got {size!r}",
                source=current_source(),
                hint="pass an int, as 25 * 2**20, or None for no buckets",
            )
        if type(self.shard_optimizer) is not bool:
            raise AttributeValueError(
                f"DataParallel: shard_optimizer must be a bool, got {self.shard_optimizer!r}",
                source=current_source(),
                hint="pass True or False",
            )
        object.__setattr__(self, "devices", checked_devices(self.devices, "DataParallel"))

    def meaning(self) -> dict[str, Any]:
        """What a compiled program depends on, beside the devices themselves."""
        size = "default" if self.bucket_bytes is DEFAULT else self.bucket_bytes or 0
        return {"bucket_bytes": size, "shard_optimizer": self.shard_optimizer}

    def bucket_bytes_on(self, platform: str) -> int:
        """The size of buckets on devices of a platform; 0 for none."""
        if isinstance(self.bucket_bytes, Default):
            return GPU_BUCKET_BYTES if platform == "gpu" else BUCKET_BYTES
        return self.bucket_bytes or 0

    @property
    def replicas(self) -> int:
        """How many pieces the batch is cut into."""
        return self.devices if isinstance(self.devices, int) else len(self.resolve())

    def resolve(self) -> tuple[jax.Device, ...]:
        """The devices themselves, one a replica.

        Raises:
            DeviceError: more devices than there are, one that is not there, or one twice.
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
    """A number of devices, or which, as a strategy called `what` is given them.

    Args:
        each: what the strategy takes a device for.

    Raises:
        AttributeValueError: neither a positive number nor a sequence of devices.
        DeviceError: a name does not parse.
    """
    if type(given) is int:
        if given < 1:
            raise AttributeValueError(
                f"{what}: needs a {each} at least, got {given}",
                source=current_source(),
                hint="pass a number of 1 or more, or a list of devices",
            )
        return given
    items = tuple(given) if isinstance(given, (list, tuple)) else ()
    if not items or not all(isinstance(item, (str, jax.Device)) for item in items):
        raise AttributeValueError(
            f"{what}: {given!r} is neither a number of {each}s nor a list of devices",
            source=current_source(),
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
    """The devices that were given to a strategy called `what`, each for one `part` of it.

    Args:
        known: the devices there are, by name; by default those of this process.

    Raises:
        DeviceError: more devices than there are, one that is not there, one twice, or of several
            kinds.
    """
    if isinstance(given, int):
        return tuple(first_devices(given, known))
    found: list[jax.Device] = []
    for item in given:
        matches = find_devices(item, known) if isinstance(item, str) else [item]
        if not matches:
            raise no_such_device(str(item), known=known)
        found += matches
    foreign = [] if known is None else [d for d in found if d not in known.values()]
    if foreign:
        raise DeviceError(
            f"{what}: {name_of(foreign[0])} is a device of this process, not of the machine",
            hint="give a number of devices, or names of them",
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
    return tuple(found)
