"""The state of a session: variables by name, in buffers that its executables work on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.copying import Uncopied
from graphc.errors import UnknownNameError, nearest
from graphc.ir.graph import Graph
from graphc.ir.source import current_source
from graphc.ir.variable import Variable
from graphc.runtime.executors import place_on
from graphc.runtime.feeds import variable_value
from graphc.runtime.initial import initial_values, state_types
from graphc.runtime.layout import Buffer, Slot, StateLayout, public_names
from graphc.runtime.packing import pack, put, repack, take, unpack
from graphc.runtime.state import State

Array = np.ndarray[Any, Any]


class LiveState(Uncopied):
    """The current values of a graph's variables.

    Attributes:
        layout: how they lie.
        buffers: in the order of the layout, each on the host until an executable that touches it
            says where. Executables put new ones in their places.
        shared: whether others hold the buffers too, so that none is written over.
    """

    instead = "send session.values()"

    def __init__(self, graph: Graph) -> None:
        self.layout = StateLayout({})
        self.buffers: list[Any] = []
        self.shared = False
        self._graph = graph
        self._homes: dict[Buffer, jax.sharding.Sharding] = {}

    # -- where it lies ----------------------------------------------------------------------

    def grow(self) -> None:
        """Adds the variables that the graph got since (all of them, the first time)."""
        layout = self.layout.with_variables(state_types(self._graph))
        if layout is self.layout:
            return
        values = initial_values(self._graph)
        new = layout.buffers[len(self.layout.buffers) :]
        self.buffers += [pack(buffer, values) for buffer in new]
        self.layout = layout

    def move(self, layout: StateLayout, homes: Mapping[Buffer, jax.sharding.Sharding]) -> None:
        """Puts the values into the buffers of another layout of the same variables.

        Args:
            homes: where an executable wants the buffers that it touches.
        """
        self._homes.update(homes)
        moved = repack(self.layout, self.buffers, layout, None)
        rows = zip(moved, layout.buffers, strict=True)
        self.buffers[:] = [self._placed(value, buffer) for value, buffer in rows]
        self.layout = layout

    def agrees(self, homes: Mapping[Buffer, jax.sharding.Sharding]) -> bool:
        """Whether these buffers lie where an executable wants them."""
        return all(self._homes.get(buffer) == home for buffer, home in homes.items())

    def _placed(self, value: Any, buffer: Buffer) -> Any:
        home = self._homes.get(buffer)
        if home is None or (isinstance(value, jax.Array) and value.sharding == home):
            return value
        return place_on(value, home)

    # -- by name ----------------------------------------------------------------------------

    def get(self, name: str | Variable) -> jax.Array:
        """A copy of one value: see `Session.get`."""
        _, slot = self._slot(name)
        value = self.buffers[slot.buffer]
        if slot.member is not None:
            return take(value, self.layout.buffers[slot.buffer], slot.member)
        with jax.enable_x64(True):
            return jnp.array(value, copy=True)

    def values(self) -> dict[str, Array]:
        """A copy of every value on the host."""
        found: dict[str, Any] = {}
        for buffer, value in zip(self.layout.buffers, self.buffers, strict=True):
            found.update(unpack(buffer, np.array(value)))
        return {name: found[name] for name in self._graph.variables}

    def copy(self) -> State:
        """All of it, as an executable takes it."""
        with jax.enable_x64(True):
            return State(self.layout, [jnp.array(buffer, copy=True) for buffer in self.buffers])

    def set(self, values: Mapping[Any, Any]) -> None:
        """New values of some variables, one write for each buffer: see `Session.set_all`."""
        by_buffer: dict[int, dict[str, Array]] = {}
        for name, value in values.items():
            found, slot = self._slot(name)
            by_buffer.setdefault(slot.buffer, {})[found] = self._checked(found, value)
        for number, members in by_buffer.items():
            self.buffers[number] = self._written(number, members)

    def _written(self, number: int, members: Mapping[str, Array]) -> Any:
        """A buffer with new values of some of its members."""
        buffer, old = self.layout.buffers[number], self.buffers[number]
        if len(members) == 1 < len(buffer.members):
            ((name, value),) = members.items()
            return put(old, buffer, buffer.members.index(name), value, donate=not self.shared)
        if len(members) < len(buffer.members):
            members = {**unpack(buffer, old), **members}
        return self._placed(pack(buffer, members), buffer)

    def _slot(self, name: str | Variable) -> tuple[str, Slot]:
        found = name.name if isinstance(name, Variable) else name
        if found not in self.layout.types:
            raise UnknownNameError(
                f"no variable {found!r} in graph {self._graph.name!r}",
                source=current_source(),
                mend=nearest(found, public_names(self.layout.types)),
            )
        return found, self.layout.slot(found)

    def _checked(self, name: str, value: Any) -> Array:
        """A value that somebody sets, as an array of the variable's type.

        Raises:
            ShapeError, DTypeError: it does not fit.
        """
        variable = self._graph.variables.get(name)
        source = variable.source if variable is not None else None
        return np.asarray(variable_value(name, self.layout.types[name], value, source))
