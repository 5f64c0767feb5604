"""The plans of a session's calls, and the executables that are compiled for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any

from graphc.config import CompileOptions
from graphc.errors import ExecutionError
from graphc.ir.graph import Graph
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.failures import RUN_FAILED, in_words
from graphc.runtime.feeds.batches import checked_count
from graphc.runtime.feeds.fetches import resolve_feeds
from graphc.runtime.pipeline.placement_log import PlacementLog
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.state.live_state import Homes, LiveState
from graphc.runtime.step.compiler import build, shape_of
from graphc.runtime.step.executable import Executable
from graphc.runtime.step.plans import Plan, ProgramKey, fetch_key


class Programs:
    """The plans and executables of a session, which threads share.

    Only one thread at a time compiles or changes the layout of the state. So the compiled program
    fits the state. Compiled steps can run meanwhile, because they take only the state's own lock.
    A thread that needs both locks takes `compiling` first.

    Args:
        request: makes a `CompileRequest` for the devices of the session. Its arguments are a
            program, shapes, and the other values that differ between programs.
        log: see `compiler.build`.
        unused_feeds: see `Session`.

    Attributes:
        plans: by fetches and feed keys.
        compiling: the lock for compiling and for changing the layout of the state.
    """

    def __init__(
        self,
        graph: Graph,
        state: LiveState,
        options: CompileOptions,
        request: Callable[..., CompileRequest],
        log: PlacementLog | None,
        unused_feeds: str,
    ) -> None:
        self.plans: dict[Any, Plan] = {}
        self.compiling = RLock()
        self._graph, self._state = graph, state
        self._options, self._request, self._log = options, request, log
        self._unused_feeds = unused_feeds
        self._base: str | None = None  # the default device, once something has run

    def plan_of(self, fetches: Any, feeds: Mapping[Any, Any]) -> Plan:
        """The plan for runs with these fetches and feeds. The first such run creates it.

        Raises:
            FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph.
            StateError: the state is lost or closed.
        """
        kind = type(fetches)
        try:  # in most cases this is the key of `fetch_key`, but faster
            flat = (kind, *fetches) if kind is list or kind is tuple else fetches
            plan = self.plans.get((flat, tuple(feeds)))
        except (TypeError, RecursionError):
            plan = None
        if plan is None:
            with self.compiling:
                plan = self._find_or_plan(fetches, feeds)
        if self._state.broken is not None or self._state.closed:
            with self._state.lock:
                self._state.check()
        return plan

    def _find_or_plan(self, fetches: Any, feeds: Mapping[Any, Any]) -> Plan:
        try:
            key = (fetch_key(fetches), tuple(feeds))
            found = self.plans.get(key)
        except (TypeError, RecursionError):  # not a mapping, or an unhashable key
            key, found = None, None
        if found is None:
            known = self.plans.values()
            found = self.plans[key] = Plan.of(
                self._graph, fetches, feeds, self._options, known, self._unused_feeds
            )
        return found

    def executable(self, plan: Plan, key: ProgramKey) -> Executable:
        """The executable of a plan for one of its keys, compiled.

        Raises:
            ExecutionError: XLA rejects the program.
        """
        found = plan.executables.get(key)
        if found is None:
            with self.compiling:  # another thread may have compiled it by now
                found = plan.executables.get(key)
                if found is None:  # compiled before the state is moved for it
                    found = self._take_in(plan, key, self._made(plan, key).wait())
        return found if found.is_compiled else found.wait()

    def begin(self, plan: Plan, feeds: Mapping[Any, Any], steps: int | None) -> list[Executable]:
        """The executable of a plan for feeds of these shapes, then all others of the session.
        Executables that lose a buffer to the new one are made again. This waits for none of
        them."""
        given = resolve_feeds(self._graph, feeds)
        shapes = tuple([shape_of(tensor, given[tensor]) for tensor in plan.feeds])
        wanted = ProgramKey(shapes, None if steps is None else checked_count(steps))
        with self.compiling:
            pairs = [(plan, wanted)]
            pairs += [(p, known) for p in self.plans.values() for known in p.executables]
            return [p.executables.get(k) or self._take_in(p, k, self._made(p, k)) for p, k in pairs]

    def grow(self) -> None:
        """Adds new variables of the graph to the state."""
        if not self._state.is_complete:
            with self.compiling:
                self._state.grow()

    def _made(self, plan: Plan, key: ProgramKey) -> Executable:
        """The executable. It is compiled when `wait` is called."""
        self._state.grow()
        request = self._request(plan.prepared, key.shapes, steps=key.steps, base=self._base)
        return build(plan.fetch_set, request, self._state.layout, self._log)

    def _take_in(self, plan: Plan, key: ProgramKey, executable: Executable) -> Executable:
        placement = executable.stages.compilation.placement
        if placement is not None:
            self._base = placement.base
        self.adopt(executable.layout, executable.homes)
        plan.executables[key] = executable
        for known in self.plans.values():
            known.copy_feeds()
        return executable

    def adopt(self, layout: StateLayout, homes: Homes) -> None:
        """Moves the state into the buffers of another layout, and places the buffers in `homes`.

        Executables that need a buffer that no longer exists are dropped. The next run that needs
        such an executable compiles it again.

        Raises:
            StateError: the state is lost or closed.
            ExecutionError: the state cannot be moved. No value has changed.
        """

        def tell(layout: StateLayout) -> None:
            for plan in self.plans.values():
                for key, known in list(plan.executables.items()):
                    if (
                        known.is_dropped
                        or not known.move_to(layout)
                        or not self._state.agrees(known.homes)
                    ):
                        known.is_dropped = True
                        del plan.executables[key]

        with self.compiling:
            try:
                self._state.move(layout, homes, tell)
            except RUN_FAILED as error:
                what, details = in_words(error)
                raise ExecutionError(
                    f"the state could not be moved to where a new program needs it: {what}",
                    details=details,
                ) from error

    def forked(self) -> None:
        """Replaces the lock in a child process. A thread that exists only in the parent process may
        hold the old lock."""
        self.compiling = RLock()

    @property
    def executables(self) -> list[Executable]:
        """All executables, in the order of their compilation."""
        plans = list(self.plans.values())
        found = {id(e): e for plan in plans for e in list(plan.executables.values())}
        return list(found.values())
