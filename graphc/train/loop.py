"""`fit`: the training loop, with a progress bar and a record of its measurements."""

from __future__ import annotations

import functools
import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.artifacts.signature import Signature
from graphc.data import prefetching
from graphc.errors import AttributeValueError, FeedError, GraphcError, UnknownNameError, nearest
from graphc.ir.calls import explained
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.source import current_source
from graphc.ir.variable import Variable
from graphc.runtime.core.progress import progress_bar
from graphc.runtime.session import Session
from graphc.typing import Feeds, Fetches

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Job:
    """The training job for `graphc train script.py`, which the script's `build()` returns.

    Attributes:
        graph: the whole graph.
        train: the fetch that runs one step: the result of `gc.minimize`.
        batches: feeds of each step, in order, by name or tensor; at least `steps` of them.
        steps: how many steps to run.
        metrics: name -> scalar tensor, shown on the progress bar.
        evaluate: a function that takes the session after training and returns figures to print.
        signatures: the signatures that `--save` writes to the artifact.

    Examples:
        >>> x = gc.placeholder((), name="x")
        >>> w = gc.variable(0.0, name="w")
        >>> loss = (w - x) ** 2
        >>> train = gc.minimize(loss, optax.sgd(0.5))
        >>> job = gc.train.Job(graph, train, [{"x": 3.0}] * 4, steps=4, metrics={"loss": loss})
        >>> gc.train.fit(gc.Session(graph), job, progress=False).metrics["loss"]
        array([9., 0., 0., 0.])
    """

    graph: Graph
    train: Fetches
    batches: Iterable[Feeds]
    steps: int
    metrics: Mapping[str, Tensor | Variable | str] = field(default_factory=dict)
    evaluate: Callable[[Session], Mapping[str, float]] | None = None
    signatures: Mapping[str, Signature] = field(default_factory=dict)


Job.__init__ = explained(Job.__init__)  # type: ignore[method-assign]


@dataclass(frozen=True, repr=False)
class History:
    """The measurements of `fit`.

    Attributes:
        steps: the number of steps that ran.
        metrics: name -> its value at every step, float64 [steps].
        seconds: the time of the whole loop without the first step, which compiles.
        first_step_seconds: the time of the first step with its compilation.

    Examples:
        >>> history = gc.train.History(3, {"loss": np.array([4.0, 2.0, 1.0])}, 0.01, 1.5)
        >>> history, history.step_seconds
        (<History: 3 steps, loss 4 to 1, 5 ms a step>, 0.005)
    """

    steps: int
    metrics: Mapping[str, np.ndarray[Any, Any]]
    seconds: float
    first_step_seconds: float

    @property
    def step_seconds(self) -> float:
        """The mean time of a step in seconds, without the first step.

        Examples:
            >>> gc.train.History(3, {}, seconds=0.5, first_step_seconds=1.5).step_seconds
            0.25
        """
        return self.seconds / max(self.steps - 1, 1)

    def __repr__(self) -> str:
        ends = [f"{name} {v[0]:.4g} to {v[-1]:.4g}" for name, v in self.metrics.items() if len(v)]
        facts = [f"{self.steps} steps", *ends, f"{1e3 * self.step_seconds:.3g} ms a step"]
        return f"<History: {', '.join(facts)}>"

    def plot(self, *names: str) -> Figure:
        """A line for each metric over the steps, as a Matplotlib figure (extra `plot`).

        Notebooks show the figure; `figure.savefig("history.png")` writes it to a file.

        Args:
            names: the metrics to show; all of them if none is given.

        Raises:
            UnknownNameError: there is no metric of that name.
            GraphcError: Matplotlib is not installed.

        >>> figure = fit(session, job).plot("loss")  # doctest: +SKIP
        """
        for name in names:
            if name not in self.metrics:
                raise UnknownNameError(
                    f"History.plot: no metric {name!r}; it has {', '.join(self.metrics) or 'none'}",
                    source=current_source(),
                    hint=nearest(name, self.metrics),
                )
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise GraphcError(
                "History.plot needs Matplotlib, which is not installed",
                source=current_source(),
                hint="pip install 'graphc[plot]'",
            ) from None
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        for name in names or self.metrics:
            axes.plot(np.arange(1, self.steps + 1), self.metrics[name], label=name)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if self.metrics:
            axes.legend()
        # Notebooks know Matplotlib's figures only after an import of pyplot.
        vars(figure)["_repr_png_"] = functools.partial(_png_of, figure)
        return figure


def _png_of(figure: Any) -> bytes:
    """A picture of the figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


@explained
def fit(
    session: Session,
    job: Job,
    *,
    steps: int | None = None,
    progress: bool = True,
    prefetch: int | None = None,
) -> History:
    """Runs the job's training steps in `session`.

    Args:
        steps: the number of steps, instead of the job's.
        progress: show a progress bar on standard error, if it is a terminal.
        prefetch: how many batches to prepare ahead on the device, in a separate thread; see
            `gc.data.prefetch`. With None, each batch is prepared when its step begins. No more
            batches are read than there are steps.

    Raises:
        AttributeValueError: `job` is not a `Job`, or `steps` or `prefetch` is not a number of at
            least 1.
        FeedError: the batches end before the steps do.

    Examples:
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(0.25))
        >>> job = gc.train.Job(graph, train, [{}] * 10, steps=10, metrics={"w": w})
        >>> gc.train.fit(gc.Session(graph), job, steps=3, progress=False).metrics
        {'w': array([4., 2., 1.])}
    """
    if not isinstance(job, Job):
        raise AttributeValueError(
            f"fit: takes a job, got {type(job).__name__}",
            source=current_source(),
            hint='gc.train.Job(graph, train, batches, steps=1000, metrics={"loss": loss})',
        )
    count = _checked_steps(job.steps if steps is None else steps)
    fetches = {"train": job.train, "metrics": dict(job.metrics)}
    values: list[Mapping[str, Any]] = []
    begin = time.perf_counter()
    started = begin
    with (
        _stream(session, job.batches, count, prefetch) as batches,
        progress_bar(progress, count, "step", dynamic_ncols=True) as bar,
    ):
        for step in range(count):
            if (feeds := next(batches, None)) is None:
                raise FeedError(f"fit: the batches ended after {step} of {count} steps")
            values.append(session.run(fetches, feeds)["metrics"])
            if step == 0:
                _wait(values[-1])
                started = time.perf_counter()
            elif step % 20 == 0 or step == count - 1:  # reading a value waits for its step
                bar.set_postfix({k: f"{float(v):.4f}" for k, v in values[-1].items()})
            bar.update()
        _wait(values[-1])
    done = time.perf_counter()
    metrics = {name: np.asarray([float(v[name]) for v in values]) for name in job.metrics}
    return History(count, metrics, done - started, started - begin)


def _checked_steps(steps: Any) -> int:
    if type(steps) is not int or steps < 1:
        raise AttributeValueError(
            f"fit: steps must be an int of at least 1, got {steps!r}",
            source=current_source(),
            hint="gc.train.Job(..., steps=1000)",
        )
    return steps


@contextmanager
def _stream(
    session: Session, batches: Iterable[Any], count: int, size: int | None
) -> Iterator[Iterator[Any]]:
    """The feeds of `count` steps. If `size` is given, they are prepared on the device at most
    `size` steps ahead."""
    if size is None:
        yield iter(batches)
        return
    with prefetching.prefetch(islice(batches, count), session, size=size) as stream:
        yield stream


def _wait(metrics: Mapping[str, Any]) -> None:
    for value in metrics.values():
        value.block_until_ready()
