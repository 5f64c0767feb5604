"""A training step updates each buffer of the state in place, and transfers nothing between host and
GPU, with each strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optax
import pytest

import graphc as gc
from tests.gpu_compile.models import bytes_of_state, mlp

DataParallel, Mesh = gc.devices.DataParallel, gc.devices.Mesh
Model = tuple[gc.Graph, Any, dict[Any, tuple[int, ...]]]


def plain(layers: int = 2, **options: Any) -> Model:
    graph, fetches = mlp(layers, **options)
    return graph, fetches, {"x": (512, 784), "y": (512,)}


def cut() -> Model:
    graph, fetches, feeds = plain()
    with graph.extend():
        gc.shard(graph.variables["hidden0/kernel"], (None, "model"))
    return graph, fetches, feeds


def various(accumulate: int = 1, local: bool = False) -> Model:
    """Moving averages, dropout (whose counter is state), and a table that is updated by rows."""
    graph = gc.Graph(seed=0)
    with graph:
        ids = gc.placeholder((None, 8), "int32", name="ids")
        h = gc.reshape(gc.nn.Embedding(4096, 64, name="table")(ids), (ids.shape[0], 512))
        h = gc.nn.BatchNorm(name="norm", local=local)(h, training=True)
        h = gc.nn.dropout(gc.nn.Dense(512, activation=gc.nn.relu, name="dense")(h), 0.5)
        loss = gc.reduce_mean(gc.square(h))
        train = gc.minimize(loss, optax.adagrad(0.1), name="train", accumulate=accumulate)
    return graph, [train, loss], {ids: (512, 8)}


def images() -> Model:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 32, 32, 16), name="x")
        h = gc.nn.relu(
            gc.nn.BatchNorm(name="norm")(gc.nn.Conv2D(32, 3, name="a", padding="same")(x), True)
        )
        h = gc.nn.Conv2DTranspose(16, 3, strides=2, name="b", padding="same")(h)
        loss = gc.reduce_mean(gc.square(h))
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    return graph, [train, loss], {x: (32, 32, 32, 16)}


CASES: dict[str, tuple[Callable[[], Model], Any, dict[str, Any]]] = {
    "one": (plain, None, {}),
    "bf16": (plain, None, {"precision": "bf16"}),
    "loss scale": (plain, None, {"precision": "f16"}),
    "O3": (plain, None, {"pipeline": "O3"}),
    "O0": (plain, None, {"pipeline": "O0"}),
    "loops": (lambda: plain(30, units=256), None, {}),
    "steps": (plain, None, {"steps": 4}),
    "various": (various, None, {}),
    "micro-batches": (lambda: various(4, local=True), None, {}),
    "images": (images, None, {"precision": "bf16"}),
    "parallel": (plain, DataParallel(8), {}),
    "parallel, loops": (lambda: plain(30, units=256), DataParallel(8), {"precision": "bf16"}),
    "parallel, steps": (plain, DataParallel(8), {"steps": 4}),
    "parallel, various": (various, DataParallel(8), {}),
    "parallel, micro-batches": (lambda: various(4, local=True), DataParallel(8), {}),
    "parallel, images": (images, DataParallel(8), {"precision": "bf16"}),
    "pieces of slots": (plain, DataParallel(8, shard_optimizer=True), {}),
    "mesh": (plain, Mesh({"data": 8}), {}),
    "mesh, parameters cut": (cut, Mesh({"data": 2, "model": 4}), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_state_is_written_over_and_nothing_goes_to_the_host(name: str) -> None:
    make, strategy, options = CASES[name]
    graph, fetches, feeds = make()
    options = dict(options)
    steps = options.pop("steps", None)
    step = gc.compile(
        graph,
        fetches,
        feeds,
        machine="8xh100" if strategy is not None else "h100",
        strategy=strategy,
        steps=steps,
        options=gc.CompileOptions(cache=None, **options),
    )
    memory = step.memory()
    assert memory["aliased"] > 0
    # The loss, and a table of pointers.
    assert memory["outputs"] - memory["aliased"] <= 4 * (steps or 1) + 8 * 200
    assert step.hlo_cost().host_transfers == 0


def test_state_on_several_devices_is_written_over() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = h = gc.placeholder((64, 256), name="x")
        for i in range(4):
            with gc.device(f"/gpu:{i}"):
                h = gc.nn.Dense(256, activation=gc.nn.relu, name=f"layer{i}")(h)
        train = gc.minimize(gc.reduce_mean(h * h), optax.adam(1e-3), name="train")
    step = gc.compile(graph, train, {x: (64, 256)}, machine="4xh100")
    assert step.memory()["aliased"] >= bytes_of_state(graph) / 4  # of each
    assert step.hlo_cost().host_transfers == 0
