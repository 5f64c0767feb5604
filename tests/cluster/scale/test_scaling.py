"""Predictions: what is counted, how a step is scheduled, and which split is chosen."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.cluster.scale.compiled import run_seconds
from graphc.cluster.scale.counting import workload_of
from graphc.cluster.scale.hardware import Hardware, Link
from graphc.cluster.scale.scaling import splits
from graphc.cluster.scale.schedule import exposed, memory_of
from graphc.cluster.scale.workload import Exchange, Memory, Products, Workload
from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, FeedError
from graphc.runtime.pipeline.fitting import taken_by

HARDWARE = Hardware("test", 1e9, 1e12, {"tf32": 1e12}, 1e12, 8, Link(1e-6, 1e11), Link(1e-5, 1e10))
WORK = replace(
    Workload.of_model(rows=64, seconds=0.1, parameters=4e8, slots=8e8),
    products=Products(8, 4e4, 1024),
    layers=[1.0] * 16,
    boundary=4e3,
    memory=Memory(4e8, 1e6),
)
WIDE, ROWS = 256, 64


def mlp() -> tuple[gc.Graph, list[object], dict[str, tuple[int, ...]]]:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", WIDE), name="x")
        y = x
        for number in range(4):
            y = gc.nn.Dense(WIDE, activation="relu", name=f"layer{number}")(y)
        loss = gc.reduce_mean(y**2, name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    return graph, [train, loss], {"x": (ROWS, WIDE)}


# -- counting -------------------------------------------------------------------------------


def test_a_workload_has_the_figures_of_its_program() -> None:
    graph, fetches, feeds = mlp()
    work = workload_of(graph, fetches, feeds, CompileOptions())
    weights = 4 * (WIDE * WIDE + WIDE) * 4
    assert work.rows == ROWS
    assert 0 <= work.parameters - weights < 100  # and a step counter
    assert 0 <= work.slots - 2 * weights < 100
    gradients = [e for e in work.exchanges if e.gradient]
    assert 0 <= sum(e.bytes for e in gradients) - weights < 100
    assert work.exchanges[-1].needed == 1.0
    assert work.products == Products(2, 2 * WIDE * 4, WIDE)
    assert work.boundary == WIDE * 4
    assert 0.3 < work.forward < 0.4  # one product forward; two backward, but one in the first layer
    flops = sum(work.costs[0][1].matrix_flops.values())
    assert flops == 2 * ROWS * WIDE * WIDE * (4 + 4 + 3)


def test_batch_statistics_are_exchanged_at_once() -> None:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", 8), name="x")
        y = gc.nn.BatchNorm(name="norm")(gc.nn.Dense(8)(x), training=True)
        train = gc.minimize(gc.reduce_mean(gc.nn.Dense(8)(y) ** 2), optax.sgd(0.1))
    work = workload_of(graph, train, {"x": (16, 8)}, CompileOptions())
    early = [e for e in work.exchanges if not e.gradient]
    assert early
    assert all(e.needed < 1 for e in early)
    assert min(e.ready for e in early) < work.forward


def test_memory_is_that_of_compiled_steps() -> None:
    graph, fetches, feeds = mlp()
    work = workload_of(graph, fetches, feeds, CompileOptions())
    for rows in (ROWS, 4 * ROWS):
        step = gc.compile(graph, fetches, {"x": (rows, WIDE)})
        assert memory_of(work, gc.cluster.Split(), rows) == pytest.approx(
            taken_by(step.compiled), rel=0.1
        )
    zero = gc.devices.DataParallel(4, shard_optimizer=True)
    step = gc.compile(graph, fetches, {"x": (4 * ROWS, WIDE)}, strategy=zero)
    split = gc.cluster.Split(4, sharded="optimizer")
    assert memory_of(work, split, 4 * ROWS) == pytest.approx(taken_by(step.compiled), rel=0.25)


def test_memory_of_sharded_parameters_is_near_that_of_compiled_steps() -> None:
    graph, fetches, feeds = mlp()
    work = workload_of(graph, fetches, feeds, CompileOptions())
    fully = gc.devices.DataParallel(4, shard_parameters=True)
    step = gc.compile(graph, fetches, {"x": (4 * ROWS, WIDE)}, strategy=fully)
    split = gc.cluster.Split(4, sharded="parameters")
    found = memory_of(work, split, 4 * ROWS)
    assert found == pytest.approx(taken_by(step.compiled), rel=0.25)


def test_a_step_without_a_batch_is_refused() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((4,), name="x")
        y = gc.reduce_sum(x)
    with pytest.raises(FeedError, match="no feed has a batch axis"):
        gc.cluster.scaling(graph, y, {"x": (4,)}, HARDWARE, [1])


# -- the schedule ---------------------------------------------------------------------------


def test_exchanges_hide_behind_the_backward_pass() -> None:
    def seconds(exchange: Exchange) -> float:
        return 2.0

    ready = [Exchange(1, at, 1.0, True) for at in (0.5, 0.6, 1.0)]
    assert exposed(ready[:1], 10.0, seconds) == 0  # 5 to 7
    assert exposed(ready[:2], 10.0, seconds) == 0  # 7 to 9
    assert exposed(ready, 10.0, seconds) == 2  # 10 to 12
    assert exposed(ready, 10.0, seconds, overlap=False) == 6
    blocking = Exchange(1, 0.5, 0.5, False)
    assert exposed([blocking], 10.0, seconds) == 2
    assert exposed([blocking, *ready], 10.0, seconds) == 4


def test_one_device_has_efficiency_1() -> None:
    found = gc.cluster.predict(WORK, HARDWARE, gc.cluster.Split(), 64)
    assert math.isclose(found.efficiency, 1)
    assert math.isclose(found.seconds, 0.1)
    assert found.waiting == found.bubble == 0


@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 8), (8, 2)])
def test_the_bubble_is_that_of_theory(stages: int, micro: int) -> None:
    split = gc.cluster.Split(pipeline=stages, micro_batches=micro)
    no_update = replace(HARDWARE, memory_bandwidth=1e30)
    found = gc.cluster.predict(WORK, no_update, split, 64)
    share = found.bubble / (found.bubble + found.computing)
    assert math.isclose(share, gc.devices.bubble(stages, micro), rel_tol=1e-6)


def test_sharding_divides_memory() -> None:
    def memory(**split: Any) -> float:
        return memory_of(WORK, gc.cluster.Split(**split), 64 * 4)

    assert memory(data=4) == 4e8 + 8e8 + 4e8 + 64e6
    assert memory(data=4, sharded="optimizer") == 4e8 + 2e8 + 4e8 + 64e6
    assert memory(data=4, sharded="parameters") == 1e8 + 2e8 + 1e8 + 64e6
    assert memory(tensor=4) == (16e8 + 256e6) / 4
    assert memory(data=4, micro_batches=4) == 16e8 + 16e6


def test_stages_keep_layers_whole() -> None:
    work = replace(WORK, layers=[1.0, 1.0, 4.0, 1.0, 1.0])
    assert math.isclose(work.largest_stage(2), 6 / 8, rel_tol=1e-6)
    assert math.isclose(work.largest_stage(5), 4 / 8, rel_tol=1e-6)
    assert math.isclose(WORK.largest_stage(4), 1 / 4, rel_tol=1e-6)


def test_shared_cores_do_not_compute_faster() -> None:
    shared = replace(HARDWARE, concurrent=2.0, overlap=False)
    two, eight = (
        gc.cluster.predict(WORK, shared, gc.cluster.Split(n), 64 * n).computing for n in (2, 8)
    )
    assert math.isclose(two, 0.1)
    assert math.isclose(eight, 0.4)


def test_a_compiled_program_waits_for_its_collectives() -> None:
    graph, fetches, feeds = mlp()
    feeds = {"x": (4 * ROWS, WIDE)}
    step = gc.compile(graph, fetches, feeds, strategy=gc.devices.DataParallel(4))
    cost = step.hlo_cost()
    assert cost.collectives
    fast = replace(HARDWARE, link=Link(0.0, 1e30))
    slow = replace(HARDWARE, link=Link(0.0, 1e6))
    more = run_seconds(cost, slow, 4) - run_seconds(cost, fast, 4)
    size = sum(kind.bytes for kind in cost.collectives.values())
    assert more == pytest.approx(2 * 3 / 4 * size / 1e6, rel=0.05)


# -- the search -----------------------------------------------------------------------------


def test_the_best_split_fits_and_is_the_fastest() -> None:
    found = gc.cluster.scaling_of(WORK, HARDWARE, [1, 8, 64])
    assert 1 not in found.best  # 1.66 GB
    for count, best in found.best.items():
        rows = 64 * count
        tried = [
            gc.cluster.predict(WORK, HARDWARE, split, rows)
            for split in splits(WORK, HARDWARE, count, rows)
        ]
        assert best.fits
        assert best.memory <= HARDWARE.memory
        fastest = min(other.seconds for other in tried if other.fits)
        assert best.seconds <= fastest * 1.01
        assert best.split.devices == count
        assert any(not other.fits and other.split == gc.cluster.Split(count) for other in tried)


def test_splits_obey_their_limits() -> None:
    for split in splits(replace(WORK, products=Products(8, 4e4, 6)), HARDWARE, 64, 64.0):
        assert split.devices == 64
        assert 6 % split.tensor == 0
        assert split.pipeline <= 16
        assert 64 / split.data / split.micro_batches >= 1
    alone = replace(WORK, products=Products(0, 0.0, 1), boundary=0.0)
    assert {(s.tensor, s.pipeline) for s in splits(alone, HARDWARE, 64, 64.0)} == {(1, 1)}


def test_a_fixed_batch_is_shared() -> None:
    found = gc.cluster.scaling_of(WORK, HARDWARE, [4, 128], fixed_batch=True)
    assert {p.rows for ps in found.plain.values() for p in ps} == {64.0}
    assert [p.split.devices for p in found.plain["data parallel"]] == [4]  # 128 have no row each
    ends = [gc.cluster.scaling_of(WORK, HARDWARE, [4]).plain["data parallel"][0], found.best[4]]
    assert ends[0].seconds > ends[1].seconds


@pytest.mark.parametrize("devices", [[], [0], [-1], [True], ["8"], [2**21]])
def test_numbers_of_devices_are_checked(devices: Any) -> None:
    with pytest.raises(AttributeValueError, match="devices must be positive"):
        gc.cluster.scaling_of(WORK, HARDWARE, devices)


@pytest.mark.slow
def test_a_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = gc.cluster.scaling_of(WORK, HARDWARE, [1, 8, 64])
    found.plot(tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(gc.errors.ArtifactError, match="cannot write"):
        found.plot(tmp_path / "none" / "scaling.png")


# -- hardware -------------------------------------------------------------------------------


def test_hardware_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    for hardware in (HARDWARE, replace(HARDWARE, concurrent=1.5, overlap=False, launch=1e-6)):
        path.write_text(hardware.to_json())
        assert gc.cluster.Hardware.read(path) == hardware


def test_known_machines_have_networks() -> None:
    for name in ("a100-40gb", "a100-80gb", "h100", "h200", "b200", "l4", "l40s"):
        hardware = gc.cluster.Hardware.read(f"8x{name}")
        assert hardware.network.bandwidth < hardware.link.bandwidth
        assert 0 < hardware.link.latency < hardware.network.latency


GOOD = json.loads(HARDWARE.to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memroy": 1}, "did you mean|mean 'memory'"),
        ({"memory": -1}, "memory = -1 is not a positive number"),
        ({"memory": "1"}, "memory = '1' is not a positive number"),
        ({"memory": True}, "memory = True is not a positive number"),
        ({"devices_per_machine": 1.5}, "not an int"),
        ({"efficiency": 1.5}, "more than 1"),
        ({"overlap": 1}, "overlap must be a bool"),
        ({"matrix_flops": {"bf16": None}}, "matrix_flops must be rates"),
        ({"link": {"latency": 1}}, "link must have a latency and a bandwidth"),
        ({"link": 3}, "link must have"),
        ({"network": {"latency": -1, "bandwidth": 1}}, "does not have positive numbers"),
    ],
)
def test_wrong_files_are_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(AttributeValueError, match=message):
        gc.cluster.Hardware.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "null", "\xff", '{"memory": NaN}'])
def test_files_that_are_no_description_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(AttributeValueError, match="Hardware"):
        gc.cluster.Hardware.read(path)
    with pytest.raises(AttributeValueError, match="cannot be read"):
        gc.cluster.Hardware.read(tmp_path / "none.json")


@pytest.mark.slow
def test_a_measured_time_replaces_the_estimate() -> None:
    graph, fetches, feeds = mlp()
    found = gc.cluster.scaling(graph, fetches, feeds, HARDWARE, [1], step_seconds=0.5)
    assert found.plain["data parallel"][0].seconds == pytest.approx(0.5)
    wrong: Any
    for wrong in (0, -1.0, float("nan"), float("inf"), "1", True, np.float32(1)):
        with pytest.raises(AttributeValueError, match="step_seconds"):
            gc.cluster.scaling(graph, fetches, feeds, HARDWARE, [1], step_seconds=wrong)
