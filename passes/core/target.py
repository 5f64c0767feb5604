"""The compilation target, as far as passes need it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from graphc.ir.program import Program
from graphc.ops.nn.conv_rules import CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT
from graphc.passes.core.costs import node_cost

CONVOLUTIONS: Final = (CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT)


@dataclass(frozen=True)
class Target:
    """The devices.

    Attributes:
        platform: JAX's name: "cpu", "gpu", "tpu"; "any" for a program that must run on all.
        replicas: the number of devices that share the batch; 1 without a strategy.
        tight: whether memory is short, so that blocks become loops even if loops are slower: only
            values that loops keep can be recomputed (`Recompute`).
        flash: on GPUs, whether they support cuDNN attention: NVIDIA from compute capability 8.0.
        trained: whether other programs of the graph change state that the program only reads.
        accumulates: whether gradients are summed over micro-batches, in a loop that takes stacks of
            parameters as they are stored.
        convolves: whether the program has many operations in convolutions; see `suited_to`.
    """

    platform: str = "any"
    replicas: int = 1
    tight: bool = False
    flash: bool = True
    trained: bool = True
    accumulates: bool = False
    convolves: bool = False


# FLOPs of convolutions in a run. Steps of 0.1 to 1 GFLOP (small images) take the same time with the
# passes for CPU, and compile in 1.1 to 1.2 of the time. ResNet-50's and MobileNet-V2's, with 8
# images of 224, compile in the same time and take 0.6 of the time.
_MANY: Final = 2 * 10**9


def suited_to(target: Target, program: Program) -> Target:
    """The target for the passes of a program without named sizes."""
    if target.platform != "cpu" or program.symbols():
        return target
    flops = sum([node_cost(node).flops for node in program.walk() if node.op in CONVOLUTIONS])
    return replace(target, convolves=flops >= _MANY)
