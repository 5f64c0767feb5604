"""The versions of the CUDA libraries, and of XLA for GPUs, that are installed as Python
packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

# Each library, and the packages that contain it: for CUDA 13, and for CUDA 12.
_PACKAGES = {
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "cublas": ("nvidia-cublas", "nvidia-cublas-cu12"),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
    "plugin": ("jax-cuda13-plugin", "jax-cuda12-plugin"),
    "XLA": ("jax-cuda13-pjrt", "jax-cuda12-pjrt"),
}


def libraries() -> dict[str, str]:
    """The version of each library, by name; libraries that are not installed as packages are left
    out."""
    found = {name: installed(packages) for name, packages in _PACKAGES.items()}
    return {name: text for name, text in found.items() if text is not None}


def is_complete(found: Mapping[str, str]) -> bool:
    """Whether `libraries` found all of them."""
    return len(found) == len(_PACKAGES)


def installed(packages: Sequence[str]) -> str | None:
    """The version of the first of these packages that is installed; None if none is."""
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
