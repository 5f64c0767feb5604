"""Metrics that are updated in a training step: strategies, saved state, gradients."""

from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc

RNG = np.random.default_rng(5)
ROWS = 24
X = RNG.normal(size=(ROWS, 3)).astype(np.float32)
Y = RNG.integers(0, 2, ROWS).astype(np.int32)


def model(measured: bool = True) -> tuple[gc.Graph, Any, Any]:
    graph = gc.Graph(seed=0)
    with graph:
        x, y = gc.placeholder((None, 3), name="x"), gc.placeholder((None,), "int32", name="y")
        w = gc.variable("glorot_uniform", shape=(3, 2), name="w")
        loss = gc.nn.softmax_cross_entropy(logits=x @ w, labels=gc.one_hot(y, 2))
        train = gc.minimize(gc.reduce_mean(loss), optax.adam(0.1))
        metric = gc.metrics.Precision(labels=y, predictions=gc.argmax(x[:, :2], -1))
        return graph, gc.group(train, metric.update) if measured else train, metric


def expected(times: int) -> np.ndarray:
    counts = np.zeros((2, 2), np.int64)
    np.add.at(counts, (Y, X[:, :2].argmax(-1)), times)
    return counts


STRATEGIES = {
    "one": lambda: None,
    "sharded": lambda: gc.devices.DataParallel(4, shard_optimizer=True),
    "parameters in pieces": lambda: gc.devices.DataParallel(4, shard_parameters=True),
    "mesh": lambda: gc.devices.Mesh({"data": 4}),
}


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_counts_of_a_training_loop(strategy: str) -> None:
    graph, step, metric = model()
    with gc.Session(graph, strategy=STRATEGIES[strategy]()) as session:
        for begin, end in ((0, 16), (16, 23), (23, 24)):
            session.run(step, {"x": X[begin:end], "y": Y[begin:end]})
        np.testing.assert_array_equal(session.get(metric.variables[0]), expected(1))


def test_training_is_not_changed() -> None:
    values = []
    for measured in (False, True):
        graph, step, _ = model(measured)
        with gc.Session(graph) as session:
            for _ in range(3):
                session.run(step, {"x": X, "y": Y})
            values.append(np.asarray(session.get("w")))
    np.testing.assert_array_equal(*values)


def test_state_moves_to_another_session() -> None:
    graph, step, metric = model()
    with gc.Session(graph) as session:
        session.run(step, {"x": X, "y": Y})
        state = {v: np.asarray(session.get(v)) for v in metric.variables}
        value = session.run(metric.value)
    with gc.Session(graph) as other:
        other.set_all(state)
        assert other.run(metric.value) == value
