"""Functions for worker processes; one kills its process as often as a file says."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


def square(x: Any) -> Any:
    return x * x


def add_noise(x: Any, rng: np.random.Generator) -> float:
    return float(x + rng.normal())


def process_of(x: Any) -> int:
    return os.getpid()


def fails_at_5(x: int) -> int:
    if x == 5:
        raise ValueError("five is odd")
    return x


class DiesAt:
    """Kills its process at one number, the first `times` times."""

    def __init__(self, number: int, times: int, folder: Path) -> None:
        self.number, self.times, self.folder = number, times, folder

    def __call__(self, x: int) -> int:
        if x == self.number:
            deaths = len(list(self.folder.iterdir()))
            if deaths < self.times:
                (self.folder / f"death{deaths}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return 10 * x


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("two arguments")


def raises_unpicklable(x: int) -> int:
    raise Unpicklable(1, 2)


def returns_a_generator(x: int) -> Any:
    return (i for i in range(3))


def large(x: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"a": np.full((300, 300), x), "b": np.arange(3), "c": np.zeros(0)}


def sleeps(x: int) -> int:
    time.sleep(600)
    return x
