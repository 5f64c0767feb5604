"""A step that looks up few rows of a huge table: graphc with and without the pass, and plain JAX.

`python -m benchmarks.run sparse` (`make bench BENCH_FLAGS=sparse`). It needs 3 GB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp

import graphc as gc
from benchmarks.steps import training
from benchmarks.timing import compare

Row = tuple[str, str, str]
ROWS, WIDTH, BATCH, LOOKUPS, CLASSES = 1_000_000, 64, 1024, 10, 10
RATE = 0.05


class Way(NamedTuple):
    """One way to run the step.

    Attributes:
        run: runs a step, waits for it and returns the loss.
        temporaries: the bytes that XLA needs in addition to arguments and results.
    """

    run: Callable[[], float]
    temporaries: int


def rows() -> list[Row]:
    """Rows: time of a step and its temporary memory, for each optimizer."""
    kinds: tuple[tuple[str, Any, str, str], ...] = (
        ("adagrad", optax.adagrad(RATE), "exact", "at most 0.10x"),
        ("sgd", optax.sgd(RATE), "exact", ""),
        (
            "adagrad, clipped by the global norm",
            optax.chain(optax.clip_by_global_norm(1.0), optax.adagrad(RATE)),
            "exact",
            "",
        ),
        ("adam, lazy", optax.adam(1e-3), "lazy", ""),
    )
    found = []
    for name, optimizer, mode, target in kinds:
        found += compared(name, optimizer, mode, target)
    return [*found, *in_a_loop()]


def compared(name: str, optimizer: Any, mode: str, target: str, rounds: int = 5) -> list[Row]:
    """Rows of one optimizer."""
    what = f"{ROWS:,} x {WIDTH}, {BATCH * LOOKUPS:,} lookups, {name}"
    table = ROWS * WIDTH * 4
    ids, labels = batch()
    sparse = in_graphc(optimizer, mode, ids, labels)
    result = []
    for other, way, aim in (
        ("JAX and optax", by_hand(optimizer, ids, labels), target),
        ("the same without the pass", in_graphc(optimizer, "off", ids, labels), ""),
    ):
        time = compare(sparse.run, way.run, calls=1, rounds=rounds)
        result += [
            (
                f"{what}: step ({1e3 * time.ours:.1f} ms), over {other} "
                f"({1e3 * time.theirs:.0f} ms)",
                f"{time.ratio:.3f}x",
                aim,
            ),
            (
                f"its temporaries ({sparse.temporaries / 2**20:.1f} MiB), over {other} "
                f"({way.temporaries / 2**20:.1f} MiB); the table has {table / 2**20:.0f} MiB",
                f"{sparse.temporaries / max(way.temporaries, 1):.3f}x",
                "no table" if aim else "",
            ),
        ]
        del way
    return result


def in_a_loop(rounds: int = 5) -> list[Row]:
    """Rows: a recurrence that looks up inputs in each iteration, with and without the passes."""
    count, turns, size = 50_000, 32, 64
    rng = np.random.default_rng(0)
    ids = rng.integers(0, count, (turns, size)).astype(np.int32)

    def way(mode: str) -> Way:
        graph = gc.Graph(seed=0)
        with graph:
            x = gc.placeholder((turns, size), "int32", name="ids")
            table = gc.variable(np.full((count, WIDTH), 0.1, np.float32), name="table")

            def turn(h: Any, now: Any) -> Any:
                return gc.tanh(h + gc.take(table, now)), ()

            h, _ = gc.scan(turn, gc.zeros((size, WIDTH)), x)
            loss = gc.reduce_mean(gc.square(h))
            train = gc.minimize(loss, optax.adagrad(RATE), name="train")
        return compiled(graph, [train, loss], {x: ids}, mode)

    sparse, dense = way("exact"), way("off")
    time = compare(sparse.run, dense.run, calls=1, rounds=rounds)
    return [
        (
            f"{turns} turns of a loop look {size} rows each up in {count:,} x {WIDTH}, adagrad: "
            f"step ({1e3 * time.ours:.1f} ms), over the same without the passes "
            f"({1e3 * time.theirs:.0f} ms)",
            f"{time.ratio:.3f}x",
            "",
        )
    ]


def batch() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Indices [BATCH, LOOKUPS] and labels [BATCH]. Some rows occur more than once."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, ROWS, (BATCH, LOOKUPS)).astype(np.int32)
    ids[:, 1] = ids[0, 1]
    return ids, rng.integers(0, CLASSES, BATCH).astype(np.int32)


def in_graphc(optimizer: Any, mode: str, ids: Any, labels: Any) -> Way:
    """The step in graphc with `sparse_updates=mode`."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((BATCH, LOOKUPS), "int32", name="ids", batch_axis=0)
        y = gc.placeholder((BATCH,), "int32", name="labels", batch_axis=0)
        bag = gc.reduce_mean(gc.nn.Embedding(ROWS, WIDTH, name="table")(x), axis=1)
        logits = gc.nn.Dense(CLASSES, name="out")(bag)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y))
        train = gc.minimize(loss, optimizer, name="train")
    return compiled(graph, [train, loss], {x: ids, y: labels}, mode)


def compiled(graph: gc.Graph, fetches: list[Any], feeds: dict[Any, Any], mode: str) -> Way:
    """The step of a graph with `sparse_updates=mode`."""
    options = gc.CompileOptions(sparse_updates=mode, cache=None)
    shapes = {tensor: value.shape for tensor, value in feeds.items()}
    step = gc.compile(graph, fetches, shapes, options=options)
    held = [step.init()]

    def run() -> float:
        (_, value), held[0] = step(held[0], feeds)
        jax.block_until_ready(held[0].buffers)
        return float(value)

    return Way(run, step.memory()["temporaries"])


def by_hand(optimizer: Any, ids: Any, labels: Any) -> Way:
    """The usual step in JAX and optax. Its gradient is as large as the table."""

    def loss_of(params: Any, ids: Any, labels: Any) -> Any:
        bag = params["table"][ids].mean(1)
        logits = bag @ params["kernel"] + params["bias"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    step = jax.jit(training(loss_of, optimizer), donate_argnums=(0, 1))
    rng = np.random.default_rng(1)
    params = {
        "table": jnp.asarray(rng.uniform(-0.05, 0.05, (ROWS, WIDTH)).astype(np.float32)),
        "kernel": jnp.asarray(rng.normal(0, 0.1, (WIDTH, CLASSES)).astype(np.float32)),
        "bias": jnp.zeros(CLASSES),
    }
    held = [params, jax.jit(optimizer.init)(params)]
    compiled = step.lower(*held, ids, labels).compile()

    def run() -> float:
        *held[:], loss = compiled(*held, ids, labels)
        jax.block_until_ready(held)
        return float(loss)

    return Way(run, int(compiled.memory_analysis().temp_size_in_bytes))
