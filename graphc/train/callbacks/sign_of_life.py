"""`SignOfLife`: tells the supervisor of a cluster how far this process is, and how often the others
wait for it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final

import jax

from graphc.runtime.core.failures import RUN_FAILED
from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run

VARIABLE: Final = "GRAPHC_PROGRESS"
"""The file for the signs of life. `graphc launch` sets it."""

_SECONDS = 0.5


class SignOfLife(Callback):
    """Writes a file, twice a second at most, which exists while the loop runs. It has:

    - "step": the last step;
    - "of": the number of steps, or null;
    - "late": how many seconds the device has had nothing to do, because this process had not begun
      the next step: from the end of a step, which is that of a metric, to the beginning of the next
      one. Without metrics it is 0;
    - "own": how many seconds this process was not in `session.run`: for its input and callbacks.

    The first is that of the last process alone, also if all need equally long: the others have
    begun before. The second is large for a process that waits for the values of a step.
    """

    session_every = None

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._next = 0.0
        self._late = self._begun = 0.0
        self._watch = _Watch()

    def on_start(self, run: Run) -> None:
        """Creates the file."""
        self._begun = time.monotonic()
        self._watch.start()
        self._tell(run)

    def on_step(self, run: Run) -> None:
        """Writes the file, if it is time. It must be the first callback: a step has just begun."""
        now = time.monotonic()
        self._late += self._watch.next(run, now)
        if now >= self._next:
            self._tell(run)

    def on_end(self, run: Run) -> None:
        """Removes the file: what follows may take any time."""
        self._watch.stop()
        self._path.unlink(missing_ok=True)

    def _tell(self, run: Run) -> None:
        now = time.monotonic()
        own = now - self._begun - run.in_session
        told = {"step": run.step, "of": run.steps, "late": self._late, "own": own}
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(told))
        os.replace(new, self._path)
        self._next = now + _SECONDS


class _Watch:
    """Notes when steps end, in a thread that waits for their values."""

    def __init__(self) -> None:
        self._begun: SimpleQueue[tuple[int, jax.Array] | None] = SimpleQueue()
        self._ended = 0, 0.0  # a step, and when it ended
        self._thread = Thread(target=self._wait, daemon=True, name="graphc-sign-of-life")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._begun.put(None)

    def next(self, run: Run, now: float) -> float:
        """For how long the device had nothing to do before the step that began now."""
        values, index = run._values or ([], None)
        arrays = [value for value in values if isinstance(value, jax.Array)]
        if not arrays or index:  # a later step of a call of several
            return 0.0
        step, at = self._ended
        self._begun.put((run.step, arrays[0]))
        return now - at if step == run.step - 1 and at else 0.0

    def _wait(self) -> None:
        while (begun := self._begun.get()) is not None:
            step, value = begun
            try:
                value.block_until_ready()
            except (*RUN_FAILED, RuntimeError):  # or the user has deleted the value
                continue  # the loop reports it
            self._ended = step, time.monotonic()


def signs() -> list[Callback]:
    """The callback, if a supervisor asks for it."""
    path = os.environ.get(VARIABLE)
    return [SignOfLife(path)] if path else []
