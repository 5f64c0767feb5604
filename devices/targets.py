"""What passes are told of devices."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from graphc.devices.discovery import platform_of
from graphc.passes.target import Target

_FLASH = (8, 0)  # the least compute capability with cuDNN's attention


def target_of(devices: Sequence[jax.Device], replicas: int) -> Target:
    """What a program for these devices is compiled for: of several kinds, nothing that suits one
    kind only."""
    platforms = {device.platform for device in devices}
    if len(platforms) > 1:
        return Target("several", replicas)
    return Target(platforms.pop(), replicas, flash=all(map(_has_flash, devices)))


def _has_flash(device: jax.Device) -> bool:
    if platform_of(device) != "cuda":
        return False
    major, _, minor = str(getattr(device, "compute_capability", "0.0")).partition(".")
    return (int(major), int(minor)) >= _FLASH
