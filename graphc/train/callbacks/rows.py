"""`RowLogger`: the base class of loggers that write a row for each step to a file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.errors import AttributeValueError, GraphcError
from graphc.runtime.feeds.batches import checked_count
from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run

Row = dict[str, float | int]

_WAITING = 64  # rows whose metrics are read later, so that reading them does not wait for a step
_SECONDS = 1.0  # the longest time until they are read


class RowLogger(Callback):
    """Collects a row for a step: its number, the epoch, the metrics, and the figures that were
    validated and recorded after it."""

    session_every = None
    for_chief = True

    def __init__(self, path: str | os.PathLike[str], *, every: int = 1) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise AttributeValueError.here(
                f"{type(self).__name__}: path must be the path of a file, got {path!r:.80}"
            )
        self._path = Path(path)
        self._every = checked_count(every, f"{type(self).__name__}: every")
        self._rows: list[tuple[Row, Mapping[str, Any]]] = []
        self._recorded: dict[str, float] = {}
        self._last: float | None = None  # the step of the last row in the file
        self._next = 0.0

    def on_start(self, run: Run) -> None:
        """Begins the file, or continues it: rows of steps after the checkpoint are removed."""
        self._rows, self._recorded = [], dict(run.recorded)
        with self._writing():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._last = self.begin(self._path, run.step)
        self._next = time.perf_counter() + _SECONDS

    def on_step(self, run: Run) -> None:
        """Adds a row."""
        if run.step % self._every == 0 or run.recorded != self._recorded:
            row: Row = {"step": run.step, "epoch": run.epoch}
            if run.recorded != self._recorded:
                news = {k: v for k, v in run.recorded.items() if self._recorded.get(k) != v}
                row, self._recorded = row | news, dict(run.recorded)
            self._rows.append((row, run.metrics))
            if len(self._rows) > _WAITING or time.perf_counter() >= self._next:
                self._flush(keep=1)  # a validation may follow

    def on_validation(self, run: Run) -> None:
        """Adds the figures to the row of the step."""
        figures = {f"validation/{name}": value for name, value in run.validation.items()}
        if not self._rows or self._rows[-1][0]["step"] != run.step:
            # A checkpoint between a step and its validation, such as that of an interrupted
            # validation, has written the row of the step.
            if self._last == run.step:
                with self._writing():
                    self._rows.append((self.take_back(self._path), {}))
            else:
                self._rows.append(({"step": run.step, "epoch": run.epoch}, run.metrics))
        self._rows[-1][0].update(figures)
        self._flush(keep=1)

    def on_end(self, run: Run) -> None:
        """Writes the rows that are not written yet."""
        self._flush(keep=0)

    def _flush(self, keep: int) -> None:
        count = len(self._rows) - keep
        ready, self._rows = self._rows[:count], self._rows[count:]
        if ready:
            rows = [row | {name: float(value) for name, value in m.items()} for row, m in ready]
            with self._writing():
                self.write(self._path, rows)
            self._last = ready[-1][0]["step"]
        self._next = time.perf_counter() + _SECONDS

    def state(self) -> Mapping[str, Any]:
        """Returns an empty state. Writes all rows, so that the file has those of the checkpoint."""
        self._flush(keep=0)
        return {}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise GraphcError(
                f"{type(self).__name__}: cannot write {str(self._path)!r}: "
                f"{error.strerror or error}",
                hint="give a file in a folder that can be written, with room",
            ) from error

    def begin(self, path: Path, step: int) -> float | None:
        """Creates the file, or keeps only its rows up to a step. Returns the step of the last."""
        raise NotImplementedError

    def take_back(self, path: Path) -> Row:
        """Removes the last row from the file and returns it."""
        raise NotImplementedError

    def write(self, path: Path, rows: list[Row]) -> None:
        """Adds rows to the file."""
        raise NotImplementedError
