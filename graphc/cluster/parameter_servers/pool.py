"""`Pool`: the workers and parameter servers of a session, as the session sees them."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from graphc.cluster.parameter_servers.actors import Actors
from graphc.cluster.parameter_servers.rows import pull_rows, push_rows
from graphc.cluster.parameter_servers.splitting import Assignment, ShardHalf, marks_apart
from graphc.cluster.parameter_servers.worker import Task
from graphc.cluster.remote_programs import bytes_of, remote_options, send, state_as_feeds
from graphc.config import CompileOptions
from graphc.devices.step_halves import Halves, step_halves
from graphc.errors import AttributeValueError
from graphc.ir.graph import Graph
from graphc.ir.rewrite import bind_sizes
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.runtime.feeds.fetches import FetchNest
from graphc.runtime.state.initial import hidden_types
from graphc.runtime.state.live_state import LiveState
from graphc.runtime.step.plans import Plan, ProgramKey, fetch_key
from graphc.runtime.workers.worker_batches import WorkerBatches
from graphc.runtime.workers.worker_threads import (
    WorkersCall,
    WorkersRun,
    WorkerStep,
    WorkerThreads,
    check_not_going,
)


@dataclass(frozen=True)
class RemoteStep:
    """A step for feeds of given shapes, on its way to the processes.

    Attributes:
        halves: its programs.
        shards: the part of each server.
        task: a reference to the worker's `Task`.
        sent: references to the servers' halves.
    """

    halves: Halves
    shards: Sequence[ShardHalf]
    task: Any
    sent: Sequence[Any]

    def on_servers(self, answers: Sequence[Sequence[Any]]) -> list[Any]:
        """The values that servers computed, in the order of the step's fetches."""
        found = {
            number: value
            for shard, answer in zip(self.shards, answers, strict=True)
            for number, value in zip(shard.fetched, answer, strict=True)
        }
        return [found[number] for number in sorted(found)]


class Pool:
    """The processes of a session with `ParameterServers`. They start at the first run.

    Args:
        strategy: the record of the user.
        state: the state of the session. Its values are sent to the servers at the start of a run,
            and come back at its end.
    """

    server_device = None

    def __init__(
        self, strategy: Any, graph: Graph, options: CompileOptions, state: LiveState
    ) -> None:
        self._strategy, self._graph, self._options = strategy, graph, options
        self._half_options = remote_options(options)
        self._state = state
        self._actors: Actors | None = None
        self._assignment: Assignment | None = None
        self._plans: dict[Any, Plan] = {}
        self._steps: dict[tuple[int, ProgramKey], RemoteStep] = {}
        self._lock = Lock()
        self._workers: int = strategy.workers
        self._runs = 0
        self._began = False  # whether the servers have the values of the current run
        self._folder = ""
        self._end: Callable[[], Any] | None = None
        self._run: RemoteRun | None = None

    # -- one run ----------------------------------------------------------------------------

    def run(
        self, fetches: Any, batches: Any, on_step: Callable[[WorkerStep], object] | None, keep: bool
    ) -> WorkersRun:
        """See `Session.run_workers`. Variables have the values after the last update when it
        returns, and also when it raises an error."""
        check_not_going(self._run)
        FetchNest(self._graph, fetches)  # raises now if a value cannot be fetched
        source = WorkerBatches(batches, self._workers)
        # Here, because Ray's processes end with the thread that starts them.
        self.actors().have(self._workers)
        bound = self._strategy.staleness
        call = WorkersCall(self._state, bound, fetches, source, on_step, keep)
        self._run = run = RemoteRun(self, self._workers, call)
        try:
            run.carry_out()
        finally:
            self._collect()
        return run.result()

    can_resize = True

    def resize(self, count: int) -> None:
        """See `Session.resize_workers`."""
        with self._lock:
            run = self._run
            if run is not None and run.is_going():
                run.resize(count)
            self._workers = count

    def step_for(self, fetches: Any, feeds: Any) -> tuple[Plan, RemoteStep, list[Any]]:
        """The plan of a step, the step for feeds of these shapes, and the values of the feeds."""
        with self._lock:
            key = (fetch_key(fetches), tuple(feeds))
            plan = self._plans.get(key)
            if plan is None:
                plan = Plan.of(self._graph, fetches, feeds, self._options)
                self._graph.finalize()
                self._plans[key] = plan
            values, shapes = plan.convert(feeds)
            step = self._steps.get((id(plan), shapes))
            if step is None:
                step = self._steps[id(plan), shapes] = self._send(plan, shapes)
            return plan, step, values

    def _send(self, plan: Plan, key: ProgramKey) -> RemoteStep:
        program, sources = plan.prepared.functional, plan.prepared.sources
        halves = step_halves(bind_sizes(program, bind_feeds(program, key.shapes, sources)))
        own = halves.on_server.count(False)
        worker, server = push_rows(marks_apart(halves.worker), marks_apart(halves.server), own)
        lookups = pull_rows(worker)
        values = self._state.values([*self._graph.variables, *hidden_types()])
        if self._assignment is None:
            sizes = bytes_of(values)
            self._assignment = Assignment(server, sizes, self._strategy.shards)
        assignment = self._assignment
        shards = assignment.halves(server)
        actors = self.actors()
        if not self._began:
            self._begin(values)
        number = len(self._steps) * (2 + len(shards))  # of the first of this step's programs
        variables = tuple(port.name for port in lookups.worker.ports("state"))
        options, indices = self._half_options, lookups.indices
        task = Task(
            sent=send(number, state_as_feeds(lookups.worker), options),
            variables=variables,
            asked=asked_for(assignment, variables),
            indices=None if indices is None else send(number + 1, indices, options),
            lookups=tuple((assignment.holders[each.name][0], each) for each in lookups.lookups),
            own=own,
            taken=tuple(shard.taken for shard in shards),
        )
        sent = [send(number + 2 + i, shard.program, options) for i, shard in enumerate(shards)]
        return RemoteStep(halves, shards, actors.put(task), [actors.put(half) for half in sent])

    # -- the processes ----------------------------------------------------------------------

    def actors(self) -> Actors:
        """The processes; they are started if they are not running."""
        if self._actors is None:
            strategy = self._strategy
            self._folder = tempfile.mkdtemp(prefix="graphc-servers-", dir=strategy.folder)
            self._actors = Actors(
                self._workers,
                strategy.shards,
                strategy.worker_options,
                strategy.server_options,
                self._folder,
                self._half_options,
                strategy.checkpoint_every,
            )
            # Also for a session that is not closed.
            self._end = weakref.finalize(self, _end, self._actors, self._folder)
        return self._actors

    def begin(self) -> None:
        """Marks the start of a run: the servers get the values of the session before its first
        step."""
        self._began = False
        if self._assignment is not None:
            self._begin(self._state.values(list(self._assignment.holders)))

    def _begin(self, values: dict[str, np.ndarray[Any, Any]]) -> None:
        assignment = self._assignment
        if assignment is None:
            return
        held = [
            {name: values[name] for name in assignment.of(shard)}
            for shard in range(assignment.shards)
        ]
        self._runs += 1
        self.actors().begin(self._runs, held)
        self._began = True

    def _collect(self) -> None:
        """Puts the values of the servers into the session."""
        if not self._began or self._assignment is None or self._actors is None:
            return
        asked = asked_for(self._assignment, tuple(self._assignment.holders))
        values: dict[str, Any] = {}
        for (_, names), got in zip(asked, self._actors.pull(asked), strict=True):
            values.update(zip(names, got, strict=True))
        self._state.set(values)

    def close(self) -> None:
        """Ends the processes."""
        if self._end is not None:
            self._end()
        self._actors = None


