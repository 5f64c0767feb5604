"""`Executable`: one compiled program with names for its feeds, fetches and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from graphc.copying import Uncopied
from graphc.devices.schedule import Span
from graphc.devices.topology import is_here
from graphc.errors import DeviceError, FeedError, GraphError, StateError
from graphc.ir.node import Tensor, is_among
from graphc.ir.program import Port
from graphc.passes.manager import PassReport
from graphc.runtime.buffers.layout import Buffer, StateLayout
from graphc.runtime.buffers.packing import filled
from graphc.runtime.core.across import share_of
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.feed_memory import own
from graphc.runtime.feeds.feeds import FeedSpec
from graphc.runtime.feeds.fetches import FetchSet, resolve_feeds
from graphc.runtime.feeds.shares import Shares, shares_under
from graphc.runtime.pipeline.joint import Turn
from graphc.runtime.pipeline.stages import Stages
from graphc.runtime.state.initial import InitialValues
from graphc.runtime.state.state import A_STEP, State
from graphc.runtime.step.inspection import Inspected
from graphc.runtime.step.state_positions import StatePositions
from graphc.runtime.step.timing import measured_timeline
from graphc.runtime.targets.executors import Executor, Places, put_on
from graphc.runtime.targets.running import run_step
from graphc.typing import Feeds, Fetched


class Executable(Inspected, Uncopied):
    """A compiled step. Usage: `fetched, state = step(state, feeds)`.

    It has no side effects on values: all changes are in the state that it returns. If it assigns
    variables, it consumes the given state (unless `CompileOptions(donate=False)`). `gc.compile`
    makes it. It stays valid when the graph is extended. Any number of threads may call it, each
    with its own state.

    Attributes:
        cache_key: equal for the same program, sizes, options and environment. None if the
            program must not be cached, e.g. because it calls back into Python.
        cached: whether it was found in the cache of compiled programs.
        stages: the stages of its compilation.
        devices: the devices that run it.
        notes: one line for each request (placement, layouts) that could not be followed.
        is_compiled: whether it is known to be compiled.
        is_dropped: whether its session has moved the state into buffers that it cannot use. The
            session then compiles another executable.

    Examples:
        >>> count = gc.variable(0, name="count")
        >>> step = gc.compile(graph, count.assign_add(2))
        >>> value, state = step(step.init())
        >>> value, state = step(state)
        >>> value
        Array(4, dtype=int32)
        >>> step
        <Executable graph: 2 nodes, 0 feeds, 1 fetches, 1 variables assigned>
    """

    instead = (
        "save it with gc.save; or compile it again, which the cache of compiled programs makes fast"
    )

    def __init__(
        self,
        fetch_set: FetchSet,
        executor: Executor,
        *,
        layout: StateLayout,
        report: PassReport,
        key: str | None,
        stages: Stages,
        load_seconds: float | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self._graph = fetch_set.graph
        self.executor = executor
        self.feeds = list(fetch_set.feeds)
        self.rebuild = fetch_set.nest.rebuild
        self._report = report
        self._load_seconds = load_seconds
        self.stages = stages
        self.interface = executor.interface
        self.consumes = self.interface.consumes
        self.cache_key = key
        self.cached = load_seconds is not None
        self.devices = executor.devices
        self._is_absent = not all(map(is_here, self.devices))
        self._turn: Turn | None = None
        self._shares: Shares | None = None
        if executor.spans_processes:
            self._turn = Turn(self.interface)
            self._shares = shares_under(stages.compilation.request.strategy)
        self.notes = [*notes, *self.interface.notes]
        on_cpu = any(device.platform == "cpu" for device in self.devices)
        rows = zip(self.interface.feeds, self.feeds, strict=True)
        ports = [(Port(f.name, "feed", Tensor(f.type, f.name)), t.node.source) for f, t in rows]
        self.specs = [FeedSpec(port, source, copy=on_cpu) for port, source in ports]
        self._positions = StatePositions(self.interface, layout, executor.home)
        self.is_compiled = False
        self.is_dropped = False

    # -- running ----------------------------------------------------------------------------

    def init(self) -> State:
        """The initial state: the initial value of every variable, on the step's devices.

        Raises:
            DeviceError: it was compiled for another machine.

        Examples:
            >>> count = gc.variable(5, name="count")
            >>> state = gc.compile(graph, count + 1).init()
            >>> dict(state)
            {'count': Array(5, dtype=int32)}
        """
        self._check_can_run()
        values, home = InitialValues(self._graph), self.executor.home
        buffers = [filled(buffer, values.take, home(buffer)) for buffer in self.layout.buffers]
        state = State(self.layout, buffers)
        state.settled = self.executor
        return state

    def __call__(self, state: State, feeds: Feeds | None = None) -> tuple[Fetched, State]:
        """Runs the step once.

        Args:
            state: from `init()` or from the previous call. It is consumed if the step assigns.
            feeds: values by tensor or name.

        Returns:
            (the fetched values in the nest of the fetches, the new state)

        Raises:
            FeedError: a feed is wrong, missing or unknown. Nothing has run; the state is valid.
            StateError: the state was already consumed.
            DeviceError: it was compiled for another machine.
        """
        if not isinstance(state, State):
            raise StateError(
                f"the first argument must be a state, got {type(state).__name__}",
                hint="state = step.init(); fetched, state = step(state, feeds)",
            )
        self._check_can_run()
        values = self.convert_feeds(self._ordered({} if feeds is None else feeds))
        if not self.is_compiled:
            self.wait()
        with state.lock:
            return self.run_on(state, values)

    def _check_can_run(self) -> None:
        """Raises `StateError` in a forked process, and `DeviceError` if this process lacks the
        devices."""
        FORKING.check()
        if self._is_absent:
            raise DeviceError(
                f"this step was compiled for {len(self.devices)} x {self.devices[0].device_kind}, "
                "which this process does not have",
                hint="look at it: memory(), hlo(), cost(); ship it: graphc compile --machine; or "
                "compile it without machine= to run it here",
            )

    def run_on(
        self, state: State, values: Sequence[jax.Array | np.ndarray[Any, Any]]
    ) -> tuple[Fetched, State]:
        """Runs the step once. The state is marked as consumed before the run starts. So if the run
        is stopped, no usable state has lost its buffers."""
        places = self._positions.of(state)
        buffers = list(state.buffers)
        if state.settled is not self.executor and not self._settle(buffers, state.layout):
            state.settled = self.executor
        if self.consumes:
            state.consume("a run that was interrupted")
        try:
            fetched = self.step(buffers, values, places)
            after = state.followed_by(buffers, self.executor) if places.assigned else state
            rebuilt = self.rebuild(fetched)
        except BaseException as error:
            if self.consumes:
                state.restore(buffers, error)
            raise
        if self.consumes:
            state.consume(A_STEP)
            after.uncertain = self.is_uncertain
        return rebuilt, after

    def put(self, feeds: Feeds) -> dict[Tensor | str, jax.Array]:
        """Starts copying feeds to the devices of this step; see `Session.put`.

        Raises:
            FeedError: a feed is wrong, missing or unknown.
            DeviceError: it was compiled for another machine.

        Examples:
            >>> x = gc.placeholder((2,), name="x")
            >>> step = gc.compile(graph, x * 2, {x: (2,)})
            >>> kept = step.put({x: [1.0, 2.0]})
            >>> step(step.init(), kept)[0]
            Array([2., 4.], dtype=float32)
        """
        self._check_can_run()
        given = self._ordered(feeds)
        values = self.convert_feeds(given)
        for i, value in enumerate(values):
            if value is given[i] and isinstance(value, np.ndarray):
                values[i] = own(value)  # the caller may write to it during the transfer
        placed = dict(zip(self.feeds, put_on(values, self.feed_homes), strict=True))
        return dict(zip(feeds, [placed[t] for t in resolve_feeds(self._graph, feeds)], strict=True))

    def step(
        self,
        buffers: list[jax.Array],
        feeds: Sequence[jax.Array | np.ndarray[Any, Any]],
        places: Places | None = None,
    ) -> Fetched:
        """Runs on `buffers`, replaces them with the new ones, and returns the fetched values.

        Args:
            places: the positions of state in `buffers`, if its layout is not this executable's.

        Raises:
            StateError: the run failed after it had consumed state.
            ExecutionError: the run failed, and the buffers are unchanged.
            NumericsError: the run produced a NaN or an infinity, and the buffers are unchanged.

        An exception that a signal handler raises passes through.
        """
        if self._turn is not None:
            self._turn.take()
        fetched = run_step(self.executor, buffers, places or self._positions.own[1], feeds)
        return fetched if self._shares is None else [share_of(value) for value in fetched]

    @property
    def is_uncertain(self) -> bool:
        """Whether a dispatched run may still run out of memory and lose the state.

        Examples:
            >>> gc.compile(graph, gc.constant(1) + 1).is_uncertain
            False
        """
        return self.consumes and self.executor.need.large > 0

    @property
    def layout(self) -> StateLayout:
        """The layout of the states that it uses without moving them.

        Examples:
            >>> w = gc.variable([1.0, 2.0], name="w")
            >>> gc.compile(graph, w * 2).layout.types["w"].shape
            (2,)
        """
        return self._positions.own[0]

    def move_to(self, layout: StateLayout) -> bool:
        """Makes `layout` the expected layout of given states. Returns False if `layout` lacks a
        buffer that this step needs. Then the step must be compiled again."""
        return self._positions.move_to(layout)

    def convert_feeds(self, values: Sequence[object]) -> list[jax.Array | np.ndarray[Any, Any]]:
        """The checked feeds in order, in the form that the executor takes."""
        converted = [spec.convert(value) for spec, value in zip(self.specs, values, strict=True)]
        if self._shares is not None:
            axes = {feed.name: feed.axis for feed in self.interface.feeds}
            converted[:] = self._shares.join(self.specs, axes, converted)
        for spec, array in zip(self.specs, converted, strict=True):
            if array.shape != spec.shape:
                raise FeedError(
                    f"feed {spec.label!r} must be {spec.type}, got shape {tuple(array.shape)}",
                    source=spec.source,
                    hint="this executable was compiled for that shape; gc.compile another, or "
                    "use gc.Session, which compiles per shape",
                )
        return converted

    def _ordered(self, feeds: Feeds) -> list[Any]:
        given = resolve_feeds(self._graph, feeds)
        missing = [t for t in self.feeds if t not in given]
        if missing:
            raise FeedError(
                f"feed {missing[0].name.removesuffix(':0')!r} is missing",
                source=missing[0].node.source,
                hint=f"this executable takes {self._feed_names()}",
            )
        for tensor in given:
            if not is_among(tensor, self.feeds):
                raise FeedError(
                    f"feed {tensor.name.removesuffix(':0')!r} is not one of this executable's",
                    hint=f"it takes {self._feed_names()}",
                )
        return [given[t] for t in self.feeds]

    def _feed_names(self) -> str:
        return ", ".join(repr(spec.label) for spec in self.specs) or "no feeds"

    def place(self, value: jax.Array, buffer: Buffer) -> jax.Array:
        """The value of a state buffer, moved to where this step needs it."""
        return self.executor.place(value, buffer)

    @property
    def homes(self) -> Mapping[Buffer, jax.sharding.Sharding]:
        """The sharding of each state buffer that this step uses."""
        return self.executor.homes

    @property
    def feed_homes(self) -> Sequence[jax.sharding.Sharding]:
        """The sharding with which this step takes each feed without moving it."""
        return self.executor.feed_homes

    def _settle(self, buffers: list[Any], layout: StateLayout) -> bool:
        """Moves the `buffers` that this step uses to where it needs them. Returns whether any had
        to be moved."""
        moved = False
        for buffer, home in self.homes.items():
            number = layout.number(buffer)
            if number is not None and buffers[number].sharding != home:
                buffers[number], moved = self.place(buffers[number], buffer), True
        return moved

    # -- looking inside ---------------------------------------------------------------------

    def wait(self) -> Self:
        """Waits until it is compiled; `gc.compile_async` does not wait.

        Raises:
            ExecutionError: XLA rejects the program.

        Examples:
            >>> gc.compile(graph, gc.constant(1) + 1).wait().is_compiled
            True
        """
        self.executor.compiled  # noqa: B018  reading it compiles
        self.is_compiled = True
        return self

    def finish(self) -> None:
        """Waits until the runs that were started have ended.

        Raises:
            StateError, ExecutionError: one of them failed.

        Examples:
            >>> step = gc.compile(graph, gc.constant(1) + 1)
            >>> value, state = step(step.init())
            >>> step.finish()
        """
        self.executor.finish()

    def timeline(self, state: State, feeds: Feeds | None = None) -> list[Span]:
        """The times, in seconds, when each cluster of a program on several devices would run in a
        step if the devices did not share processors. Each cluster is run alone and timed.

        `gc.devices.idle_part` of the result is the fraction of the time in which devices wait.

        Args:
            state, feeds: as for a call; the state is not consumed.

        Raises:
            GraphError: the program is not on several devices, or makes several steps in a call.
            FeedError: as for a call.

        Examples:
            >>> with gc.device("/cpu:0"):
            ...     x = gc.placeholder((2,), name="x")
            >>> step = gc.compile(graph, x * 2, {x: (2,)})
            >>> step.timeline(step.init(), {x: [1, 2]})
            Traceback (most recent call last):
                ...
            graphc.errors.GraphError: timeline: the program is not on several devices...
        """
        parts = self.partition
        compiled = self.executor.compiled
        if parts is None or compiled.script.turns is not None:
            raise GraphError(
                "timeline: the program is not on several devices, or makes several steps",
                hint="place parts of it with gc.device; compile it for one step",
            )
        self._check_can_run()
        places = self._positions.of(state)
        buffers = list(state.buffers)
        self._settle(buffers, state.layout)
        values = self.convert_feeds(self._ordered({} if feeds is None else feeds))
        taken = [buffers[i] for i in (*places.written, *places.read)]
        return measured_timeline(parts, compiled, taken, values, self.interface.wide)

    def __repr__(self) -> str:
        found = self.interface
        assigned = sum(len(buffer.members) for buffer in found.assigned)
        return (
            f"<Executable {found.name}: {found.nodes} nodes, {len(found.feeds)} feeds, "
            f"{len(found.fetches)} fetches, {assigned} variables assigned>"
        )
