"""`Run`: the view that callbacks have of a running `fit`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

if TYPE_CHECKING:
    from graphc.checkpoints.checkpointer import Checkpointer
    from graphc.runtime.session import Session
    from graphc.train.history import History
    from graphc.train.job import Job

Figure: TypeAlias = "jax.Array | np.ndarray[tuple[()], np.dtype[np.generic]]"


class Run:
    """A running `fit`. The methods of callbacks get it as an argument.

    Attributes:
        session: the session. Its variables are those after the steps that have been executed; see
            `Callback.session_every`.
        job: the job.
        step: how many steps have run, including those before the checkpoint it continued from.
        epoch: how many epochs are complete.
        steps: the number of steps at which the loop ends, or None if epochs end it.
        epochs: the number of epochs at which the loop ends, or None.
        fetched: name -> the value of a callback's fetch at the latest step that fetched it.
        validation: name -> figure of the latest validation; empty before the first.
        recorded: name -> the latest value passed to `record`.
        figures: the names of all metrics in loggers: "loss", "validation/loss".
        stopped: why the loop ends; None while it continues.
        saves_at_end: whether a checkpoint is written at the end, if the loop has checkpoints.
        in_session: in a cluster, how many seconds `session.run` has taken for steps.

    Examples:
        >>> class Watch(gc.train.Callback):
        ...     def on_step(self, run):
        ...         if run.step == 3:
        ...             run.stop("three are enough")
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(0.25))
        >>> job = gc.train.Job(graph, train, [{}] * 10, steps=10)
        >>> history = gc.train.fit(gc.Session(graph), job, callbacks=[Watch()])
        >>> history.steps, history.stopped
        (3, 'three are enough')
    """

    def __init__(
        self,
        session: Session,
        job: Job,
        *,
        steps: int | None,
        epochs: int | None,
        figures: Sequence[str],
        history: Callable[[], History],
        on_record: Callable[[str, int, float], None],
        on_save: Callable[[Checkpointer], None],
        metrics_of: Callable[[list[Any], int | None], dict[str, Figure]],
    ) -> None:
        self.session = session
        self.job = job
        self.step = 0
        self.epoch = 0
        self.steps = steps
        self.epochs = epochs
        self.fetched: dict[str, jax.Array] = {}
        self.validation: dict[str, float] = {}
        self.figures = list(figures)
        self.recorded: dict[str, float] = {}
        self.stopped: str | None = None
        self.saves_at_end = True
        self.in_session = 0.0
        self._history = history
        self._on_record = on_record
        self._on_save = on_save
        self._metrics_of = metrics_of
        # The values of the latest call, and the index of this step in them; None for a single step.
        self._values: tuple[list[Any], int | None] | None = None

    @property
    def metrics(self) -> dict[str, Figure]:
        """Name -> the value of a metric at this step; empty before the first. Using a value waits
        for the step.

        Examples:
            >>> class Show(gc.train.Callback):
            ...     def on_step(self, run):
            ...         print(run.metrics["w"])
            >>> w = gc.variable(8.0, name="w")
            >>> train = gc.minimize(w**2, optax.sgd(0.25))
            >>> job = gc.train.Job(graph, train, [{}], steps=1, metrics={"w": w})
            >>> history = gc.train.fit(gc.Session(graph), job, callbacks=[Show()])
            4.0
        """
        return {} if self._values is None else self._metrics_of(*self._values)

    @property
    def history(self) -> History:
        """The measurements so far. Waits for the steps.

        Examples:
            >>> class Show(gc.train.Callback):
            ...     def on_end(self, run):
            ...         print(run.history.metrics["w"])
            >>> w = gc.variable(8.0, name="w")
            >>> train = gc.minimize(w**2, optax.sgd(0.25))
            >>> job = gc.train.Job(graph, train, [{}] * 2, steps=2, metrics={"w": w})
            >>> history = gc.train.fit(gc.Session(graph), job, callbacks=[Show()])
            [4. 2.]
        """
        return self._history()

    def stop(self, reason: str, *, save: bool = True) -> None:
        """Ends the loop after the steps that have been executed. The first reason counts.

        Args:
            reason: why the loop ends, for `History.stopped`.
            save: False writes no checkpoint of this step; for variables that are of no use.

        Examples:
            >>> class Never(gc.train.Callback):
            ...     def on_start(self, run):
            ...         run.stop("not today")
            >>> train = gc.minimize(gc.variable(8.0) ** 2, optax.sgd(0.25))
            >>> job = gc.train.Job(graph, train, [{}] * 2, steps=2)
            >>> gc.train.fit(gc.Session(graph), job, callbacks=[Never()]).steps
            0
        """
        if self.stopped is None:
            self.stopped = reason
        self.saves_at_end = self.saves_at_end and save

    def save(self, saver: Checkpointer) -> None:
        """Writes a checkpoint in addition to those of `fit`. `fit` can continue from it.

        It is written after the current method has been called for all callbacks.

        Args:
            saver: a Checkpointer with a folder of its own.

        Examples:
            >>> import tempfile
            >>> class First(gc.train.Callback):
            ...     def on_step(self, run):
            ...         if run.step == 1:
            ...             run.save(saver)
            >>> train = gc.minimize(gc.variable(8.0) ** 2, optax.sgd(0.25))
            >>> job = gc.train.Job(graph, train, [{}] * 2, steps=2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     with gc.train.Checkpointer(folder) as saver:
            ...         history = gc.train.fit(gc.Session(graph), job, callbacks=[First()])
            ...     saver.steps()
            [1]
        """
        self._on_save(saver)

    def record(self, name: str, value: float) -> None:
        """Records a figure at this step, for `History.recorded` and for the loggers.

        Args:
            name: such as "learning_rate".
            value: a number.

        Examples:
            >>> class Halves(gc.train.Callback):
            ...     def on_step(self, run):
            ...         run.record("half", run.step / 2)
            >>> train = gc.minimize(gc.variable(8.0) ** 2, optax.sgd(0.25))
            >>> job = gc.train.Job(graph, train, [{}] * 2, steps=2)
            >>> gc.train.fit(gc.Session(graph), job, callbacks=[Halves()]).recorded
            {'half': (array([1, 2]), array([0.5, 1. ]))}
        """
        self.recorded[name] = float(value)
        self._on_record(name, self.step, float(value))


def timed(run: Run) -> Callable[..., Any]:
    """`run.session.run`, whose time `run.in_session` counts."""

    def call(fetches: Any, feeds: Any) -> Any:
        begin = time.perf_counter()
        try:
            return run.session.run(fetches, feeds)
        finally:
            run.in_session += time.perf_counter() - begin

    return call
