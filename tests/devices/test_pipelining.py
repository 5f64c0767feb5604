"""Pipelines of stages: results equal those of one device, and little is kept on each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import PipelineParallel
from graphc.devices.admission import Admission
from graphc.devices.partition import Partition
from graphc.devices.schedule import timeline
from graphc.errors import AttributeValueError
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.targets.scripts import CompiledPartition
from tests.near import assert_near

STAGES = 4
PLACES = [f"/cpu:{i}" for i in range(STAGES)]
WAYS = [PipelineParallel("gpipe"), PipelineParallel(), PipelineParallel(recompute=True)]
NAMES = ["gpipe", "1f1b", "1f1b recomputing"]


@dataclass(frozen=True)
class Built:
    graph: gc.Graph
    feeds: Sequence[gc.Tensor]
    fetches: Any


def built(
    places: Sequence[str],
    micro_batches: int,
    *,
    width: int = 16,
    dropout: float = 0.0,
    skip: bool = False,
) -> Built:
    """A stage of three layers on each device. With `skip`, the result of the first stage is added
    to the result of the last one."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", width), "float64", name="x")
        t = gc.placeholder(("batch", width), "float64", name="t")
        h = first = x
        for i, place in enumerate(places):
            with gc.device(place):
                for j in range(3):
                    layer = gc.nn.Dense(
                        width, activation="tanh", dtype="float64", name=f"layer{i}_{j}"
                    )
                    h = layer(h)
                    if dropout:
                        h = gc.nn.dropout(h, dropout)
            first = h if i == 0 else first
        with gc.device(places[-1]):
            h = h + first if skip else h
            loss = gc.reduce_mean(gc.square(h - t), name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), accumulate=micro_batches, name="train")
    return Built(graph, [x, t], [train, loss])


def batches(count: int, rows: int, width: int = 16) -> list[list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(0)
    return [[rng.standard_normal((rows, width)) for _ in range(2)] for _ in range(count)]


def trained(model: Built, data: Any, strategy: PipelineParallel | None) -> tuple[Any, Any]:
    """The losses, and the variables at the end."""
    with gc.Session(model.graph, strategy=strategy) as session:
        losses = [
            float(session.run(model.fetches, dict(zip(model.feeds, batch, strict=True)))[1])
            for batch in data
        ]
        return losses, {name: np.asarray(session.get(name)) for name in model.graph.variables}


def step_of(strategy: PipelineParallel | None, micro_batches: int, **size: Any) -> gc.Executable:
    model = built(PLACES, micro_batches, **size)
    shapes = dict.fromkeys(model.feeds, (96, size.get("width", 16)))
    return gc.compile(model.graph, model.fetches, shapes, strategy=strategy)


def partition_of(*args: Any, **size: Any) -> Partition:
    found = step_of(*args, **size).partition
    assert found is not None
    return found


def in_turn(
    found: Partition, backward: float = 2.0, last: float = 3.0
) -> tuple[list[gc.devices.Span], dict[str, int]]:
    """The simulated times if a forward pass takes 1 and both passes of the last stage take `last`,
    and the largest number of micro-batches on each device."""
    parts: dict[Any, list[Any]] = {}
    for cluster in found.clusters:
        parts.setdefault((cluster.device, cluster.micro_batch), []).append(cluster)
    seconds = []
    for cluster in found.clusters:
        own = parts[cluster.device, cluster.micro_batch]
        both = last if len(own) == 1 else 1.0 if cluster is own[0] else backward
        seconds.append(0.0 if cluster.micro_batch is None else both)
    spans = timeline(found.clusters, seconds, found.schedule)
    held, most = Counter[str](), Counter[str]()
    left = {key: len(own) for key, own in parts.items()}
    for span in spans:
        cluster = found.clusters[span.cluster]
        key = cluster.device, cluster.micro_batch
        if cluster.micro_batch is None:
            continue
        held[cluster.device] += left[key] == len(parts[key])
        most[cluster.device] = max(most[cluster.device], held[cluster.device])
        left[key] -= 1
        held[cluster.device] -= left[key] == 0
    inside = [span for span in spans if found.clusters[span.cluster].micro_batch is not None]
    return inside, dict(most)


@pytest.mark.slow
@pytest.mark.parametrize("skip", [False, True], ids=["chain", "skip"])
@pytest.mark.parametrize("strategy", WAYS, ids=NAMES)
def test_200_steps_are_those_of_one_device(strategy: PipelineParallel, skip: bool) -> None:
    data = batches(200, 24)
    losses, values = trained(built(["/cpu:0"] * STAGES, 6, skip=skip), data, None)
    found, same = trained(built(PLACES, 6, skip=skip), data, strategy)
    assert_near(found, losses, 1e-9)
    assert same.keys() == values.keys()
    for name, value in values.items():
        assert_near(same[name], value, 1e-9, err_msg=name)


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 8, 12])
def test_a_stage_holds_as_many_micro_batches_as_stages_follow(micro_batches: int) -> None:
    spans, held = in_turn(partition_of(PipelineParallel(), micro_batches))
    if micro_batches == 1:  # the program has no loop over micro-batches
        assert not spans
        return
    assert list(held.values()) == [min(micro_batches, STAGES - i) for i in range(STAGES)]
    assert gc.devices.idle_part(spans) == pytest.approx(gc.devices.bubble(STAGES, micro_batches))


