"""`Session`: a graph with live state. Compiles each fetch set once per feed types, and runs it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, overload

import jax
import numpy as np

from graphc.config import CompileOptions
from graphc.copying import Uncopied
from graphc.devices.asynchronous import AsyncDataParallel
from graphc.devices.mesh import Strategy
from graphc.errors import GraphError, StateError
from graphc.ir.graph import Graph
from graphc.ir.node import position_of, same_items
from graphc.ir.variable import Variable
from graphc.runtime.background import in_background
from graphc.runtime.batches import checked_count, leading, stack, take_batches
from graphc.runtime.compiler import build, checked_options, shape_of
from graphc.runtime.executable import Executable
from graphc.runtime.feed_places import FeedPlacer
from graphc.runtime.fetches import FetchNest, in_program_order, resolve_feeds
from graphc.runtime.forking import FORKING
from graphc.runtime.layout import StateLayout
from graphc.runtime.live_state import LiveState
from graphc.runtime.placement_log import PlacementLog
from graphc.runtime.plans import Plan, fetch_key
from graphc.runtime.prepare import prepare
from graphc.runtime.state import State
from graphc.runtime.step_parts import Homes
from graphc.runtime.workers import HasWorkers, Workers


class Session(HasWorkers, Uncopied):
    """Runs a graph.

    Args:
        graph: finalized by the first run.
        strategy: `gc.devices.DataParallel(...)` or `gc.devices.Mesh(...)` to run every step on
            several devices; `gc.devices.AsyncDataParallel(...)` for `run_workers`, beside which
            steps run on one device, the server's, and donate nothing.
        options: see `CompileOptions`.
        soft_placement: whether a request of `gc.device` for a device that is not there is
            overridden, with a note in `Executable.notes`; otherwise it is an error of the first
            run that meets it.
        log_placement: whether to print the devices there are, and for each node and variable that
            is compiled the one it is on.

    The first run of a set of fetches compiles it; later runs with feeds of the same shapes only
    run it. Values come back as `jax.Array`s, before they are computed: reading one waits.
    """

    instead = (
        "save it with gc.save; or send session.graph and session.values(), and give them to "
        "another session with set_all"
    )

    def __init__(
        self,
        graph: Graph,
        *,
        strategy: Strategy | AsyncDataParallel | None = None,
        options: CompileOptions | None = None,
        soft_placement: bool = True,
        log_placement: bool = False,
    ) -> None:
        if not isinstance(graph, Graph):
            raise GraphError(
                f"the first argument must be a graph, got {type(graph).__name__}",
                mend="gc.Session(graph)",
            )
        self.graph = graph
        self.options = checked_options(options)
        FORKING.check()
        FORKING.watch(self)
        if strategy is not None:
            FORKING.use_devices()
            strategy.resolve()  # more devices than exist: said now, not at the first run
        self._plans: dict[Any, Plan] = {}
        self._state = LiveState(graph)
        self._device: jax.Device | None = None  # of all there is, where there is a server
        if isinstance(strategy, AsyncDataParallel):
            self.options = replace(self.options, donate=False)
            self._workers = Workers(graph, strategy, self.options, self._state, self._adopt)
            self._device, strategy = self._workers.server_device, None
        self.strategy = strategy  # of single steps
        self._placer = FeedPlacer(graph, strategy)
        self._base: str | None = None  # of what is said nowhere, once something has run
        self._soft = soft_placement
        self._log = PlacementLog() if log_placement else None
        self._broken: str | None = None
        self._closed = False

    # -- running ----------------------------------------------------------------------------

    def run(self, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
        """The values of `fetches` after one run.

        Args:
            fetches: a tensor, variable, node or name, or a nest (lists, tuples, dicts) of them.
                Nodes without a value (a training step) give None.
            feeds: values by tensor or name; of any tensor of the graph.

        Raises:
            FeedError, FetchError, UnknownNameError: they do not fit the graph; nothing has run
                and the session goes on.
            StateError: the session was closed or broken by a failed run.
        """
        if feeds is None:
            feeds = {}
        plan = self._plan_of(fetches, feeds)
        values, shapes = plan.convert(feeds)
        executable = plan.executables.get(shapes)
        if executable is None:
            executable = self._build(plan, shapes)
        return self._carry_out(plan, executable, values)

    def run_steps(self, fetches: Any, batches: Any, n: int) -> Any:
        """The values of `fetches` in each of `n` runs, which one loop on the device makes.

        The same numbers as `n` times `run`, for less: the call of a small step costs as much as
        the step. Compiled once for each `n`.

        Args:
            fetches: as for `run`. Each value has a leading axis of `n`; nodes without a value
                give None.
            batches: a mapping: every feed by tensor or name, with a leading axis of `n`, of
                which each step takes its slice. Anything else: an iterable of feeds as `run`
                takes them, all of the same shapes, of which the next `n` are taken; pass an
                iterator to go on with it in the next call. None or {} where nothing is fed.
            n: how many steps, at least 1.

        Raises:
            AttributeValueError: `n` is no number of steps.
            FeedError: too few batches, shapes that differ from step to step, and as for `run`;
                nothing has run, but an iterator has been read.
            FetchError, UnknownNameError, StateError: as for `run`.
        """
        n = checked_count(n)
        stacked = batches is None or isinstance(batches, Mapping)
        taken = [batches or {}] if stacked else take_batches(batches, n)
        plan = self._plan_of(fetches, taken[0])
        keys = list(taken[0])
        columns = [plan.given(batch, keys) for batch in taken]
        rows = zip(plan.specs, zip(*columns, strict=True), strict=True)
        if stacked:
            values = [leading(spec, value, n) for spec, (value,) in rows]
        else:
            values = [stack(spec, row) for spec, row in rows]
        key = (n, *[value.shape[1:] for value in values])
        executable = plan.executables.get(key)
        if executable is None:
            executable = self._build(plan, key)
        return self._carry_out(plan, executable, values)

    def put(self, feeds: Any, *, steps: int | None = None) -> dict[Any, jax.Array]:
        """Starts copying feeds to where the steps of this session take them; from any thread.

        A run that is fed the arrays that come back copies and converts nothing: for what is fed
        again and again. `gc.data.prefetch` does it ahead of the steps.

        Args:
            feeds: as for `run`; with `steps` what `run_steps` takes as batches.
            steps: how many, where it is for `run_steps`.

        Raises:
            AttributeValueError, FeedError, UnknownNameError, StateError: as for `run_steps`.
        """
        if self._broken is not None or self._closed:
            self._refuse()
        return self._placer.put(feeds, steps, list(self._plans.values()))

    def _carry_out(self, plan: Plan, executable: Executable, values: list[Any]) -> Any:
        try:
            return plan.nest.rebuild(executable.step(self._state.buffers, values))
        except StateError as error:
            self._broken = error.what
            raise

    @overload
    def compile(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        *,
        steps: int | None = None,
        wait: Literal[True] = True,
    ) -> Executable: ...
    @overload
    def compile(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        *,
        steps: int | None = None,
        wait: Literal[False],
    ) -> Future[Executable]: ...
    def compile(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        *,
        steps: int | None = None,
        wait: bool = True,
    ) -> Executable | Future[Executable]:
        """Compiles what `run` will need for these fetches and feeds of these shapes.

        Args:
            fetches: as for `run`.
            feeds: tensor or name -> the global shape of one run, as for `gc.compile`.
            steps: how many, where it is for `run_steps`.
            wait: False to lower and compile in the background, several at a time. A run that
                needs what is not done yet waits for it.

        Returns:
            the executable, or a future of it: to look at, for `run` finds it by itself.

        Raises:
            FeedError, FetchError, UnknownNameError, LayoutError: as `run` does; at once.
        """
        plan = self._plan_of(fetches, {} if feeds is None else feeds)
        given = resolve_feeds(self.graph, {} if feeds is None else feeds)
        shapes = tuple([shape_of(tensor, given[tensor]) for tensor in plan.feeds])
        wanted = shapes if steps is None else (checked_count(steps), *shapes)
        pairs: list[tuple[Plan, Any]] = [(plan, wanted)]
        # What loses a buffer to this one is compiled again now, not when it is next run.
        pairs += [(p, known) for p in self._plans.values() for known in p.executables]
        made = [p.executables.get(key) or self._build(p, key, wait=False) for p, key in pairs]
        if wait:
            for executable in made:
                executable.wait()
            return made[0]
        first, *_ = [in_background(executable.wait) for executable in made]
        return first

    def _plan_of(self, fetches: Any, feeds: Mapping[Any, Any]) -> Plan:
        """The plan of runs with these fetches and feeds: made by the first."""
        try:
            key = (fetch_key(fetches), tuple(feeds))
            plan = self._plans.get(key)
        except (TypeError, RecursionError):  # no mapping, or nothing that can be a key
            key, plan = None, None
        plan = plan or self._plan(key, fetches, feeds)
        if self._broken is not None or self._closed:
            self._refuse()
        return plan

    def _plan(self, key: Any, fetches: Any, feeds: Mapping[Any, Any]) -> Plan:
        tensors = list(resolve_feeds(self.graph, feeds))
        nest = FetchNest(self.graph, fetches)
        same = (frozenset(nest.distinct), frozenset(tensors))
        known = next((p for p in self._plans.values() if p.same == same), None)
        if known is None:
            ordered = in_program_order(self.graph, tensors)
            prepared = prepare(self.graph, nest.distinct, ordered, self.options)
            plan = Plan(fetches, nest, ordered, prepared, same)
        else:  # the same program, whatever the nest and the order: compiled once
            nest.take_order(known.nest.distinct)
            plan = Plan(fetches, nest, known.feeds, known.prepared, same)
            plan.executables = known.executables
        if not same_items(tensors, plan.feeds):
            plan.order = [position_of(t, tensors) for t in plan.feeds]
        self._plans[key] = plan
        return plan

    def _build(self, plan: Plan, key: tuple[Any, ...], *, wait: bool = True) -> Executable:
        """The executable of a plan for one of its keys: see `Plan`."""
        steps, shapes = (key[0], key[1:]) if key and type(key[0]) is int else (None, key)
        self._state.grow()
        executable = build(
            self.graph,
            plan.nest,
            plan.feeds,
            plan.prepared,
            shapes,
            self._state.layout,
            self.strategy,
            self.options,
            self._device,
            steps,
            base=self._base,
            soft=self._soft,
            log=self._log,
        )
        if wait:
            executable.wait()
        self._rearrange(executable)
        plan.executables[key] = executable
        for known in self._plans.values():
            known.copy_feeds()
        return executable

    def forked(self) -> None:
        """Called in a child process, which cannot use the session: each call refuses."""
        self._broken = "this process was forked"

    def _refuse(self) -> None:
        FORKING.check()
        if self._closed:
            raise StateError("the session is closed", mend="open another: gc.Session(graph)")
        raise StateError(
            f"the session is broken: {self._broken}",
            mend="open another session, and restore its variables from a checkpoint",
        )

    # -- state ------------------------------------------------------------------------------

    def _rearrange(self, executable: Executable) -> None:
        """Puts state where a new executable wants it, and into its buffers: see `_adopt`."""
        placement = executable.insides.making.placement
        if placement is not None:
            self._base = placement.base
        self._adopt(executable.layout, executable.homes)

    def _adopt(self, layout: StateLayout, homes: Homes) -> None:
        """Puts state into the buffers of another layout, and those of `homes` where that says.

        Executables that need a buffer that is no more are dropped, and compiled again by the
        next run that wants one.
        """
        try:
            self._state.move(layout, homes)
        except Exception as error:
            self._broken = f"an earlier run failed: {error}"
            raise StateError(self._broken) from error
        for plan in self._plans.values():
            for key, known in list(plan.executables.items()):
                moved = known.move_to(layout)
                if not moved or not self._state.agrees(known.homes):
                    del plan.executables[key]

    def _live(self) -> LiveState:
        """The state, with every variable that the graph has by now."""
        if self._broken is not None or self._closed:
            self._refuse()
        self._state.grow()
        return self._state

    def get(self, name: str | Variable) -> jax.Array:
        """The current value of a variable: a copy, which later runs leave alone.

        Raises:
            UnknownNameError: no such variable.
        """
        return self._live().get(name)

    def set(self, name: str | Variable, value: Any) -> None:
        """Gives a variable a new value, of its shape; cast to its dtype within a kind.

        Raises:
            UnknownNameError, ShapeError, DTypeError: it does not fit; the old value stays.
        """
        self._live().set({name: value})

    def set_all(self, values: Mapping[str | Variable, Any]) -> None:
        """Gives several variables new values at once: all of them or, if one does not fit, none.

        Faster than one by one: what a checkpoint is restored with.

        Raises:
            UnknownNameError, ShapeError, DTypeError: see `set`.
        """
        self._live().set(values)

    def values(self) -> dict[str, np.ndarray[Any, Any]]:
        """Every variable's value on the host, by name: copies."""
        return self._live().values()

    def state(self) -> State:
        """All state, as an executable of `gc.compile` takes it: a copy."""
        return self._live().copy()

    # -- looking inside ---------------------------------------------------------------------

    @property
    def executables(self) -> list[Executable]:
        """Every executable this session has compiled, in order."""
        found = {id(e): e for plan in self._plans.values() for e in plan.executables.values()}
        return list(found.values())

    @property
    def compile_count(self) -> int:
        """How many executables this session has compiled."""
        return len(self.executables)

    def close(self) -> None:
        """Frees the state and the executables; the session cannot run any more."""
        self._closed = True
        self._plans.clear()
        self._state.buffers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session of {self.graph!r}, {self.compile_count} executables>"
