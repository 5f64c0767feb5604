"""Strategies: plain records of how a program is to be spread over devices.

What they mean is in `devices.replicate`, what carries them out in `runtime.replicated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from graphc.devices.discovery import find_devices, first_devices, name_of, no_such_device
from graphc.errors import AttributeValueError, DeviceError
from graphc.ir.device_spec import parse_device
from graphc.ir.source import current_source


@dataclass(frozen=True)
class DataParallel:
    """The batch shared among devices, variables whole on each of them.

    A run means what it means on one device with the whole batch: means, gradients and batch
    statistics are those of the whole batch; only random streams differ.

    Args:
        devices: how many of this process's devices; or which: `jax.Device`s, or names, where
            `/gpu:*` stands for all GPUs. Each is one replica.

    Raises:
        AttributeValueError: neither a positive number nor a sequence of devices.
        DeviceError: a name does not parse.

    >>> DataParallel(["/cpu:0"]).replicas
    1
    """

    devices: int | Sequence[jax.Device | str]

    def __post_init__(self) -> None:
        given = self.devices
        if type(given) is int:
            if given < 1:
                raise AttributeValueError(
                    f"DataParallel: needs a device at least, got {given}",
                    source=current_source(),
                    mend="pass a number of 1 or more, or a list of devices",
                )
            return
        items = tuple(given) if isinstance(given, (list, tuple)) else ()
        if not items or not all(isinstance(item, (str, jax.Device)) for item in items):
            raise AttributeValueError(
                f"DataParallel: {given!r} is neither a number of devices nor a list of them",
                mend='DataParallel(4), DataParallel(["/gpu:0", "/gpu:1"]) or '
                "DataParallel(jax.devices())",
            )
        for item in items:
            if isinstance(item, str):
                parse_device(item)
        object.__setattr__(self, "devices", items)

    @property
    def replicas(self) -> int:
        """How many pieces the batch is cut into."""
        return self.devices if isinstance(self.devices, int) else len(self.resolve())

    def resolve(self) -> tuple[jax.Device, ...]:
        """The devices themselves, one a replica.

        Raises:
            DeviceError: more devices than there are, one that is not there, or one twice.
        """
        if isinstance(self.devices, int):
            return tuple(first_devices(self.devices))
        found: list[jax.Device] = []
        for item in self.devices:
            matches = find_devices(item) if isinstance(item, str) else [item]
            if not matches:
                raise no_such_device(str(item))
            found += matches
        if len(set(found)) < len(found):
            names = [name_of(device) for device in found]
            raise DeviceError(
                f"DataParallel: a device can hold one replica only, got {', '.join(names)}",
                mend="name each device once",
            )
        if len({device.platform for device in found}) > 1:
            raise DeviceError(
                "DataParallel: replicas must be devices of one kind",
                details=[", ".join(map(name_of, found))],
            )
        return tuple(found)
