"""`StopOnNaN`: ends the loop when a metric is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphc.runtime.feeds.batches import checked_count
from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run


class StopOnNaN(Callback):
    """Ends the loop when a metric of the job or of the validation is NaN or infinite.

    No checkpoint is written then, so the latest checkpoint is that of an earlier step. If `every`
    is 1, its metrics were finite.

    Args:
        metrics: the names of the metrics of the job to check. None: all.
        every: how often, in steps. Checking a metric waits for the step.

    Raises:
        AttributeValueError: `every` is not a number of steps.

    Examples:
        >>> w = gc.variable(-1.0, name="w")
        >>> loss = gc.log(w)
        >>> train = gc.minimize(loss, optax.sgd(0.1))
        >>> job = gc.train.Job(graph, train, [{}] * 9, steps=9, metrics={"loss": loss})
        >>> gc.train.fit(gc.Session(graph), job, callbacks=[gc.train.StopOnNaN()]).stopped
        'loss is nan at step 1'
    """

    session_every = None  # later steps in the same call are harmless

    def __init__(self, metrics: Sequence[str] | None = None, *, every: int = 1) -> None:
        self._metrics = metrics
        self._every = checked_count(every, "StopOnNaN: every")

    def on_step(self, run: Run) -> None:
        """Checks the metrics of the job."""
        if run.step % self._every == 0 and run.stopped is None:
            self._look(run, run.metrics, "")

    def on_validation(self, run: Run) -> None:
        """Checks the figures of the validation."""
        self._look(run, run.validation, "validation/")

    def _look(self, run: Run, figures: Mapping[str, Any], prefix: str) -> None:
        for name, figure in figures.items():
            chosen = prefix or self._metrics is None or name in self._metrics
            if chosen and not math.isfinite(value := float(figure)):
                run.stop(f"{prefix}{name} is {value} at step {run.step}", save=False)
