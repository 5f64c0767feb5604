"""Creates JAX devices for a machine that is not present.

Programs can be compiled for these devices, but cannot run on them. `jax.experimental.topologies`
creates them from XLA's description of a GPU, a `GpuTargetConfigProto` in text form. It needs JAX's
CUDA plugin, but no GPU and no driver.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from threading import Lock
from typing import Any

import jax
from jax.experimental import topologies

from graphc.devices.libraries import installed, libraries
from graphc.devices.machine import Gpu, Machine
from graphc.errors import DeviceError, MissingExtraError
from graphc.jax_internals import PLATFORMS, changed_setting

PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")


def devices_of(machine: Machine) -> tuple[jax.Device, ...]:
    """The devices of a machine, in order. They serve for compilation only, not for execution.

    Raises:
        MissingExtraError: JAX's CUDA plugin is not installed.
        DeviceError: the plugin rejects the description.
    """
    return _devices(target_config(machine.model), machine.count, str(machine))


_LOCK = Lock()  # the JAX setting that is changed here applies to all threads


@cache
def _devices(text: str, count: int, name: str) -> tuple[jax.Device, ...]:
    if installed(PLUGINS) is None:
        raise MissingExtraError(
            f"compiling for {name} needs JAX's CUDA plugin, which is not installed",
            hint="pip install 'graphc[cuda]': it needs no GPU",
        )
    jax.local_devices()  # JAX looks for its devices before `jax_platforms` is changed
    try:
        # Restricted to the CPU for the moment: without a GPU, JAX's plugin can be registered only
        # in this state.
        with _LOCK, changed_setting(PLATFORMS, "cpu"):
            described = _described(text, count)
    except Exception as error:  # each version of the plugin raises errors of other types
        raise DeviceError(
            f"JAX {jax.__version__} cannot describe {name}: {str(error).partition(chr(10))[0]}",
            hint="describe the GPUs on their own machine: graphc devices --describe machine.toml",
        ) from error
    return tuple(described.devices)


def _described(text: str, count: int) -> Any:
    """JAX's record of the devices."""
    arguments = {"target_config": text, "topology": f"1x1x{count}"}
    try:
        return topologies.get_topology_desc(platform="cuda", **arguments)
    except NotImplementedError:
        # JAX has searched for GPUs in this process, found none, and removed its plugin.
        for plugin in entry_points(group="jax_plugins"):
            if "cuda" in plugin.name:
                plugin.load().initialize()
        return topologies.get_topology_desc(platform="cuda", **arguments)


def devices_by_name(machine: Machine) -> dict[str, jax.Device]:
    """The devices of a machine by their names."""
    return dict(zip(machine.device_names, devices_of(machine), strict=True))


def is_here(device: jax.Device) -> bool:
    """Whether a device can run programs. A device of a machine that is not present cannot."""
    return bool(device.client.local_device_count())


def target_config(gpu: Gpu) -> str:
    """XLA's description of a GPU: the record's own text; or a text generated from the record, with
    the versions of the installed CUDA libraries."""
    if gpu.target_config:
        return gpu.target_config
    major, minor, feature = gpu.capability
    found = libraries()
    cuda, cudnn = (_parts(found.get(name, "")) for name in ("cuda", "cudnn"))
    capability: dict[str, Any] = {"major": major, "minor": minor}
    if feature:
        capability["feature_extension"] = _Word("ACCELERATED_FEATURES")
    info = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49_152,
        "shared_memory_per_core": gpu.shared_memory_per_core,
        "threads_per_core_limit": gpu.threads_per_core,
        "core_count": gpu.cores,
        "fpus_per_core": gpu.fpus_per_core,
        "block_dim_limit_x": 2_147_483_647,
        "block_dim_limit_y": 65_535,
        "block_dim_limit_z": 65_535,
        "memory_bandwidth": gpu.memory_bandwidth,
        "l2_cache_size": gpu.l2_cache,
        "clock_rate_ghz": gpu.clock_ghz,
        "device_memory_size": gpu.memory,
        "shared_memory_per_block_optin": gpu.shared_memory_per_block_optin,
        "cuda_compute_capability": capability,
        "registers_per_core_limit": 65_536,
        "registers_per_block_limit": 65_536,
    }
    versions = dict(zip(("major", "minor", "patch"), cudnn, strict=True))
    return _text(
        {
            "gpu_device_info": info,
            "platform_name": "CUDA",
            "dnn_version_info": versions,
            "runtime_version": dict(zip(("major", "minor", "patch"), cuda, strict=True)),
            "device_description_str": gpu.name,
        }
    )


class _Word(str):
    """The name of an enumeration value, which is written without quotes."""


def _parts(text: str) -> tuple[int, int, int]:
    """The first three numbers of a version."""
    numbers = [int(part) for part in text.split(".")[:3] if part.isdigit()]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch


def _text(message: dict[str, Any]) -> str:
    """A message in the text form of protocol buffers."""
    lines = []
    for name, value in message.items():
        if isinstance(value, dict):
            lines.append(f"{name} {{ {_text(value)} }}")
        elif isinstance(value, str) and not isinstance(value, _Word):
            lines.append(f'{name}: "{_escaped(value)}"')
        else:
            lines.append(f"{name}: {value}")
    return " ".join(lines)


def _escaped(text: str) -> str:
    """Text as protocol buffers write it: bytes that are not plain ASCII become octal escapes."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in text.encode(errors="replace")
    )
