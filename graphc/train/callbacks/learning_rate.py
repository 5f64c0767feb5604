"""`LearningRateLogger`: records the learning rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from graphc.errors import UnknownNameError
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.variable import Variable
from graphc.runtime.feeds.batches import checked_count
from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run

_NAME = "learning_rate"


class LearningRateLogger(Callback):
    """Records the learning rate, for `History.recorded` and the loggers.

    Args:
        rate: an optax schedule, which is called with the number of earlier steps; or a tensor, a
            variable or its name. None: the variable that `optax.inject_hyperparams` has created.
        every: how often, in steps.

    Raises:
        AttributeValueError: `every` is not a number of steps.
        UnknownNameError: from `fit`: there is no such variable.

    Examples:
        >>> schedule = optax.linear_schedule(1.0, 0.0, 4)
        >>> train = gc.minimize(gc.variable(8.0) ** 2, optax.sgd(schedule))
        >>> job = gc.train.Job(graph, train, [{}] * 4, steps=4)
        >>> logger = gc.train.LearningRateLogger(schedule, every=2)
        >>> gc.train.fit(gc.Session(graph), job, callbacks=[logger]).recorded
        {'learning_rate': (array([2, 4]), array([0.75, 0.25]))}
    """

    session_every = None

    def __init__(
        self,
        rate: Callable[[int], ArrayLike] | Tensor | Variable | str | None = None,
        *,
        every: int = 50,
    ) -> None:
        self.fetch_every = checked_count(every, "LearningRateLogger: every")
        self._schedule = None
        if isinstance(rate, (Tensor, Variable, str)):
            self.fetches = {_NAME: rate}
        elif rate is not None:
            self._schedule = rate

    def prepare(self, graph: Graph) -> None:
        """Finds the variable."""
        if self._schedule is None and not self.fetches:
            self.fetches = {_NAME: found_rate(graph, "LearningRateLogger")}

    def on_step(self, run: Run) -> None:
        """Records the rate of this step."""
        if run.step % self.fetch_every == 0:
            if self._schedule is not None:
                run.record(_NAME, float(np.asarray(self._schedule(run.step - 1))))
            else:
                run.record(_NAME, float(np.asarray(run.fetched[_NAME])))


def found_rate(graph: Graph, who: str) -> str:
    """The name of the variable that `optax.inject_hyperparams` has created for the learning rate.

    Raises:
        UnknownNameError: there is none, or several.
    """
    found = [name for name in graph.variables if name.endswith(f"hyperparams/{_NAME}")]
    if len(found) != 1:
        raise UnknownNameError(
            f"{who}: the graph has {len(found)} variables of a learning rate",
            details=found,
            hint="optax.inject_hyperparams(optax.adam)(learning_rate=0.01) makes one; or give the "
            "variable",
        )
    return found[0]
