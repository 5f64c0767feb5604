"""`Session.run_workers`: workers that read, compute and apply updates without waiting for each
other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.config import CompileOptions
from graphc.devices.asynchronous import AsyncDataParallel
from graphc.errors import AttributeValueError
from graphc.ir.graph import Graph
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.feeds.fetches import FetchNest
from graphc.runtime.state.live_state import Homes, LiveState
from graphc.runtime.workers.worker_batches import WorkerBatches
from graphc.runtime.workers.worker_run import Run
from graphc.runtime.workers.worker_steps import WorkerSteps
from graphc.runtime.workers.worker_threads import (
    WorkersCall,
    WorkersRun,
    WorkerStep,
    check_not_going,
)


class Workers:
    """The workers of a session and their compiled steps.

    Args:
        state: the state of the session.
        adopt: see `StepParts`.
    """

    def __init__(
        self,
        graph: Graph,
        strategy: AsyncDataParallel,
        options: CompileOptions,
        state: LiveState,
        adopt: Callable[[StateLayout, Homes], None],
    ) -> None:
        self.server_device = strategy.resolve_server()
        self._bound = strategy.staleness
        self._graph, self._state = graph, state
        devices = strategy.resolve()
        self._steps = WorkerSteps(graph, devices, self.server_device, options, adopt)
        self._run: Run | None = None
        state.shared = True  # some threads read it while others update it

    def run(
        self, fetches: Any, batches: Any, on_step: Callable[[WorkerStep], object] | None, keep: bool
    ) -> WorkersRun:
        """See `Session.run_workers`. The state must already have all variables of the graph."""
        check_not_going(self._run)
        if on_step is not None and not callable(on_step):
            raise AttributeValueError.here(
                f"run_workers: on_step must be a function of a step, got {on_step!r}",
                hint="on_step=lambda step: print(step.update, step.values)",
            )
        FetchNest(self._graph, fetches)  # raises now if a value cannot be fetched
        source = WorkerBatches(batches, len(self._steps.devices))
        call = WorkersCall(self._state, self._bound, fetches, source, on_step, keep)
        self._run = run = Run(self._steps, call)
        try:
            run.carry_out()
        finally:
            if not run.is_going():
                self._run = None  # frees what it refers to
        return run.result()

    can_resize = False

    def resize(self, count: int) -> None:
        """Never called: each worker has a device of its own."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing: the threads end with each run."""


class HasWorkers:
    """The methods of a session that has workers."""

    _workers: Workers | None = None

    def _live(self) -> LiveState:
        raise NotImplementedError

    def run_workers(
        self,
        fetches: Any,
        batches: Any,
        *,
        on_step: Callable[[WorkerStep], object] | None = None,
        keep: bool = False,
    ) -> WorkersRun:
        """Runs the workers of an `AsyncDataParallel` session until the batches run out.

        Each worker has its own thread. It takes a batch, reads all variables as they are between
        two updates, computes, and has the server apply its update. The variables are then those of
        the session, as after `run`.

        Args:
            fetches: as for `run`. A training step, and any other assignment, is applied once for
                each batch. Values that the update computes are fetched as the update left them; all
                others as the worker computed them.
            batches: feeds as for `run`: an iterable that the workers share, where each batch goes
                to the next free worker; or a list of iterables, one for each worker. Iterators are
                read by one thread at a time.
            on_step: called for each update when it is applied, in the order of the updates, in the
                worker's thread. No other update is applied meanwhile. It may run the session, and
                set and get variables. Workers see assignments of other threads after the next
                update.
            keep: whether to keep the values of all updates.

        Raises:
            Any exception of a worker, with its traceback and a note that names the worker. The
            other workers finish their current step, and other batches that were already taken are
            lost. The same applies after Ctrl-C. The variables have the values of the last update,
            and the session remains usable.
            AttributeValueError: the session has another strategy, or none.
            FeedError, FetchError, UnknownNameError: as for `run`.
            GraphError: the fetches assign nothing.
            StateError: as for `run`; or its workers are already running.

        Examples:
            >>> count = gc.variable(0, name="count")
            >>> add = count.assign_add(gc.placeholder((), "int32", name="n"))
            >>> session = gc.Session(graph, strategy=gc.devices.AsyncDataParallel(1))
            >>> done = session.run_workers(add, [{"n": 1}, {"n": 10}, {"n": 100}])
            >>> session.run(count)
            Array(111, dtype=int32)
        """
        if self._workers is None:
            raise AttributeValueError.here(
                "run_workers: this session has no workers",
                hint="gc.Session(graph, strategy=gc.devices.AsyncDataParallel(4, staleness=3))",
            )
        self._live()
        return self._workers.run(fetches, batches, on_step, keep)

    def resize_workers(self, count: int) -> None:
        """Changes the number of workers of a `gc.cluster.ParameterServers` session, also while they
        run: call it in `on_step`, or in another thread.

        Workers that join take their batches from the shared iterable. Workers that leave finish
        their current step. No update is lost.

        Args:
            count: how many workers there are from now on.

        Raises:
            AttributeValueError: the session has another strategy, `count` is not a positive int, or
                each worker of the current run has an iterable of its own.

        Examples:
            >>> gc.Session(graph).resize_workers(2)
            Traceback (most recent call last):
                ...
            graphc.errors.AttributeValueError: resize_workers: the number of workers of this...
        """
        if self._workers is None or not self._workers.can_resize:
            raise AttributeValueError.here(
                "resize_workers: the number of workers of this session cannot change",
                hint="gc.Session(graph, strategy=gc.cluster.ParameterServers(2))",
            )
        if type(count) is not int or count < 1:
            raise AttributeValueError.here(
                f"resize_workers: the number of workers must be an int of 1 or more, got {count!r}",
                hint="session.resize_workers(4)",
            )
        self._live()
        self._workers.resize(count)
