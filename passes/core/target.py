"""The compilation target, as far as passes need it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """The devices.

    Attributes:
        platform: JAX's name: "cpu", "gpu", "tpu"; "any" for a program that must run on all.
        replicas: the number of devices that share the batch; 1 without a strategy.
        tight: whether memory is short, so that blocks become loops even if loops are slower: only
            values that loops keep can be recomputed (`Recompute`).
        flash: on GPUs, whether they support cuDNN attention: NVIDIA from compute capability 8.0.
    """

    platform: str = "any"
    replicas: int = 1
    tight: bool = False
    flash: bool = True
