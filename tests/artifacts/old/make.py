"""Writes an artifact with the current graphc, and its results, for future tests.

    python tests/artifacts/old/make.py v2-jax0.10 --parallel

writes `v2-jax0.10.gcx` and `v2-jax0.10.json` to this folder. It never overwrites existing files:
the tests check that they still load. The files of version 1 were also written by this script, at
the commit that closed issue 2 (without `--parallel`, which is newer).
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import numpy as np
import optax

import graphc as gc

FOLDER = Path(__file__).parent


def model() -> tuple[gc.Graph, dict[str, gc.Signature]]:
    """A layer with dropout, a loop, momentum: a random stream, a region, an optimizer's state."""
    graph = gc.Graph(seed=11, name="old")
    with graph:
        x = gc.placeholder(("batch", 3), name="x")
        t = gc.placeholder(("batch", 1), name="t")
        dense = gc.nn.Dense(1, name="dense")
        y = gc.identity(dense(x), name="y")
        three = gc.zeros((3, 1))
        _, powers = gc.scan(
            lambda z, zero: (z * y + zero, z * y + zero), gc.ones((1,)) + 0 * y, three
        )
        error = gc.nn.dropout(y - t, 0.25)
        loss = gc.reduce_mean(gc.square(error), name="loss")
        train = gc.minimize(loss, optax.sgd(0.1, momentum=0.9), name="train")
    return graph, {
        "predict": gc.Signature({"x": x}, {"y": y, "powers": powers}),
        "train": gc.Signature({"x": x, "t": t}, {"loss": loss}, updates=[train]),
    }


def batch(size: int, step: int) -> dict[str, np.ndarray]:
    """Feeds that are made of sines, so that they do not depend on a random generator."""
    x = np.sin(np.arange(size * 3, dtype=np.float32) + step).reshape(size, 3)
    return {"x": x, "t": x.sum(axis=1, keepdims=True)}


def play(model: gc.artifacts.Model) -> dict[str, list]:
    """The results of the entry points, which the tests compare."""
    results = {}
    for size in (1, 5):
        outputs = model.signatures["predict"](x=batch(size, 0)["x"])
        results |= {f"{name}{size}": np.asarray(v).tolist() for name, v in outputs.items()}
    for train in [name for name in model.signatures if name.startswith("train")]:
        state, losses = model.state(), []
        for step in range(4):
            outputs, state = model.signatures[train](state, **batch(8, step))
            losses.append(float(outputs["loss"]))
        results[train] = losses
        results[f"{train} kernel"] = np.asarray(state["dense/kernel"]).tolist()
    return results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--parallel", action="store_true", help="with a step for two devices")
    options = parser.parse_args()
    path = FOLDER / f"{options.name}.gcx"
    if path.exists():
        parser.error(f"{path.name} is there already, and must stay as it is")
    graph, signatures = model()
    session = gc.Session(graph, strategy=gc.devices.DataParallel(2) if options.parallel else None)
    if options.parallel:
        train = signatures["train"]
        signatures["train2"] = gc.Signature(
            train.inputs, train.outputs, train.updates, sizes={"batch": 8}, replicated=True
        )
    for step in range(2):
        session.run("train", batch(8, step))
    gc.save(session, path, signatures=signatures, platforms=("cpu",))
    path.with_suffix(".json").write_text(json.dumps(play(gc.load(path)), indent=1) + "\n")
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
