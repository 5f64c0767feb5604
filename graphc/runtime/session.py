"""`Session`: a graph with live state. Compiles each fetch set once per feed types, and runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import jax

from graphc.closing import Closing
from graphc.config import CompileOptions
from graphc.copying import Uncopied
from graphc.devices.asynchronous import AsyncDataParallel
from graphc.devices.mesh import Strategy
from graphc.devices.remote_session import RemoteRunner, RemoteSession, in_turn
from graphc.devices.remote_workers import RemoteWorkers
from graphc.errors import AttributeValueError
from graphc.ir.calls import explained
from graphc.ir.graph import Graph
from graphc.ir.name_errors import no_member
from graphc.ir.node import Tensor
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.forking import FORKING
from graphc.runtime.core.profiled import HasProfile
from graphc.runtime.feeds.batches import checked_count, leading, stack, take_batches
from graphc.runtime.feeds.shares import HasShares, shares_under
from graphc.runtime.pipeline.placement_log import PlacementLog
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.state.live_state import Homes, LiveState
from graphc.runtime.state.variables import HasVariables
from graphc.runtime.step.compiler import check_graph, check_strategy, checked_options
from graphc.runtime.step.feed_places import FeedPlacer
from graphc.runtime.step.plans import Plan, ProgramKey
from graphc.runtime.step.programs import Programs
from graphc.runtime.step.session_executables import HasExecutables
from graphc.runtime.workers.workers import HasWorkers, Workers
from graphc.typing import Feeds, Fetched, Fetches


class Session(HasVariables, HasExecutables, HasWorkers, HasShares, HasProfile, Closing, Uncopied):
    """Runs a graph, and holds the values of its variables.

    Args:
        graph: the graph. The first run finalizes it.
        strategy: `gc.devices.DataParallel(...)`, `Mesh(...)` or `PipelineParallel(...)` to run each
            step on several devices; `gc.cluster.RemoteTasks(...)` to run it on several processes.
            `gc.devices.AsyncDataParallel(...)` is for `run_workers`; single steps then run on the
            server's device and donate no buffers. So is `gc.cluster.ParameterServers(...)`; single
            steps then run on one device.
        options: see `CompileOptions`.
        soft_placement: if a device that `gc.device` requests does not exist, whether another is
            used, with a note in `Executable.notes`. With False, the first run that needs it raises
            an error.
        log_placement: whether to print the existing devices, and the device of each node and
            variable that is compiled.
        unused_feeds: what a run does with feeds on which no fetch depends. "warn" ignores them,
            with one warning for each set of fetches and feeds; "ignore" gives no warning; "error"
            raises FeedError.

    The first run of a set of fetches compiles it. Later runs with feeds of the same shapes reuse
    the compiled program. Results are `jax.Array`s that may still be in computation; reading one
    waits.

    Threads may share a session: their calls take effect one after the other, and each call sees the
    variables between two steps. An interrupt (Ctrl-C) takes effect before or after a step, so the
    variables are always those of a whole step. If a step fails after it has consumed the variables,
    they are lost, and every later use except `close` raises `StateError`.

    Raises:
        GraphError: `graph` is not a graph.
        AttributeValueError: an option has an invalid value.
        DeviceError: the strategy needs more devices than there are.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> total = gc.variable(0.0, name="total")
        >>> add = total.assign_add(gc.reduce_sum(x))
        >>> with gc.Session(graph) as session:
        ...     for batch in ([1.0, 2.0], [3.0, 4.0]):
        ...         value = session.run(add, {x: batch})
        ...     print(value, session.get("total"))
        10.0 10.0
    """

    instead = (
        "save it with gc.save; or send session.graph and session.values(), and give them to "
        "another session with set_all"
    )

    @explained
    def __init__(
        self,
        graph: Graph,
        *,
        strategy: Strategy | AsyncDataParallel | RemoteWorkers | RemoteSession | None = None,
        options: CompileOptions | None = None,
        soft_placement: bool = True,
        log_placement: bool = False,
        unused_feeds: str = "warn",
    ) -> None:
        _check(graph, unused_feeds)
        self.graph = graph
        self.options = checked_options(options)
        check_strategy(strategy)
        FORKING.check()
        FORKING.watch(self)
        if strategy is not None:
            FORKING.use_devices()
            strategy.resolve()  # reports missing devices now, not at the first run
        self._state = LiveState(graph)
        self._remote: RemoteRunner | None = None
        device: jax.Device | None = None  # the device of everything, if there is a server
        if isinstance(strategy, AsyncDataParallel):
            self.options = replace(self.options, donate=False)
            self._workers = Workers(graph, strategy, self.options, self._state, self._adopt)
            device, strategy = self._workers.server_device, None
        elif isinstance(strategy, RemoteWorkers):
            self._workers = strategy.open(graph, self.options, self._state)
            strategy = None
        elif isinstance(strategy, RemoteSession):
            self._remote = strategy.open(
                graph, self.options, self._state, soft_placement, log_placement
            )
            strategy = None
        self.strategy = strategy  # the strategy of single steps
        self._shares = shares_under(strategy)
        self._placer = FeedPlacer(graph, strategy, self._shares)
        log = PlacementLog() if log_placement and self._remote is None else None
        request = partial(
            CompileRequest,
            options=self.options,
            strategy=strategy,
            device=device,
            soft=soft_placement,
        )
        self._programs = Programs(graph, self._state, self.options, request, log, unused_feeds)

    # -- running ----------------------------------------------------------------------------

    @explained
    def run(self, fetches: Fetches, feeds: Feeds | None = None) -> Fetched:
        """The values of `fetches` after one run.

        Args:
            fetches: a tensor, variable, node or name, or a nest (lists, tuples, dicts) of them.
                Nodes without a value (a training step) give None.
            feeds: the values, by tensor or name, of any tensors of the graph.

        Returns:
            A `jax.Array` for each fetch, in the nest of `fetches`.

        Raises:
            FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph. Nothing
                has run, and the session stays usable.
            StateError: the session was closed, or has lost its state in a failed run.

        Examples:
            >>> x = gc.placeholder(("batch", 2), name="x")
            >>> session = gc.Session(graph)
            >>> session.run({"sum": gc.sum(x), "mean": gc.mean(x, 0)}, {x: [[1, 2], [3, 4]]})
            {'mean': Array([2., 3.], dtype=float32), 'sum': Array(10., dtype=float32)}
        """
        if feeds is None:
            feeds = {}
        plan = self._programs.plan_of(fetches, feeds)
        values, key = plan.convert(feeds)
        if self._shares is not None:
            values = plan.joined(self._shares, values)
            key = ProgramKey(tuple([value.shape for value in values]))
        return self._carry_out(plan, key, values)

    @explained
    def run_steps(
        self, fetches: Fetches, batches: Feeds | Iterable[Feeds] | None, n: int
    ) -> Fetched:
        """The values of `fetches` in each of `n` runs, executed as one loop on the device.

        The results are those of `n` calls of `run`, without the overhead of each call, which for a
        small step is as large as the step itself. Compiled once for each `n`.

        Args:
            fetches: as for `run`. Each value has a leading axis of size `n`; nodes without a value
                give None.
            batches: a mapping gives every feed, by tensor or name, with a leading axis of size `n`;
                each step takes its slice. Otherwise an iterable of feeds as `run` takes them, all
                of the same shapes; the next `n` are taken. Pass an iterator to continue with it in
                the next call. None or {} if nothing is fed.
            n: the number of steps, at least 1.

        Raises:
            AttributeValueError: `n` is not a number of steps.
            FeedError: there are too few batches, their shapes differ, or as for `run`. Nothing has
                run, but an iterator has been advanced.
            FetchError, UnknownNameError, StateError: as for `run`.

        Examples:
            >>> count, step = gc.variable(0, name="count"), gc.placeholder((), "int32", name="step")
            >>> session = gc.Session(graph)
            >>> session.run_steps(count.assign_add(step), {step: [1, 10, 100]}, 3)
            Array([  1,  11, 111], dtype=int32)
        """
        n = checked_count(n)
        stacked = batches is None or isinstance(batches, Mapping)
        taken: list[Any] = [batches or {}] if stacked else take_batches(batches, n)
        plan = self._programs.plan_of(fetches, taken[0])
        keys = list(taken[0])
        columns = [plan.given(batch, keys) for batch in taken]
        rows = zip(plan.specs, zip(*columns, strict=True), strict=True)
        if stacked:
            values = [leading(spec, value, n) for spec, (value,) in rows]
        else:
            values = [stack(spec, row) for spec, row in rows]
        if self._shares is not None:
            values = plan.joined(self._shares, values, stacked=True)
        key = ProgramKey(tuple([value.shape[1:] for value in values]), n)
        return self._carry_out(plan, key, values)

    def put(
        self, feeds: Feeds | Iterable[Feeds], *, steps: int | None = None
    ) -> dict[Tensor | str, jax.Array]:
        """Starts copying feeds to the devices of this session's steps. Any thread may call it.

        A run that is fed the returned arrays copies and converts nothing. Use it for values that
        are fed repeatedly; `gc.data.prefetch` does the same for batches, ahead of the steps.

        Args:
            feeds: as for `run`; with `steps`, as for the batches of `run_steps`.
            steps: the number of steps, for `run_steps`.

        Returns:
            The arrays on the devices, by the keys of `feeds`.

        Raises:
            AttributeValueError, FeedError, UnknownNameError, StateError: as for `run_steps`.

        Examples:
            >>> x = gc.placeholder((2,), name="x")
            >>> session = gc.Session(graph)
            >>> kept = session.put({x: [1.0, 2.0]})
            >>> session.run(x * 2, kept)
            Array([2., 4.], dtype=float32)
        """
        if self._state.broken is not None or self._state.closed:  # `put` does not wait for steps
            self._refuse_if_useless()
        return self._placer.put(feeds, steps, list(self._programs.plans.values()))

    def _carry_out(self, plan: Plan, key: ProgramKey, values: list[Any]) -> Any:
        state = self._state
        if self._remote is not None:
            self._programs.grow()
            return plan.nest.rebuild(in_turn(self._remote, plan, key, values))
        while True:
            executable = plan.executables.get(key)
            if executable is None or not executable.is_compiled:
                executable = self._programs.executable(plan, key)
            with state.lock:
                # Another thread may have moved the state into other buffers meanwhile.
                if not executable.is_dropped:
                    return plan.nest.rebuild(state.step(executable, values))

    def _refuse_if_useless(self) -> None:
        """Raises StateError if the session was closed or has lost its state."""
        with self._state.lock:
            self._state.check()

    def forked(self) -> None:
        """Called in a child process, which cannot use the session: each call raises an error."""
        self._state.forked()
        self._programs.forked()

    # -- state ------------------------------------------------------------------------------

    def _adopt(self, layout: StateLayout, homes: Homes) -> None:
        self._programs.adopt(layout, homes)

    def _live(self) -> LiveState:
        """The state, with every variable that the graph has by now."""
        self._refuse_if_useless()
        self._programs.grow()
        if self._remote is not None:
            self._remote.collect()
        return self._state

    def close(self) -> None:
        """Frees the state and the executables; the session cannot run any more.

        Examples:
            >>> session = gc.Session(graph)
            >>> session.close()
            >>> session.run(gc.constant(1))
            Traceback (most recent call last):
                ...
            graphc.errors.StateError: the session is closed...
        """
        if self._workers is not None:
            self._workers.close()
        if self._remote is not None:
            self._remote.close()
        self._state.close()
        self._programs.plans = {}  # another thread may be iterating over the old dict

    def __getattr__(self, name: str) -> NoReturn:
        raise no_member(self, ["Session"], name)

    def __repr__(self) -> str:
        return f"<Session of {self.graph!r}, {self.compile_count} executables>"


def _check(graph: object, unused_feeds: object) -> None:
    check_graph(graph, "gc.Session(graph)")
    if unused_feeds not in ("warn", "ignore", "error"):
        raise AttributeValueError.here(
            f'Session: unused_feeds must be "warn", "ignore" or "error", got {unused_feeds!r}',
            hint='"warn" gives one warning for each set of feeds, "error" refuses them',
        )
