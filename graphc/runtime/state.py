"""State behind names: a variable's value is a (buffer, index) that no user sees.

Today every variable has a buffer of its own; small variables may come to share one, and the
parameters of repeated blocks may become slices of one, without a change of what is public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.errors import DTypeError, ShapeError, StateError, UnknownNameError, nearest
from graphc.ir.types import TensorType


@dataclass(frozen=True)
class Slot:
    """Where a variable lies: the number of its buffer, and its place on the leading axis of
    that buffer, or None where it is the whole of it."""

    buffer: int
    index: int | None = None


class StateLayout:
    """The slots and types of all variables of a graph, hidden ones included."""

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        self.types = dict(types)
        self.slots = {name: Slot(i) for i, name in enumerate(self.types)}

    def slot(self, name: str) -> Slot:
        found = self.slots.get(name)
        if found is None:
            raise UnknownNameError(
                f"no variable {name!r} in the state", mend=nearest(name, public_names(self.slots))
            )
        return found


def public_names(names: Mapping[str, Any]) -> list[str]:
    """The names that users see: not those of hidden state."""
    return [name for name in names if not name.startswith("__")]


class State(Mapping[str, jax.Array]):
    """The values of all variables at one moment; reads like a mapping from name to array.

    An executable that assigns variables consumes the state it is given and gives a new one.
    """

    def __init__(self, layout: StateLayout, buffers: list[jax.Array]) -> None:
        self.layout = layout
        self._buffers = buffers
        self._consumed_by: str | None = None
        self._shares = False  # some buffers with another state, which may be consumed

    @property
    def buffers(self) -> list[jax.Array]:
        """The physical buffers, for executors.

        Raises:
            StateError: the state was consumed.
        """
        if self._consumed_by is not None:
            raise StateError(
                f"this state was consumed by {self._consumed_by}",
                mend="go on with the state that call returned; options=CompileOptions("
                "donate=False) keeps the old one alive",
            )
        if self._shares and any(buffer.is_deleted() for buffer in self._buffers):
            raise StateError(
                "this state shares variables with one that was consumed by a step",
                mend="go on with the state that the step returned",
            )
        return self._buffers

    def consume(self, by: str) -> None:
        """Marks the state as given away."""
        self._consumed_by = by

    def __getitem__(self, name: str) -> jax.Array:
        slot = self.layout.slot(name)
        buffer = self.buffers[slot.buffer]
        return buffer if slot.index is None else buffer[slot.index]

    def with_value(self, name: str, value: jax.Array) -> State:
        """A state that differs in one variable; this one stays valid until a step consumes one.

        Raises:
            UnknownNameError: no such variable.
            ShapeError, DTypeError: the value is not of its type.
        """
        slot = self.layout.slot(name)
        type = self.layout.types[name]
        shape, dtype = np.shape(value), getattr(value, "dtype", None)
        if shape != type.shape or dtype != type.dtype:
            error = ShapeError if shape != type.shape else DTypeError
            raise error(f"variable {name!r} is {type}, the value {dtype} of shape {shape}")
        buffers = list(self.buffers)
        old = buffers[slot.buffer]
        with jax.enable_x64(True):
            if slot.index is None:
                buffers[slot.buffer] = jax.device_put(jnp.array(value, copy=True), old.sharding)
            else:
                buffers[slot.buffer] = old.at[slot.index].set(value)
        return self.followed_by(buffers)

    def followed_by(self, buffers: list[jax.Array]) -> State:
        """A state of the same layout, some of whose buffers may be this one's."""
        other = State(self.layout, buffers)
        self._shares = other._shares = self._consumed_by is None
        return other

    def __iter__(self) -> Iterator[str]:
        return iter(public_names(self.layout.slots))

    def __len__(self) -> int:
        return len(public_names(self.layout.slots))

    def __repr__(self) -> str:
        return f"<State of {len(self)} variables" + (", consumed>" if self._consumed_by else ">")
