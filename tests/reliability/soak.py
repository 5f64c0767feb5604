"""A training job runs for many minutes, with checkpoints, validation and TensorBoard. SIGTERM and
SIGKILL end it at random moments, and it resumes each time. Then the same steps run at once.

    python -m tests.reliability.soak MINUTES SEED FOLDER

Prints a tally as JSON: how often the job was ended, whether its final parameters have the same
bits, and how the memory of the longest process grew.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from tests.checkpoints.jobs import DATA, batches, everything, network

PAGE = os.sysconf("SC_PAGE_SIZE")
WARM = 20.0  # seconds until memory use has settled
FEWEST = 3  # minimum number of ends, also if the machine is slow


class Watch(gc.train.Callback):
    """Records the memory of the process, and ends the run when the file `stop` exists."""

    session_every = 100

    def __init__(self, folder: Path, steps: int) -> None:
        self._stop, self._steps = folder / "stop", steps
        self._memory = open(folder / "memory.jsonl", "a", buffering=1)  # noqa: SIM115
        self._begin = time.monotonic()
        self._next = 0.0

    def on_step(self, run: gc.train.Run) -> None:
        if run.step % self.session_every:
            return
        if not self._steps and self._stop.exists():
            run.stop("asked to")
        age = time.monotonic() - self._begin
        if age >= self._next:
            self._next = age + 2
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
            print(json.dumps([os.getpid(), age, resident, run.step]), file=self._memory)

    def on_end(self, run: gc.train.Run) -> None:
        self._memory.close()


def train(folder: Path, steps: int) -> None:
    """Trains or resumes, for `steps` steps or until the file `stop` exists."""
    graph, step, loss = network()
    held_out = gc.data.from_arrays(DATA).batch(16)
    validation = gc.train.Validation(held_out, {"loss": loss}, every_steps=5_000)
    job = gc.train.Job(
        graph, step, batches(), steps=steps or 10**9, metrics={"loss": loss}, validation=validation
    )
    session = gc.Session(graph)
    with gc.train.Checkpointer(folder / "checkpoints") as saver:
        history = gc.train.fit(
            session,
            job,
            callbacks=[
                Watch(folder, steps),
                gc.train.TensorBoard(folder / "logs", every=500, histograms=5_000),
                gc.train.CsvLogger(folder / "log.csv", every=500),
            ],
            checkpoint=saver,
            checkpoint_seconds=3.0,
            progress=False,
        )
    values = everything(session)
    np.savez(folder / "final.npz", **{n.replace("/", "|"): v for n, v in values.items()})
    (folder / "steps").write_text(str(history.start + history.steps))


def started(folder: Path, steps: int) -> subprocess.Popen[bytes]:
    """Starts a process that trains."""
    command = [sys.executable, "-m", "tests.reliability.soak", "train", str(folder), str(steps)]
    return subprocess.Popen(command, stderr=open(folder / "errors.txt", "a"))


def disturbed(folder: Path, minutes: float, seed: int) -> dict[str, int]:
    """Runs the job and ends it repeatedly; returns how often, by signal."""
    draw, ends = random.Random(seed), {"SIGTERM": 0, "SIGKILL": 0}
    deadline = time.monotonic() + 60 * minutes
    while time.monotonic() < deadline or sum(ends.values()) < FEWEST:
        process = started(folder, 0)
        seconds, left = draw.uniform(3, min(90, 12 * minutes)), deadline - time.monotonic()
        try:
            process.wait(min(seconds, left) if left > 0 else seconds)
            raise SystemExit(f"the job ended by itself with code {process.returncode}")
        except subprocess.TimeoutExpired:
            name = draw.choice(list(ends))
            process.send_signal(signal.Signals[name])
            process.wait(60)
            ends[name] += 1
    (folder / "stop").touch()
    if started(folder, 0).wait(300):
        raise SystemExit("the job failed")
    return ends


def growth(folder: Path) -> dict[str, float]:
    """For the longest process: seconds, and the growth of its memory in MB after warm-up."""
    rows = [json.loads(line) for line in (folder / "memory.jsonl").read_text().splitlines()]
    age, longest = max((row[1], row[0]) for row in rows)
    own = [row for row in rows if row[0] == longest and row[1] >= min(WARM, age / 2)]
    return {"seconds": round(own[-1][1], 1), "mb": round((own[-1][2] - own[0][2]) / 1e6, 1)}


def is_one_curve(folder: Path) -> bool:
    """Whether the CSV file contains each logged step once, in order."""
    rows = (folder / "log.csv").read_text().splitlines()[1:]
    steps = [int(row.split(",")[0]) for row in rows if row.split(",")[0].isdigit()]
    return len(steps) > 1 and all(a < b for a, b in pairwise(steps))


def same(one: Path, other: Path) -> bool:
    """Whether both files have the same arrays, bit by bit."""
    with np.load(one) as a, np.load(other) as b:
        return set(a) == set(b) and all(a[name].tobytes() == b[name].tobytes() for name in a)


def attack(minutes: float, seed: int, folder: Path) -> dict[str, Any]:
    """Runs the soak test and returns the tally."""
    ended, straight = folder / "disturbed", folder / "straight"
    ended.mkdir()
    straight.mkdir()
    tally: dict[str, Any] = dict(disturbed(ended, minutes, seed))
    steps = int((ended / "steps").read_text())
    if started(straight, steps).wait():
        raise SystemExit("the undisturbed job failed")
    tally["steps"] = steps
    tally["same"] = same(ended / "final.npz", straight / "final.npz")
    tally["one curve"] = is_one_curve(ended)
    tally["memory, disturbed"] = growth(ended)
    tally["memory, undisturbed"] = growth(straight)
    return tally


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        print(json.dumps(attack(float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
