"""Which passes run, in which order, and why in that order."""

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
from graphc.passes.cpu.cpu_update_by_rows import CpuUpdateByRows
from graphc.passes.cpu.cpu_winograd import CpuWinograd
from graphc.passes.gpu.gpu_fence_buffers import GpuFenceBuffers
from graphc.passes.gpu.gpu_recompute_activations import GpuRecomputeActivations
from graphc.passes.gpu.gpu_stack_less import GpuStackLess
from graphc.passes.memory.carry_shifted import CarryShifted
from graphc.passes.memory.recompute import Recompute
from graphc.passes.memory.update_in_loop import UpdateInLoop
from graphc.passes.memory.update_in_place import UpdateInPlace
from graphc.passes.precision.mixed_precision import MixedPrecision
from graphc.passes.precision.scale_loss import ScaleLoss
from graphc.passes.rolling.group_alike import GroupAlike
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.passes.rolling.stack_carries import StackCarries
from graphc.passes.simplify.drop_marks import DropMarks
from graphc.passes.simplify.eliminate_common import EliminateCommon
from graphc.passes.simplify.fold_constants import FoldConstants
from graphc.passes.simplify.hoist_products import HoistProducts
from graphc.passes.simplify.hoist_sums import HoistSums
from graphc.passes.simplify.inline_bodies import InlineBodies
from graphc.passes.simplify.prune import Prune
from graphc.passes.simplify.simplify_algebra import SimplifyAlgebra
from graphc.passes.simplify.simplify_shapes import SimplifyShapes
from graphc.passes.simplify.spread_casts import SpreadCasts
from graphc.passes.sparse.sparse_gradients import SparseGradients

# Prune first: what nobody needs costs no other pass any time. Then inlining, since no pass sees
# through a body; then algebra, which takes away the identities, ones and zeros of gradients that
# stand between other nodes; then folding, for which algebra has gathered constants; then shapes,
# which see reshapes and broadcasts meet; then CSE, to which all of them have made equal what is
# equal. They leave nodes behind that nobody uses any more, so prune ends the round.
_SIMPLIFY: Final[tuple[Pass, ...]] = (
    Prune(),
    InlineBodies(),
    SimplifyAlgebra(),
    FoldConstants(),
    SimplifyShapes(),
    EliminateCommon(),
    Prune(),
)
# Once sizes are ints, those used as values are constants; shapes were as simple with names.
_FOLD_SIZES: Final[tuple[Pass, ...]] = (FoldConstants(), Prune())
# Rolling comes last: the passes before it make blocks equal, and see through nothing that is
# rolled. What rolled loops give and take is stacked, and grouping begins at stacks.
_AFTER_ROLLING: Final[tuple[Pass, ...]] = (GroupAlike(), Prune())
# What each layer becomes on CPU is decided before rolling: blocks stay alike.
_ON_CPU: Final[tuple[Pass, ...]] = (
    CpuSpaceToDepth(),
    CpuPointwise(),
    CpuWinograd(),
    CpuPooling(),
    CpuMoments(),
    EliminateCommon(),
    Prune(),
)

# On CPU a network of 3 or 5 blocks compiles as fast flat, and its steps take 0.86 to 0.94 of the
# time: a loop writes what it stacks twice. Of 6 blocks it compiles as fast in a loop, of 12 in
# half the time.
_FEWEST_TURNS: Final = 6


# On a GPU a loop copies what it takes from stacks, since kernels of cuBLAS and cuDNN want operands
# of their own: estimated from the HLO for one H100, rolled steps take 1.3 to 1.5 times as long.
# Flat, up to 24 blocks compile as fast as unrolled JAX; compile time grows faster than depth.
_FEWEST_TURNS_ON_GPU: Final = 25


# Bytes of a gradient of one layer. Estimated for one H100, 32 layers, adam: steps with updates in
# the loop take 1.22 of the time with 1 MB, 1.11 with 4 MB, 1.00 with 16 MB.
_SLICE_ON_GPU: Final = 1 << 24


def adding_state(options: CompileOptions) -> list[Pass]:
    """The passes that come right after functionalize, for they give the program hidden state: what
    is known of a program before its passes run, its key in the cache too, has it already."""
    return [ScaleLoss()] if options.precision == "f16" else []


