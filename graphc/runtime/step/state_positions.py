"""`StatePositions`: where the buffers that a step uses are in states of any layout."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from graphc.errors import StateError
from graphc.runtime.buffers.layout import Buffer, StateLayout
from graphc.runtime.state.state import State
from graphc.runtime.targets.executors import Places
from graphc.runtime.targets.interface import Interface


class StatePositions:
    """Finds the buffers of one step in states.

    Args:
        interface: the buffers that the step uses.
        layout: the expected layout of states.
        home: gives the sharding of a buffer.

    Attributes:
        own: the expected layout, and the positions in it. One attribute, because another thread may
            replace both values.
    """

    def __init__(
        self, interface: Interface, layout: StateLayout, home: Callable[[Buffer], Any]
    ) -> None:
        self._interface = interface
        self._home = home
        self.own = layout, Places.of(interface, layout)
        self._elsewhere: WeakKeyDictionary[StateLayout, Places] = WeakKeyDictionary()
        self._lock = Lock()  # of `_elsewhere`

    def of(self, state: State) -> Places:
        """The positions in `state`. A state that lacks the buffers is moved into them.

        Raises:
            StateError: a variable is missing or has another type.
        """
        layout, places = self.own
        return places if state.layout is layout else self._in_other(state)

    def _in_other(self, state: State) -> Places:
        """The positions in a state of another layout than the expected one."""
        with self._lock:
            found = self._elsewhere.get(state.layout)
        if found is None:
            self._check(state.layout)
            if not state.layout.has(self._interface.buffers):
                own, wanted = self.own[0], state.layout.with_buffers(self._interface.buffers)
                agrees = wanted.buffers == own.buffers and wanted.types == own.types
                state.rearrange(own if agrees else wanted, self._home)
            found = Places.of(self._interface, state.layout)
            with self._lock:
                self._elsewhere[state.layout] = found
        return found

    def _check(self, layout: StateLayout) -> None:
        """Checks that a state has all variables that the step uses, with the same types.

        Raises:
            StateError: a variable is missing or has another type.
        """
        for buffer in self._interface.buffers:
            for name, type in zip(buffer.members, buffer.types, strict=True):
                found = layout.types.get(name)
                if found != type:
                    raise StateError(
                        f"this step takes {name!r} as {type}, and the state "
                        + ("has no such variable" if found is None else f"has it as {found}"),
                        hint="start from this step's own init(), or from a state of the same "
                        "graph that was made after its last variable",
                    )

    def move_to(self, layout: StateLayout) -> bool:
        """Makes `layout` the expected layout. Returns False if it lacks a buffer of the step."""
        if not layout.has(self._interface.buffers):
            return False
        self.own = layout, Places.of(self._interface, layout)
        return True
