"""`Session.run_workers`: workers that read, compute and have their updates applied without waiting
for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.config import CompileOptions
from graphc.devices.asynchronous import AsyncDataParallel
from graphc.errors import AttributeValueError, StateError
from graphc.ir.graph import Graph
from graphc.ir.source import current_source
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.feeds.fetches import FetchNest
from graphc.runtime.state.live_state import Homes, LiveState
from graphc.runtime.workers.worker_batches import WorkerBatches
from graphc.runtime.workers.worker_run import Run, WorkersRun, WorkerStep
from graphc.runtime.workers.worker_steps import WorkerSteps


class Workers:
    """The workers of a session, with what is compiled for them.

    Args:
        state: the session's.
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
        state.shared = True  # by those who read, while others update

    def run(
        self,
        fetches: Any,
        batches: Any,
        on_step: Callable[[WorkerStep], object] | None,
        keep: bool,
    ) -> WorkersRun:
        """See `Session.run_workers`; the state has all variables of the graph by now."""
        if self._run is not None and self._run.is_going():
            raise StateError(
                "run_workers: workers of this session are running already",
                source=current_source(),
                hint="wait until the first call has returned, or open another session",
            )
        if on_step is not None and not callable(on_step):
            raise AttributeValueError(
                f"run_workers: on_step must be a function of a step, got {on_step!r}",
                source=current_source(),
                hint="on_step=lambda step: print(step.update, step.values)",
            )
        FetchNest(self._graph, fetches)  # what cannot be fetched: said now
        source = WorkerBatches(batches, len(self._steps.devices))
        run = Run(self._steps, self._state, self._bound, fetches, source, on_step, keep)
        self._run = run
        try:
            run.carry_out()
        finally:
            if not run.is_going():
                self._run = None  # with what it holds
        return run.result()


class HasWorkers:
    """What a session can do that has workers."""

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
        """Has the workers of an `AsyncDataParallel` session make steps, till batches run out.

        Each worker, in a thread of its own, takes a batch, reads all variables as they are between
        two updates, computes, and has the server apply its update. The variables are then those
        of the session, as after `run`.

        Args:
            fetches: as for `run`; a training step, and whatever else is assigned, is applied
                once for each batch. What the update makes is fetched as it left it, all else as
                the worker computed it.
            batches: feeds as `run` takes them: an iterable that the workers share, each batch for
                the next who is free; or a list of iterables, one for each worker. Iterators are
                read by one thread at a time.
            on_step: is told of each update when it is applied, in that order, by the worker's
                thread; no other is applied meanwhile. It may run the session, set and get
                variables. Workers see assignments of other threads after the next update.
            keep: whether the values of all updates are kept.

        Raises:
            Whatever a worker raises, with its traceback and a note of which one it was. The
            others finish the step that they are at, and batches that were taken beyond that are
            lost; so it is after Ctrl-C. The variables are as the last update left them, and the
            session goes on.
            AttributeValueError: the session has another strategy, or none.
            FeedError, FetchError, UnknownNameError: as for `run`.
            GraphError: the fetches assign nothing.
            StateError: as for `run`; or its workers are running already.

        Examples:
            >>> count = gc.variable(0, name="count")
            >>> add = count.assign_add(gc.placeholder((), "int32", name="n"))
            >>> session = gc.Session(graph, strategy=gc.devices.AsyncDataParallel(1))
            >>> done = session.run_workers(add, [{"n": 1}, {"n": 10}, {"n": 100}])
            >>> session.run(count)
            Array(111, dtype=int32)
        """
        if self._workers is None:
            raise AttributeValueError(
                "run_workers: this session has no workers",
                source=current_source(),
                hint="gc.Session(graph, strategy=gc.devices.AsyncDataParallel(4, staleness=3))",
            )
        self._live()
        return self._workers.run(fetches, batches, on_step, keep)
