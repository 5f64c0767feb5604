"""What, beside the program, decides whether an executable may be used again: the other half
of the cache key. The program's half is `ir.fingerprint`."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import jax

# JAX's settings that change what a program computes.
_NUMERICS = (
    "jax_enable_x64",
    "jax_debug_nans",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_threefry_partitionable",
)


@lru_cache(maxsize=1)
def sources_digest() -> str:
    """SHA-256 over graphc's own Python sources, by relative path and content."""
    package = Path(__file__).resolve().parent.parent
    folders = [package, *(package / name for name in ("passes", "devices"))]
    digest = hashlib.sha256()
    for folder in folders:
        root = folder.resolve()
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{folder.name}/{path.relative_to(root)}".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def environment(devices: Sequence[jax.Device]) -> dict[str, str]:
    """Everything outside the program that an executable depends on, as printable pairs."""
    return {
        "graphc": sources_digest(),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "libtpu_flags": os.environ.get("LIBTPU_INIT_ARGS", ""),
        "numerics": ", ".join(f"{name}={getattr(jax.config, name)}" for name in _NUMERICS),
        "cpu": f"{platform.machine()} {cpu_features()}",
        "devices": ", ".join(f"{d.platform}:{d.device_kind}" for d in devices),
        "processes": str(jax.process_count()),
    }


@lru_cache(maxsize=1)
def cpu_features() -> str:
    """A digest of the processor's feature flags: native code may use any of them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux: the processor's name has to do
        return platform.processor()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:16]
