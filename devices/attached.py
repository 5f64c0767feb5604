"""The GPUs of this machine as a `Machine`, for compiling for them elsewhere.

JAX has no public access to XLA's description of a device. The private function is used in this file
only: `jaxlib.xla_client.get_topology_for_devices`. tests/gpu_compile/test_attached.py checks it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import jax
from jaxlib import xla_client

from graphc.devices.machine import Gpu, Machine, model_named
from graphc.errors import DeviceError

_FIELD = re.compile(r'^\s*(\w+):\s*("?)(.*?)\2\s*$', re.MULTILINE)
_CAPABILITY = re.compile(r"cuda_compute_capability\s*\{([^}]*)\}")


def attached_machine() -> Machine:
    """The machine that this process runs on.

    Raises:
        DeviceError: it has no NVIDIA GPUs, or JAX does not see or describe them.
    """
    gpus = [device for device in jax.local_devices() if device.platform == "gpu"]
    if not gpus:
        raise DeviceError(
            "no GPUs to describe: JAX sees none in this process",
            details=[f"it sees {', '.join(map(str, jax.local_devices()))}"],
            hint="run this on the machine with the GPUs, with JAX's CUDA plugin installed",
        )
    return described(gpus)


def described(devices: Sequence[jax.Device]) -> Machine:
    """A machine with these GPUs. All must be of one model.

    Raises:
        DeviceError: they are of several models, or JAX does not describe them.
    """
    kinds = {device.device_kind for device in devices}
    if len(kinds) > 1:
        raise DeviceError(
            f"the GPUs of a machine must be of one model, but these are {', '.join(sorted(kinds))}",
            hint="make only GPUs of one model visible to JAX: CUDA_VISIBLE_DEVICES=0,1",
        )
    try:
        text = str(xla_client.get_topology_for_devices(list(devices)).target_config)
        return Machine.of(_gpu(text), len(devices))
    except (AttributeError, KeyError, ValueError, RuntimeError) as error:
        raise DeviceError(
            f"JAX {jax.__version__} does not describe {kinds.pop()}: {error}",
            hint='name the model instead: gc.devices.Machine("h100")',
        ) from error


def _gpu(text: str) -> Gpu:
    """The GPU model that XLA describes. Its peak rates come from graphc's own description of that
    model, if there is one."""
    # If a name occurs more than once, the later ones belong to nested messages.
    fields = {name: value for name, _, value in reversed(_FIELD.findall(text))}
    found = _CAPABILITY.search(text)
    parts = {name: value for name, _, value in _FIELD.findall(found[1] if found else "")}
    feature = "a" if parts.get("feature_extension") == "ACCELERATED_FEATURES" else ""
    name = fields["device_description_str"]
    known = model_named(name)
    return Gpu(
        name=name,
        compute_capability=f"{parts['major']}.{parts.get('minor', 0)}{feature}",
        cores=int(fields["core_count"]),
        fpus_per_core=int(fields["fpus_per_core"]),
        threads_per_core=int(fields["threads_per_core_limit"]),
        clock_ghz=float(fields["clock_rate_ghz"]),
        shared_memory_per_core=int(fields["shared_memory_per_core"]),
        shared_memory_per_block_optin=int(fields["shared_memory_per_block_optin"]),
        l2_cache=int(fields["l2_cache_size"]),
        memory=int(fields["device_memory_size"]),
        memory_bandwidth=int(fields["memory_bandwidth"]),
        link_bandwidth=known.link_bandwidth if known else None,
        matrix_flops=known.matrix_flops if known else {},
        vector_flops=known.vector_flops if known else None,
        target_config=text,
    )
