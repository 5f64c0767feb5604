"""What outside a program its executable depends on, for given devices."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from graphc.devices.discovery import platform_of
from graphc.devices.libraries import is_complete, libraries
from graphc.store.environment import environment, environment_of_gpus


def environment_of(devices: Sequence[jax.Device]) -> dict[str, str]:
    """Everything outside the program that an executable for `devices` depends on, as printable
    pairs. Where all devices are GPUs it is the same on every machine that can run the executable,
    and for a machine that is not here (`devices.topology`)."""
    first, known = devices[0], libraries()
    # Code for a processor is for that one. Libraries that are not installed as packages have no
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
