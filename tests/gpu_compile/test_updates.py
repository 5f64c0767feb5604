"""Updates in loops, and equal layers without a loop, compiled for absent GPUs."""

from __future__ import annotations

import re
from typing import Any

import optax
import pytest

import graphc as gc
from graphc.devices.targets import FAST_LOOPS_ON_GPU
from graphc.runtime.hlo.hlo_cost import hlo_cost, roofline_seconds, timeline
from graphc.runtime.targets import jax_program as lowered
from graphc.runtime.targets import replicated

BATCH = 32


def compiled(
    layers: int, width: int, optimizer: Any, *, gpus: int = 1, rows: int = BATCH, **options: Any
) -> gc.Executable:
    """A training step of equal layers for H100s, with `rows` rows on each."""
    graph, batch = gc.Graph(seed=0), gpus * rows
    with graph:
        h = x = gc.placeholder((batch, width), name="x", batch_axis=0)
        for _ in range(layers):
            h = gc.nn.Dense(width, activation=gc.tanh)(h)
        loss = gc.reduce_mean(gc.square(h), name="loss")
        train = gc.minimize(loss, optimizer, name="train")
    made = gc.CompileOptions(cache=None, **options)
    machine = gc.devices.Machine("h100", gpus)
    strategy = gc.devices.DataParallel(gpus) if gpus > 1 else None
    fetches, shapes = [train, loss], {x: (batch, width)}
    step = gc.compile(graph, fetches, shapes, machine=machine, strategy=strategy, options=made)
    return step.wait()


def changed(step: gc.Executable, name: str) -> int:
    return sum(row.changed for row in step.pass_report().rows if row.name == name)


@pytest.mark.skipif(not FAST_LOOPS_ON_GPU, reason="updates in loops would be slower")
@pytest.mark.parametrize(("name", "slots"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_gradients_of_a_loop_are_not_all_there_at_once(name: str, slots: int) -> None:
    layers, width = 26, 2048
    gradients = layers * width * width * 4
    optimizer = {
        "sgd": optax.sgd(0.1),
        "momentum": optax.sgd(0.1, momentum=0.9),
        "adam": optax.adam(1e-3),
    }[name]
    moved = compiled(layers, width, optimizer)
    plain = compiled(layers, width, optimizer, without_passes=("update-in-loop",))
    assert changed(moved, "update-in-loop") == 1
    state = gradients * (1 + slots)
    assert moved.memory()["aliased"] == plain.memory()["aliased"] >= state
    saved = plain.memory()["temporaries"] - moved.memory()["temporaries"]
    assert saved > 0.6 * gradients
    gpu = gc.devices.Machine("h100").model
    times = [roofline_seconds(hlo_cost(step.hlo(), 1), gpu) for step in (moved, plain)]
    assert times[0] < 1.05 * times[1]


@pytest.mark.skipif(not FAST_LOOPS_ON_GPU, reason="updates in loops would be slower")
@pytest.mark.parametrize("rows", [BATCH, 8192])
def test_replicas_apply_what_they_exchange_in_the_loop(rows: int) -> None:
    layers, width = 26, 2048
    gradients = layers * width * width * 4
    shapes = {"gpus": 8, "rows": rows}
    moved = compiled(layers, width, optax.adam(1e-3), **shapes)
    plain = compiled(layers, width, optax.adam(1e-3), **shapes, without_passes=("update-in-loop",))
    assert changed(moved, "exchange-in-loops") == changed(moved, "update-in-loop") == 1
    assert moved.memory()["aliased"] == plain.memory()["aliased"] >= 3 * gradients
    saved = plain.memory()["temporaries"] - moved.memory()["temporaries"]
    assert saved > 0.6 * gradients
    assert not re.findall(rf"f32\[\d\d,{width},{width}\]\S* copy\(", moved.hlo())
    gpu = gc.devices.Machine("h100", 8).model
    times = [timeline(step.hlo_cost(), gpu) for step in (moved, plain)]
    assert times[0].computing < 1.01 * times[1].computing
    assert times[0].seconds < 1.05 * times[1].seconds
    assert times[0].communicating < 1.01 * times[1].communicating


def test_replicas_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of less than 16 MB, whether or not XLA hides exchanges in loops."""
    layers, width = 26, 1024
    gradients = layers * width * width * 4
    free = compiled(layers, width, optax.adam(1e-3), gpus=8)
    assert changed(free, "update-in-loop") == 0
    found = free.memory()
    limit = found["arguments"] + found["outputs"] - found["aliased"] + gradients // 2
    for fast in (True, False):
        for module in (lowered, replicated):
            monkeypatch.setattr(module, "FAST_LOOPS_ON_GPU", fast)
        tight = compiled(layers, width, optax.adam(1e-3), gpus=8, memory_limit=limit)
        assert changed(tight, "exchange-in-loops") == changed(tight, "update-in-loop") == 1
        assert tight.memory()["temporaries"] < gradients / 2


@pytest.mark.skipif(FAST_LOOPS_ON_GPU, reason="updates in loops are as fast")
def test_updates_stay_where_they_would_be_slower_in_a_loop() -> None:
    assert changed(compiled(26, 2048, optax.adam(1e-3)), "update-in-loop") == 0


def test_small_layers_stay() -> None:
    """A loop would move more bytes."""
    assert changed(compiled(26, 512, optax.adam(1e-3)), "update-in-loop") == 0


def test_few_layers_are_flat_and_need_no_gradients_at_once() -> None:
    layers, width = 12, 2048
    gradients = layers * width * width * 4
    free = compiled(layers, width, optax.adam(1e-3))
    assert "while(" not in free.hlo() and changed(free, "update-in-loop") == 0
    memory = free.memory()
    assert memory["aliased"] > 3 * gradients and memory["temporaries"] < gradients / 2
