"""The environment on which an executable for given devices depends, besides its program."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from graphc.devices.discovery import platform_of
from graphc.devices.libraries import is_complete, libraries
from graphc.store.environment import environment, environment_of_gpus


def environment_of(devices: Sequence[jax.Device]) -> dict[str, str]:
    """Everything besides the program that an executable for `devices` depends on, as printable
    pairs. If all devices are GPUs, the result is the same on every machine that can run the
    executable, and for a machine that is not present (`devices.topology`)."""
    first, known = devices[0], libraries()
    # Code for a CPU is specific to that CPU. Libraries that are not installed as packages have no
    # version that two machines could compare.
    if any(platform_of(device) != "cuda" for device in devices) or not is_complete(known):
        return environment(devices)
    capability = getattr(first, "compute_capability", "")
    return environment_of_gpus(
        {
            "platform": f"{first.platform} of {first.client.device_count()}",
            "devices": ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in devices),
            "compute capability": f"{capability}, {getattr(first, 'core_count', '')} cores",
            "libraries": ", ".join(f"{name} {text}" for name, text in known.items()),
        }
    )
