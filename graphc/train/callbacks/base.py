"""`Callback`: the methods that `fit` calls while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.variable import Variable

if TYPE_CHECKING:
    from graphc.train.run import Run


class Callback:
    """Base class of callbacks, which `fit` calls while it trains. Override methods as needed.

    The methods are called in the order of the callbacks that `fit` was given. After a step:
    `on_step`; then `on_validation` if the step ends with a validation; then `on_epoch` if the
    batches of an epoch have ended; then the checkpoint is written, if one is due. An exception in a
    method ends the loop: `on_exception` and `on_end` of every callback run, and `fit` raises it.

    Attributes:
        session_every: how often `on_step` uses `run.session` or calls `run.stop`: at steps that are
            multiples of this number; None for never. `fit` executes several steps in one call only
            between two such steps, so that the results are the same as those of single steps. The
            default of 1 allows no such calls if the class has an `on_step`. A callback that only
            reads `run.step` and `run.metrics` should set None.
        fetches: name -> a tensor, variable or name that the steps fetch for this callback at
            multiples of `fetch_every`. The values are `run.fetched`.
        fetch_every: how often `fetches` are fetched, in steps.
        for_chief: whether only the chief of a cluster calls the methods, because they write files.
            The other processes compute its `fetches` too.

    Examples:
        >>> class Largest(gc.train.Callback):
        ...     session_every = None  # it reads metrics only
        ...
        ...     def __init__(self):
        ...         self.largest = -np.inf
        ...
        ...     def on_step(self, run):
        ...         self.largest = max(self.largest, float(run.metrics["w"]))
        ...
        ...     def state(self):
        ...         return {"largest": self.largest}
        ...
        ...     def restore(self, state):
        ...         self.largest = state["largest"]
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(0.25))
        >>> job = gc.train.Job(graph, train, [{}] * 10, steps=10, metrics={"w": w})
        >>> largest = Largest()
        >>> history = gc.train.fit(gc.Session(graph), job, callbacks=[largest])
        >>> largest.largest
        4.0
    """

    session_every: int | None = 1
    fetches: Mapping[str, Tensor | Variable | str] = {}
    fetch_every: int = 1
    for_chief: bool = False

    def prepare(self, graph: Graph) -> None:
        """Called before everything else. It can choose `fetches` that depend on the graph.

        Args:
            graph: the graph of the session.
        """

    def on_start(self, run: Run) -> None:
        """Called before the first step, and after the state was restored from a checkpoint.

        Args:
            run: the run; `run.step` is above 0 if it continues from a checkpoint.
        """

    def on_step(self, run: Run) -> None:
        """Called after every step.

        Reading `run.metrics` waits for the step. A callback that rarely reads it costs little.

        Args:
            run: the run; `run.step` counts this step too.
        """

    def on_epoch(self, run: Run) -> None:
        """Called after the last step of an epoch and its validation.

        Args:
            run: the run; `run.epoch` counts this epoch too.
        """

    def on_validation(self, run: Run) -> None:
        """Called after a validation.

        Args:
            run: the run; `run.validation` has the figures.
        """

    def on_exception(self, run: Run, error: BaseException) -> None:
        """Called if the loop ends with an exception, before `on_end`.

        Args:
            run: the run.
            error: the exception, which `fit` raises afterwards. After Ctrl-C it is
                KeyboardInterrupt; after SIGTERM, SystemExit.
        """

    def on_end(self, run: Run) -> None:
        """Called at the end of every run, even if the run has failed.

        Args:
            run: the run; `run.stopped` is the reason why it ended.
        """

    def state(self) -> Mapping[str, Any]:
        """The state that a checkpoint stores for this callback: a nest of dicts with str keys,
        lists, str, int, float, bool, None and NumPy arrays.

        Examples:
            >>> gc.train.Callback().state()
            {}
        """
        return {}

    def restore(self, state: Mapping[str, object]) -> None:
        """Continues with the state of a checkpoint; called before `on_start`.

        Args:
            state: the value that `state` returned.
        """
