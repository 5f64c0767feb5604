"""`Recorder`: collects the values for the `History` of a training loop."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.train.history import History, Series

# The values of this many calls stay on the device, so that reading does not wait for a step.
_BEHIND = 32
# When a metric has twice as many values, every second one is dropped: a job may run for weeks.
_MOST = 1 << 20


class Recorder:
    """Values of metrics as float64, read from the device some steps later.

    Args:
        names: the names of the job's metrics.
        where: the position of the metrics among the values of a call.
    """

    def __init__(self, names: Sequence[str], where: slice) -> None:
        self.names, self._where = list(names), where
        self._pending: list[Any] = []  # the values of a call: arrays of one or of several steps
        self._columns = [array("d") for _ in names]
        self._read_steps, self._every = 0, 1  # the columns have every so many of these steps
        self._points: dict[str, tuple[array[int], array[float]]] = {}
        self._validation: dict[str, tuple[array[int], array[float]]] = {}
        self.steps = 0
        self._began = self._second = time.perf_counter()

    def begin(self) -> None:
        """Marks the beginning of the first step."""
        self._began = self._second = time.perf_counter()

    def first_done(self) -> None:
        """Marks the end of the first call, which compiled. Reads and checks its values."""
        for name, value in zip(self.names, self._pending[-1][self._where], strict=True):
            if np.size(value) != 1:
                raise AttributeValueError(
                    f"fit: metric {name!r} must be a scalar, got shape {np.shape(value)}",
                    hint="gc.reduce_mean(...) of it",
                )
        self._read(len(self._pending))
        self._second = time.perf_counter()

    @property
    def first_seconds(self) -> float:
        """The time of the first call."""
        return self._second - self._began

    def add(self, values: Sequence[Any], steps: int) -> None:
        """Adds the values of a call of `steps` steps."""
        self.steps += steps
        # Large fetches of callbacks must not be kept here.
        self._pending.append(
            values if len(values) == self._where.stop else values[: self._where.stop]
        )
        if len(self._pending) >= _BEHIND:
            self._read(_BEHIND // 2)

    def _read(self, calls: int) -> None:
        ready, self._pending = self._pending[:calls], self._pending[calls:]
        before, every = self._read_steps, self._every
        for number, column in enumerate(self._columns, self._where.start):
            step = before
            for values in ready:
                host = np.asarray(values[number])
                if host.ndim:
                    column.extend(host.ravel()[-step % every :: every].tolist())
                    step += host.size
                else:
                    if step % every == 0:
                        column.append(host.item())
                    step += 1
            self._read_steps = step
        while self._columns and len(self._columns[0]) >= 2 * _MOST:
            self._every *= 2
            for column in self._columns:
                del column[1::2]

    def point(self, name: str, step: int, value: float) -> None:
        """Adds a value that a callback records."""
        _add(self._points, name, step, value)

    def validated(self, step: int, figures: dict[str, float]) -> None:
        """Adds the figures of a validation."""
        for name, value in figures.items():
            _add(self._validation, name, step, value)

    def history(self, start: int, epochs: int, stopped: str | None) -> History:
        """The measurements so far. Waits for the steps."""
        self._read(len(self._pending))
        columns = zip(self.names, self._columns, strict=True)
        return History(
            self.steps,
            {name: np.array(column, np.float64) for name, column in columns},
            time.perf_counter() - self._second,
            self._second - self._began,
            validation={name: _series(each) for name, each in self._validation.items()},
            recorded={name: _series(each) for name, each in self._points.items()},
            start=start,
            epochs=epochs,
            stopped=stopped,
            every=self._every,
        )


def _add(
    to: dict[str, tuple[array[int], array[float]]], name: str, step: int, value: float
) -> None:
    steps, values = to.setdefault(name, (array("q"), array("d")))
    steps.append(step)
    values.append(value)
    if len(steps) >= 2 * _MOST:
        del steps[1::2], values[1::2]


def _series(points: tuple[array[int], array[float]]) -> Series:
    return np.array(points[0], np.int64), np.array(points[1], np.float64)
