"""`TensorBoard`: the callback of `fit` that logs a run."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.calls import explained
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.variable import Variable
from graphc.train.callbacks.base import Callback
from graphc.train.tensorboard.event_writer import success_of
from graphc.train.tensorboard.hparams import Hparam, checked_hparams
from graphc.train.tensorboard.step_gradients import gradients_in
from graphc.train.tensorboard.values import checked_folder
from graphc.train.tensorboard.writer import SummaryWriter

if TYPE_CHECKING:
    from graphc.train.run import Run

# The names of fetches, which a run shares among its callbacks.
_GRADIENT = "tensorboard/gradients/"
_RATE = "tensorboard/learning_rate"


class TensorBoard(Callback):
    """Logs a run of `fit` for TensorBoard. Start `tensorboard --logdir` with the same folder, or
    with the one above it to compare runs.

    The run `train` in the folder has the job's metrics, the rate of steps, what other callbacks
    record, the graph and the histograms; the run `validation` has the figures of validations, so
    that both curves of a metric are in one chart.

    A run that is resumed from a checkpoint continues the curves: TensorBoard drops the points that
    were logged after the checkpoint. A run that starts anew in the folder replaces the old one.

    Args:
        log_dir: the folder.
        every: how often metrics are logged, in steps. Reading them waits for the step.
        histograms: how often histograms are logged, in steps; None for never.
        variables: the variables with histograms, or their names. By default, all trainable ones.
        gradients: whether there are histograms of the gradients of `gc.minimize` and
            `gc.train.apply_gradients` too; or name -> a tensor, for other gradients.
        learning_rate: the learning rate to log: a schedule, which gets the number of steps so far;
            or a tensor, a variable or a name, which is fetched.
        graph: whether to log the graph of the job.
        hparams: hyperparameters of the run; see `SummaryWriter.hparams`.

    Raises:
        AttributeValueError: an option is not of this form.

    Examples:
        >>> import tempfile
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(0.25))
        >>> job = gc.train.Job(graph, train, [{}] * 10, steps=10, metrics={"w": w})
        >>> board = gc.train.TensorBoard(tempfile.mkdtemp(), every=1, hparams={"rate": 0.25})
        >>> gc.train.fit(gc.Session(graph), job, callbacks=[board]).steps
        10
        >>> board.every, board.state()
        (1, {'graph': True})
    """

    for_chief = True

    @explained
    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        *,
        every: int = 10,
        histograms: int | None = None,
        variables: Sequence[Variable | str] | None = None,
        gradients: bool | Mapping[str, Tensor] = False,
        learning_rate: Callable[[int], float] | Tensor | Variable | str | None = None,
        graph: bool = True,
        hparams: Mapping[str, Hparam] | None = None,
    ) -> None:
        for name, number in (("every", every), ("histograms", histograms)):
            if number is not None and (type(number) is not int or number < 1):
                raise AttributeValueError.here(
                    f"TensorBoard: {name} must be an int of at least 1, got {number!r}",
                    hint="a number of steps",
                )
        if gradients is not False and histograms is None:
            raise AttributeValueError.here(
                "TensorBoard: gradients are logged as histograms, but histograms is None",
                hint="histograms=1000 logs them every 1000 steps",
            )
        self.log_dir = checked_folder("TensorBoard", log_dir)
        self.every = every
        self.histograms = histograms
        self.session_every = histograms
        self.fetch_every = every
        if histograms is not None and gradients is not False:
            fetches_rate = isinstance(learning_rate, Tensor | Variable | str)
            self.fetch_every = math.gcd(every, histograms) if fetches_rate else histograms
        self._variables = variables
        self._gradients = gradients
        self._rate = learning_rate
        self._wants_graph = graph
        self._hparams = None if hparams is None else checked_hparams(hparams)
        self._has_graph = False  # whether the folder has the graph already
        self._error: BaseException | None = None
        self._writers: dict[str, SummaryWriter] = {}
        self._logged = 0  # the step whose metrics were logged last
        self._clock = 0.0  # when
        self.fetches = self._named_fetches({})

    def _named_fetches(self, found: Mapping[str, Tensor]) -> dict[str, Tensor | Variable | str]:
        """What the steps fetch. `found` are the gradients of the job's training steps."""
        gradients = self._gradients if isinstance(self._gradients, Mapping) else found
        named: dict[str, Tensor | Variable | str] = {
            f"{_GRADIENT}{name}": tensor for name, tensor in gradients.items()
        }
        if isinstance(self._rate, Tensor | Variable | str):
            named[_RATE] = self._rate
        return named

    # -- what fit calls -----------------------------------------------------------------------

    def prepare(self, graph: Graph) -> None:
        """Finds the gradients to fetch."""
        if self._gradients is True:
            self.fetches = self._named_fetches(gradients_in(graph))

    def on_start(self, run: Run) -> None:
        """Opens the run `train`, writes the graph and the hyperparameters."""
        self._error = None
        self._logged, self._clock = run.step, time.perf_counter()
        has_graph = self._has_graph and _has_events(Path(self.log_dir, "train"))
        writer = self._writer("train", run.step)
        if self._wants_graph and not has_graph:
            writer.graph(run.job.graph)
        self._has_graph = self._wants_graph
        if self._hparams is not None:
            self._writer("", run.step).hparams(self._hparams)
        if _has_events(Path(self.log_dir, "validation")):
            self._writer("validation", run.step)

    def on_step(self, run: Run) -> None:
        """Logs the metrics and histograms that are due."""
        if run.step % self.every == 0:
            self._log(run)
        if self.histograms is not None and run.step % self.histograms == 0:
            self._log_histograms(run)

    def on_validation(self, run: Run) -> None:
        """Logs the figures of the validation."""
        writer = self._writer("validation", run.step)
        for name, value in run.validation.items():
            writer.scalar(name.removeprefix("validation/"), value, run.step)

    def on_exception(self, run: Run, error: BaseException) -> None:
        """Notes that the run has failed, or was interrupted."""
        self._error = error

    def on_end(self, run: Run) -> None:
        """Logs the last metrics and closes the files."""
        try:
            if run.step > self._logged and self._error is None:
                self._log(run)
        finally:
            writers, self._writers = self._writers, {}
            for writer in writers.values():
                writer.end(success=success_of(self._error))

    def state(self) -> Mapping[str, Any]:
        """What a checkpoint stores. Everything that was logged so far is in the files then."""
        for writer in self._writers.values():
            writer.flush()
        return {"graph": self._has_graph}

    def restore(self, state: Mapping[str, object]) -> None:
        self._has_graph = bool(state.get("graph"))

    # -- logging ------------------------------------------------------------------------------

    def _writer(self, name: str, step: int) -> SummaryWriter:
        """The writer of a run in the folder. What earlier ones logged after `step` is dropped."""
        if name not in self._writers:
            folder = os.path.join(self.log_dir, name) if name else self.log_dir
            purge = step + 1 if _has_events(Path(folder)) else None
            self._writers[name] = SummaryWriter(folder, purge_step=purge)
        return self._writers[name]

    def _log(self, run: Run) -> None:
        writer = self._writer("train", run.step)
        for name, value in {**run.metrics, **run.recorded, **self._rate_of(run)}.items():
            writer.scalar(name, np.reshape(np.asarray(value), ()), run.step)
        now = time.perf_counter()
        if run.step > self._logged:
            rate = (run.step - self._logged) / max(now - self._clock, 1e-9)
            writer.scalar("steps_per_second", rate, run.step)
        self._logged, self._clock = run.step, now

    def _rate_of(self, run: Run) -> dict[str, Any]:
        """The learning rate of the latest step, if one is to be logged."""
        if _RATE in self.fetches:  # at the last step it may be older, or there may be none
            return {"learning_rate": run.fetched[_RATE]} if _RATE in run.fetched else {}
        if callable(self._rate):
            return {"learning_rate": self._rate(run.step - 1)}
        return {}

    def _log_histograms(self, run: Run) -> None:
        writer = self._writer("train", run.step)
        chosen = self._variables
        if chosen is None:
            chosen = [v for v in run.job.graph.variables.values() if v.trainable]
        for name, value in run.session.values(chosen).items():
            writer.histogram(f"weights/{name}", value, run.step)
        for name in self.fetches:
            if name.startswith(_GRADIENT):
                tag = name.removeprefix("tensorboard/")
                writer.histogram(tag, run.fetched[name], run.step)


def _has_events(folder: Path) -> bool:
    """Whether a folder has event files."""
    return folder.is_dir() and any(folder.glob("*tfevents*"))
