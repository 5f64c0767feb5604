"""Divides a program whose nodes are on several tasks into the calls of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphc.cluster.remote_programs import Sent, send
from graphc.config import CompileOptions
from graphc.devices.partition import Cluster, Partition
from graphc.devices.schedule import dispatch_order
from graphc.ir.device_spec import parse_device
from graphc.ir.fingerprint import fingerprint
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program


@dataclass(frozen=True)
class Call:
    """What a task does at one point of a step. Values have numbers, the same for all tasks.

    Attributes:
        device: the name of the device, with its task.
        sent: the program that it runs, if any.
        takes: the feeds of the program, in order.
        gives: its fetched values, in order.
        reads: value -> the variable that is read at the beginning.
        assigns: variable -> the value that it gets at the end.
        received: the values that arrive with the call.
        returned: the values that other tasks or the client get.
        frees: the values that no later call of this task uses.
    """

    device: str
    sent: Sent | None = None
    takes: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()
    reads: Mapping[int, str] = field(default_factory=dict)
    assigns: Mapping[str, int] = field(default_factory=dict)
    received: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()
    frees: tuple[int, ...] = ()

    @property
    def task(self) -> str:
        """The name of the task."""
        return task_of(self.device)

    @property
    def needs(self) -> tuple[int, ...]:
        """The values that it uses."""
        return (*self.takes, *self.assigns.values())

    @property
    def makes(self) -> tuple[int, ...]:
        """The values that it computes or reads."""
        return (*self.gives, *self.reads)


@dataclass(frozen=True)
class Schedule:
    """The calls of a step.

    Attributes:
        calls: in the order in which the client makes them.
        feeds: the number of each feed, in order.
        fetches: the number of each fetched value, in order.
        assigns: whether a step changes variables.
    """

    calls: tuple[Call, ...]
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    assigns: bool


def task_of(device: str) -> str:
    """The task in the name of a device."""
    return str(replace(parse_device(device), kind=None, index=None))


class Planner:
    """Makes the calls of the steps of a session. Equal programs are sent once."""

    def __init__(self, options: CompileOptions) -> None:
        self._options = options
        self._sent: dict[str, Sent] = {}

    def schedule(self, parts: Partition) -> Schedule:
        """The calls for a partition.

        Raises:
            SerialError: a program holds a Python function, or an operator that the user registered.
        """
        step = _Step(parts)
        computing = [self._computing(step, position) for position in range(len(step.clusters))]
        calls = [*step.reading(), *computing, *step.assigning()]
        program = parts.program
        feeds = tuple([step.number(port.tensor) for port in program.ports("feed")])
        fetches = tuple([step.number(port.tensor) for port in program.ports("fetch")])
        assigns = bool(program.new_state())
        return Schedule(tuple(_linked(calls, fetches)), feeds, fetches, assigns)

    def _computing(self, step: _Step, position: int) -> Call:
        program, takes, gives = step.program(position)
        key = fingerprint(program)
        if key not in self._sent:
            self._sent[key] = send(len(self._sent), program, self._options)
        return Call(step.clusters[position].device, self._sent[key], takes, gives)


class _Step:
    """One partition. Its clusters are in the order in which they run."""

    def __init__(self, parts: Partition) -> None:
        self.clusters = [parts.clusters[index] for index in dispatch_order(parts)]
        self._homes = parts.homes
        self._numbers: dict[Tensor, int] = {}
        self._state = {port.tensor: port.name for port in parts.program.ports("state")}
        self._fetched = {port.tensor for port in parts.program.ports("fetch")}
        last: dict[str, int] = {}  # the last cluster that uses the old value of a variable
        for position, cluster in enumerate(self.clusters):
            last.update((name, position) for name in self._own_state(cluster).values())
        maker = {t: n for n, cluster in enumerate(self.clusters) for t in cluster.results}
        self._assigned: dict[int, list[Port]] = {}  # by the clusters that assign them
        self._later: list[Port] = []  # assigned after all clusters
        for port in parts.program.new_state():
            position = maker[port.tensor]
            home = self._homes[port.name] == self.clusters[position].device
            if home and last.get(port.name, -1) <= position:
                self._assigned.setdefault(position, []).append(port)
            else:
                self._later.append(port)

    def number(self, tensor: Tensor) -> int:
        """The number of a value."""
        return self._numbers.setdefault(tensor, len(self._numbers))

    def _own_state(self, cluster: Cluster) -> dict[Tensor, str]:
        """The variables on its device that a cluster uses."""
        found = {t: self._state[t] for t in cluster.takes if t in self._state}
        return {t: name for t, name in found.items() if self._homes[name] == cluster.device}

    def program(self, position: int) -> tuple[Program, tuple[int, ...], tuple[int, ...]]:
        """The program of a cluster, with the numbers of its feeds and fetched values. Variables of
        its device are its state."""
        cluster = self.clusters[position]
        own = self._own_state(cluster)
        taken = [t for t in cluster.takes if t not in own]
        assigned = self._assigned.get(position, [])
        kept = {*cluster.sent, *self._fetched, *(port.tensor for port in self._later)}
        given = [t for t in dict.fromkeys(cluster.gives) if t in kept]
        program = cluster.program.replace(
            name="task",
            inputs=(
                *[Port(f"x{i}", "feed", tensor) for i, tensor in enumerate(taken)],
                *[Port(name, "state", tensor) for tensor, name in own.items()],
            ),
            outputs=(*[Port(f"y{i}", "fetch", t) for i, t in enumerate(given)], *assigned),
        )
        return program, tuple(map(self.number, taken)), tuple(map(self.number, given))

    def reading(self) -> Iterator[Call]:
        """The calls that send variables to clusters on other devices."""
        asked: dict[str, dict[int, str]] = {}
        for cluster in self.clusters:
            own = self._own_state(cluster)
            for tensor in cluster.takes:
                if tensor in self._state and tensor not in own:
                    name = self._state[tensor]
                    asked.setdefault(self._homes[name], {})[self.number(tensor)] = name
        for home, reads in asked.items():
            yield Call(home, reads=reads)

    def assigning(self) -> Iterator[Call]:
        """The calls that assign variables after all clusters."""
        given: dict[str, dict[str, int]] = {}
        for port in self._later:
            given.setdefault(self._homes[port.name], {})[port.name] = self.number(port.tensor)
        for home, assigns in given.items():
            yield Call(home, assigns=assigns)


def _linked(calls: Sequence[Call], fetches: Sequence[int]) -> Iterator[Call]:
    """The calls with what they receive, return and free."""
    users: dict[int, set[str]] = {}
    last: dict[tuple[str, int], int] = {}
    for position, call in enumerate(calls):
        for value in call.needs:
            users.setdefault(value, set()).add(call.task)
            last[call.task, value] = position
    present: dict[str, set[int]] = {call.task: set() for call in calls}
    for position, call in enumerate(calls):
        here = present[call.task]
        received = [value for value in dict.fromkeys(call.needs) if value not in here]
        returned = [v for v in call.makes if v in fetches or users.get(v, set()) - {call.task}]
        here.update(received, call.makes)
        frees = sorted(v for v in here if last.get((call.task, v), -1) <= position)
        here.difference_update(frees)
        yield replace(call, received=tuple(received), returned=tuple(returned), frees=tuple(frees))
