"""`EarlyStopping`: ends the loop when a metric no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphc.runtime.feeds.batches import checked_count
from graphc.train.callbacks.watching import Watched, Watching

if TYPE_CHECKING:
    from graphc.train.run import Run


class EarlyStopping(Watching):
    """Ends the loop when a metric has not improved for some validations.

    Args:
        metric: "validation/loss" for a figure of the validation; or the name of a metric of the
            job, whose value at the end of each epoch is used.
        patience: after how many validations (or epochs) without an improvement the loop ends.
        mode: "min" if less is better, "max" if more is.
        min_change: how much better a value must be to count as an improvement.

    Raises:
        AttributeValueError: an argument has an invalid value.
        UnknownNameError: from `fit`: there is no such metric.

    Examples:
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(1.0))  # goes back and forth
        >>> job = gc.train.Job(graph, train, [{}] * 10, steps=10)
        >>> check = gc.train.Validation([{}], {"loss": w**2}, every_steps=1)
        >>> stop = gc.train.EarlyStopping("validation/loss", patience=3)
        >>> history = gc.train.fit(gc.Session(graph), job, validation=check, callbacks=[stop])
        >>> history.steps, history.stopped
        (4, 'validation/loss has not improved for 3 validations: 64 is the best')
    """

    def __init__(
        self, metric: str, *, patience: int = 5, mode: str = "min", min_change: float = 0.0
    ) -> None:
        self._watched = Watched("EarlyStopping", metric, mode, min_change)
        self._patience = checked_count(patience, "EarlyStopping: patience")
        self._waited = 0

    def _look(self, run: Run) -> None:
        if self._watched.improves(self._watched.value(run)):
            self._waited = 0
            return
        self._waited += 1
        if self._waited >= self._patience:
            best = "none" if self._watched.best is None else f"{self._watched.best:.6g}"
            unit = "validations" if self._watched.of_validation else "epochs"
            run.stop(
                f"{self._watched.metric} has not improved for {self._waited} {unit}: {best} is "
                "the best"
            )

    def state(self) -> Mapping[str, Any]:
        """The best value, and how long ago it was."""
        return {**self._watched.state(), "waited": self._waited}

    def restore(self, state: Mapping[str, object]) -> None:
        """Continues with a value that `state` returned."""
        self._watched.restore(state)
        given: Any = state
        self._waited = given["waited"]
