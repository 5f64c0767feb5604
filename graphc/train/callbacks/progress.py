"""`Progress`: a bar with the rate, the time left and the metrics."""

from __future__ import annotations

import time
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from graphc.runtime.core.progress import progress_bar
from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run

_MOMENT = 0.1  # seconds between two readings of the metrics, which wait for the step


class Progress(Callback):
    """Shows a progress bar on standard error: steps, rate, time left, and the metrics.

    `fit` adds one automatically if standard error is a terminal.

    Args:
        shown: True shows it even if standard error is not a terminal.

    Examples:
        >>> gc.train.Progress(shown=True).session_every
    """

    session_every = None
    for_chief = True

    def __init__(self, *, shown: bool = False) -> None:
        self._always = shown
        self._bar: Any = None
        self._next = 0.0

    def on_start(self, run: Run) -> None:
        """Opens the bar."""
        total = run.steps
        if total is None and run.epochs is not None and isinstance(run.job.batches, Sized):
            total = run.epochs * len(run.job.batches)
        self._bar = progress_bar(
            True,
            total,
            "step",
            dynamic_ncols=True,
            initial=run.step,
            **({"disable": False} if self._always else {}),
        )
        self._next = 0.0

    def on_step(self, run: Run) -> None:
        """Updates the bar ten times a second."""
        now = time.perf_counter()
        if now >= self._next or run.step == run.steps:
            self._show(run)
            self._next = now + _MOMENT

    def _show(self, run: Run) -> None:
        if self._bar is None or self._bar.disable:
            return
        figures = {name: f"{float(v):.4g}" for name, v in run.metrics.items()}
        figures |= {f"validation {name}": f"{v:.4g}" for name, v in run.validation.items()}
        if run.epochs is not None:
            figures = {"epoch": f"{run.epoch + 1}/{run.epochs}"} | figures
        self._bar.set_postfix(figures, refresh=False)
        self._bar.update(run.step - self._bar.n)

    def on_end(self, run: Run) -> None:
        """Closes the bar."""
        bar = self._bar
        if bar is None:
            return
        try:
            self._show(run)
        finally:
            bar.close()
            self._bar = None
