"""Parameter servers as Ray processes, which are killed at random. Skipped without Ray."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import graphc as gc
from graphc.runtime.workers.worker_threads import WorkerStep
from tests.cluster.on_ray import MARKS
from tests.cluster.on_ray import cluster as cluster
from tests.cluster.parameter_servers.test_local import FETCHES, batches, model
from tests.near import assert_near

pytest.importorskip("ray")

pytestmark = MARKS


def test_the_same_bits_as_one_at_a_time_in_this_process() -> None:
    graph = model()
    sequential = gc.Session(graph)
    want = [sequential.run(FETCHES, feed)[1:] for feed in batches(20)]
    strategy = gc.cluster.ParameterServers(2, staleness=0, shards=2)
    with gc.Session(graph, strategy=strategy) as session:
        run = session.run_workers(FETCHES, batches(20), keep=True)
        assert_near([v[1:] for v in run.values], want, rtol=1e-9, atol=1e-12)
        for name, value in sequential.values().items():
            assert_near(session.get(name), value, rtol=1e-9, atol=1e-12, err_msg=name)


class Killer(threading.Thread):
    """Kills the processes one after another, each after a few more updates."""

    def __init__(self, session: gc.Session, count: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.killed: list[str] = []
        self.updates = 0
        self._session, self._count, self._random = session, count, random.Random(seed)
        self.ended = threading.Event()

    def run(self) -> None:
        last = 0
        while len(self.killed) < self._count and not self.ended.is_set():
            if self.updates < last + 3:
                time.sleep(0.01)
                continue
            time.sleep(self._random.random() * 0.05)
            processes = self._session._workers._actors.processes()
            name = self._random.choice(sorted(processes))
            os.kill(processes[name], signal.SIGKILL)
            self.killed.append(name)
            last = self.updates


def test_counts_are_exact_when_processes_are_killed(rounds) -> None:
    kills = rounds(4, 20)
    strategy = gc.cluster.ParameterServers(2, staleness=3, shards=2, checkpoint_every=11)
    with gc.Session(model(), strategy=strategy) as session:
        killer = Killer(session, kills, seed=kills)

        def note(step: object) -> None:
            killer.updates += 1
            if killer.updates == 5:
                killer.start()

        def until_killed() -> Iterator[dict[str, np.ndarray]]:
            for given, feed in enumerate(batches(100_000)):
                if given >= 150 and len(killer.killed) >= kills:
                    return
                yield feed

        run = session.run_workers(FETCHES, until_killed(), on_step=note, keep=True)
        killer.ended.set()
        assert len(killer.killed) == kills
        assert run.updates == sum(run.steps) == killer.updates
        assert session.get("count") == run.updates == session.get("update/0/count")
        assert max(run.staleness) <= 3
        losses = [float(v[1]) for v in run.values]
        assert np.mean(losses[-20:]) < 0.3 * np.mean(losses[:20])
        print(f"{kills} kills, {run.updates} updates: {killer.killed}", file=sys.stderr)


def test_an_error_of_a_worker_arrives_with_its_type() -> None:
    options = gc.CompileOptions(check_numerics=True)
    strategy = gc.cluster.ParameterServers(1)
    feeds = [*batches(2), {"x": np.full((4, 3), 1e200), "y": np.zeros(4)}]
    with gc.Session(model(), strategy=strategy, options=options) as session:
        with pytest.raises(gc.errors.NumericsError, match="infinity"):
            session.run_workers(FETCHES, feeds)
        assert session.get("count") == 2


def test_workers_join_and_leave() -> None:
    """Batches continue until two workers have joined, made steps, and left."""
    with gc.Session(model(), strategy=gc.cluster.ParameterServers(1, staleness=3)) as session:
        steps: dict[int, int] = {}

        def on_step(step: WorkerStep) -> None:
            steps[step.worker] = step.step + 1
            if step.update == 5:
                session.resize_workers(3)
            if min(steps.values()) == 5 and len(steps) == 3 and not left:
                session.resize_workers(1)
                left.append(step.update)

        def until_left() -> Iterator[dict[str, np.ndarray]]:
            for feed in batches(100_000):
                yield feed
                if left and sum(steps.values()) > left[0] + 20:
                    return

        left: list[int] = []
        run = session.run_workers(FETCHES, until_left(), on_step=on_step)
        assert len(run.steps) == 3 and min(run.steps) >= 5
        assert run.updates == sum(run.steps) == session.get("count")
        assert len(session._workers._actors.workers) == 1
