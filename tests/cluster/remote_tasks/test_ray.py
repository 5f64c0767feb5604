"""One program on several Ray processes. Skipped without Ray."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.cluster import RemoteTasks
from graphc.errors import NumericsError, StateError
from tests.cluster.on_ray import MARKS
from tests.cluster.on_ray import cluster as cluster
from tests.cluster.remote_tasks.test_local import JOBS, check_steps, data, replicated
from tests.near import assert_near

pytest.importorskip("ray")

pytestmark = MARKS


def test_steps_are_those_of_one_process() -> None:
    graph, fetches = replicated()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        check_steps(session, fetches)
        processes = session._remote.processes()  # type: ignore[union-attr]
        assert len({*processes.values(), os.getpid()}) == 4


class KillsServer(gc.train.Callback):
    def on_step(self, run: Any) -> None:
        if run.step == 13:
            server = run.session._remote.processes()["/job:ps/task:0"]
            os.kill(server, signal.SIGKILL)
            time.sleep(1)


def train(folder: Path, callbacks: Sequence[gc.train.Callback] = ()) -> dict[str, Any]:
    """The variables after 30 steps, with a checkpoint every 5 steps."""
    graph, (step, loss, *_) = replicated()
    rows = {name: np.concatenate([each[name] for each in data(10)]) for name in "xy"}
    batches = gc.data.from_arrays(rows).repeat().batch(8)
    job = gc.train.Job(graph, step, batches, metrics={"loss": loss}, callbacks=callbacks)
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        gc.train.fit(session, job, steps=30, checkpoint=folder, checkpoint_steps=5, progress=False)
        return session.values()


def test_a_task_that_is_killed_and_a_new_session_from_the_checkpoint(tmp_path: Path) -> None:
    undisturbed = train(tmp_path / "undisturbed")
    with pytest.raises(StateError, match="open another session, and restore"):
        train(tmp_path / "killed", [KillsServer()])
    for name, value in train(tmp_path / "killed").items():
        assert_near(value, undisturbed[name], rtol=0, err_msg=name)


def test_an_error_of_a_task_is_that_of_the_user() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), name="x")
        with gc.device("/job:worker/task:1"):
            y = gc.log(x, name="y")
    options = gc.CompileOptions(check_numerics=True)
    with gc.Session(graph, strategy=RemoteTasks(JOBS), options=options) as session:
        with pytest.raises(NumericsError, match="Log 'y' made a NaN"):
            session.run(y, {x: [-1.0, 1.0]})
        assert session.run(y, {x: [1.0, 1.0]}).tolist() == [0.0, 0.0]
