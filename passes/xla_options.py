"""XLA options that suit a program on a platform, for programs of which XLA's default is slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphc.ir.program import Program
from graphc.ops.conv import CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT

# By default XLA:CPU hands convolutions to its YNN library too, whose gradients of them run at a
# third of the speed of Eigen's. What is left to YNN here are products and reductions.
_CONVOLUTIONS_BY_EIGEN: Final = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_REDUCE"
}


def suited_options(program: Program, platform: str) -> Mapping[str, str]:
    """The options for an optimised `program` on `platform` ("cpu", "gpu", ...).

    A program that trains convolutions gets those that make XLA:CPU take Eigen for them; forward
    passes alone are as fast or faster by default. None for other programs and platforms.
    """
    gradients = (CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT)
    if platform == "cpu" and any(node.op in gradients for node in program.walk()):
        return _CONVOLUTIONS_BY_EIGEN
    return {}
