"""`gc.train.TensorBoard` in `fit`, with an interrupted and resumed run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optax
import pytest

import graphc as gc
from tests.train.tensorboard.events import scalars, values

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


class Break(gc.train.Callback):
    """Fails at a step, like a job that is killed."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, run: gc.train.Run) -> None:
        if run.step == self.step:
            raise RuntimeError("killed")


def job() -> gc.train.Job:
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None, 3), name="x")
        w = gc.variable(np.ones(3, np.float32), name="w")
        loss = gc.reduce_mean((x @ w[:, None]) ** 2)
        train = gc.minimize(loss, optax.sgd(optax.linear_schedule(0.1, 0.0, 20)))
    data = gc.data.from_arrays({"x": X}).shuffle(seed=0).batch(8)
    return gc.train.Job(
        graph,
        train,
        data,
        epochs=4,
        metrics={"loss": loss},
        validation=gc.train.Validation(data, {"loss": loss}),
    )


def run(folder: Path, *callbacks: gc.train.Callback) -> None:
    board = gc.train.TensorBoard(
        folder / "logs", every=1, histograms=5, gradients=True, hparams={"rate": 0.1}
    )
    made = job()
    gc.train.fit(
        gc.Session(made.graph),
        made,
        callbacks=[board, *callbacks],
        checkpoint=folder / "checkpoints",
        checkpoint_steps=4,
        progress=False,
    )


def test_an_interrupted_run_continues_its_curves(tmp_path: Path) -> None:
    run(tmp_path / "straight")
    with pytest.raises(RuntimeError, match="killed"):
        run(tmp_path / "resumed", Break(10))
    run(tmp_path / "resumed", Break(-1))
    for part, count in (("train", 20), ("validation", 4)):
        expected = scalars(tmp_path / "straight" / "logs" / part, "loss")
        found = scalars(tmp_path / "resumed" / "logs" / part, "loss")
        assert len(expected) == count
        assert dict(found) == dict(expected)  # the values after the checkpoint were written twice
    tags = {tag for _, tag, _ in values(tmp_path / "resumed" / "logs" / "train")}
    assert {"weights/w", "gradients/w"} <= tags


def test_a_single_step_in_a_call_or_many(tmp_path: Path) -> None:
    """Histograms at every fifth step still allow calls with several steps."""
    made = job()
    board = gc.train.TensorBoard(tmp_path, every=5, histograms=5)
    gc.train.fit(gc.Session(made.graph), made, callbacks=[board], steps_per_call=5, progress=False)
    assert [step for step, _ in scalars(tmp_path / "train", "loss")] == [5, 10, 15, 20]
