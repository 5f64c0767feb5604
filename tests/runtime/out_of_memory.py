"""Runs a step that exhausts memory, in a separate process; prints each operation's outcome as JSON.

    python -m tests.runtime.out_of_memory DEVICES HOW

HOW: "asked": the check before the run finds too little memory. "waited": that check passes, and
`run` waits for the step. "late": neither, so the failure appears after `run` has returned.
"state": as "late", with an executable of `gc.compile`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

import graphc as gc
from graphc.runtime.targets import room

ROWS = 200_000
LEFT = 300 * 2**20  # bytes of address space


def main(devices: int, how: str) -> None:
    """Runs a small batch, then one that is too large, and then all other operations."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 16), name="x")
        w = gc.variable(np.ones((16, 4000), np.float32), name="w")
        value = gc.reduce_mean(gc.sort(gc.matmul(x, w), axis=1))
        step = w.assign(w + value)
    options = gc.CompileOptions(cache=None)
    strategy = gc.devices.DataParallel(devices) if devices > 1 else None
    session = gc.Session(graph, strategy=strategy, options=options)
    small, large = ({x: np.ones((n, 16), np.float32)} for n in (8, ROWS))
    session.run([step, value], small)
    session.compile([step, value], {x: (ROWS, 16)})
    steps = {}
    if how == "state":
        for rows in (8, ROWS):
            steps[rows] = gc.compile(
                graph, step, {x: (rows, 16)}, strategy=strategy, options=options
            )
        states = [steps[8].init()]
    leave(LEFT)
    if how != "asked":
        room.has_room = lambda size: True  # type: ignore[assignment]
    if how in ("late", "state"):
        room.is_limited = lambda: False  # type: ignore[assignment]
    uses: dict[str, Callable[[], Any]] = {
        "large": lambda: session.run([step, value], large),
        "run": lambda: session.run([step, value], small),
        "get": lambda: np.asarray(session.get("w")),
        "values": session.values,
        "set": lambda: session.set("w", np.ones((16, 4000), np.float32)),
        "again": lambda: session.run([step, value], small),
        "close": session.close,
    }
    if how == "state":
        uses = {
            "large": lambda: states.append(steps[ROWS](states[0], large)[1]),
            "read": lambda: states[-1]["w"],
            "run": lambda: steps[8](states[-1], small),
        }
    say(uses)


def leave(more: int) -> None:
    """Limits the address space of this process to its current size plus `more` bytes."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more,) * 2)


def say(uses: Mapping[str, Callable[[], Any]]) -> NoReturn:
    """Prints the outcomes as JSON and ends the process."""
    said = {}
    for name, use in uses.items():
        try:
            use()
            said[name] = "ok"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
    os._exit(0)  # does not wait for threads that could not allocate their stacks


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
