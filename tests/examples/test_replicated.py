"""Training examples on four devices compared with one device, in float64.

Results agree to twelve digits, so rounding cannot hide a wrong layout.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import char_lstm
import numpy as np
import pytest
import resnet20
import transformer_lm

import graphc as gc
from tests.near import assert_near

STEPS = 10
SIZE = transformer_lm.Size(blocks=2, width=16, heads=2, length=12, batch=8)

Losses = list[float]
Trained = tuple[Losses, dict[str, np.ndarray]]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that are float32 in the examples get float64 variables."""
    own = gc.nn.Layer.__init__

    def init(self: Any, name: str | None = None, dtype: Any = None) -> None:
        own(self, name, "float64")

    monkeypatch.setattr(gc.nn.Layer, "__init__", init)


def transformer(strategy: Any) -> Trained:
    job = transformer_lm.build(SIZE, tx=transformer_lm.optimizer(STEPS))
    session = gc.Session(job.graph, strategy=strategy)
    feeds = islice(job.batches, STEPS)
    return [train(session, job, f) for f in feeds], state_of(session, job.graph)


def residual(strategy: Any) -> Trained:
    """A network with batch norm: statistics over the whole batch, and moving averages."""
    tx = resnet20.optimizer(STEPS, highest=0.01)
    job = resnet20.build(blocks=1, width=4, size=8, batch=16, tx=tx)
    session = gc.Session(job.graph, strategy=strategy)
    feeds = islice(job.batches, STEPS)
    return [train(session, job, f) for f in feeds], state_of(session, job.graph)


def language(strategy: Any) -> Trained:
    """Padded lines of many lengths; the padding does not count."""
    job, _, buckets = char_lstm.make_language(
        units=8, layers=2, batch=8, lengths=(24, 40), tx=char_lstm.optimizer(STEPS)
    )
    session = gc.Session(job.graph, strategy=strategy)
    lines = [np.arange(4 + 3 * i, dtype=np.int32) % 50 for i in range(12)]
    rng = np.random.default_rng(2)
    fetches, losses = [job.train, job.metrics["loss"]], []
    for _ in range(STEPS):
        rows = [lines[i] for i in rng.choice(12, 8, replace=False)]
        losses.append(float(buckets.run(session, fetches, {"lines:0": rows})[1]))
    return losses, state_of(session, job.graph)


def train(session: gc.Session, job: gc.train.Job, feeds: Any) -> float:
    return float(session.run([job.train, job.metrics["loss"]], feeds)[1])


def state_of(session: gc.Session, graph: gc.Graph) -> dict[str, np.ndarray]:
    assert {v.dtype for v in graph.variables.values() if v.trainable} == {np.dtype("float64")}
    return {name: np.asarray(session.get(name)) for name in graph.variables}


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("example", [transformer, residual, language])
def test_four_devices_train_as_one(example: Callable[[Any], Trained]) -> None:
    losses, state = example(None)
    found_losses, found = example(gc.devices.DataParallel(4))
    assert losses[-1] < losses[0]
    assert_near(found_losses, losses, rtol=1e-12)
    assert found.keys() == state.keys()
    for name, value in state.items():
        assert_near(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)
