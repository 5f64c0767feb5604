"""Checkpoints of 1 GB: how long a training loop stops to save one, and how long it takes to restore
it, compared with Orbax (if it is installed) and with reading the bytes.

The state is 64 variables that each step changes, and then two variables, whose memory the system
allocates anew each time. All files are in the page cache when they are read. Orbax gets the same
arrays, as JAX arrays.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import graphc as gc

Row = tuple[str, str, str]
COUNT, BYTES = 64, 1 << 30
ROUNDS = 5
PERIOD = 30.0  # seconds between checkpoints; at most 5 % of this time may be lost


def rows() -> Iterator[Row]:
    """Rows: the stall of a save, the steps while a thread writes, and restoring."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    session, step = state()
    with tempfile.TemporaryDirectory() as folder:
        yield from saving_rows(session, step, Path(folder) / "graphc")
        yield from restoring_rows(session, Path(folder) / "graphc")
        few, _ = state(2)
        with gc.train.Checkpointer(Path(folder) / "few") as saver:
            saver.save(few, 1)
        yield from restoring_rows(few, Path(folder) / "few", "2 variables: ")
        del few
        if importlib.util.find_spec("orbax") is not None:
            yield from orbax_rows(session, Path(folder))


def state(count: int = COUNT) -> tuple[gc.Session, Any]:
    """A session with 1 GB of state in some variables, and a step that changes all of it."""
    graph = gc.Graph()
    with graph:
        elements = BYTES // 4 // count
        variables = [
            gc.variable(np.full(elements, i, np.float32), name=f"v{i}") for i in range(count)
        ]
        step = gc.group([v.assign(v * np.float32(1.0001)) for v in variables])
    session = gc.Session(graph)
    run_step(session, step)
    return session, step


def run_step(session: gc.Session, step: Any) -> None:
    """Runs a step and waits for its end."""
    session.run(step)
    session.get("v0").block_until_ready()


def seconds(work: Callable[[], Any]) -> float:
    """The time of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def median(work: Callable[[], Any]) -> float:
    """The median time of some calls, after one call that is not counted."""
    work()
    return statistics.median(seconds(work) for _ in range(ROUNDS))


def saving_rows(session: gc.Session, step: Any, folder: Path) -> Iterator[Row]:
    """The time that the loop loses while the state is copied and while the thread writes."""
    alone = median(lambda: run_step(session, step))
    stalls, writes, losses = [], [], []
    with gc.train.Checkpointer(folder, keep=1) as saver:
        for number in range(ROUNDS + 1):
            stalls.append(seconds(lambda n=number: saver.save(session, n)))
            begin = time.perf_counter()
            steps = 0
            while saver._background.is_running:
                run_step(session, step)
                steps += 1
            writes.append(time.perf_counter() - begin)
            losses.append(writes[-1] - steps * alone)
    stall, lost = statistics.median(stalls[1:]), statistics.median(losses[1:])
    yield "save: the loop stops", f"{stall:.2f} s", f"{stall / PERIOD:.1%} of {PERIOD:.0f} s"
    yield "save: the thread writes", f"{statistics.median(writes[1:]):.2f} s", ""
    yield "steps lost while it writes", f"{lost:.2f} s", f"{lost / PERIOD:.1%} of {PERIOD:.0f} s"


def restoring_rows(session: gc.Session, folder: Path, which: str = "") -> Iterator[Row]:
    """Restoring, compared with reading the bytes into newly allocated memory each time."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    saver = gc.train.Checkpointer(folder)
    reading = median(lambda: [path.read_bytes() for path in files])
    running = median(lambda: saver.restore(session))
    fresh = median(lambda: saver.restore(gc.Session(session.graph)))
    yield f"{which}reading the bytes", f"{reading:.2f} s", "1.00"
    yield f"{which}restore into a running session", f"{running:.2f} s", f"{running / reading:.2f}"
    yield f"{which}restore into a new session", f"{fresh:.2f} s", f"{fresh / reading:.2f}"


def orbax_rows(session: gc.Session, folder: Path) -> Iterator[Row]:
    """Orbax's asynchronous checkpointer with the same arrays."""
    import orbax.checkpoint as ocp

    tree = {name: jax.numpy.array(value) for name, value in session.values().items()}
    jax.block_until_ready(tree)
    stalls, writes = [], []
    checkpointer = ocp.StandardCheckpointer()
    path = os.path.join(folder, "orbax")
    for _ in range(ROUNDS):
        stalls.append(seconds(lambda: checkpointer.save(path, tree, force=True)))
        writes.append(seconds(checkpointer.wait_until_finished))
    restoring = median(lambda: jax.block_until_ready(checkpointer.restore(path, tree)))
    checkpointer.close()
    yield "Orbax: the loop stops", f"{statistics.median(stalls[1:]):.2f} s", ""
    yield "Orbax: its threads write", f"{statistics.median(writes[1:]):.2f} s", ""
    yield "Orbax: restore", f"{restoring:.2f} s", ""
