"""The versions of CUDA's libraries that are installed as Python packages."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

# Each library, and the packages that contain it: of CUDA 13, and of CUDA 12.
_PACKAGES = {
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "cublas": ("nvidia-cublas", "nvidia-cublas-cu12"),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}


def libraries() -> dict[str, str]:
    """The version of each library, by name; without those that are not installed as packages."""
    found = {name: installed(packages) for name, packages in _PACKAGES.items()}
    return {name: text for name, text in found.items() if text is not None}


def installed(packages: Sequence[str]) -> str | None:
    """The version of the first of these packages that is installed; None if none is."""
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
