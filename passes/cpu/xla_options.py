"""XLA options for programs for which the default of XLA is slow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from graphc.ir.dtypes import as_dtype
from graphc.ir.program import Program
from graphc.jax_internals import FEW_OPTIMIZATIONS, all_settings
from graphc.ops.draws import random_draws, random_parametric
from graphc.ops.draws.random_keys import RANDOM_BITS
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.nn.conv_rules import CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT
from graphc.passes.core.peak import peak
from graphc.passes.core.target import Target, suited_to
from graphc.passes.cpu.row_conditions import has_slow_rows

_CONVOLUTIONS: Final = (CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT)

# By default XLA:CPU uses its YNN library for convolutions, single products and reductions.
_LIBRARY: Final = "xla_cpu_experimental_ynn_fusion_type"
# Gradients of convolutions run there at a third of the speed of Eigen: small networks take 0.76x to
# 1.01x of the time of a training step with this option.
_CONVOLUTIONS_BY_EIGEN: Final = {
    _LIBRARY: "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE"
}
# Convolutions of at most 64 filters run there on one thread, and those of 3 or 5 channels to 20 to
# 32 filters at a tenth of the speed. Its reductions are not fused, so norms over channels store
# their operands. Without the library, 13 networks of torchvision take 0.44x to 0.93x of the time;
# ConvNeXt and a vision transformer take the same time.
_NO_LIBRARY: Final = {_LIBRARY: ""}
# Eigen has no convolutions of float64: XLA's own loops take 10 to 40 times as long as the library.
_OF_EIGEN: Final = tuple(as_dtype(name) for name in ("float32", "float16", "bfloat16"))
# The default schedule computes operations with few dependencies early: transformed kernels, zeros
# for loops. The other schedule takes 0.6x of the temporaries of AlexNet and 0.8x of those of
# ResNet-50, whose pages the system clears in each step.
# Its 43 MB become 26 MB for DenseNet-40, below the size from which glibc returns a block to the
# system as soon as it is freed: a step takes 0.62x of the time. Small programs may take 1.15x.
_LITTLE_MEMORY: Final = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}

_CLEARED: Final = 32 * 2**20  # bytes; the largest `M_MMAP_THRESHOLD` of glibc

# By default LLVM optimizes the kernels of XLA:CPU at level 3. At level 2, XLA compiles nine steps
# of the zoo in 0.9x of the time, and they take the same time to run; for others, see
# `row_conditions`.
_LEVEL: Final = "xla_backend_optimization_level"
_QUICKER: Final = {_LEVEL: 2}
_DRAWS: Final = (RANDOM_BITS, *random_draws.OPS, *random_parametric.OPS)
_PRODUCTS: Final = (MATMUL, DOT_GENERAL, *_CONVOLUTIONS)


def quicker_options(program: Program, platform: str) -> Mapping[str, int]:
    """The options with which an optimized `program` compiles sooner on `platform` and runs as fast;
    empty for none.

    They may change the last bit of a float. A program that draws random numbers and computes no
    products does not get them, so that its draws have the bits of JAX's. Nor does a program that
    would run slower. A level in the environment variable XLA_FLAGS takes precedence, and so does
    JAX's setting that turns optimizations off.
    """
    is_given = _LEVEL in os.environ.get("XLA_FLAGS", "") or all_settings()[FEW_OPTIMIZATIONS]
    if platform != "cpu" or is_given:
        return {}
    ops = [node.op for node in program.walk()]
    draws = any(op in _DRAWS for op in ops)
    if draws and not any(op in _PRODUCTS for op in ops):
        return {}
    return {} if has_slow_rows(program) else _QUICKER


def is_large(program: Program, platform: str) -> bool:
    """Whether a program computes many convolutions, or its temporaries are probably so large that
    the system provides and clears their pages in each run. False if sizes are not known, as in a
    saved program with named sizes."""
    if program.symbols():
        return False
    return suited_to(Target(platform), program).convolves or peak(program) >= _CLEARED


def suited_options(program: Program, platform: str, at_o3: bool) -> Mapping[str, str]:
    """The options for an optimized `program` on `platform` ("cpu", "gpu", ...); empty for none.

    Eigen computes the convolutions. A program without their gradients does without XLA's library.
    One with gradients schedules for little memory, but only at O3 or if it is large: small ones may
    be slower then. One with convolutions in tiles schedules for little memory, too. The environment
    variable XLA_FLAGS takes precedence.
    """
    nodes = [node for node in program.walk() if node.op in _CONVOLUTIONS]
    if platform != "cpu" or not nodes:
        return {}
    if all(node.op is CONV for node in nodes):
        library = _NO_LIBRARY
        little = any(node.attrs["tiles"] for node in nodes)
    else:
        library = _CONVOLUTIONS_BY_EIGEN
        little = at_o3 or is_large(program, platform)
    by_eigen = all(node.inputs[0].type.dtype in _OF_EIGEN for node in nodes)
    chosen = {**(library if by_eigen else {}), **(_LITTLE_MEMORY if little else {})}
    given = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in chosen.items() if name not in given}
