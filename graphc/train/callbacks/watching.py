"""The best value of a metric so far, and callbacks that wait for an improvement of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphc.errors import AttributeValueError, UnknownNameError, nearest
from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run

_VALIDATION = "validation/"


class Watched:
    """A metric, and its best value so far.

    Args:
        who: the callback, for errors.
        metric: "validation/loss" for a figure of the validation, "loss" for one of the job.
        mode: "min" or "max".
        min_change: how much better a value must be to count as an improvement.
    """

    def __init__(self, who: str, metric: str, mode: str, min_change: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise AttributeValueError.here(f'{who}: mode must be "min" or "max", got {mode!r}')
        if not isinstance(metric, str):
            raise AttributeValueError.here(
                f"{who}: metric must be a name, got {metric!r:.80}",
                hint='"validation/loss", or "loss" for the metric of the job',
            )
        self._who, self.metric, self._mode = who, metric, mode
        self._min_change = float(min_change)
        self.best: float | None = None
        self.of_validation = metric.startswith(_VALIDATION)

    def check(self, run: Run) -> None:
        """Rejects a metric that does not exist.

        Raises:
            UnknownNameError: there is no metric of that name.
        """
        if self.metric not in run.figures:
            raise UnknownNameError(
                f"{self._who}: no metric {self.metric!r}",
                details=[f"there are: {', '.join(run.figures) or 'none'}"],
                hint=nearest(self.metric, run.figures),
            )

    def value(self, run: Run) -> float:
        """The current value."""
        if self.of_validation:
            return run.validation[self.metric.removeprefix(_VALIDATION)]
        return float(run.metrics[self.metric])

    def improves(self, value: float) -> bool:
        """Whether a value is better than the best so far, which it then replaces. NaN never is."""
        if math.isnan(value):
            return False
        if self.best is not None:
            gain = self.best - value if self._mode == "min" else value - self.best
            if not gain > self._min_change:
                return False
        self.best = value
        return True

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"best": self.best}

    def restore(self, state: Mapping[str, object]) -> None:
        """Continues with a value that `state` returned."""
        given: Any = state
        self.best = given["best"]


class Watching(Callback):
    """A callback that looks at a metric whenever it has a new value."""

    _watched: Watched

    def on_start(self, run: Run) -> None:
        """Checks the name of the metric."""
        self._watched.check(run)

    def on_validation(self, run: Run) -> None:
        """Checks the figures of a validation."""
        if self._watched.of_validation:
            self._look(run)

    def on_epoch(self, run: Run) -> None:
        """Checks a metric of the job."""
        if not self._watched.of_validation:
            self._look(run)

    def state(self) -> Mapping[str, Any]:
        """The best value."""
        return self._watched.state()

    def restore(self, state: Mapping[str, object]) -> None:
        """Continues with a value that `state` returned."""
        self._watched.restore(state)

    def _look(self, run: Run) -> None:
        """Compares the value with the best one, and acts."""
        raise NotImplementedError
