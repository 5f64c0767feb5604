"""The ways of compiling that `gc.tune` tries, as one table. Add a row for a new pass or option that
is faster for some programs and slower for others.

A variant changes the speed of a program, and its results only by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from graphc.config import CompileOptions
from graphc.ir.node import EMPTY
from graphc.ir.program import Program
from graphc.passes.core.target import Target
from graphc.runtime.pipeline.tuned import Choice

Wanted = Callable[[Program, Target], bool]


@dataclass(frozen=True)
class Variant:
    """One way of compiling.

    Attributes:
        choice: the changes that it makes.
        wanted: whether it may make a difference for a program, bound and optimised by default, on
            these devices.
    """

    choice: Choice
    wanted: Wanted


def variants_for(program: Program, target: Target, options: CompileOptions) -> Iterator[Variant]:
    """The variants that are worth a trial, those most likely to be faster first. Options that the
    user set stay unchanged.

    Args:
        program: bound, and optimised under `options`.
    """
    plain = CompileOptions()
    names = [field.name for field in fields(options)]
    free = {name for name in names if getattr(options, name) == getattr(plain, name)}
    for variant in VARIANTS:
        if variant.choice.options.keys() <= free and variant.wanted(program, target):
            yield variant


# -- what a program has ---------------------------------------------------------------------


def _for(*operators: str, platform: str | None = None, replicas: int = 1) -> Wanted:
    """A condition: the platform is this one, there are at least so many replicas, and the program
    has one of the operators. What is not given does not matter."""
    return lambda program, target: (
        platform in (None, target.platform)
        and target.replicas >= replicas
        and (not operators or any(node.op.name in operators for node in program.walk()))
    )


def _on(platform: str, *operators: str) -> Wanted:
    return _for(*operators, platform=platform)


_ALWAYS: Final = _for()
_PARALLEL_ON_GPU: Final = _for(platform="gpu", replicas=2)
_LOOPS: Final = _for("Scan")
_ATTENTION: Final = _for("Attention")


# -- the table ------------------------------------------------------------------------------


def _row(
    name: str,
    wanted: Wanted = _ALWAYS,
    xla: Mapping[str, str | int | bool | float] = EMPTY,
    **options: Any,
) -> Variant:
    return Variant(Choice(name, options, xla), wanted)


_CONVOLUTIONS: Final = ("Conv", "ConvInputGradient", "ConvKernelGradient")
_YNN: Final = "xla_cpu_experimental_ynn_fusion_type"

VARIANTS: Final[tuple[Variant, ...]] = (
    _row("O3", pipeline="O3"),
    _row(
        "O3, its pooling plain",
        _on("cpu", "MaxPoolGradient"),
        pipeline="O3",
        without_passes=("cpu-pooling",),
    ),
    _row(
        "O3, no convolution in tiles",
        _on("cpu", *_CONVOLUTIONS),
        pipeline="O3",
        without_passes=("cpu-winograd",),
    ),
    # Scores are computed for all queries at once if memory suffices, and otherwise in loops over
    # queries.
    _row("attention as written", _ATTENTION, fuse_attention=False),
    _row("attention at once", _ATTENTION, without_passes=("step-attention",)),
    # Tables with few rows are updated faster as a whole.
    _row("dense updates", _for("UniqueRows"), sparse_updates="off"),
    # Convolutions use Eigen, which computes the gradients of large ones faster. Products stay in
    # YNN.
    _row(
        "YNN without convolutions",
        _on("cpu", *_CONVOLUTIONS),
        {_YNN: "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_REDUCE"},
    ),
    _row("no YNN", _on("cpu"), {_YNN: ""}),
    # Each iteration of a loop over blocks costs time, but a loop compiles faster. A few blocks are
    # faster without a loop.
    _row("no loops", _LOOPS, without_passes=("group-alike", "roll-repeats")),
    _row("loops, ungrouped", _for("Map"), without_passes=("group-alike",)),
    _row("loops of 2 turns", _LOOPS, unroll=2),
    _row("loops of 4 turns", _LOOPS, unroll=4),
    _row("512-bit vectors", _on("cpu"), {"xla_cpu_prefer_vector_width": 512}),
    _row(
        "scheduled for memory",
        _on("cpu"),
        {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
    ),
    _row(
        "scheduled side by side",
        _on("cpu"),
        {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED"},
    ),
    # All products use cuBLAS. The autotuner may choose a Triton product that is slower in the
    # program than in its measurement.
    _row("no Triton products", _on("gpu"), {"xla_gpu_enable_triton_gemm": False}),
    # By default, a program for GPUs that are not present uses cuBLAS.
    _row("Triton products", _on("gpu"), {"xla_gpu_enable_triton_gemm": True}),
    _row("no command buffers", _on("gpu"), {"xla_gpu_enable_command_buffer": ""}),
    _row("cuBLASLt", _on("gpu", "MatMul", "DotGeneral"), {"xla_gpu_enable_cublaslt": True}),
    _row("cuDNN layer norm", _on("gpu", "LayerNorm"), {"xla_gpu_enable_cudnn_layer_norm": True}),
    _row(
        "cuDNN products with what follows",
        _on("gpu", "MatMul", "DotGeneral"),
        {"xla_gpu_cudnn_gemm_fusion_level": 2},
    ),
    _row(
        "two turns of a loop at a time",
        _on("gpu", "Scan"),
        {"xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"},
    ),
    _row(
        "collectives behind computation",
        _PARALLEL_ON_GPU,
        {"xla_gpu_enable_latency_hiding_scheduler": True},
    ),
    _row(
        "two collectives at a time",
        _PARALLEL_ON_GPU,
        {"xla_gpu_experimental_parallel_collective_overlap_limit": 2},
    ),
    _row(
        "gradients of loops exchanged after them",
        _for("Scan", platform="gpu", replicas=2),
        without_passes=("exchange-in-loops",),
    ),
    # The buckets of a strategy have this size by default, see `devices.bucketing`.
    _row(
        "all-reduces of 2 MiB",
        _PARALLEL_ON_GPU,
        {"xla_gpu_all_reduce_combine_threshold_bytes": 2 * 2**20},
    ),
    _row(
        "all-reduces of 30 MiB",
        _PARALLEL_ON_GPU,
        {"xla_gpu_all_reduce_combine_threshold_bytes": 30 * 2**20},
    ),
    _row(
        "all-reduces of 128 MiB",
        _PARALLEL_ON_GPU,
        {"xla_gpu_all_reduce_combine_threshold_bytes": 128 * 2**20},
    ),
)
