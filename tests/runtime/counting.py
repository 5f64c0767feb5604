"""A program whose state shows a partial update, and a way to interrupt it at an exact moment."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import graphc as gc

FEED = np.ones((8, 4), np.float32)
NAMES = ("a", "b", "c")


def counting() -> tuple[gc.Graph, gc.Node, gc.Tensor]:
    """Each step adds one to each of three variables; two of them share a buffer."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 4), name="x")
        one = gc.reduce_mean(x)
        shapes: list[tuple[int, ...]] = [(), (3,), (40, 50)]
        made = [
            gc.variable(np.zeros(s, np.float32), name=n) for n, s in zip(NAMES, shapes, strict=True)
        ]
        step = gc.group(*[v.assign(v + one) for v in made])
        total = gc.reduce_sum(made[2]) + one
    return graph, step, total


def strategy_of(devices: int) -> Any:
    return gc.devices.DataParallel(devices) if devices > 1 else None


def counts(values: Any) -> set[float]:
    return {float(number) for name in NAMES for number in np.ravel(values[name])}


@contextmanager
def handled(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class Meddled:
    """A compiled program that calls a function after it has consumed the old state."""

    def __init__(self, compiled: Any, meddle: Callable[[], None]) -> None:
        self._compiled, self._meddle = compiled, meddle

    def __call__(self, *arguments: Any) -> Any:
        outputs = self._compiled(*arguments)
        self._meddle()
        return outputs


def meddle(executable: gc.Executable, what: Callable[[], None]) -> Callable[[], None]:
    """Calls `what` in each run of the executable until the returned function is called."""
    executor = executable.executor
    compiled = executor.compiled
    executor._compiled = Meddled(compiled, what)

    def undo() -> None:
        executor._compiled = compiled

    return undo


def interrupt(number: int = signal.SIGINT) -> None:
    signal.raise_signal(number)
