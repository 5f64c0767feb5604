"""XLA options for programs for which the default of XLA is slow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Final

from graphc.ir.dtypes import as_dtype
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.jax_internals import FEW_OPTIMIZATIONS, all_settings
from graphc.ops.draws import random_draws, random_parametric
from graphc.ops.draws.random_keys import RANDOM_BITS
from graphc.ops.elementwise.activation import LOG_SOFTMAX, SOFTMAX
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.nn.attention import ATTENTION
from graphc.ops.nn.conv_rules import CONV
from graphc.ops.nn.normalization import LAYER_NORM
from graphc.ops.reductions.reduction_rules import LOG_SUM_EXP, PLAIN_REDUCTIONS
from graphc.passes.core.peak import peak
from graphc.passes.core.target import CONVOLUTIONS, Target, suited_to
from graphc.passes.cpu.row_conditions import has_slow_rows

# By default XLA:CPU uses its YNN library for convolutions, single products and reductions. Its
# convolutions of at most 64 filters run on one thread, those of 3 or 5 channels to 20 to 32 filters
# at a tenth of the speed, and gradients at a third. With Eigen, networks of torchvision take
# 0.44x to 1.01x of the time, and small training steps 0.76x to 1.03x.
_LIBRARY: Final = "xla_cpu_experimental_ynn_fusion_type"
_PRODUCTS_ONLY: Final = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
# The library also computes a convolution that is only reduced, as before a global pooling: 12 ms
# instead of 1 at the end of ResNet-18. But rows are reduced up to 20 times as fast as by XLA, which
# transformers (1.08x to 1.2x without) and steps that train convolutions (1.6x) need.
_PRODUCTS_AND_REDUCTIONS: Final = f"{_PRODUCTS_ONLY},LIBRARY_FUSION_TYPE_REDUCE"
_MANY: Final = 1 << 15  # elements of rows that are reduced
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
_REDUCTIONS: Final = (*PLAIN_REDUCTIONS, LOG_SUM_EXP, SOFTMAX, LOG_SOFTMAX, LAYER_NORM, ATTENTION)
_DRAWS: Final = (RANDOM_BITS, *random_draws.OPS, *random_parametric.OPS)
_PRODUCTS: Final = (MATMUL, DOT_GENERAL, *CONVOLUTIONS)


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

    Eigen computes convolutions. A program that trains them schedules for little memory, but only at
    O3 or if it is large: small ones may be slower then. So does one with convolutions in tiles. The
    environment variable XLA_FLAGS takes precedence.
    """
    nodes = [node for node in program.walk() if node.op in CONVOLUTIONS]
    if platform != "cpu" or not nodes:
        return {}
    chosen: dict[str, str] = {}
    trains = any(node.op is not CONV for node in nodes)
    if all(node.inputs[0].type.dtype in _OF_EIGEN for node in nodes):
        reduces = trains or any(map(_reduces_rows, program.walk()))
        chosen[_LIBRARY] = _PRODUCTS_AND_REDUCTIONS if reduces else _PRODUCTS_ONLY
    if trains:
        little = at_o3 or is_large(program, platform)
    else:
        little = any(node.attrs["tiles"] for node in nodes)
    if little:
        chosen |= _LITTLE_MEMORY
    given = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in chosen.items() if name not in given}


def _reduces_rows(node: Node) -> bool:
    """Whether a node reduces many elements along their last axis."""
    if node.op not in _REDUCTIONS:
        return False
    shape = node.inputs[0].type.shape
    axes = node.attrs.get("axes") or [node.attrs.get("axis", len(shape) - 1)]
    elements = prod(n for n in shape if isinstance(n, int))
    return len(shape) - 1 in axes and elements >= _MANY
