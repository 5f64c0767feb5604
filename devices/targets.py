"""The description of devices that passes use."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from graphc.devices.discovery import platform_of
from graphc.passes.core.target import Target

# For GPUs, jax 0.10 overlaps collectives in loops with computation, and fuses the read of a slice
# with its write. jax 0.12 does neither. With 0.12, steps take 1.05 times as long with collectives
# in loops, and 1.17 to 1.52 times as long with updates in loops (estimated for H100, adam).
FAST_LOOPS_ON_GPU = jax.__version_info__ < (0, 11)

_FLASH = (8, 0)  # the lowest compute capability with cuDNN's attention


def target_of(devices: Sequence[jax.Device], replicas: int) -> Target:
    """The target for which a program for these devices is compiled. If the devices are of several
    kinds, it contains nothing that is specific to one kind."""
    platforms = {device.platform for device in devices}
    if len(platforms) > 1:
        return Target("several", replicas)
    return Target(platforms.pop(), replicas, flash=all(map(_has_flash, devices)))


def _has_flash(device: jax.Device) -> bool:
    if platform_of(device) != "cuda":
        return False
    major, _, minor = str(getattr(device, "compute_capability", "0.0")).partition(".")
    return (int(major), int(minor)) >= _FLASH