def test_without_the_limit_the_first_stage_holds_more_and_waits_as_long() -> None:
    spans, held = in_turn(partition_of(PipelineParallel("gpipe"), 8))
    assert held["/device:CPU:0"] == 8
    assert gc.devices.idle_part(spans) == pytest.approx(gc.devices.bubble(STAGES, 8))


@pytest.mark.slow
def test_a_fast_last_stage_does_not_make_the_others_wait() -> None:
    """If a stage admitted a micro-batch only after a backward pass, this would take 56."""
    lengths = [
        max(s.end for s in in_turn(partition_of(way, 8), backward=3.0, last=3.0)[0])
        for way in WAYS[:2]
    ]
    assert lengths == [40.0, 42.0]


@pytest.mark.slow
def test_kept_bytes_are_those_of_theory() -> None:
    """Counts only bytes that grow with the rows of the batch: activations, not gradient sums."""

    def grown(strategy: PipelineParallel, device: int) -> float:
        """How many values of the network's width a device keeps for each row of the batch."""
        found = []
        for rows in (960, 1920):
            model = built(PLACES, 8, width=8)
            shapes = dict.fromkeys(model.feeds, (rows, 8))
            step = gc.compile(model.graph, model.fetches, shapes, strategy=strategy)
            found.append(gc.devices.kept_bytes(step.partition)[f"/device:CPU:{device}"])
        return (found[1] - found[0]) / (960 * 8 * 8)

    # For each micro-batch, a stage of three layers keeps its input and two or three results. While
    # it runs, one more micro-batch enters and one leaves.
    held = 3 / 8
    assert grown(PipelineParallel("gpipe"), 1) >= 6 / 8 * 3
    assert held * 3 <= grown(PipelineParallel(), 1) <= held * 4 + 3 / 8
    assert held <= grown(PipelineParallel(recompute=True), 1) <= held + 3 / 8


def test_what_is_smaller_than_the_inputs_of_a_stage_is_kept() -> None:
    """The backward pass of the second stage needs a mean and its tanh, but not the wide input."""
    kept, clusters = [], []
    for recompute in (False, True):
        graph = gc.Graph(seed=0)
        with graph:
            x = gc.placeholder((None, 512), "float64", name="x")
            a, b = (gc.variable(np.ones((), "float64"), name=name) for name in "ab")
            with gc.device("/cpu:0"):
                wide = gc.cos(x)
            with gc.device("/cpu:1"):
                small = gc.tanh(gc.reduce_mean(wide, 1) * a)
            with gc.device("/cpu:2"):
                loss = gc.reduce_mean(gc.square(small * b))
            train = gc.minimize(loss, optax.sgd(0.1), accumulate=8)
        strategy = PipelineParallel(recompute=recompute)
        found = gc.compile(graph, train, {x: (64, 512)}, strategy=strategy).partition
        assert found is not None
        kept.append(gc.devices.kept_bytes(found)["/device:CPU:1"])
        clusters.append(Counter(c.device for c in found.clusters if c.micro_batch == 0))
    assert clusters[0]["/device:CPU:1"] == 2  # forward and backward
    assert kept[0] == kept[1]


def test_micro_batches_are_admitted_in_order() -> None:
    """The second micro-batch is ready, but the first one must be admitted before it."""
    clusters: Any = [SimpleNamespace(device="a", micro_batch=i) for i in (0, 0, 1, 1)]
    admission = Admission(clusters, [set(), {0}, set(), {2}])
    assert not admission.admits(2)
    admission.started(0)
    assert not admission.admits(2)  # the device already has one
    admission.started(1)
    assert admission.admits(2)


