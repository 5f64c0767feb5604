"""A training job that saves a checkpoint every few steps (0: never), for `test_kill`.

The parent imports everything once for many runs.

    python -m tests.checkpoints.kill_child FOLDER STEPS EVERY DEVICES

Reads lines. For each `go`, it forks a child that trains from the latest checkpoint to the end,
writes the values to FOLDER/final.npz and prints `done`. The parent first prints the child's id, so
that the child can be killed. No process that has used a JAX device is forked.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import graphc as gc
from tests.checkpoints.jobs import batches, everything, network


def train(folder: Path, steps: int, every: int, devices: int) -> None:
    graph, step_of, _ = network()
    strategy = gc.devices.DataParallel(devices, shard_optimizer=True) if devices > 1 else None
    session, stream = gc.Session(graph, strategy=strategy), iter(batches())
    with gc.train.Checkpointer(folder / "checkpoints", keep=2) as saver:
        restored = saver.restore(session)
        step = 0
        if restored is not None:
            step = restored.step
            stream.restore(restored.extra)
        print("started", step, flush=True)
        while step < steps:
            session.run(step_of, next(stream))
            step += 1
            if every and step % every == 0:
                saver.save(session, step, extra=stream.state())
    np.savez(
        folder / "final.npz", **{n.replace("/", "|"): v for n, v in everything(session).items()}
    )
    print("done", flush=True)


def main() -> None:
    folder, steps, every, devices = Path(sys.argv[1]), *map(int, sys.argv[2:])
    for line in sys.stdin:
        assert line == "go\n"
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            train(folder, steps, every, devices)
            os._exit(0)
        print("child", child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
