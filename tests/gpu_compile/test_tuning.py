"""`gc.tune` for an absent machine: estimates, which are used only on request."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

import graphc as gc
from graphc.devices.targets import FAST_LOOPS_ON_GPU
from graphc.errors import AttributeValueError
from graphc.runtime.hlo.hlo_cost import roofline_seconds
from tests.gpu_compile.models import mlp

EIGHT = gc.devices.Machine("h100", 8)
FEEDS = {"x": (8 * 1024, 784), "y": (8 * 1024,)}


def test_variants_are_ranked_by_estimates_and_nothing_is_kept(tmp_path: Path) -> None:
    graph, fetches = mlp(layers=30, units=1024)
    options = gc.CompileOptions(precision="bf16", cache=tmp_path / "cache")
    strategy = gc.devices.DataParallel(8)
    tuning = gc.tune(
        graph, fetches, FEEDS, machine=EIGHT, strategy=strategy, options=options, progress=False
    )
    assert tuning.estimated and not tuning.kept
    assert "times are estimates from the compiled text: nothing has run" in str(tuning)
    rows = {row.name: row for row in tuning.rows}
    outcome = "faster" if FAST_LOOPS_ON_GPU else "the same program"
    assert rows["gradients of loops exchanged after them"].outcome == outcome
    assert rows["no command buffers"].outcome == "the same kernels"
    assert rows["no Triton products"].outcome == "the same program"
    assert tuning.name is not None and tuning.ratio < 0.98

    def step(options: gc.CompileOptions) -> gc.Executable:
        graph, fetches = mlp(layers=30, units=1024)  # its state has the layout that this step needs
        return gc.compile(graph, fetches, FEEDS, machine=EIGHT, strategy=strategy, options=options)

    untuned, tuned = step(options), step(tuning.options)
    assert not any("tuned" in note for note in untuned.notes)
    seconds = [roofline_seconds(each.hlo_cost(), EIGHT.model) for each in (tuned, untuned)]
    assert abs(seconds[1] - tuning.seconds) < 1e-3 * tuning.seconds
    assert abs(seconds[0] / seconds[1] - tuning.ratio) < 1e-3


def test_time_runs_out() -> None:
    graph, fetches = mlp()
    tuning = gc.tune(graph, fetches, FEEDS, machine="h100", seconds=1e-6, progress=False)
    assert {row.outcome for row in tuning.rows} <= {"no time left", "the same program"}
    assert tuning.name is None and tuning.options == gc.CompileOptions()
    assert "nothing is clearly faster" in str(tuning)


# jax 0.12 does not have this option.
PIPELINED = [{"xla_gpu_enable_pipelined_all_reduce": True}]


@pytest.mark.parametrize(
    "option",
    [
        {"xla_gpu_enable_triton_gemm": True},
        {"xla_gpu_enable_command_buffer": ""},
        {"xla_gpu_enable_latency_hiding_scheduler": True},
        {"xla_gpu_enable_analytical_latency_estimator": True},
        {"xla_gpu_experimental_parallel_collective_overlap_limit": 2},
        {"xla_gpu_all_reduce_combine_threshold_bytes": 2**20},
        {"xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"},
        {"xla_gpu_cudnn_gemm_fusion_level": 2},
        *(
            [{"xla_gpu_enable_pipelined_all_reduce": True}]
            if jax.__version_info__ < (0, 11)
            else []
        ),
    ],
    ids=str,
)
def test_options_of_xla_in_the_guide_are_taken(option: dict[str, str | int | bool]) -> None:
    graph, fetches = mlp()
    step = gc.compile(
        graph,
        fetches,
        FEEDS,
        machine=EIGHT,
        strategy=gc.devices.DataParallel(8),
        options=gc.CompileOptions(xla_options=option, cache=None),
    )
    assert step.hlo_cost().collectives["all-reduce"].runs > 0


def test_a_wrong_machine_is_refused() -> None:
    graph, fetches = mlp()
    with pytest.raises(AttributeValueError, match="tune: machine must be"):
        gc.tune(graph, fetches, FEEDS, machine=8, progress=False)  # type: ignore[arg-type]
