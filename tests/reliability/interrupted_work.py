"""Ctrl-C at random moments of building, compiling, saving and loading: the same work then succeeds.

    python -m tests.reliability.interrupted_work ROUNDS SEED     prints a tally as JSON

In each round, a timer interrupts one of `FORMS` at a random moment, sometimes without JAX's caches
or graphc's. Then the same work runs again, and its result is compared with the right one. A tally
counts:

    rounds        how often work was interrupted
    errors        other exceptions of the interrupted work than the interrupt
    broken        exceptions or wrong results of the same work afterwards
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import graphc as gc

X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
LABELS = np.arange(8, dtype=np.int32) % 3


def model() -> tuple[gc.Graph, dict[str, Any]]:
    """A classifier and its training step."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, 6), name="x")
        y = gc.placeholder((None,), "int32", name="y")
        logits = gc.nn.Dense(3)(gc.nn.Dense(8, activation=gc.nn.relu)(x))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        train = gc.minimize(gc.reduce_mean(losses), optax.adam(1e-2))
    return graph, {"x": x, "y": y, "logits": logits, "train": train}


GRAPH, ENDS = model()
SIGNATURE = gc.Signature({"x": ENDS["x"]}, {"logits": ENDS["logits"]})


def steps(graph: gc.Graph, ends: dict[str, Any], cache: Path | None) -> gc.Session:
    """A session after three steps."""
    session = gc.Session(graph, options=gc.CompileOptions(cache=cache))
    for _ in range(3):
        session.run(ends["train"], {ends["x"]: X, ends["y"]: LABELS})
    return session


def trained(kept: gc.Session, folder: Path) -> Any:
    graph, ends = model()
    return steps(graph, ends, folder / "cache").run(ends["logits"], {ends["x"]: X})


def saved(kept: gc.Session, folder: Path) -> Any:
    gc.save(kept, folder / "model.gcx", signatures={"predict": SIGNATURE})
    return gc.load(folder / "model.gcx").signatures["predict"](x=X)["logits"]


def restored(kept: gc.Session, folder: Path) -> Any:
    gc.save(kept, folder / "checkpoint")
    graph, ends = model()
    session = gc.Session(graph, options=gc.CompileOptions(cache=None))
    gc.train.restore(session, folder / "checkpoint")
    return session.run(ends["logits"], {ends["x"]: X})


def frozen(kept: gc.Session, folder: Path) -> Any:
    graph = gc.freeze(kept, {"x": ENDS["x"]}, {"logits": ENDS["logits"]})
    (x,), (y,) = graph.collection("inputs"), graph.collection("outputs")
    return gc.Session(graph, options=gc.CompileOptions(cache=None)).run(y, {x: X})


def exported(kept: gc.Session, folder: Path) -> Any:
    gc.to_onnx(kept, folder / "model.onnx", SIGNATURE)
    made = gc.from_onnx(folder / "model.onnx").to_graph()
    session = gc.Session(made.graph, options=gc.CompileOptions(cache=folder / "cache"))
    return session.run(made.outputs["logits"], {made.inputs["x"]: X})


FORMS = (trained, saved, restored, frozen, exported)


class Interrupt(KeyboardInterrupt):
    """What the timer raises."""


def attack(rounds: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    kept = steps(GRAPH, ENDS, None)
    right = kept.run(ENDS["logits"], {ENDS["x"]: X})
    signal.signal(signal.SIGALRM, _raise)
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lasts = {form: _seconds(form, kept, folder) for form in FORMS}
        while tally["rounds"] < rounds:
            form = rng.choice(FORMS)
            if rng.random() < 0.3:
                jax.clear_caches()
            if rng.random() < 0.5:
                shutil.rmtree(folder / "cache", ignore_errors=True)
            try:
                signal.setitimer(signal.ITIMER_REAL, max(1e-4, rng.random() * lasts[form]))
                form(kept, folder)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                tally["rounds"] += 1
            except Exception:
                signal.setitimer(signal.ITIMER_REAL, 0)
                tally["errors"] += 1
                traceback.print_exc()
            try:
                assert np.allclose(form(kept, folder), right, rtol=1e-4, atol=1e-5), form.__name__
            except Exception:
                tally["broken"] += 1
                traceback.print_exc()
    return tally


def _raise(number: int, frame: object) -> None:
    raise Interrupt


def _seconds(form: Any, kept: gc.Session, folder: Path) -> float:
    form(kept, folder)
    begin = time.perf_counter()
    form(kept, folder)
    return 1.3 * (time.perf_counter() - begin)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # a destructor may be what the timer interrupts
    print(json.dumps(attack(int(sys.argv[1]), int(sys.argv[2]))))
