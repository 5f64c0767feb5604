"""The gain of `gc.tune`: the tuned step compared with the same step compiled without tuning. Both
are measured again after the search, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import digits_cnn
import jax
import numpy as np
import optax

import graphc as gc
from benchmarks.timing import compare

SECONDS = 90.0  # for each search
Row = tuple[str, str, str]


class Model(NamedTuple):
    """A training step, and a batch for it."""

    name: str
    graph: gc.Graph
    fetches: list[Any]
    feeds: dict[Any, Any]


def rows() -> Iterator[Row]:
    """Rows: the ratio of the tuned step's time to the untuned one's; at most 1, up to noise."""
    for make in (digits, blocks, recurrent, convolutions):
        yield _row(make())


def digits() -> Model:
    """The network of examples/digits_cnn.py."""
    job = digits_cnn.build(dropout=False, batch=128)
    fetches = [job.train, job.metrics["loss"]]
    return Model("digits CNN, batch 128", job.graph, fetches, dict(next(iter(job.batches))))


def blocks(count: int = 12, width: int = 64, batch: int = 32) -> Model:
    """Residual blocks, which become loops."""

    def network(x: gc.Tensor) -> gc.Tensor:
        for i in range(count):
            normal = gc.nn.LayerNorm(name=f"norm{i}")(x)
            x = x + gc.nn.Dense(width, activation=gc.nn.gelu, name=f"block{i}")(normal)
        return x

    name = f"{count} residual blocks of width {width}, batch {batch}, adam"
    return _classifier(name, network, (batch, width))


def recurrent(steps: int = 32, width: int = 64, batch: int = 16) -> Model:
    """A recurrent network written as a Python loop."""

    def network(x: gc.Tensor) -> gc.Tensor:
        cell, state = gc.nn.Dense(width, name="cell"), x[:, 0]
        for i in range(1, steps):
            state = gc.tanh(cell(gc.concatenate([state, x[:, i]], axis=1)))
        return state

    name = f"recurrent network, {steps} unrolled steps of width {width}, batch {batch}, adam"
    return _classifier(name, network, (batch, steps, width))


def convolutions(count: int = 2, channels: int = 32, batch: int = 16) -> Model:
    """5x5 convolutions, whose gradients XLA's two libraries compute at different speeds."""

    def network(x: gc.Tensor) -> gc.Tensor:
        for i in range(count):
            x = gc.nn.relu(gc.nn.Conv2D(channels, (5, 5), name=f"conv{i}", padding="same")(x))
        return gc.reduce_mean(x, axis=(1, 2))

    name = f"{count} 5x5 convolutions of {channels} channels, 32x32 images, batch {batch}, adam"
    return _classifier(name, network, (batch, 32, 32, channels))


def _classifier(
    name: str, network: Callable[[gc.Tensor], gc.Tensor], shape: tuple[int, ...]
) -> Model:
    graph = gc.Graph(seed=0, name="tuned")
    with graph:
        x = gc.placeholder((None, *shape[1:]), name="x")
        y = gc.placeholder((None,), "int32", name="y")
        logits = gc.nn.Dense(10, name="out")(network(x))
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y))
        train = gc.minimize(loss, optax.adam(1e-3))
    rng = np.random.default_rng(0)
    feeds = {
        x: rng.normal(size=shape).astype("float32"),
        y: rng.integers(0, 10, shape[0]).astype("int32"),
    }
    return Model(name, graph, [train, loss], feeds)


def _row(model: Model) -> Row:
    start = time.perf_counter()
    tuning = gc.tune(model.graph, model.fetches, model.feeds, seconds=SECONDS)
    took = time.perf_counter() - start
    sessions = [
        gc.Session(model.graph, options=gc.CompileOptions(tuned=tuned)) for tuned in (True, False)
    ]
    tuned, untuned = (_caller(session, model) for session in sessions)
    calls = max(1, round(0.05 / tuning.seconds))
    measured = compare(tuned, untuned, calls=calls, rounds=15)
    found = tuning.name or "nothing clearly faster"
    used = [bool(session.executables[0].notes) for session in sessions]
    assert used == [tuning.kept, False]
    what = f"{model.name}: `gc.tune` ({took:.0f} s, {len(tuning.rows)} variants; {found})"
    baseline = f"the same step untuned ({1e3 * measured.theirs:.3g} ms)"
    return f"{what}, to {baseline}, time", f"{measured.ratio:.2f}x", "at most 1x"


def _caller(session: gc.Session, model: Model) -> Callable[[], None]:
    def call() -> None:
        jax.block_until_ready(session.run(model.fetches, model.feeds))

    call()
    return call
