"""Keeps results of 27 MiB until memory is exhausted, and prints the outcome of each operation.

    python -m tests.runtime.kept_results KIND

KIND: "session" on all devices, "partition" on two of them, or "artifact" for a loaded artifact.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import graphc as gc
from tests.runtime.out_of_memory import LEFT, leave, say

FEED = np.ones((1_800, 16), np.float32)
OPTIONS = gc.CompileOptions(cache=None)
Uses = Mapping[str, Callable[[], Any]]
kept: list[Any] = []


def built(kind: str) -> tuple[gc.Graph, gc.Tensor, gc.Node]:
    """Returns a graph, its large result, and the step that adds one to all of `w`."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 16), name="x")
        with gc.device("/cpu:0" if kind == "partition" else None):
            w = gc.variable(np.ones((16, 4000), np.float32), name="w")
            product = gc.matmul(x, w)
            step = w.assign(w + gc.reduce_mean(product) / 16)
        with gc.device("/cpu:1" if kind == "partition" else None):
            result = product * 2.0
    return graph, result, step


def of_session(kind: str) -> Uses:
    graph, result, step = built(kind)
    devices = 1 if kind == "partition" else jax.local_device_count()
    strategy = gc.devices.DataParallel(devices) if devices > 1 else None
    session = gc.Session(graph, strategy=strategy, options=OPTIONS)
    for fetches in (result, [step, result]):
        session.compile(fetches, {"x": FEED.shape})
    before = session.values()["w"]
    return {
        "update": lambda: kept.append(session.run([step, result], {"x": FEED})),
        "read": lambda: kept.append(session.run(result, {"x": FEED})),
        "state": lambda: np.testing.assert_array_less(before, session.values()["w"]),
    }


def of_artifact(kind: str) -> Uses:
    graph, result, step = built(kind)
    session = gc.Session(graph, options=OPTIONS)
    takes, gives = {"x": "x"}, {"y": result}
    signatures = {
        "predict": gc.Signature(takes, gives),
        "train": gc.Signature(takes, gives, updates=[step]),
    }
    with tempfile.TemporaryDirectory() as folder:
        gc.save(session, Path(folder) / "model.gcx", signatures=signatures)
        model = gc.load(Path(folder) / "model.gcx")
    states = [model.state()]

    def update() -> None:
        results, state = model.signatures["train"](states[-1], x=FEED)
        kept.append(results["y"])
        states.append(state)

    predict = model.signatures["predict"]
    predict(x=FEED)
    update()
    before = np.array(states[-1]["w"])
    kept.clear()
    return {
        "update": update,
        "read": lambda: kept.append(predict(x=FEED)["y"]),
        "state": lambda: np.testing.assert_array_less(before, np.array(states[-1]["w"])),
    }


def main(kind: str) -> None:
    """Repeats each operation until it runs out of memory."""
    found = (of_artifact if kind == "artifact" else of_session)(kind)
    leave(LEFT)
    uses: dict[str, Callable[[], Any]] = {
        name: (lambda use=use: [use() for _ in range(50)]) if name != "state" else use
        for name, use in found.items()
    }
    uses["results"] = lambda: jax.block_until_ready(kept)
    uses["drop"] = kept.clear
    uses["again"] = found["update"]
    say(uses)


if __name__ == "__main__":
    main(sys.argv[1])
