"""`Runner`: the tasks of a session, as the session sees them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

import jax
from jax import numpy as jnp

from graphc.cluster.remote_programs import remote_options
from graphc.cluster.remote_tasks.actors import Actors
from graphc.cluster.remote_tasks.planning import Planner, Schedule, task_of
from graphc.config import CompileOptions
from graphc.devices.discovery import matching, no_such_device
from graphc.devices.partition import partition
from graphc.devices.placer import Placement, full_name, place
from graphc.devices.remote_session import RemoteRunner
from graphc.devices.targets import target_of
from graphc.errors import ClusterError, GraphcError, StateError
from graphc.interrupts import uninterrupted
from graphc.ir.graph import Graph
from graphc.ir.program import Program
from graphc.passes.simplify.drop_marks import DropMarks
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.runtime.pipeline.placement_log import lines_of
from graphc.runtime.state.live_state import LiveState
from graphc.runtime.step.plans import Plan, ProgramKey
from graphc.runtime.targets.prepare import Prepared, bind


class Runner(RemoteRunner):
    """Runs the steps of a session on its tasks, whose processes start at the first step.

    Args:
        strategy: the record of the user.
        state: the state of the session. A variable is sent to its task before the first step that
            uses it, and comes back when the session reads it.
        soft: whether a node runs on another device of the cluster if the requested kind or number
            does not exist.
        log: whether devices and placements are printed.
    """

    def __init__(
        self,
        strategy: Any,
        graph: Graph,
        options: CompileOptions,
        state: LiveState,
        soft: bool,
        log: bool,
    ) -> None:
        self._strategy, self._graph, self._state = strategy, graph, state
        self._soft, self._log = soft, log
        self._printed: dict[str, None] = {}
        # The processes optimise each program for their own devices. The precision of each node is
        # chosen here, where the whole step shows which nodes belong to the optimizer.
        self._options = replace(options, pipeline="O1", sparse_updates="off", fuse_attention=False)
        self._planner = Planner(remote_options(replace(options, precision=None)))
        self._actors: Actors | None = None
        self._devices: list[str] = []
        self._schedules: dict[tuple[int, ProgramKey], tuple[Schedule, Mapping[str, str], int]] = {}
        self._plans: list[Plan] = []  # keeps them alive: schedules are found by their ids
        self._there: dict[str, str] = {}  # variable -> the task that has it
        self._known = 0  # `state.writes` when they were last the same here and there
        self._changed = False  # whether the tasks have newer values
        self._step = 0
        self._lock = RLock()
        self._end: Callable[[], Any] | None = None

    # -- steps ------------------------------------------------------------------------------

    def run(self, plan: Plan, shapes: ProgramKey, values: Sequence[Any]) -> list[Any]:
        """See `RemoteRunner`.

        Raises:
            DeviceError: a node requests a task that does not exist.
            SerialError: the graph has a Python function, or an operator that the user registered.
            StateError: the step failed, and variables may have changed; or a process has ended.
            GraphcError: the step failed, and nothing has changed.
        """
        with self._lock:
            self._state.check()
            actors = self._begun()
            schedule, homes, first = self._schedule(plan, shapes)
            self._send(homes)
            self._step += 1
            refs = uninterrupted(self._started, schedule, first, list(values))
            try:
                found = actors.get(refs)
            except ClusterError as error:
                raise self._lost(error) from error
            except GraphcError as error:
                if not schedule.assigns:
                    raise
                raise self._lost(error) from error
            with jax.enable_x64(True):
                return [jnp.asarray(value) for value in found[: len(schedule.fetches)]]

    def _started(self, schedule: Schedule, first: int, feeds: Sequence[Any]) -> list[Any]:
        """References to the fetched values and to the ends of all calls."""
        actors = self._begun()
        self._changed = self._changed or schedule.assigns
        pairs = zip(schedule.feeds, feeds, strict=True)
        values = {number: actors.put(jax.device_get(value)) for number, value in pairs}
        ends = []
        for number, call in enumerate(schedule.calls, first):
            received = [values[value] for value in call.received]
            made = actors.run(call.task, len(call.returned), self._step, number, received)
            values.update(zip(call.returned, made, strict=False))
            ends.append(made[-1])
        return [*(values[value] for value in schedule.fetches), *ends]

    def _lost(self, error: GraphcError) -> StateError:
        self._state.broken = f"a step on several tasks failed: {error.what}"
        return StateError(
            f"the session is broken: {self._state.broken}",
            details=error.details,
            source=error.source,
            hint="open another session, and restore its variables from a checkpoint",
        )

    # -- programs ---------------------------------------------------------------------------

    def _schedule(self, plan: Plan, shapes: ProgramKey) -> tuple[Schedule, Mapping[str, str], int]:
        """The calls of a step, the homes of its variables, and the number of its first call."""
        key = (id(plan), shapes)
        if key not in self._schedules:
            placement = self._placed(plan.prepared)
            bindings = bind_feeds(placement.program, shapes.shapes, plan.prepared.sources)
            named = Prepared(placement.program, plan.prepared.sources, self._options)
            target = target_of([jax.local_devices()[0]], 1)
            program, _ = bind(named, bindings, self._options, target)
            program = DropMarks(self._options.check_numerics).run(program).program
            parts = partition(program, placement.homes, placement.base)
            schedule = self._planner.schedule(parts)
            first = sum(len(known.calls) for known, _, _ in self._schedules.values())
            self._install(schedule, first)
            self._graph.finalize()
            self._plans.append(plan)
            self._schedules[key] = schedule, placement.homes, first
        return self._schedules[key]

    def _placed(self, prepared: Prepared) -> Placement:
        """The program with the device of each node."""
        whole = prepared.whole or prepared.functional
        asked = {node.device: node.name for node in whole.walk() if node.device}
        asked |= {device: name for name, device in prepared.requests.items()}
        for device, name in asked.items():
            if not matching(task_of(device), self._devices):  # a misspelt job, not a lack of GPUs
                raise no_such_device(device, f" for {name!r}", self._devices)
        found = place(
            prepared.functional,
            prepared.requests,
            soft=self._soft,
            whole=prepared.whole,
            known=self._devices,
            base=self._devices[0],
        )
        if self._log:
            self._print(lines_of(found.rows(), found.notes))
        if len(found.devices) > 1:
            return found
        return replace(found, program=_named(found.program, found.base))

    def _install(self, schedule: Schedule, first: int) -> None:
        calls: dict[str, dict[int, Any]] = {}
        for number, call in enumerate(schedule.calls, first):
            calls.setdefault(call.task, {})[number] = call
        actors = self._begun()
        actors.get([actors.ask(task, "install", own) for task, own in calls.items()])

    # -- state ------------------------------------------------------------------------------

    def _send(self, homes: Mapping[str, str]) -> None:
        """Gives the tasks the variables of a step that they do not have."""
        if self._state.writes != self._known:
            self._there = {}
        missing = [name for name in homes if name not in self._there]
        if not missing:
            return
        values = self._state.values(missing)
        self._known = self._state.writes
        actors, sent = self._begun(), dict[str, dict[str, Any]]()
        for name in missing:
            sent.setdefault(task_of(homes[name]), {})[name] = values[name]
        actors.get([actors.ask(task, "set", own) for task, own in sent.items()])
        self._there.update({name: task_of(homes[name]) for name in missing})

    def collect(self) -> None:
        """See `RemoteRunner`.

        Raises:
            StateError: a process has ended.
        """
        with self._lock:
            if not self._changed or self._actors is None or self._state.broken is not None:
                return
            names: dict[str, list[str]] = {}
            for name, task in self._there.items():
                names.setdefault(task, []).append(name)
            asked = [self._actors.ask(task, "get", own) for task, own in names.items()]
            try:
                found = self._actors.get(asked)
            except ClusterError as error:
                raise self._lost(error) from error
            values = {
                name: value
                for own, got in zip(names.values(), found, strict=True)
                for name, value in zip(own, got, strict=True)
            }
            # In this order: an interrupt in between makes a value go once more, not be lost.
            self._state.set(values)
            self._known = self._state.writes
            self._changed = False

    # -- processes --------------------------------------------------------------------------

    def _begun(self) -> Actors:
        """The processes; they are started if they are not running."""
        if self._actors is None:
            tasks = self._strategy.names()
            options = [self._strategy.options.get(_job(task), {}) for task in tasks]
            actors = Actors(tasks, options)
            self._end = weakref.finalize(self, actors.close)  # also if it is never closed
            found = actors.get([actors.ask(task, "devices") for task in tasks])
            self._devices = [
                f"{task}{name}" for task, own in zip(tasks, found, strict=True) for name in own
            ]
            self._actors = actors
            if self._log:
                self._print(["Devices:", *map(full_name, self._devices)])
        return self._actors

    def _print(self, lines: Iterable[str]) -> None:
        """Prints each line once."""
        new = [line for line in lines if line not in self._printed]
        self._printed.update(dict.fromkeys(new))
        print("\n".join(new), flush=True)

    def processes(self) -> dict[str, int]:
        """The number of the process of each task."""
        tasks, actors = self._strategy.names(), self._begun()
        found = actors.get([actors.ask(task, "process") for task in tasks])
        return dict(zip(tasks, found, strict=True))

    def close(self) -> None:
        """See `RemoteRunner`."""
        if self._end is not None:
            self._end()
        self._actors = None


def _job(task: str) -> str:
    return task.split("/")[1].partition(":")[2]


def _named(program: Program, device: str) -> Program:
    """The program with all nodes on one device."""
    return program.replace(nodes=tuple([node.replace(device=device) for node in program.nodes]))
