"""Every pass preserves the results of generated programs, and leaves them valid."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.config import CompileOptions
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.passes.attention.fuse_attention import FuseAttention
from graphc.passes.core.base import Pass
from graphc.passes.core.target import Target
from graphc.passes.core.validate import check_meaning
from graphc.passes.frozen.fold_norms import FoldNorms
from graphc.passes.frozen.straight_weights import StraightWeights
from graphc.passes.gpu.gpu_fence_buffers import GpuFenceBuffers
from graphc.passes.gpu.gpu_recompute_activations import GpuRecomputeActivations
from graphc.passes.manager import PassManager
from graphc.passes.memory.recompute import Recompute
from graphc.passes.memory.stack_less import StackLess
from graphc.passes.pipelines import after_binding, pipeline
from graphc.passes.rolling.group_alike import GroupAlike
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.passes.simplify.eliminate_common import EliminateCommon
from graphc.passes.simplify.fold_constants import FoldConstants
from graphc.passes.simplify.hoist_products import HoistProducts
from graphc.passes.simplify.hoist_sums import HoistSums
from graphc.passes.simplify.move_transposes import MoveTransposes
from graphc.passes.simplify.prune import Prune
from graphc.passes.simplify.simplify_algebra import SimplifyAlgebra
from graphc.passes.simplify.simplify_shapes import SimplifyShapes
from graphc.passes.sparse.sparse_gradients import SparseGradients
from tests.passes.evaluate import evaluate
from tests.passes.generate import programs

PASSES = (
    Prune(), FoldConstants(), EliminateCommon(), SimplifyAlgebra(), SimplifyShapes(),
    RollRepeats(turns=2, saved=1, work=0), GroupAlike(fewest=2), FoldNorms(),
    HoistSums(always=True), SparseGradients(fewest=0, smallest=0), Recompute(budget=0),
    FuseAttention(every=True), HoistProducts(),
    MoveTransposes(), GpuFenceBuffers(fewest=1), GpuRecomputeActivations(smallest=0), StackLess(),
    StraightWeights(),
)  # fmt: skip
UNHURRIED = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("a_pass", PASSES, ids=lambda p: p.name)
@UNHURRIED
@given(before=programs(), seed=st.integers(0, 3))
def test_a_pass_preserves_meaning(a_pass: Pass, before: Program, seed: int) -> None:
    verify(before, "functional")
    after, changed = a_pass.run(before)
    assert (after is before) == (changed == 0)
    verify(after, "functional")
    difference = check_meaning(before, after, evaluate, seed)
    assert difference is None, f"{difference}\n{print_program(before)}\n{print_program(after)}"


@UNHURRIED
@given(before=programs(nodes=24), seed=st.integers(0, 3))
def test_so_does_the_default_pipeline(before: Program, seed: int) -> None:
    manager = PassManager(pipeline(CompileOptions()), validate=True, evaluator=evaluate, seed=seed)
    after, report = manager.run(before)
    assert len(after.nodes) <= len(before.nodes)
    assert report.rows[-1].after == len(after.nodes)
    bound = bind_sizes(after, dict.fromkeys(after.symbols(), 3))
    manager = PassManager(
        after_binding(CompileOptions(), Target()),
        stage="bound",
        validate=True,
        evaluator=evaluate,
        rounds=1,
    )
    manager.run(bound)
