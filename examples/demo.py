"""The program of `make demo`: the main job on real data, end to end.

Trains a convolutional network on handwritten digits on all GPUs, or else on 4 virtual CPU devices,
saves it, and lets a new process without the model's code load it and predict.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
).strip()

import digits
import digits_cnn
import jax
import numpy as np

import graphc as gc
from graphc.store.folder import default_folder

HERE = Path(__file__).resolve().parent


def predict_elsewhere(artifact: Path, images: Path, answers: Path) -> float:
    """Runs the artifact in a new process on one device; returns the seconds that this took."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, str(HERE / "load_and_predict.py"), artifact, images, answers],
        check=True,
        env=environment,
    )
    return time.perf_counter() - start


def main() -> None:
    job = digits_cnn.build()
    devices = jax.local_devices()
    strategy = gc.devices.DataParallel(len(devices))
    session = gc.Session(job.graph, strategy=strategy)
    print(f"compiled programs are kept in {default_folder()}; a second run loads them")
    print(f"training {job.graph.name} for {job.steps} steps on {len(devices)} devices")
    history = gc.train.fit(session, job)
    accuracy = job.evaluate(session)["test accuracy"]
    print(f"test accuracy {accuracy:.4f}")

    images = digits.load()["x_test"]
    here = np.argmax(session.run("logits:0", {"x": images}), axis=-1)
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder) / "digits_cnn.gcx"
        gc.save(session, artifact, signatures=job.signatures)
        np.save(Path(folder) / "images.npy", images)
        seconds = predict_elsewhere(
            artifact, Path(folder) / "images.npy", Path(folder) / "answers.npy"
        )
        there = np.load(Path(folder) / "answers.npy")
        size = artifact.stat().st_size
    same = bool(np.array_equal(here, there))

    step = session.executables[0]
    hlo = step.hlo()
    exchanges = hlo.count(" all-reduce(") + hlo.count(" all-reduce-start(")  # on CPU, on GPUs
    found = " (loaded: an earlier run compiled it)" if step.cached else ""
    print()
    print("what ran where")
    print(
        f"  training    {len(devices)} x {devices[0].device_kind} through jax.pmap, "
        f"all-reduces a step: {exchanges}"
    )
    print(
        f"  loading     a new process, one device, {size / 1e6:.2f} MB artifact, "
        f"{seconds:.1f} s with its start"
    )
    print(f"compile       {sum(step.seconds.values()):.2f} s{found}")
    print(f"step          {1e3 * history.step_seconds:.2f} ms (batch {job.batches.size})")
    print(f"predictions   {'the same' if same else 'DIFFERENT'} in the new process")
    if not same or accuracy < 0.98:
        sys.exit("the demo did not reach what it promises")


if __name__ == "__main__":
    main()