def _end(actors: Actors, folder: str) -> None:
    actors.close()
    shutil.rmtree(folder, ignore_errors=True)


def asked_for(
    assignment: Assignment, names: Sequence[str]
) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """For each server, the variables to get from it."""
    of: dict[int, list[str]] = {}
    for name in names:
        of.setdefault(assignment.holders[name][0], []).append(name)
    return tuple((shard, tuple(held)) for shard, held in of.items())


class RemoteRun(WorkerThreads):
    """One call of `run_workers`. A thread for each worker waits for its process."""

    def __init__(self, pool: Pool, workers: int, call: WorkersCall) -> None:
        super().__init__([f"a process of worker {i}" for i in range(workers)], call)
        self._pool = pool
        pool.begin()

    def resize(self, count: int) -> None:
        """Lets workers join or leave, so that there are `count`."""
        if not self._source.is_shared:
            raise AttributeValueError.here(
                "resize_workers: each worker of this run has an iterable of batches of its own",
                hint="pass one iterable that the workers share",
            )
        active = self.active
        for worker in active[count:]:
            self.leave(worker)
        for _ in range(count - len(active)):
            self._pool.actors().start(self.count)
            self.join(f"a process of worker {self.count}")

    def _work(self, worker: int) -> None:
        super()._work(worker)
        if worker in self._leaving:
            self._pool.actors().end(worker)

    def _step(self, worker: int) -> bool:
        admission = self._admission
        taken = self._source.take(worker, lambda: admission.stopping)
        if taken is None:
            return False
        ticket, feeds = taken
        plan, step, values = self._pool.step_for(self._fetches, feeds)
        values = [np.asarray(v) for v in (*values, *self._draws(worker, step.halves.draws))]
        if admission.read(worker, ticket, lambda: True) is None:
            return False
        actors = self._pool.actors()
        own, *sent = actors.compute(worker, step.task, values)
        with admission.applying(worker):
            answers = actors.push(worker, self._steps[worker], step.sent, sent)
            number, staleness = admission.applied(worker)
            here, there = iter(actors.get(own)), iter(step.on_servers(answers))
            rows = [next(there if server else here) for server in step.halves.on_server]
            self._note(worker, number, staleness, plan.nest.rebuild(rows))
        return True
