"""Metrics in loops on the device: micro-batches and `run_steps`."""

import numpy as np
import optax

import graphc as gc

X = np.arange(16, dtype=np.float32)


def test_micro_batches_and_run_steps_count_every_row_once() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None,), name="x")
        w = gc.variable(1.0, name="w")
        train = gc.minimize(gc.reduce_mean((w * x) ** 2), optax.sgd(1e-3), accumulate=4)
        metric = gc.metrics.Mean(x)
        step = gc.group(train, metric.update)
    with gc.Session(graph) as session:
        session.run(step, {"x": X})
        assert float(session.run(metric.value)) == X.mean()
        session.run_steps(step, [{"x": X + 1}] * 3, 3)
        assert float(session.run(metric.value)) == X.mean() + 0.75
        assert [int(session.get(v)) for v in metric.variables if v.name.endswith("count")] == [64]
