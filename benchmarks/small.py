"""The overhead of a run, and the time to build and optimize graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

import graphc as gc
from benchmarks.feeding import unchanging
from benchmarks.timing import compare


def call_overhead() -> list[tuple[str, str, str]]:
    """Rows: the microseconds that `Session.run` adds to the jitted function, with 4 variables."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((8, 16), name="x")
        h = gc.nn.Dense(16, activation=gc.nn.relu, name="hidden")(x)
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(4, name="out")(h)), name="loss")
        train = gc.minimize(loss, optax.sgd(1e-3), name="train")
    session = gc.Session(graph)
    feed = unchanging(np.ones((8, 16), np.float32))
    names = ("hidden/kernel", "hidden/bias", "out/kernel", "out/bias")
    holder: dict[str, Any] = {"params": [session.get(n) for n in names]}

    def loss_of(params: Any, x: Any) -> Any:
        w1, b1, w2, b2 = params
        return ((jax.nn.relu(x @ w1 + b1) @ w2 + b2) ** 2).mean()

    @jax.jit
    def by_hand(params: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss_of)(params, x)
        return value, [p - 1e-3 * g for p, g in zip(params, gradients, strict=True)]

    donating = jax.jit(by_hand, donate_argnums=0)

    def run_theirs() -> None:
        value, holder["params"] = donating(holder["params"], feed)
        value.block_until_ready()

    fetches = [train, loss]

    def run_ours() -> None:
        session.run(fetches, {x: feed})[1].block_until_ready()

    # Many short rounds, because a wake-up of XLA's threads takes longer than the measured overhead.
    timed = compare(run_ours, run_theirs, calls=50, rounds=200)
    extra = 1e6 * timed.difference
    label = f"small step ({1e6 * timed.ours:.0f} against {1e6 * timed.theirs:.0f} us)"
    return [(f"{label}, over the jitted call", f"{extra:.1f} us", "at most 15 us")]


def many_variables(few: int = 4, many: int = 200) -> list[tuple[str, str, str]]:
    """Rows: the additional cost of a call if a step updates `many` small variables, not `few`."""
    ours, by_hand = _averages(many)
    fewer, _ = _averages(few)
    timed = compare(ours, fewer, calls=50, rounds=100)
    plain = compare(ours, by_hand, calls=50, rounds=20)
    label = f"a step that updates {many} small variables ({1e6 * timed.ours:.0f} us)"
    return [
        (
            f"{label}, over one that updates {few} ({1e6 * timed.theirs:.0f} us)",
            f"{1e6 * timed.difference:.0f} us",
            "at most 60 us",
        ),
        (
            f"{label}, to the jitted call with {many} donated arrays "
            f"({1e6 * plain.theirs:.0f} us), time",
            f"{plain.ratio:.2f}x",
            "",
        ),
    ]


def _averages(count: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A step of moving averages of `count` vectors of 8 to 57 elements: in graphc and in JAX."""
    starts = [np.zeros(8 + i % 50, np.float32) for i in range(count)]
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((), name="x")
        variables = [gc.variable(start, name=f"v{i}") for i, start in enumerate(starts)]
        first = gc.reduce_sum(variables[0].read())
        step = gc.group(*[v.assign(0.99 * v + 0.01 * x) for v in variables])
    session = gc.Session(graph)
    fetches, feed = [step, first], unchanging(np.ones((), np.float32))

    def ours() -> None:
        session.run(fetches, {x: feed})[1].block_until_ready()

    @partial(jax.jit, donate_argnums=0)
    def averaged(values: Any, x: Any) -> Any:
        return values[0].sum(), [0.99 * v + 0.01 * x for v in values]

    holder: dict[str, Any] = {"values": [jax.device_put(start.copy()) for start in starts]}

    def by_hand() -> None:
        first, holder["values"] = averaged(holder["values"], feed)
        first.block_until_ready()

    return ours, by_hand


def building(nodes: int = 20_000) -> list[tuple[str, str, str]]:
    """Rows: seconds to build common nodes, and to run the default passes over them."""
    graph, seconds = build_common(nodes)
    count = len(graph.nodes)
    start = time.process_time()
    report = optimise(graph)
    return [
        (f"building {count} common nodes", f"{seconds:.2f} s", "at most 0.6 s"),
        (
            f"default passes over them ({time.process_time() - start:.2f} s with the capture)",
            f"{report.milliseconds / 1e3:.2f} s",
            "at most 1.5 s",
        ),
    ]


def build_common(nodes: int) -> tuple[gc.Graph, float]:
    """A graph of about `nodes` nodes of the kinds that are common in networks."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", 64), name="x")
        w = gc.variable(np.ones((64, 64), np.float32), name="w")
        b = gc.variable(np.ones((64,), np.float32), name="b")
        start = time.process_time()
        h = x
        while len(graph.nodes) < nodes:
            h = gc.nn.relu(gc.matmul(h, w) + b)
            h = gc.multiply(gc.tanh(h), gc.sigmoid(x)) + h
            h = gc.reshape(gc.transpose(gc.reshape(h, (-1, 8, 8)), (0, 2, 1)), (-1, 64))
            h = h - gc.reduce_mean(h, axis=-1, keepdims=True)
        gc.identity(h, name="end")
        return graph, time.process_time() - start


def optimise(graph: gc.Graph) -> Any:
    """The pass report of the program that ends at `end:0`."""
    from graphc.config import CompileOptions
    from graphc.runtime.targets.prepare import prepare

    fetches, feeds = [graph.tensor("end:0")], [graph.tensor("x:0")]
    return prepare(graph, fetches, feeds, CompileOptions()).report
