"""Several steps in one call, compared with one call per step and with a hand-written loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax import numpy as jnp

import graphc as gc
from benchmarks.steps import training
from benchmarks.timing import compare

BATCH, INPUTS, HIDDEN, CLASSES = 32, 784, 64, 10
STEPS, LOOPS = 100, 5
NAMES = ("hidden/kernel", "hidden/bias", "out/kernel", "out/bias")


def rows() -> list[tuple[str, str, str]]:
    """Rows: steps per second of `Session.run_steps`, `Session.run` and `jax.lax.scan`."""
    model = f"{INPUTS}-{HIDDEN}-{CLASSES} MLP, batch {BATCH}"
    found = []
    for name, optimizer in (("sgd", optax.sgd(1e-2)), ("adam", optax.adam(1e-3))):
        in_loops, call_by_call, read_by_call, by_hand = _ways(optimizer)
        calls = compare(in_loops, call_by_call, calls=1, rounds=15)
        reads = compare(in_loops, read_by_call, calls=1, rounds=15)
        loop = compare(in_loops, by_hand, calls=1, rounds=15)
        ours, theirs, read, scan = (
            f"{1e6 * seconds / (STEPS * LOOPS):.0f}"
            for seconds in (calls.ours, calls.theirs, reads.theirs, loop.theirs)
        )
        found += [
            (
                f"{model}, {name}: `run_steps` of {STEPS} ({ours} us a step), to one `run` per "
                f"step whose loss is read ({read} us), steps/s",
                f"{1 / reads.ratio:.2f}x",
                "at least 2x",
            ),
            (
                f"the same, to one `run` per step, the calls running ahead ({theirs} us)",
                f"{1 / calls.ratio:.2f}x",
                "at least 2x",
            ),
            (
                f"the same, to `jax.lax.scan` by hand over arrays stacked before ({scan} us a "
                "step), time",
                f"{loop.ratio:.2f}x",
                "",
            ),
        ]
    return found


def _ways(optimizer: Any) -> tuple[Callable[[], None], ...]:
    """Ways to run `STEPS * LOOPS` steps: in loops, call by call, call by call with each loss read
    before the next call, and in hand-written loops.
    """
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(STEPS, BATCH, INPUTS)).astype(np.float32)
    ys = rng.integers(0, CLASSES, (STEPS, BATCH)).astype(np.int32)
    batches = [{"x": x, "y": y} for x, y in zip(xs, ys, strict=True)]
    session, fetches = _session(optimizer)
    loop = _by_hand(session, optimizer)

    def in_loops() -> None:
        losses = [session.run_steps(fetches, batches, STEPS)[1] for _ in range(LOOPS)]
        losses[-1].block_until_ready()

    def call_by_call() -> None:
        losses = [session.run(fetches, batch)[1] for _ in range(LOOPS) for batch in batches]
        losses[-1].block_until_ready()

    def read_by_call() -> None:
        for _ in range(LOOPS):
            for batch in batches:
                float(session.run(fetches, batch)[1])

    def by_hand() -> None:
        losses = [loop(xs, ys) for _ in range(LOOPS)]
        losses[-1].block_until_ready()

    return in_loops, call_by_call, read_by_call, by_hand


def _session(optimizer: Any) -> tuple[gc.Session, list[Any]]:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, INPUTS), name="x")
        y = gc.placeholder((None,), "int32", name="y")
        h = gc.nn.Dense(HIDDEN, activation=gc.nn.relu, name="hidden")(x)
        logits = gc.nn.Dense(CLASSES, name="out")(h)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optimizer, name="train")
    return gc.Session(graph), [train, loss]


def _by_hand(session: gc.Session, optimizer: Any) -> Callable[..., Any]:
    """The same training loop in plain JAX. It returns the losses and keeps its state."""
    parameters = [jnp.asarray(session.get(name)) for name in NAMES]
    holder = {"state": (parameters, optimizer.init(parameters))}

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = parameters
        logits = jax.nn.relu(x @ w1 + b1) @ w2 + b2
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    train = training(loss_of, optimizer)

    def step(state: Any, batch: Any) -> Any:
        *state, loss = train(*state, *batch)
        return tuple(state), loss

    loop = jax.jit(lambda state, xs, ys: jax.lax.scan(step, state, (xs, ys)), donate_argnums=0)

    def run(xs: Any, ys: Any) -> Any:
        holder["state"], losses = loop(holder["state"], xs, ys)
        return losses

    return run
