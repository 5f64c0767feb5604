"""Kills a training job at random moments, resumes it, and compares it with an undisturbed one.

python examples/resume.py

The job trains in a separate process, with checkpoints and a validation. SIGKILL ends the process
without a warning. Each new process continues from the latest checkpoint: variables, optimizer,
dropout, the position in the shuffled data, and the state of early stopping. The final parameters
equal those of the undisturbed run, bit by bit.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import digits
import numpy as np
import optax

import graphc as gc


def build(epochs: int = 6) -> gc.train.Job:
    """A classifier of digits, with dropout."""
    data = digits.load()
    graph = gc.Graph(seed=0, name="digits_resumed")
    with graph:
        x = gc.placeholder(("batch", 8, 8, 1), name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        h = gc.nn.Dense(32, activation=gc.nn.relu, name="hidden")(gc.nn.Flatten()(x))
        logits = gc.nn.Dense(10, name="out")(gc.nn.dropout(h, 0.2))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
        accuracy = gc.metrics.Accuracy(labels=y, predictions=logits)
    examples = gc.data.from_arrays({"x": data["x_train"], "y": data["y_train"]})
    tests = gc.data.from_arrays({"x": data["x_test"], "y": data["y_test"]}).batch(100)
    return gc.train.Job(
        graph,
        train,
        examples.shuffle(seed=1).batch(64),
        epochs=epochs,
        metrics={"loss": loss, "accuracy": accuracy},
        validation=gc.train.Validation(tests, {"loss": loss, "accuracy": accuracy}),
    )


def train(folder: Path, epochs: int) -> None:
    """Trains or resumes; writes the final parameters to `end.npz`."""
    job = build(epochs)
    session = gc.Session(job.graph)
    history = gc.train.fit(
        session,
        job,
        callbacks=[
            gc.train.EarlyStopping("validation/loss", patience=3),
            gc.train.JsonLinesLogger(folder / "log.jsonl"),
        ],
        checkpoint=folder / "checkpoints",
        checkpoint_steps=3,
        progress=False,
    )
    print(f"steps {history.start + 1} to {history.start + history.steps}")
    np.savez(folder / "end.npz", **session.values())


def started(folder: Path, epochs: int) -> subprocess.Popen[bytes]:
    """Starts a process that trains."""
    command = [sys.executable, __file__, "--folder", str(folder), "--epochs", str(epochs)]
    return subprocess.Popen(command)


def killed_until_done(folder: Path, epochs: int, kills: int) -> int:
    """Trains in processes that are killed; returns how many were killed."""
    draw = random.Random(0)
    saver = gc.train.Checkpointer(folder / "checkpoints")
    for number in range(kills):
        process = started(folder, epochs)
        begin = saver.latest() or 0
        while process.poll() is None and (saver.latest() or 0) < begin + 5:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.02))  # so that the kill comes at any point
        process.kill()
        if process.wait() == 0:
            return number
    process = started(folder, epochs)
    if process.wait():
        raise SystemExit(f"the job failed with code {process.returncode}")
    return kills


def same(one: Path, other: Path) -> bool:
    """Whether two files have the same parameters."""
    with np.load(one) as a, np.load(other) as b:
        return a.files == b.files and all(a[n].tobytes() == b[n].tobytes() for n in a.files)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, help="train there, and compare nothing")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    if options.folder is not None:
        train(options.folder, options.epochs)
        return
    with tempfile.TemporaryDirectory() as name:
        whole, parts = Path(name, "whole"), Path(name, "parts")
        for folder in (whole, parts):
            folder.mkdir()
        started(whole, options.epochs).wait()
        kills = killed_until_done(parts, options.epochs, options.kills)
        lines = [(folder / "log.jsonl").read_text() for folder in (whole, parts)]
        equal = same(whole / "end.npz", parts / "end.npz")
        print(f"killed {kills} times; same parameters: {equal}; same log: {lines[0] == lines[1]}")


if __name__ == "__main__":
    main()
