"""The job of `cluster_faults`: two processes train a network. Files in the job's folder request
faults.

    cluster_job.py FOLDER STEPS
"""

import hashlib
import os
import resource
import sys
import time
from pathlib import Path

import jax
import numpy as np
import optax

import graphc as gc
from tests.cluster.scripts.telling import tell

EVERY = 20  # steps between two checkpoints
PAUSE = 0.01  # seconds after each step, so that faults hit any part of the job
SLOW = 0.2  # seconds after a step of a slow process


class Accidents(gc.train.Callback):
    """Causes the fault that a file such as "raise-1" requests, and records the steps."""

    session_every = None

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._file = os.open(folder / f"step-{rank}", os.O_RDWR | os.O_CREAT)

    def on_start(self, run: gc.train.Run) -> None:
        reached = int(os.pread(self._file, 20, 0) or 0)
        with (self._folder / f"resumed-{self._rank}").open("a") as file:
            file.write(f"{run.step} {max(0, reached - run.step)}\n")
        (self._folder / f"pid-{self._rank}").write_text(str(os.getpid()))

    def on_step(self, run: gc.train.Run) -> None:
        time.sleep(PAUSE)
        os.pwrite(self._file, f"{run.step:<20}".encode(), 0)
        if self._is_asked("raise", once=True):
            raise ArithmeticError("broken on purpose")
        if self._is_asked("full", once=True):  # no file may grow, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        if self._is_asked("slow"):
            time.sleep(SLOW)

    def _is_asked(self, what: str, *, once: bool = False) -> bool:
        path = self._folder / f"{what}-{self._rank}"
        if not path.exists():
            return False
        if once:
            path.unlink()
        return True


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    member = gc.cluster.join()
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, 4), "float64", name="x")
        y = gc.placeholder((None,), "float64", name="y")
        hidden = gc.nn.Dense(8, activation=gc.tanh, dtype="float64")(x)
        loss = gc.reduce_mean((gc.nn.Dense(1, dtype="float64")(hidden)[:, 0] - y) ** 2)
        train = gc.minimize(loss, optax.adam(1e-2))
    data = np.random.default_rng(0).normal(size=(160, 4))
    rows = gc.data.from_arrays({"x": data, "y": data.sum(1)})
    batches = rows.shuffle(seed=0).repeat().shard().batch(16 // member.size)
    job = gc.train.Job(graph, train, batches, steps=steps, metrics={"loss": loss})
    session = gc.Session(graph, strategy=gc.devices.DataParallel(jax.devices()))
    callbacks = [gc.train.CsvLogger(folder / "log.csv"), Accidents(folder, member.rank)]
    options = {"checkpoint": folder / "checkpoints", "checkpoint_steps": EVERY}
    history = gc.train.fit(session, job, callbacks=callbacks, **options)
    values = session.values()
    bits = b"".join(values[name].tobytes() for name in sorted(values))
    last = float(history.metrics["loss"][-1]) if history.steps else None
    tell(f"{hashlib.sha256(bits).hexdigest()} {last} {member.size}")


if __name__ == "__main__":
    main()
