"""What a program is compiled for, as far as passes need to know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """The devices.

    Attributes:
        platform: JAX's name: "cpu", "gpu", "tpu"; "any" for a program that must run on all.
        replicas: how many share the batch; 1 without a strategy.
        tight: whether memory is short, so that blocks should become loops even where loops are
            slower: only what loops keep can be computed again (`Recompute`).
        flash: on GPUs, whether cuDNN has attention for them: all of NVIDIA since compute capability
            8.0.
    """

    platform: str = "any"
    replicas: int = 1
    tight: bool = False
    flash: bool = True
