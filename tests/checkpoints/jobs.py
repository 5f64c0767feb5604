"""Training jobs that the tests of checkpoints save and resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax

import graphc as gc
from graphc.runtime.state.initial import state_types

LAYERS, WIDTH, BATCH = 12, 8, 8
RNG = np.random.default_rng(5)
DATA = {
    "x": RNG.normal(size=(64, WIDTH)).astype(np.float32),
    "y": RNG.normal(size=(64, WIDTH)).astype(np.float32),
}


def network() -> tuple[gc.Graph, Any, Any]:
    """Equal layers (which O2 stacks in one buffer) with dropout, and Adam: graph, step, loss."""
    graph = gc.Graph(seed=3)
    with graph:
        x = gc.placeholder((None, WIDTH), name="x")
        y = gc.placeholder((None, WIDTH), name="y")
        h = x
        for i in range(LAYERS):
            with gc.name_scope(f"layer_{i}"):
                w = gc.variable(gc.nn.initializers.Orthogonal(), shape=(WIDTH, WIDTH), name="w")
                b = gc.variable(np.zeros(WIDTH, np.float32), name="b")
                h = gc.nn.dropout(gc.tanh(h @ w + b), 0.1) + h
        loss = gc.reduce_mean((h - y) ** 2)
        train = gc.minimize(loss, optax.adam(1e-2))
    return graph, train, loss


def batches(seed: int = 0) -> gc.data.Pipeline:
    """Endless shuffled batches with a position."""
    return gc.data.from_arrays(DATA).shuffle(seed=seed).repeat().batch(BATCH)


def everything(session: gc.Session) -> dict[str, Any]:
    """The whole state, including hidden variables."""
    return session.values(list(state_types(session.graph)))


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two sets of values are equal bit by bit."""
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and a[n].tobytes() == b[n].tobytes()
        for n in a
    )
