"""Everything besides the program that decides whether an executable can be reused: one half of the
cache key. The program's half is `ir.fingerprint`."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import jax
import jaxlib
import numpy as np
from jaxlib.version import __version__ as jaxlib_version

from graphc._version import __version__
from graphc.jax_internals import all_settings

# Prefixes of JAX settings that do not affect compilation. All other settings, also those of future
# versions, count: at worst a program is compiled again.
_WITHOUT_INFLUENCE = (
    "jax_captured_constants_",
    "jax_compilation_cache_",
    "jax_debug_log_",
    "jax_dump_",
    "jax_enable_compilation_cache",
    "jax_explain_",
    "jax_include_",
    "jax_log",
    "jax_num_cpu_devices",  # the devices themselves are part of the key
    "jax_default_device",
    "jax_persistent_cache_",
    "jax_platform",
    "jax_pprint_",
    "jax_raise_persistent_",
    "jax_traceback_",
    "jax_tracer_",
)
# The folders of graphc that no compilation uses, because nothing that compiles imports them.
NOT_COMPILING = frozenset({
    "cli", "cluster", "data", "divergence", "exporters", "importers", "reports", "serving",
    "sklearn", "train",
})  # fmt: skip
_BINARIES = (".so", ".pyd", ".dll", ".dylib")


def environment(devices: Sequence[jax.Device]) -> dict[str, str]:
    """Everything besides the program that an executable depends on, as printable pairs."""
    first = devices[0]
    return {
        **_software(),
        **_flags(),
        "cpu": f"{platform.machine()} {cpu_features()}, {_cpu_count()} cores",
        "platform": f"{first.platform} {first.client.platform_version}",
        "devices": ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in devices),
        "of devices": str(len(jax.devices(first.platform))),
    }


def environment_of_gpus(facts: Mapping[str, str]) -> dict[str, str]:
    """The same for GPUs: without the CPU of this machine, and without XLA flags that do not concern
    GPUs.

    Args:
        facts: the facts about the GPUs and about the libraries that the executable calls.
    """
    flags = filter(_concerns_gpus, _flags()["XLA_FLAGS"].split())
    return {**_software(), **_flags(), "XLA_FLAGS": " ".join(sorted(flags)), **facts}


def _software() -> dict[str, str]:
    return {
        "graphc": f"{__version__} {sources_digest()}",
        "jax": jax.__version__,
        "jaxlib": jaxlib_build(),
        "numpy": np.__version__,  # folds constants
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "settings": settings(),
        "processes": f"{jax.process_index()} of {jax.process_count()}",
    }


def _concerns_gpus(flag: str) -> bool:
    others = ("--xla_cpu_", "--xla_force_host_platform_device_count", "--xla_dump_")
    return not flag.startswith(others)


@lru_cache
def sources_digest(without: frozenset[str] = NOT_COMPILING) -> str:
    """SHA-256 over graphc's own Python sources and tables of machines, by relative path and
    content: 10 ms.

    Args:
        without: folders of the package to leave out.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    digest = hashlib.sha256()
    for folder, inner, files in os.walk(package, followlinks=True):  # passes and devices are links
        inner[:] = sorted(name for name in inner if folder != package or name not in without)
        place = os.path.relpath(folder, package)
        for name in sorted(files):
            if name.endswith((".py", ".toml")):
                digest.update(f"{place}/{name}".encode())
                with open(os.path.join(folder, name), "rb", buffering=0) as file:
                    digest.update(file.read())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def jaxlib_build() -> str:
    """The version of jaxlib, and the sizes of its libraries: the same version may exist in several
    builds."""
    files = sorted(p for p in Path(jaxlib.__file__).parent.iterdir() if p.suffix in _BINARIES)
    sizes = [f"{path.name} {path.stat().st_size}" for path in files]
    return ", ".join([jaxlib_version, *sizes])


@lru_cache(maxsize=1)
def _flags() -> dict[str, str]:
    """The XLA flags at the first call. XLA reads them once in a process, when the first device is
    created, and a later change has no effect."""
    names = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE")
    return {name: os.environ.get(name, "") for name in names}


def settings() -> str:
    """JAX's settings in this thread, without those that do not affect compilation."""
    found = all_settings().items()
    return ", ".join(f"{n}={value}" for n, value in found if not n.startswith(_WITHOUT_INFLUENCE))


def _cpu_count() -> int:
    """How many cores this process may use: XLA splits work for this number."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def cpu_features() -> str:
    """A digest of the processor's model and feature flags, because native code may use any of
    them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux: only the processor's name is available
        return platform.processor()
    names = ("flags", "Features", "model name", "CPU part")
    first = [next((line for line in lines if line.startswith(name)), "") for name in names]
    return hashlib.sha256("\n".join(first).encode()).hexdigest()[:16]
