"""The state as a mapping from names to values. The physical buffers are hidden from users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import RLock
from typing import Final

import jax
import numpy as np
from jax import numpy as jnp

from graphc.copying import Uncopied
from graphc.errors import DTypeError, ShapeError, StateError
from graphc.interrupts import uninterrupted
from graphc.runtime.buffers.layout import Buffer, Slot, StateLayout, public_names
from graphc.runtime.buffers.packing import put, repack, take, take_several
from graphc.runtime.core.failures import what_was_lost
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.feeds import variable_value
from graphc.runtime.targets.executors import ONE_AT_A_TIME

A_STEP: Final = "a step that assigns variables"


class State(Mapping[str, jax.Array], Uncopied):
    """The values of all variables at one moment: a mapping from name to array.

    An executable that assigns variables consumes the state that it is given and returns a new one.
    If an interrupt (Ctrl-C) stops the call, the given state holds the values: those before the step
    or, if the step ran, those after it. Values are lost only if the interrupt arrives after the
    call and before its results are assigned to names; a `Session` does not lose them even then.

    Attributes:
        lock: held while an executable uses the state.
        uncertain: whether the step that made it may still fail for lack of memory.

    Examples:
        >>> count = gc.variable(5, name="count")
        >>> step = gc.compile(graph, count.assign_add(1))
        >>> state = step.init()
        >>> value, after = step(state)
        >>> dict(after), state
        ({'count': Array(6, dtype=int32)}, <State of 1 variables, consumed>)
    """

    instead = "copy its values: {name: np.asarray(value) for name, value in state.items()}"

    def __init__(self, layout: StateLayout, buffers: list[jax.Array]) -> None:
        self.layout = layout
        self._buffers = buffers
        self._consumed_by: str | None = None
        self._shares = False  # some buffers, with another state that may be consumed
        self.lock = RLock()
        self.uncertain = False
        self.settled: object = None  # the executor that needs no buffer of it to be moved

    @property
    def buffers(self) -> list[jax.Array]:
        """The physical buffers in the order of the layout, for executors.

        Raises:
            StateError: the state was consumed, or the step that made it failed.
        """
        FORKING.check()
        self._check_not_consumed()
        if self._shares and any(buffer.is_deleted() for buffer in self._buffers):
            raise StateError(
                "this state shares variables with one that was consumed by a step",
                hint="go on with the state that the step returned",
            )
        if self.uncertain:
            lost = what_was_lost(self._buffers)
            if lost is not None:
                raise StateError(
                    f"this state is lost: {lost}",
                    hint="start again from a state that was saved, or from init()",
                )
            self.uncertain = False
        return self._buffers

    def _check_not_consumed(self) -> None:
        if self._consumed_by is not None:
            raise StateError(
                f"this state was consumed by {self._consumed_by}",
                hint="go on with the state that call returned; options=CompileOptions("
                "donate=False) keeps the old one alive",
            )

    @property
    def was_donated(self) -> bool:
        """Whether a step that assigns variables has consumed it, and returned another state.

        Examples:
            >>> v = gc.variable(5, name="v", trainable=False)
            >>> step = gc.compile(graph, v.assign_add(1))
            >>> first = step.init()
            >>> _, second = step(first)
            >>> first.was_donated, second.was_donated
            (True, False)
        """
        return self._consumed_by == A_STEP

    def consume(self, by: str) -> None:
        """Marks the state as consumed."""
        self._consumed_by = by

    def revive(self, buffers: list[jax.Array]) -> None:
        """Gives the state these buffers; it is no longer consumed."""
        self._buffers = buffers
        self._consumed_by = None

    def restore(self, buffers: list[jax.Array], error: BaseException) -> None:
        """Gives the state its values back after a run raised `error`. They are the values from
        before the run or, if the step ran, the values from after it.

        This waits for the values only after a `StateError`. It does not wait after an interrupt,
        because another interrupt could arrive meanwhile. The next use of the state waits instead.
        """
        if isinstance(error, StateError):
            if what_was_lost(buffers) is None:  # another call failed
                self.revive(buffers)
            else:
                self.consume("a run that failed")
        elif not any(buffer.is_deleted() for buffer in buffers):
            self.uncertain = True
            self.revive(buffers)

    def rearrange(
        self, layout: StateLayout, home_of: Callable[[Buffer], jax.sharding.Sharding]
    ) -> None:
        """Moves the values into the buffers of another layout of the same variables, in place.

        Args:
            home_of: returns the sharding that a buffer needs.
        """
        uninterrupted(self._have, repack(self.layout, self.buffers, layout, home_of), layout)

    def _have(self, buffers: list[jax.Array], layout: StateLayout) -> None:
        self._buffers, self.layout = buffers, layout

    def __getitem__(self, name: str) -> jax.Array:
        FORKING.check()  # before the lock, which a thread of the parent process may hold
        with self.lock, ONE_AT_A_TIME.lock:
            slot = self.layout.slot(name)
            array = self.buffers[slot.buffer]
            if slot.member is None:
                return array
            return take(array, self.layout.buffers[slot.buffer], slot.member)

    def several(self, names: Sequence[str]) -> list[jax.Array]:
        """The values of several variables.

        Examples:
            >>> v = gc.variable(5, name="v")
            >>> state = gc.compile(graph, v * 2).init()
            >>> state.several(["v", "v"])
            [Array(5, dtype=int32), Array(5, dtype=int32)]
        """
        FORKING.check()
        with self.lock, ONE_AT_A_TIME.lock:
            members: dict[int, list[int]] = {}
            slots = [self.layout.slot(name) for name in names]
            for slot in slots:
                if slot.member is not None:
                    members.setdefault(slot.buffer, []).append(slot.member)
            taken = {
                number: iter(take_several(self.buffers[number], self.layout.buffers[number], of_it))
                for number, of_it in members.items()
            }
            return [
                self.buffers[slot.buffer] if slot.member is None else next(taken[slot.buffer])
                for slot in slots
            ]

    def put(self, values: Mapping[str, jax.Array]) -> None:
        """Gives variables other values of their types, in place. The arrays are copied.

        A buffer is copied once, however many of its members change. The old values of the variables
        may have been deleted.

        Raises:
            UnknownNameError: no such variable.
            ShapeError, DTypeError: a value does not fit its variable. No variable is changed then.
            StateError: the state was consumed.

        Examples:
            >>> v = gc.variable([1.0, 2.0], name="v")
            >>> state = gc.compile(graph, v * 2).init()
            >>> state.put({"v": jnp.zeros(2)})
            >>> state["v"]
            Array([0., 0.], dtype=float32)
        """
        FORKING.check()
        with self.lock:
            self._check_not_consumed()
            buffers, copied = list(self._buffers), set[int]()
            for name, value in values.items():
                slot = self._slot_for(name, value)
                number, old = slot.buffer, buffers[slot.buffer]
                if slot.member is None:
                    with jax.enable_x64(True):
                        buffers[number] = jax.device_put(jnp.array(value, copy=True), old.sharding)
                else:
                    buffer, own = self.layout.buffers[number], number in copied
                    buffers[number] = put(old, buffer, slot.member, value, donate=own)
                    copied.add(number)
            self._buffers = buffers

    def with_value(self, name: str, value: jax.Array) -> State:
        """A state that differs in one variable; this one stays valid until a step consumes one.

        Raises:
            UnknownNameError: no such variable.
            ShapeError, DTypeError: the value does not fit the variable.
            StateError: see `buffers`.

        Examples:
            >>> w = gc.variable(2.0, name="w")
            >>> step = gc.compile(graph, w * 10)
            >>> state = step.init().with_value("w", np.float32(5.0))
            >>> step(state)[0]
            Array(50., dtype=float32)
        """
        FORKING.check()
        with self.lock:
            return self._with_value(name, value)

    def _with_value(self, name: str, value: jax.Array) -> State:
        slot = self._slot_for(name, value)
        value = variable_value(name, self.layout.types[name], value)
        buffers = list(self.buffers)
        old = buffers[slot.buffer]
        if slot.member is None:
            with jax.enable_x64(True):
                buffers[slot.buffer] = jax.device_put(jnp.array(value, copy=True), old.sharding)
        else:
            buffer = self.layout.buffers[slot.buffer]
            buffers[slot.buffer] = put(old, buffer, slot.member, np.array(value))
        return self.followed_by(buffers)

    def _slot_for(self, name: str, value: jax.Array) -> Slot:
        """The place of a variable that takes a value."""
        slot, type = self.layout.slot(name), self.layout.types[name]
        shape, dtype = np.shape(value), getattr(value, "dtype", None)
        if shape != type.shape or dtype != type.dtype:
            error = ShapeError if shape != type.shape else DTypeError
            raise error(f"variable {name!r} is {type}, the value {dtype} of shape {shape}")
        return slot

    def followed_by(self, buffers: list[jax.Array], settled: object = None) -> State:
        """A state of the same layout. It may share some buffers with this one."""
        other = State(self.layout, buffers)
        other.settled = settled
        self._shares = other._shares = self._consumed_by is None
        return other

    def __iter__(self) -> Iterator[str]:
        return iter(public_names(self.layout.types))

    def __len__(self) -> int:
        return len(public_names(self.layout.types))

    def __repr__(self) -> str:
        return f"<State of {len(self)} variables" + (", consumed>" if self._consumed_by else ">")
