"""XLA options that suit a program on a platform, for programs of which XLA's default is slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphc.ir.program import Program
from graphc.ops.nn.conv import CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT

_CONVOLUTIONS: Final = (CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT)

# By default XLA:CPU hands convolutions to its YNN library too, whose gradients of them run at a
# third of the speed of Eigen's. What is left to YNN here are products and reductions.
_CONVOLUTIONS_BY_EIGEN: Final = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_REDUCE"
}
# Its default schedule computes early what depends on little: transformed kernels, zeros for loops
# to fill. The other one takes 0.6x of AlexNet's temporaries and 0.8x of ResNet-50's, whose pages
# the system clears at each step.
_LITTLE_MEMORY: Final = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


def suited_options(program: Program, platform: str) -> Mapping[str, str]:
    """The options for an optimised `program` on `platform` ("cpu", "gpu", ...).

    A program that trains convolutions gets those that make XLA:CPU take Eigen for them, and order
    its work for little memory; one with convolutions in tiles the latter. Other forward passes are
    as fast or faster by default. None for other programs and platforms.
    """
    if platform != "cpu":
        return {}
    nodes = [node for node in program.walk() if node.op in _CONVOLUTIONS]
    if any(node.op is not CONV for node in nodes):
        return {**_CONVOLUTIONS_BY_EIGEN, **_LITTLE_MEMORY}
    return _LITTLE_MEMORY if any(node.attrs["tiles"] for node in nodes) else {}
