"""`Histograms`: the distributions of weights and gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphc.autodiff import gradients
from graphc.ir.node import Tensor
from graphc.ir.scopes import current_graph
from graphc.ir.variable import Variable
from graphc.runtime.feeds.batches import checked_count
from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run


class HistogramWriter(Protocol):
    """A writer for `Histograms`, such as `gc.train.SummaryWriter`."""

    def histogram(self, name: str, values: np.ndarray[Any, Any], step: int) -> Any:
        """Writes the distribution of some values."""


class Histograms(Callback):
    """Fetches weights and gradients at some steps, for a writer of histograms.

    Create it while the graph is built, because it adds the gradients to the graph. Other callbacks
    and code find the latest values in its attributes.

    Args:
        loss: the tensor whose gradients are computed. None: weights only.
        variables: the variables. None: all trainable variables of the graph.
        every: how often, in steps.
        writer: an object with a method `histogram(name, values, step)`.

    Attributes:
        step: the step of the values; 0 before the first.
        values: "weights/<variable>" and "gradients/<variable>" -> array. Weights are those after
            the step.

    Raises:
        AttributeValueError: `every` is not a number of steps.
        GraphError: the graph is finalized, so no gradients can be added.

    Examples:
        >>> w = gc.variable([1.0, 2.0], name="w")
        >>> loss = gc.reduce_sum(w**2)
        >>> train = gc.minimize(loss, optax.sgd(0.25))
        >>> found = gc.train.Histograms(loss, every=2)
        >>> job = gc.train.Job(graph, train, [{}] * 2, steps=2)
        >>> history = gc.train.fit(gc.Session(graph), job, callbacks=[found])
        >>> found.values["gradients/w"], found.step
        (array([1., 2.], dtype=float32), 2)
        >>> found.histogram("weights/w", bins=2)
        (array([1, 1]), array([0.25 , 0.375, 0.5  ], dtype=float32))
    """

    session_every = None

    def __init__(
        self,
        loss: Tensor | None = None,
        *,
        variables: Iterable[Variable] | None = None,
        every: int = 100,
        writer: HistogramWriter | None = None,
    ) -> None:
        self.fetch_every = checked_count(every, "Histograms: every")
        if variables is None:
            graph = current_graph() if loss is None or loss.graph is None else loss.graph
            variables = [v for v in graph.variables.values() if v.trainable]
        chosen = list(variables)
        fetches: dict[str, Tensor | Variable | str] = {f"weights/{v.name}": v for v in chosen}
        if loss is not None:
            found = gradients(loss, chosen)
            fetches |= {f"gradients/{v.name}": g for v, g in zip(chosen, found, strict=True)}
        self.fetches = fetches
        self.step = 0
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        self._writer = writer

    def on_step(self, run: Run) -> None:
        """Stores the values, if this step has fetched them."""
        if run.step % self.fetch_every == 0:
            self.step = run.step
            self.values = {name: np.asarray(run.fetched[name]) for name in self.fetches}
            if self._writer is not None:
                for name, values in self.values.items():
                    self._writer.histogram(name, values, run.step)

    def histogram(
        self, name: str, bins: int = 64
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The counts and the edges of the bins of the latest values; NaN and infinity are left out.

        Args:
            name: a key of `values`.
            bins: the number of bins.
        """
        values = self.values[name].ravel()
        values = values.astype(np.result_type(values.dtype, np.float32))
        return np.histogram(values[np.isfinite(values)], bins)
