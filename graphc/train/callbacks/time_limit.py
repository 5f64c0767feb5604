"""`TimeLimit`: ends the loop after some time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from graphc.errors import AttributeValueError
from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run


class TimeLimit(Callback):
    """Ends the loop after some time, at the end of a step. `fit` then writes its last checkpoint.

    Args:
        seconds: the time from the start of `fit`, even if it continues from a checkpoint.

    Raises:
        AttributeValueError: `seconds` is not a number above 0.

    Examples:
        >>> train = gc.minimize(gc.variable(8.0) ** 2, optax.sgd(0.1))
        >>> job = gc.train.Job(graph, train, iter(lambda: {}, None), steps=10**9)
        >>> gc.train.fit(gc.Session(graph), job, callbacks=[gc.train.TimeLimit(0.1)]).stopped
        'the time limit of 0.1 s'
    """

    session_every = None

    def __init__(self, seconds: float) -> None:
        given: Any = seconds
        if not (isinstance(given, (int, float)) and given > 0):
            raise AttributeValueError.here(
                f"TimeLimit: seconds must be a number above 0, got {seconds!r}"
            )
        self._seconds = seconds
        self._end = 0.0

    def on_start(self, run: Run) -> None:
        """Starts the clock."""
        self._end = time.perf_counter() + self._seconds

    def on_step(self, run: Run) -> None:
        """Checks the clock."""
        if time.perf_counter() >= self._end:
            run.stop(f"the time limit of {self._seconds:g} s")