@pytest.mark.parametrize("strategy", WAYS, ids=NAMES)
def test_rows_of_all_micro_batches_and_a_weight_of_another_stage(
    strategy: PipelineParallel,
) -> None:
    """The second device starts its sums before the micro-batches and joins the rows after them. One
    cluster for both would make the first backward pass wait for the last forward pass."""

    def fetched(places: Sequence[str], strategy: PipelineParallel | None) -> list[Any]:
        graph = gc.Graph(seed=0)
        with graph:
            x = gc.placeholder((None, 4), "float64", name="x")
            with gc.device(places[0]):
                w = gc.variable(np.eye(4) * 0.5, name="w")
                h = gc.tanh(gc.matmul(x, w))
            with gc.device(places[1]):
                rows, _ = gc.scan(
                    lambda c, u: (gc.tanh(gc.matmul(c, w) + u), u), h, gc.stack([h, h * 2.0])
                )
            with gc.device(places[2]):
                out = gc.nn.Dense(4, dtype="float64", name="out")(rows)
                loss = gc.reduce_mean(gc.square(out))
            train = gc.minimize(loss, optax.sgd(0.1), accumulate=8, name="train")
        with gc.Session(graph, strategy=strategy) as session:
            feeds = {x: np.random.default_rng(0).normal(size=(16, 4))}
            return [session.run([train, loss, rows], feeds)[1:] for _ in range(3)]

    want = fetched(["/cpu:0"] * 3, None)
    found = fetched(PLACES[:3], strategy)
    for got, values in zip(found, want, strict=True):
        assert_near(got[0], values[0], 1e-9)
        assert_near(got[1], values[1], 1e-9)


@pytest.mark.slow
def test_random_values_are_the_same_when_they_are_computed_again() -> None:
    data = batches(5, 24)
    kept = trained(built(PLACES, 4, dropout=0.3), data, PipelineParallel())
    again = trained(built(PLACES, 4, dropout=0.3), data, PipelineParallel(recompute=True))
    without = trained(built(PLACES, 4), data, PipelineParallel())
    assert_near(again[0], kept[0], 1e-9)
    for name, value in kept[1].items():
        assert_near(again[1][name], value, 1e-9, err_msg=name)
    assert abs(kept[0][-1] - without[0][-1]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("strategy", WAYS, ids=NAMES)
def test_arrays_that_exist_in_a_run_are_those_predicted(
    strategy: PipelineParallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each executable completes before the next one starts."""
    step = step_of(strategy, 8, width=64)
    first = jax.devices()[0]
    run_script = CompiledPartition.step
    most = 0

    def measured(self: CompiledPartition, arguments: Sequence[Any]) -> Any:
        before = {id(array) for array in jax.live_arrays()}

        def started(run: Callable[[], Any]) -> Any:
            nonlocal most
            results = jax.block_until_ready(run())
            new = [a for a in jax.live_arrays() if id(a) not in before]
            most = max(most, sum(a.nbytes for a in new if a.devices() == {first}))
            return results

        return run_script(self, arguments, started)

    monkeypatch.setattr(CompiledPartition, "step", measured)
    x, t = batches(1, 96, 64)[0]
    step(step.init(), {"x": x, "t": t})
    predicted = gc.devices.kept_bytes(step.partition)["/device:CPU:0"]
    assert 0.9 * predicted <= most <= 1.1 * predicted + x.nbytes  # the feed is an array too


@pytest.mark.slow
def test_several_steps_in_a_call_and_the_cache() -> None:
    data = batches(3, 24)
    losses, _ = trained(built(PLACES, 4), data, PipelineParallel(recompute=True))
    model = built(PLACES, 4)
    with gc.Session(model.graph, strategy=PipelineParallel(recompute=True)) as session:
        rows = [dict(zip(model.feeds, batch, strict=True)) for batch in data]
        found = session.run_steps(model.fetches, rows, len(rows))[1]
        assert_near(found, losses, 1e-9)
    before = COUNTERS.compiles
    again, _ = trained(built(PLACES, 4), data, PipelineParallel(recompute=True))
    assert (COUNTERS.compiles, again) == (before, losses)
    trained(built(PLACES, 4), data, PipelineParallel())
    assert COUNTERS.compiles > before  # another program was compiled


def test_a_program_on_one_device_says_so() -> None:
    model = built(["/cpu:0"] * STAGES, 4)
    shapes = dict.fromkeys(model.feeds, (24, 16))
    step = gc.compile(model.graph, model.fetches, shapes, strategy=PipelineParallel())
    assert step.partition is None
    assert step.notes == ["PipelineParallel: all nodes are on one device"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("1f1",), "schedule must be '1f1b' or 'gpipe', got '1f1'"),
        ((4,), "schedule must be '1f1b' or 'gpipe', got 4"),
        (("1f1b", 1), "recompute must be a bool, got 1"),
    ],
)
def test_wrong_arguments(arguments: Any, says: str) -> None:
    with pytest.raises(AttributeValueError, match=says):
        PipelineParallel(*arguments)
