"""The network of digits_cnn.py on two processes under a supervisor.

make cluster-demo
python examples/cluster.py

The job runs twice. In the second run, one process is killed in the middle: all processes restart
from the last checkpoint, and the final parameters are the same. TensorBoard's logs are kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import signal
import sys
from pathlib import Path

import digits
import digits_cnn
import jax

import graphc as gc

STEPS, PROCESSES, BATCH = 300, 2, 128


class Accident(gc.train.Callback):
    """Kills the last process once, after half of the steps."""

    def on_step(self, run: gc.train.Run) -> None:
        if run.step == STEPS // 2 and os.environ["GRAPHC_ATTEMPT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)


def work(folder: Path, accident: bool) -> None:
    """The code of each process of the cluster."""
    member = gc.cluster.join()
    job, data = digits_cnn.build(), digits.load()
    rows = gc.data.from_arrays({"x": data["x_train"], "y": data["y_train"]})
    batches = rows.shuffle(seed=1).repeat().shard().batch(BATCH // member.size)
    job = dataclasses.replace(job, batches=batches, steps=STEPS)
    session = gc.Session(job.graph, strategy=gc.devices.DataParallel(jax.devices()))
    callbacks: list[gc.train.Callback] = [gc.train.TensorBoard(folder / "logs")]
    if accident and member.rank == member.size - 1:
        callbacks.append(Accident())
    gc.train.fit(session, job, checkpoint=folder, checkpoint_steps=50, callbacks=callbacks)
    share = slice(member.rank, None, member.size)  # the test images of this process
    feeds = {"x": data["x_test"][share], "y": data["y_test"][share]}
    accuracy = float(session.run("accuracy", feeds))
    if member.is_chief:
        values = session.values()
        bits = b"".join(values[name].tobytes() for name in sorted(values))
        result = f"{accuracy:.4f} {hashlib.sha256(bits).hexdigest()[:16]}"
        (folder / "result").write_text(result)


def supervise(folder: Path, accident: bool) -> tuple[str, str]:
    """Runs the cluster until it ends; returns the accuracy and a digest of the parameters."""
    command = [sys.executable, __file__, "--folder", str(folder)]
    command += ["--accident"] if accident else []
    status = gc.cluster.launch(command, PROCESSES, devices=1, restarts=2, silence=120)
    if status:
        raise SystemExit(f"the cluster failed with {status}")
    accuracy, digest = (folder / "result").read_text().split()
    return accuracy, digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/cluster"))
    parser.add_argument("--accident", action="store_true")
    options = parser.parse_args()
    if "GRAPHC_CLUSTER" in os.environ:
        work(options.folder, options.accident)
        return
    folders = [options.folder / name for name in ("undisturbed", "killed")]
    (first, first_bits), (second, second_bits) = (
        supervise(folder, folder.name == "killed") for folder in folders
    )
    print(f"test accuracy of the undisturbed job: {first}")
    print(f"test accuracy of the job whose process was killed: {second}")
    print(f"same parameters: {first_bits == second_bits}")
    print(f"tensorboard --logdir {options.folder}")


if __name__ == "__main__":
    main()
