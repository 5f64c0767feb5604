"""The state of a session: variables by name, in buffers that its executables work on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any, Protocol

import jax
import numpy as np
from jax import numpy as jnp

from graphc.copying import Uncopied
from graphc.errors import StateError, UnknownNameError, nearest
from graphc.interrupts import uninterrupted
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.variable import Variable
from graphc.runtime.buffers.layout import OWN, Buffer, Slot, StateLayout, public_names
from graphc.runtime.buffers.packing import (
    LARGE,
    Members,
    can_overwrite,
    filled,
    overwritten,
    place_on,
    put,
    size_of,
    take,
    unpack,
)
from graphc.runtime.core.across import on_host
from graphc.runtime.core.failures import what_was_lost
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.feeds import variable_value
from graphc.runtime.state.initial import InitialValues, state_types
from graphc.runtime.state.state import State
from graphc.runtime.targets.executors import ONE_AT_A_TIME

# The shardings that an executable needs for the buffers that it uses.
Homes = Mapping[Buffer, jax.sharding.Sharding]


class Runs(Protocol):
    """The part of an `Executable` that `LiveState.step` uses."""

    @property
    def is_uncertain(self) -> bool:
        """Whether a run that was dispatched may still fail and lose the state."""

    def step(self, buffers: list[Any], feeds: Sequence[Any]) -> Any:
        """Runs on `buffers` and replaces those that it assigns; returns the fetched values."""


class LiveState(Uncopied):
    """The current values of a graph's variables, which threads share.

    Methods take the lock unless their docstring says otherwise, and raise `StateError` if the state
    is lost or closed.

    Attributes:
        layout: the layout of the buffers.
        buffers: in the order of the layout. Each is None until its initial value is needed. It is
            on the host until an executable that uses it determines its place. Executables replace
            buffers with new ones.
        lock: held by a thread while it changes or reads the state. It is reentrant: a signal
            handler, or a function that garbage collection calls, may use the session.
        broken: why the state is lost, or None.
        closed: whether `close` was called.
        shared: whether other code holds the buffers too, so that none may be overwritten.
        writes: how often values were set by name.
    """

    instead = "send session.values()"

    def __init__(self, graph: Graph) -> None:
        self.layout = StateLayout({})
        self.buffers: list[Any] = []
        self._initial: InitialValues  # set when the first variables are added
        self.lock = RLock()
        self.broken: str | None = None
        self.closed = False
        self.shared = False
        self.writes = 0
        self._graph = graph
        self._homes: dict[Buffer, jax.sharding.Sharding] = {}
        # Whether a step may have consumed the state without storing the new one. It is set before
        # each step and cleared after it, so an exception needs no cleanup to set it.
        self._uncertain = False

    # -- running ----------------------------------------------------------------------------

    def step(self, executable: Runs, feeds: Sequence[Any]) -> Any:
        """Runs an executable on the buffers; returns the fetched values. The caller holds the lock.

        Raises:
            StateError: this run or an earlier one lost the state, or the state is closed.
            ExecutionError, FeedError: the run failed; the state is unchanged.
        """
        if self._uncertain or self.closed or self.broken is not None:
            self.check()
        self._uncertain = True
        try:
            fetched = executable.step(self.buffers, feeds)
        except StateError as error:
            self.broken = error.what
            raise
        self._uncertain = executable.is_uncertain
        return fetched

    def check(self) -> None:
        """Raises `StateError` if the values are lost or closed.

        After a step that ended with any exception, this checks the buffers, so that JAX is never
        given one that was donated.
        """
        FORKING.check()
        if self.closed:
            raise StateError("the session is closed", hint="open another: gc.Session(graph)")
        if self.broken is None and self._uncertain:
            self.broken = what_was_lost(self.buffers)
            self._uncertain = self.broken is not None
        if self.broken is not None:
            raise StateError(
                f"the session is broken: {self.broken}",
                hint="open another session, and restore its variables from a checkpoint",
            )

    def _check_values(self) -> None:
        """Like `check`, but waits for all steps first, so that none can still fail."""
        self._uncertain = True
        self.check()

    def forked(self) -> None:
        """Called in a child process, which cannot use the values: `check` raises from now on.

        The lock is replaced, since a thread that exists only in the parent may hold it.
        """
        self.lock = RLock()
        self.broken = "this process was forked"

    def close(self) -> None:
        """Frees the values."""
        with self.lock:
            self.closed = True
            self.buffers.clear()

    # -- placement --------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether it has all current variables of the graph."""
        return self.layout.with_variables(state_types(self._graph)) is self.layout

    def grow(self) -> None:
        """Adds the variables that the graph got since the last call; at first, all of them."""
        with self.lock:
            layout = self.layout.with_variables(state_types(self._graph))
            if layout is self.layout:
                return
            self.check()
            before = self._initial if self.layout.buffers else None
            self._initial = InitialValues(self._graph, before)
            new = len(layout.buffers) - len(self.layout.buffers)
            uninterrupted(self._have, layout, [*self.buffers, *[None] * new], self._homes)

    def _made(self, number: int) -> Any:
        """A buffer. If it has no value yet, its initial value is made on the host."""
        if self.buffers[number] is None:
            made = filled(self.layout.buffers[number], self._initial.take, None)
            self.buffers[number] = made
        return self.buffers[number]

    def _all_made(self) -> list[Any]:
        return [self._made(number) for number in range(len(self.buffers))]

    def move(self, layout: StateLayout, homes: Homes, then: Callable[[StateLayout], None]) -> None:
        """Puts the values into the buffers of another layout of the same variables.

        A large state is moved in portions. Each portion frees its old buffers before the next one
        allocates memory. If one cannot be moved, those before it have been moved.

        Args:
            homes: the shardings that an executable needs for the buffers that it uses.
            then: updates all executables for a layout. The buffers and the executables change
                together.

        Raises:
            StateError: an earlier run failed and lost the state.
        """
        with self.lock:
            self._check_values()
            portion: list[Buffer] = []
            for buffer, home in homes.items():
                if self._lies_at(buffer, home):
                    continue
                portion.append(buffer)
                if sum(map(size_of, portion)) >= LARGE:
                    new = [b for b in portion if self.layout.number(b) is None]
                    stage = self.layout.with_buffers(new) if new else self.layout
                    self._change(stage, {**self._homes, **{b: homes[b] for b in portion}}, then)
                    portion = []
            self._change(layout, {**self._homes, **homes}, then)

    def _lies_at(self, buffer: Buffer, home: jax.sharding.Sharding) -> bool:
        number = self.layout.number(buffer)
        value = None if number is None else self.buffers[number]
        return isinstance(value, jax.Array) and value.sharding == home

    def _change(
        self,
        layout: StateLayout,
        homes: dict[Buffer, jax.sharding.Sharding],
        then: Callable[[StateLayout], None],
    ) -> None:
        """Makes the buffers of a layout, then replaces the present ones with them."""
        value_of = Members(self.layout, self.buffers, self._initial.take)
        buffers = [self._moved(buffer, value_of, homes.get(buffer)) for buffer in layout.buffers]

        def change() -> None:
            self._have(layout, buffers, homes)
            then(layout)

        uninterrupted(change)

    def _moved(self, buffer: Buffer, value_of: Members, home: jax.sharding.Sharding | None) -> Any:
        """A buffer of a new layout at its home: the present one if there is one."""
        numbers = {self.layout.slot(name).buffer for name in buffer.members}
        if home is None and all(self.buffers[number] is None for number in numbers):
            return None
        number = self.layout.number(buffer)
        if number is None or self.buffers[number] is None:
            return filled(buffer, value_of, home)
        return _placed(self.buffers[number], home)

    def _have(
        self, layout: StateLayout, buffers: list[Any], homes: dict[Buffer, jax.sharding.Sharding]
    ) -> None:
        self.layout, self._homes = layout, homes
        self.buffers[:] = buffers

    def agrees(self, homes: Homes) -> bool:
        """Whether these buffers are where an executable needs them."""
        return all(self._homes.get(buffer) == home for buffer, home in homes.items())

    def snapshot(self) -> tuple[StateLayout, tuple[Any, ...]]:
        """The layout and the buffers at one moment."""
        with self.lock:
            return self.layout, tuple(self._all_made())

    # -- by name ----------------------------------------------------------------------------

    def get(self, name: str | Variable) -> jax.Array:
        """A copy of one value: see `Session.get`."""
        with self.lock, ONE_AT_A_TIME.lock:  # the value may be in pieces on several devices
            self._check_values()
            found, slot = self._slot(name)
            value, buffer = self._made(slot.buffer), self.layout.buffers[slot.buffer]
            if isinstance(value, jax.Array) and not value.is_fully_addressable:
                value = on_host(value)
            if slot.member is not None and isinstance(value, jax.Array):
                return take(value, buffer, slot.member)
            if slot.member is not None:
                value = unpack(buffer, value)[found]
            with jax.enable_x64(True):
                return jnp.array(value, copy=True)

    def values(self, names: Iterable[str | Variable] | None = None) -> dict[str, Array]:
        """A copy of every value on the host, or of some: see `Session.values`."""
        with self.lock:
            self._check_values()
            wanted = list(self._graph.variables)
            if names is not None:
                wanted = [self._slot(name)[0] for name in names]
            found: dict[str, Any] = {}
            for number, buffer in enumerate(self.layout.buffers):
                if not set(wanted).isdisjoint(buffer.members):
                    found.update(unpack(buffer, np.array(on_host(self._made(number)))))
            return {name: found[name] for name in wanted}

    def copy(self) -> State:
        """A copy of all state, as an executable takes it."""
        with self.lock, jax.enable_x64(True):
            self._check_values()
            return State(self.layout, [jnp.array(b, copy=True) for b in self._all_made()])

    def set(self, values: Mapping[Any, Any], *, copy: bool = True) -> None:
        """New values of some variables, one write for each buffer: see `Session.set_all`."""
        checked = {}
        for name, value in values.items():
            found, _ = self._slot(name)
            checked[found] = self._checked(found, value)
        with self.lock, ONE_AT_A_TIME.lock:
            self._check_values()
            by_buffer: dict[int, dict[str, Array]] = {}
            for name, array in checked.items():
                by_buffer.setdefault(self._slot(name)[1].buffer, {})[name] = array
            self._uncertain = True
            self.writes += 1
            uninterrupted(self._write, by_buffer, copy)
            self._uncertain = False

    def _write(self, by_buffer: Mapping[int, Mapping[str, Array]], copy: bool) -> None:
        """Writes new values; those that are written in place come last."""
        before = list(self.buffers)
        made = {
            number: self._written(number, members, copy)
            for number, members in by_buffer.items()
            if not self._in_place(number, members)
        }
        for number, buffer in made.items():
            self.buffers[number] = buffer
        try:
            for number, members in by_buffer.items():
                if number not in made:
                    self.buffers[number] = self._written(number, members, copy)
        except BaseException:
            self.buffers[:] = before  # `check` finds those that were consumed
            raise

    def _in_place(self, number: int, members: Mapping[str, Array]) -> bool:
        """Whether a program on the device is used, which writes one member of several or all
        members of a large buffer."""
        value, buffer = self.buffers[number], self.layout.buffers[number]
        if len(members) == len(buffer.members):
            return not self.shared and can_overwrite(value, buffer)
        return isinstance(value, jax.Array) and len(members) == 1

    def _written(self, number: int, members: Mapping[str, Array], copy: bool) -> Any:
        """A buffer with new values of some of its members."""
        buffer, old = self.layout.buffers[number], self.buffers[number]
        if self._in_place(number, members):
            if len(members) == len(buffer.members):
                return overwritten(old, buffer, members)
            ((name, value),) = members.items()
            member = buffer.members.index(name)
            return put(old, buffer, member, np.array(value), donate=not self.shared)
        if len(members) < len(buffer.members):
            members = {**unpack(buffer, self._made(number)), **members}
        home = self._homes.get(buffer)
        value = filled(buffer, members.__getitem__, home)
        is_the_callers = home is None and buffer.kind == OWN
        return np.array(value) if is_the_callers and copy else value

    def _slot(self, name: str | Variable) -> tuple[str, Slot]:
        found: Any = name.name if isinstance(name, Variable) else name
        if found not in self.layout.types:
            raise UnknownNameError.here(
                f"no variable {found!r} in graph {self._graph.name!r}",
                hint="a tensor is computed: session.run(x) gives its value, a feed replaces it"
                if isinstance(found, Tensor)
                else nearest(found, public_names(self.layout.types), "graph.variables"),
            )
        return found, self.layout.slot(found)

    def _checked(self, name: str, value: Any) -> Array:
        """A value for a variable, as an array of the variable's type. It may be the caller's array.

        Raises:
            ShapeError, DTypeError: the value does not fit.
        """
        variable = self._graph.variables.get(name)
        source = variable.source if variable is not None else None
        return np.asarray(variable_value(name, self.layout.types[name], value, source, copy=False))


def _placed(value: Any, home: jax.sharding.Sharding | None) -> Any:
    """The value of a buffer at its home, if it has one."""
    if home is None or (isinstance(value, jax.Array) and value.sharding == home):
        return value
    return place_on(value, home)
