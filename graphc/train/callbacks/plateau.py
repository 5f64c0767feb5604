"""`ReduceOnPlateau`: reduces the learning rate when a metric no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.variable import Variable
from graphc.runtime.feeds.batches import checked_count
from graphc.train.callbacks.learning_rate import found_rate
from graphc.train.callbacks.watching import Watched, Watching

if TYPE_CHECKING:
    from graphc.train.run import Run


class ReduceOnPlateau(Watching):
    """Multiplies the learning rate by a factor when a metric has not improved for some validations.

    The learning rate must be a variable. `optax.inject_hyperparams(optax.adam)(learning_rate=0.01)`
    creates such a variable.

    Args:
        metric: as for `EarlyStopping`.
        variable: the variable of the learning rate, or its name. None: the one that
            `optax.inject_hyperparams` has created.
        factor: above 0 and below 1.
        patience: after how many validations (or epochs) without an improvement the rate is reduced.
        cooldown: how many validations (or epochs) to wait after a reduction before counting again.
        minimum: the rate is not reduced below it.
        mode, min_change: as for `EarlyStopping`.

    Raises:
        AttributeValueError: an argument has an invalid value.
        UnknownNameError: from `fit`: there is no such metric, or no such variable.

    Examples:
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.inject_hyperparams(optax.sgd)(learning_rate=1.0))
        >>> job = gc.train.Job(graph, train, [{}] * 5, steps=5)
        >>> check = gc.train.Validation([{}], {"loss": w**2}, every_steps=1)
        >>> reduce = gc.train.ReduceOnPlateau("validation/loss", factor=0.5, patience=2)
        >>> history = gc.train.fit(gc.Session(graph), job, validation=check, callbacks=[reduce])
        >>> history.recorded["learning_rate"]
        (array([3]), array([0.5]))
    """

    def __init__(
        self,
        metric: str,
        variable: Variable | str | None = None,
        *,
        factor: float = 0.1,
        patience: int = 5,
        cooldown: int = 0,
        minimum: float = 0.0,
        mode: str = "min",
        min_change: float = 0.0,
    ) -> None:
        given: Any = factor
        if not (isinstance(given, (int, float)) and 0 < given < 1):
            raise AttributeValueError.here(
                f"ReduceOnPlateau: factor must be above 0 and below 1, got {factor!r}"
            )
        self._watched = Watched("ReduceOnPlateau", metric, mode, min_change)
        self._variable, self._factor, self._minimum = variable, factor, minimum
        self._patience = checked_count(patience, "ReduceOnPlateau: patience")
        self._cooldown = cooldown
        self._waited = self._resting = 0

    def on_start(self, run: Run) -> None:
        """Finds the metric and the variable."""
        self._watched.check(run)
        if self._variable is None:
            self._variable = found_rate(run.session.graph, "ReduceOnPlateau")
        run.session.get(self._variable)

    def _look(self, run: Run) -> None:
        if self._watched.improves(self._watched.value(run)):
            self._waited = 0
            return
        if self._resting:
            self._resting -= 1
            return
        self._waited += 1
        if self._waited >= self._patience:
            self._waited, self._resting = 0, self._cooldown
            self._reduce(run)

    def _reduce(self, run: Run) -> None:
        name: Any = self._variable
        old = np.asarray(run.session.get(name))
        new = np.asarray(max(float(old) * self._factor, self._minimum), old.dtype)
        if new < old:
            run.session.set(name, new)
            run.record("learning_rate", float(new))

    def state(self) -> Mapping[str, Any]:
        """The best value, and how long ago it was. The rate itself is a variable."""
        return {**self._watched.state(), "waited": self._waited, "resting": self._resting}

    def restore(self, state: Mapping[str, object]) -> None:
        """Continues with a value that `state` returned."""
        self._watched.restore(state)
        given: Any = state
        self._waited, self._resting = given["waited"], given["resting"]
