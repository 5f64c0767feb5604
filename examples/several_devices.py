"""Devices for examples that use several: the GPUs of the machine, or virtual CPU devices."""

from __future__ import annotations

import os

import graphc as gc

_COUNT = "--xla_force_host_platform_device_count"
_flags = os.environ.get("XLA_FLAGS", "")
if _COUNT not in _flags:  # XLA reads this when JAX creates its first device
    os.environ["XLA_FLAGS"] = f"{_flags} {_COUNT}=4".strip()


def names(count: int) -> list[str]:
    """The names of `count` devices of one kind: GPUs if there are enough."""
    gpus = [name for name in gc.devices.available() if "GPU" in name]
    return gpus[:count] if len(gpus) >= count else [f"/device:CPU:{i}" for i in range(count)]


def most(count: int) -> int:
    """How many devices JAX uses by default, at most `count`."""
    return min(count, sum(1 for name in gc.devices.available() if name.startswith(_default())))


def _default() -> str:
    return next(iter(gc.devices.available())).rsplit(":", 1)[0]
