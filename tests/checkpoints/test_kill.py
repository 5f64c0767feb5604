"""kill -9 at random moments: the latest checkpoint always opens, and the end of training equals
that of an uninterrupted run bit by bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from graphc.checkpoints import folder as folders
from graphc.checkpoints.contents import Saved

CHILD = "tests.checkpoints.kill_child"
KILLS = int(os.environ.get("GRAPHC_KILLS", "25"))
STEPS = 60 * KILLS  # more than run between the kills


class Job:
    """The process of `kill_child`, and the children that it forks."""

    def __init__(self, folder: Path, every: int, devices: int) -> None:
        flags = f"--xla_force_host_platform_device_count={devices}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", CHILD, folder, str(STEPS), str(every), str(devices)],
            env={**os.environ, "XLA_FLAGS": flags, "PYTHONWARNINGS": "ignore"},
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> list[str]:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert words, "the job ended"
        return words

    def start(self) -> int:
        """Starts a child that trains; returns its id."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        words = self.read()
        assert words[0] == "child"
        return int(words[1])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.exhaustive), 4])
def test_killed_at_random_moments(devices: int, tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for folder in (straight, killed):
        folder.mkdir()
    job = Job(straight, 0, devices)
    job.start()
    while job.read()[0] != "ended":
        pass
    job.end()

    rng, job, reached, kills = random.Random(devices), Job(killed, 2, devices), 0, 0
    try:
        while kills < KILLS:
            child = job.start()
            if rng.random() < 0.8:  # while it trains and saves; otherwise while it starts
                assert job.read()[0] == "started"
            time.sleep(rng.random() * 0.3)
            os.kill(child, signal.SIGKILL)
            kills += 1
            done = False
            while (words := job.read())[0] != "ended":
                done |= words[0] == "done"
            found = folders.found(killed / "checkpoints")
            if found:
                assert found[-1].step >= reached
                reached = found[-1].step
                saved = Saved(found[-1].path)
                assert len(saved.values(list(saved.variables))) > 20 and saved.extra
            if done or reached >= STEPS:
                break
        job.start()
        while job.read()[0] != "ended":
            pass
    finally:
        job.end()
    with np.load(straight / "final.npz") as a, np.load(killed / "final.npz") as b:
        assert set(a) == set(b)
        assert all(a[name].tobytes() == b[name].tobytes() for name in a)
    assert kills >= KILLS // 2
    assert len(list((killed / "checkpoints").glob("*"))) <= 3