def pipeline(options: CompileOptions) -> list[Pass]:
    """The target-independent passes, for a functional program.

    Mixed precision comes last in the first round: passes before it see float32 as it was written,
    and those of the second round the casts.
    """
    mixed: list[Pass] = [] if options.precision is None else [MixedPrecision(options.precision)]
    if options.pipeline == "O0":
        return mixed
    drop = DropMarks(keep_ranges=options.check_numerics)
    passes = [*_SIMPLIFY, *mixed, drop] if mixed else [drop, *_SIMPLIFY]
    # Lazy updates mean something else, which must not wait for sizes; exact ones ask what pays.
    return [*passes, *_sparse(options)] if options.sparse_updates == "lazy" else passes


def _sparse(options: CompileOptions) -> list[Pass]:
    if options.sparse_updates == "off":
        return []
    lazy = options.sparse_updates == "lazy"
    return [HoistSums(always=lazy), SparseGradients(lazy=lazy)]


def _attention(options: CompileOptions, target: Target) -> list[Pass]:
    """Before rolling, so that what a rolled loop keeps are operands and no weights. What fusing
    leaves behind other passes would take for uses."""
    fused = [FuseAttention(target), Prune()] if options.fuse_attention else []
    return [*fused, StepAttention(target)]


def after_binding(options: CompileOptions, target: Target) -> list[Pass]:
    """The passes that come once named sizes are ints, each once."""
    if options.pipeline == "O0":
        return []
    if options.pipeline == "O1":
        return list(_FOLD_SIZES)
    mixed = [] if options.precision is None else [SpreadCasts()]
    suited = _ON_CPU if options.pipeline == "O3" and target.platform == "cpu" else ()
    first = [*_FOLD_SIZES, *_attention(options, target), *_sparse(options), *mixed, *suited]
    rolled = [*first, _rolling(options, target), *_grouping(target)]
    narrow = options.precision == "bf16" and target.platform == "cpu"
    return [*rolled, CpuStackedBits(), Prune()] if narrow else rolled


def _rolling(options: CompileOptions, target: Target) -> Pass:
    """Loops of few turns are for a limit of memory, which asks for what loops keep. There a forward
    loop is needed for each backward loop, however few nodes it saves and however small its layers.
    """
    turns = RollRepeats.turns
    limited = target.tight or (target.platform == "cpu" and options.memory_limit is not None)
    shared = 1 if limited else RollRepeats.shared
    if target.platform == "gpu" and not target.tight:
        turns = max(_FEWEST_TURNS_ON_GPU, (options.unroll or 0) + 1)
    elif target.platform == "cpu" and not target.tight and options.memory_limit is None:
        turns = _FEWEST_TURNS
    return RollRepeats(turns=turns, shared=shared, unroll=options.unroll)


def _grouping(target: Target) -> tuple[Pass, ...]:
    """Where memory is short, variables lie apart: updates of all blocks at once would copy them."""
    return (Prune(),) if target.tight else _AFTER_ROLLING


def after_accumulation(options: CompileOptions, target: Target) -> list[Pass]:
    """The passes that come last where gradients are summed over micro-batches: what lies outside
    of the loop over these meets its stacks."""
    if options.pipeline in ("O0", "O1"):
        return []
    return [StackCarries(), *_grouping(target)]


def _updates(
    options: CompileOptions, platform: str, budget: int | None, fast_loops: bool
) -> list[Pass]:
    """Where the optimizer runs in the loop that computes the gradients. It comes after `Recompute`,
    which may need the parameters in the backward loop, and knows what this pass saves.
    Loops that are compiled without a loop on a GPU stay as they are unless memory is short: each
    write of a slice would be a kernel of its own, and read what other writes left.
    """
    name = UpdateInLoop.class_name()
    wanted = options.pipeline in ("O2", "O3") and name not in options.without_passes
    if not wanted or not options.donate:  # what is not given away is not written over
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
    """The passes for the program as one device runs it, after all others: what is computed again
    must be what that device computed, and what is written over must be what lies there.

    Args:
        exchanges: passes over what replicas exchange; they see what products are hoisted to.
        fast_loops: whether XLA for GPUs fuses the read of a slice in a loop with its write.
    """
    thorough = options.pipeline in ("O2", "O3")
    updates = _updates(options, platform, budget, fast_loops)
    # After `HoistProducts`, which takes operands from stacks.
    shifted: list[Pass] = [CarryShifted()] if thorough else []
    passes: list[Pass] = []
    if platform == "gpu" and thorough:
        passes.append(GpuStackLess())
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
