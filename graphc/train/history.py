"""`History`: the measurements of `fit`."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from graphc.errors import GraphcError, UnknownAttributeError, UnknownNameError, nearest
from graphc.ir.members import Helpful

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series: TypeAlias = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


@dataclass(frozen=True, repr=False)
class History(Helpful):
    """The measurements of `fit`.

    Attributes:
        steps: the number of steps that ran.
        metrics: name -> its values, float64: of every step, [steps]; after two million steps, of
            every second one; and so on.
        seconds: the time of the whole loop without the first step, which compiles.
        first_step_seconds: the time of the first step, including its compilation.
        validation: name -> (the steps of the validations, the value at each of them).
        recorded: the same for the values that callbacks recorded, such as the learning rate.
        start: the step after which the loop began: 0, or the step of the checkpoint.
        epochs: how many epochs are complete.
        stopped: why the loop ended before its last step; None if it did not.
        every: `metrics` has the values of the first step and of every `every`-th step after it.

    Examples:
        >>> history = gc.train.History(3, {"loss": np.array([4.0, 2.0, 1.0])}, 0.01, 1.5)
        >>> history, history.step_seconds
        (<History: 3 steps, loss 4 to 1, 5 ms a step>, 0.005)
    """

    steps: int
    metrics: Mapping[str, np.ndarray[Any, Any]]
    seconds: float
    first_step_seconds: float
    validation: Mapping[str, Series] = field(default_factory=dict)
    recorded: Mapping[str, Series] = field(default_factory=dict)
    start: int = 0
    epochs: int = 0
    stopped: str | None = None
    every: int = 1

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

    if not TYPE_CHECKING:  # type checkers reject it
        __iter__ = None  # Python would count up for `[]`

        def __getitem__(self, name: str) -> NoReturn:
            raise UnknownAttributeError.here(
                "a history is not a dict: it has metrics, validation and recorded",
                hint=f"history.metrics[{name!r}]",
            )

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
                raise UnknownNameError.here(
                    f"History.plot: no metric {name!r}; it has {', '.join(self.metrics) or 'none'}",
                    hint=nearest(name, self.metrics),
                )
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise GraphcError.here(
                "History.plot needs Matplotlib, which is not installed",
                hint="pip install 'graphc[plot]'",
            ) from None
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        for name in names or self.metrics:
            values = self.metrics[name]
            axes.plot(self.start + 1 + self.every * np.arange(len(values)), values, label=name)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if self.metrics:
            axes.legend()
        # Notebooks can display Matplotlib's figures only after an import of pyplot.
        vars(figure)["_repr_png_"] = functools.partial(_png_of, figure)
        return figure


def _png_of(figure: Any) -> bytes:
    """A picture of the figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
