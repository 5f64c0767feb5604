"""The pipelines: which passes run, in which order, and the reasons for the order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphc.config import CompileOptions
from graphc.passes.attention.attention_steps import StepAttention
from graphc.passes.attention.fuse_attention import FuseAttention
from graphc.passes.core.base import Pass
from graphc.passes.core.target import Target
from graphc.passes.cpu.cpu_moments import CpuMoments
from graphc.passes.cpu.cpu_pointwise import CpuPointwise
from graphc.passes.cpu.cpu_pooling import CpuPooling
from graphc.passes.cpu.cpu_space_to_depth import CpuSpaceToDepth
from graphc.passes.cpu.cpu_stacked_bits import CpuStackedBits
from graphc.passes.cpu.cpu_strips import CpuStrips
from graphc.passes.cpu.cpu_update_by_rows import CpuUpdateByRows
from graphc.passes.cpu.cpu_winograd import CpuWinograd
from graphc.passes.gpu.gpu_fence_buffers import GpuFenceBuffers
from graphc.passes.gpu.gpu_recompute_activations import GpuRecomputeActivations
from graphc.passes.memory.carry_shifted import CarryShifted
from graphc.passes.memory.recompute import Recompute
from graphc.passes.memory.stack_less import StackLess
from graphc.passes.memory.update_in_loop import UpdateInLoop
from graphc.passes.memory.update_in_place import UpdateInPlace
from graphc.passes.precision.mixed_precision import MixedPrecision
from graphc.passes.rolling.group_alike import GroupAlike
from graphc.passes.rolling.join_windows import JoinWindows
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.passes.rolling.stack_carries import StackCarries
from graphc.passes.simplify.drop_marks import DropMarks
from graphc.passes.simplify.eliminate_common import EliminateCommon
from graphc.passes.simplify.fold_constants import FoldConstants
from graphc.passes.simplify.hoist_products import HoistProducts
from graphc.passes.simplify.hoist_sums import HoistSums
from graphc.passes.simplify.inline_bodies import InlineBodies
from graphc.passes.simplify.move_transposes import MoveTransposes
from graphc.passes.simplify.prune import Prune
from graphc.passes.simplify.simplify_algebra import SimplifyAlgebra
from graphc.passes.simplify.simplify_shapes import SimplifyShapes
from graphc.passes.simplify.spread_casts import SpreadCasts
from graphc.passes.sparse.sparse_gradients import SparseGradients

# Prune first, so that other passes do not process unneeded nodes. Then inlining, because no pass
# looks through bodies; then algebra, which removes the identities, ones and zeros of gradients
# between other nodes; then folding, for which algebra has collected constants; then shapes, which
# now see adjacent reshapes and broadcasts; then CSE, because the passes before make nodes equal.
# They leave unused nodes, so prune ends the round.
_SIMPLIFY: Final[tuple[Pass, ...]] = (
    Prune(),
    InlineBodies(),
    SimplifyAlgebra(),
    FoldConstants(),
    SimplifyShapes(),
    EliminateCommon(),
    Prune(),
)
# Once sizes are bound, those used as values are constants. Shapes are already simple.
_FOLD_SIZES: Final[tuple[Pass, ...]] = (FoldConstants(), Prune())
# Rolling comes last: the passes before it make blocks equal, and do not look into rolled blocks.
# Rolled loops read and write stacks, and grouping starts at stacks.
_AFTER_ROLLING: Final[tuple[Pass, ...]] = (GroupAlike(), Prune())
# These come before rolling, so that blocks stay equal.
_ON_CPU: Final[tuple[Pass, ...]] = (
    CpuSpaceToDepth(),
    CpuPointwise(),
    CpuWinograd(),
    CpuStrips(),
    CpuPooling(),
    CpuMoments(),
    EliminateCommon(),
    Prune(),
)
# By default, for programs with many convolutions. Tiles round more than the convolution does.
_EXACT_ON_CPU: Final = tuple(each for each in _ON_CPU if not isinstance(each, CpuWinograd))

# On CPU, a network of 3 or 5 blocks compiles as fast without a loop, and its steps take 0.86 to
# 0.94 of the time, because a loop writes its stacks twice. 6 blocks compile as fast in a loop, 12
# blocks in half the time.
_FEWEST_TURNS: Final = 6

# FLOPs. XLA:CPU copies an iteration's parameters, because its products need separate operands.
# Without loops, forward passes of 12 blocks take 0.57 of the time for 1 row, 0.84 for 128, 0.90 for
# 256 and as long for 512 (2 FLOPs for each row and 4 bytes), and compile in 1 to 2 seconds more;
# those of 48 blocks in 8 seconds more. If the parameters are arguments of a function, 12 blocks
# take 0.14 of the time for 1 row, 0.44 for 128 and 0.65 for 512, and compile as fast.
_WORTH_A_COPY: Final = 2048

# Nodes. XLA:CPU compiles equal kernels once, so that small layers cost little each: chains of dense
# layers, `tanh(x @ w + b)`, compile in 2.4 of the time of JAX in a loop of 8 and in 1.6 in one of
# 24, and in 1.1 to 1.2 without; 48 in 1.1 and 1.4. Of layers with norms, 8 compile as fast.
_FEWEST_IN_LAYERS: Final = 240

# Iterations that share their weights stack no parameters. Of an LSTM with an auxiliary loss at
# every third step, 4 iterations take 0.74 of the time in a loop and compile in 0.86 of it; 5 take
# 0.50 and compile in 0.68.
_FEWEST_STEPS: Final = 4

# On a GPU, a loop copies slices of stacks, because kernels of cuBLAS and cuDNN need separate
# operands. Estimated from the HLO for one H100, rolled steps take 1.3 to 1.5 times as long. Without
# loops, up to 24 blocks compile as fast as unrolled JAX; compile time grows faster than depth.
_FEWEST_TURNS_ON_GPU: Final = 25

# Bytes of a gradient of one layer. Estimated for one H100, 32 layers, adam: steps with updates in
# the loop take 1.22 of the time with 1 MB, 1.11 with 4 MB, 1.00 with 16 MB.
_SLICE_ON_GPU: Final = 1 << 24


def pipeline(options: CompileOptions) -> list[Pass]:
    """The target-independent passes, for a functional program.

    Mixed precision is last in the first round: earlier passes see the original float32 program, and
    passes of the second round see the casts.
    """
    mixed: list[Pass] = [] if options.precision is None else [MixedPrecision(options.precision)]
    if options.pipeline == "O0":
        return mixed
    drop = DropMarks(keep_ranges=options.check_numerics)
    passes = [*_SIMPLIFY, *mixed, drop] if mixed else [drop, *_SIMPLIFY]
    # Lazy updates change the meaning, which must not depend on sizes. Exact ones need known sizes.
    return [*passes, *_sparse(options)] if options.sparse_updates == "lazy" else passes


def _sparse(options: CompileOptions) -> list[Pass]:
    if options.sparse_updates == "off":
        return []
    lazy = options.sparse_updates == "lazy"
    return [HoistSums(always=lazy), SparseGradients(lazy=lazy)]


def _attention(options: CompileOptions, target: Target) -> list[Pass]:
    """Fusion comes before rolling, so that a rolled loop keeps operands and not weights. The nodes
    that it leaves must be pruned, because other passes would count them as users."""
    fused = [FuseAttention(target), Prune()] if options.fuse_attention else []
    return [*fused, StepAttention(target)]


def after_binding(options: CompileOptions, target: Target) -> list[Pass]:
    """The passes that run once after named sizes are bound."""
    if options.pipeline == "O0":
        return []
    if options.pipeline == "O1":
        return list(_FOLD_SIZES)
    # Before rolling, so that loops take narrow values and not their casts.
    spread = [SpreadCasts(of_products=options.precision is None)]
    suited: tuple[Pass, ...] = ()
    if target.platform == "cpu" and options.pipeline == "O3":
        suited = _ON_CPU
    elif target.platform == "cpu" and target.convolves:
        suited = _EXACT_ON_CPU
    moved = (MoveTransposes(), SimplifyShapes())
    first = [
        *moved,
        *_FOLD_SIZES,
        *_attention(options, target),
        *_sparse(options),
        *spread,
        *suited,
    ]
    rolled = [*first, *_rolling(options, target), *_grouping(target)]
    narrow = options.precision == "bf16" and target.platform == "cpu"
    return [*rolled, CpuStackedBits(), Prune()] if narrow else rolled


def _rolling(options: CompileOptions, target: Target) -> tuple[Pass, ...]:
    """Loops of few iterations are useful for a memory limit, because only values that loops keep
    can be recomputed. Then each backward loop needs a forward loop, however few nodes it saves and
    however small its layers are."""
    turns, steps, layers, copied = RollRepeats.turns, None, 0, 0
    limited = target.tight or (target.platform == "cpu" and options.memory_limit is not None)
    shared = 1 if limited else RollRepeats.shared
    if target.platform == "gpu" and not target.tight:
        turns = max(_FEWEST_TURNS_ON_GPU, (options.unroll or 0) + 1)
    elif target.platform == "cpu" and not target.tight and options.memory_limit is None:
        turns, steps = _FEWEST_TURNS, _FEWEST_STEPS
        if options.unroll is None and not target.accumulates:
            layers, copied = _FEWEST_IN_LAYERS, _WORTH_A_COPY
    roll = RollRepeats(
        turns=turns,
        shared=shared,
        unroll=options.unroll,
        steps=steps,
        layers=layers,
        copied=copied,
        trained=target.trained,
    )
    return JoinWindows(fewest=steps or turns), Prune(), roll


def _grouping(target: Target) -> tuple[Pass, ...]:
    """If memory is short, variables are separate arrays, and grouped updates of all blocks would
    copy them."""
    return (Prune(),) if target.tight else _AFTER_ROLLING


def after_accumulation(options: CompileOptions, target: Target) -> list[Pass]:
    """The last passes if gradients are summed over micro-batches: values outside of that loop are
    combined with its stacks."""
    if options.pipeline in ("O0", "O1"):
        return []
    return [StackCarries(), *_grouping(target)]


def _updates(
    options: CompileOptions, platform: str, budget: int | None, fast_loops: bool
) -> list[Pass]:
    """Moves the optimizer into the loop that computes the gradients. It runs after `Recompute`,
    which may need the parameters in the backward loop, and which accounts for the memory that this
    pass saves.

    Loops that XLA compiles without a loop on a GPU are not changed unless memory is short: each
    write of a slice would be a separate kernel that reads the results of other writes.
    """
    name = UpdateInLoop.class_name()
    wanted = options.pipeline in ("O2", "O3") and name not in options.without_passes
    if not wanted or not options.donate:  # state that is not donated is not overwritten
        return []
    on_gpu = _SLICE_ON_GPU if fast_loops else None
    return [UpdateInLoop(slice=0 if platform == "cpu" else on_gpu, budget=budget)]


def on_device(
    options: CompileOptions,
    platform: str,
    budget: int | None,
    exchanges: Sequence[Pass] = (),
    *,
    fast_loops: bool = True,
) -> list[Pass]:
    """The last passes, for the program that one device runs: recomputed values must be values of
    that device, and overwritten values must be in its memory.

    Args:
        exchanges: passes for the exchanges between replicas; they see the hoisted products.
        fast_loops: whether XLA for GPUs fuses the read of a slice in a loop with its write.
    """
    thorough = options.pipeline in ("O2", "O3")
    updates = _updates(options, platform, budget, fast_loops)
    # After `HoistProducts`, which reads operands from stacks.
    shifted: list[Pass] = [CarryShifted()] if thorough else []
    passes: list[Pass] = []
    if thorough and platform == "cpu":  # 100 GFLOP/s in matrix products, 12 GB/s
        passes.append(StackLess(flops=8, narrow_flops=8, other_flops=1))
    elif thorough and platform == "gpu":
        passes.append(StackLess())
    if budget is not None:
        passes.append(Recompute(budget, (*exchanges, *shifted, *updates)))
    if thorough:
        passes.append(HoistProducts(budget))
    passes += [*exchanges, *shifted, *updates]
    if thorough and platform == "gpu":
        passes += [GpuRecomputeActivations(), GpuFenceBuffers()]
    if platform != "cpu" or not options.donate:
        return passes
    if options.pipeline == "O3":
        passes.append(CpuUpdateByRows())
    if options.pipeline in ("O2", "O3"):
        passes.append(UpdateInPlace())
    return passes
