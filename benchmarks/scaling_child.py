"""One process of `benchmarks.scaling`: times collectives, or a training step.

python benchmarks/scaling_child.py exchange|step|alone RESULT
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec

import graphc as gc

ROWS, WIDTH, HIDDEN = 256, 784, 1024
SMALL, LARGE = 256, 2_000_000  # floats
WINDOWS, RUNS = 12, 4


def model() -> tuple[gc.Graph, list[Any]]:
    """A multilayer perceptron and its training step."""
    with gc.Graph(seed=0, name="mlp") as graph:
        x = gc.placeholder(("batch", WIDTH), name="x")
        labels = gc.placeholder(("batch",), "int32", name="labels")
        hidden = gc.nn.Dense(HIDDEN, activation="relu", name="first")(x)
        hidden = gc.nn.Dense(HIDDEN, activation="relu", name="second")(hidden)
        logits = gc.nn.Dense(10, name="out")(hidden)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=labels)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.sgd(0.1), name="train")
    return graph, [train, loss]


def fastest(run: Callable[[], Any]) -> float:
    """The seconds of one run in the fastest of several windows, since others use this machine."""
    run()
    found = []
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for _ in range(RUNS):
            jax.block_until_ready(run())
        found.append((time.perf_counter() - start) / RUNS)
    return min(found)


def step_seconds(devices: Any) -> float:
    """A step in which this process feeds `ROWS` rows."""
    graph, fetches = model()
    strategy = gc.devices.DataParallel(devices) if len(devices) > 1 else None
    session = gc.Session(graph, strategy=strategy)
    rng = np.random.default_rng(jax.process_index())
    feeds = {
        "x": rng.normal(size=(ROWS, WIDTH)).astype("float32"),
        "labels": rng.integers(0, 10, ROWS).astype("int32"),
    }
    return fastest(lambda: np.asarray(session.run(fetches, feeds)[1]))


def exchange_seconds() -> list[float]:
    """The seconds of all-reduces of few bytes and of many."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    found = []
    for size in (SMALL, LARGE):
        spec = PartitionSpec()
        summed = jax.jit(
            jax.shard_map(
                lambda a: jax.lax.psum(a, "x") / len(jax.devices()),
                mesh=mesh,
                in_specs=spec,
                out_specs=spec,
                check_vma=False,
            )
        )
        whole = jax.make_array_from_process_local_data(
            jax.sharding.NamedSharding(mesh, spec), np.ones(size, "float32")
        )
        found.append(fastest(partial(summed, whole)))
    return found


def main(what: str, result: str) -> None:
    """Measures, and writes the figures as JSON if this is the first process."""
    if what == "alone":
        figures: Any = step_seconds(jax.devices()[:1])
        Path(f"{result}.{time.time_ns()}").write_text(json.dumps(figures))
        return
    member = gc.cluster.join()
    figures = exchange_seconds() if what == "exchange" else step_seconds(jax.devices())
    if member.is_chief:
        Path(result).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
