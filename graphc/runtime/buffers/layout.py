"""The memory layout of state: the buffers, and the position of each variable in them.

Users do not see it. A variable has its own buffer or shares one with others. Variables of one type
may be stacked along a leading axis ("stacked"). Small variables of one dtype may be raveled and
joined ("flat").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from graphc.errors import StateError, UnknownNameError, nearest
from graphc.ir.types import TensorType, parse_type

OWN, STACKED, FLAT = KINDS = ("own", "stacked", "flat")


class Group(NamedTuple):
    """Variables that are to share a buffer, in their order in the buffer.

    `kind` is "stacked" or "flat".
    """

    kind: str
    members: tuple[str, ...]


class Slot(NamedTuple):
    """The position of a variable: the index of its buffer in the layout, and its index among the
    members of the buffer. The latter is None if the variable has its own buffer."""

    buffer: int
    member: int | None


@dataclass(frozen=True)
class Buffer:
    """One array of state.

    Attributes:
        kind: "own", "stacked" or "flat".
        members: the variables in it, in order.
        types: their types.
    """

    kind: str
    members: tuple[str, ...]
    types: tuple[TensorType, ...] = field(repr=False)

    @staticmethod
    def own(name: str, type: TensorType) -> Buffer:
        """The buffer of one variable."""
        return Buffer(OWN, (name,), (type,))

    @cached_property
    def name(self) -> str:
        """The name, unique in a layout: the variable's name, or one derived from the first
        member's name."""
        first = self.members[0]
        return first if self.kind == OWN else f"{self.kind}:{first}+{len(self.members) - 1}"

    @cached_property
    def type(self) -> TensorType:
        """The type of the whole buffer."""
        first = self.types[0]
        if self.kind == OWN:
            return first
        if self.kind == STACKED:
            return TensorType(first.dtype, (len(self.members), *first.shape))
        return TensorType(first.dtype, (self.starts[-1] + elements(self.types[-1]),))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The start of each member: its index if stacked, its first element if flat."""
        if self.kind != FLAT:
            return tuple(range(len(self.members)))
        found, at = [], 0
        for type in self.types:
            found.append(at)
            at += elements(type)
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """The buffer as plain values for `from_json`."""
        return {
            "kind": self.kind,
            "members": list(self.members),
            "types": [str(type) for type in self.types],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Buffer:
        """The buffer that `to_json` wrote."""
        parsed = {text: parse_type(text) for text in set(data["types"])}  # many are equal
        types = tuple(parsed[text] for text in data["types"])
        return Buffer(data["kind"], tuple(data["members"]), types)


def elements(type: TensorType) -> int:
    """The number of elements of a value of a bound type."""
    return math.prod(dim for dim in type.shape if isinstance(dim, int))


def groups_of(buffers: Iterable[Buffer]) -> list[Group]:
    """The groups that add these buffers to a layout without them."""
    return [Group(b.kind, b.members) for b in buffers if b.kind != OWN]


class StateLayout:
    """The buffers of all variables of a graph, hidden ones included. Immutable.

    Args:
        types: the types of the variables by name, in the order of `State` as a mapping.
        buffers: each variable is in exactly one; by default each variable has its own.
    """

    __slots__ = ("__weakref__", "_numbers", "buffers", "slots", "types")

    def __init__(
        self, types: Mapping[str, TensorType], buffers: Sequence[Buffer] | None = None
    ) -> None:
        self.types: Mapping[str, TensorType] = dict(types)
        if buffers is None:
            buffers = [Buffer.own(name, type) for name, type in types.items()]
        self.buffers = tuple(buffers)
        self._numbers = {buffer: i for i, buffer in enumerate(self.buffers)}
        places = {
            name: Slot(i, None if buffer.kind == OWN else member)
            for i, buffer in enumerate(self.buffers)
            for member, name in enumerate(buffer.members)
        }
        if places.keys() != self.types.keys():
            odd = ", ".join(sorted(map(repr, places.keys() ^ self.types.keys())))
            raise StateError(f"a layout needs a buffer and a type for each variable; not so: {odd}")
        self.slots: Mapping[str, Slot] = {name: places[name] for name in self.types}

    # -- looking up -------------------------------------------------------------------------

    def slot(self, name: str) -> Slot:
        """The position of a variable.

        Raises:
            UnknownNameError: no variable has this name. The error suggests the nearest one.
        """
        found = self.slots.get(name)
        if found is None:
            raise UnknownNameError(
                f"no variable {name!r} in the state", hint=nearest(name, public_names(self.slots))
            )
        return found

    def buffer_of(self, name: str) -> Buffer:
        """The buffer a variable is in."""
        return self.buffers[self.slot(name).buffer]

    def number(self, buffer: Buffer) -> int | None:
        """The index of a buffer in the layout; None if the layout does not have it."""
        return self._numbers.get(buffer)

    def has(self, buffers: Iterable[Buffer]) -> bool:
        """Whether each of these is a buffer of the layout."""
        return all(buffer in self._numbers for buffer in buffers)

    # -- growing ----------------------------------------------------------------------------

    def with_variables(self, types: Mapping[str, TensorType]) -> StateLayout:
        """The layout with these variables. New variables get their own buffers at the end."""
        new = [Buffer.own(name, type) for name, type in types.items() if name not in self.types]
        return StateLayout({**self.types, **types}, (*self.buffers, *new)) if new else self

    def with_groups(self, groups: Iterable[Group]) -> StateLayout:
        """The layout with buffers for these groups. Each replaces the buffers of its members.

        A group is dropped if it has only a part of an existing buffer, or all of it in another
        order, because programs adapt to the layout. Otherwise two programs could move the state in
        turns. It is also dropped if its variables do not exist or do not fit together.
        """
        layout, new = self, dict[str, Buffer]()  # by member: as many as possible at once
        for group in groups:
            if not new.keys().isdisjoint(group.members):
                layout, new = layout.with_buffers(dict.fromkeys(new.values())), {}
            buffer = layout._fitting(group)
            if buffer is not None and layout.number(buffer) is None:
                new.update(dict.fromkeys(buffer.members, buffer))
        return layout.with_buffers(dict.fromkeys(new.values())) if new else layout

    def _fitting(self, group: Group) -> Buffer | None:
        members = set(group.members)
        if len(members) != len(group.members) or not members <= self.types.keys():
            return None
        types = tuple(self.types[name] for name in group.members)
        alike = {type if group.kind == STACKED else type.dtype for type in types}
        swallowed = {self.buffer_of(name) for name in members}
        if len(alike) != 1 or not all(members.issuperset(old.members) for old in swallowed):
            return None
        if any(old.kind == group.kind and members == set(old.members) for old in swallowed):
            return None
        return Buffer(group.kind, group.members, types)

    def with_buffers(self, buffers: Iterable[Buffer]) -> StateLayout:
        """The layout with these buffers. If one overlaps an old buffer, the remaining members of
        the old buffer get their own buffers."""
        added = {member: buffer for buffer in buffers for member in buffer.members}
        result: dict[Buffer, None] = {}
        for old in self.buffers:
            if added.keys().isdisjoint(old.members):
                result[old] = None
                continue
            for member, type in zip(old.members, old.types, strict=True):
                result[added.get(member) or Buffer.own(member, type)] = None
        return StateLayout(self.types, tuple(result))

    def parted(self, homes: Mapping[str, str]) -> StateLayout:
        """The layout in which buffers with members on several devices are split: each member gets
        its own buffer.

        Args:
            homes: the devices of variables, by name.
        """
        mixed = [b for b in self.buffers if len({homes[m] for m in b.members if m in homes}) > 1]
        rows = [(m, t) for b in mixed for m, t in zip(b.members, b.types, strict=True)]
        return self.with_buffers([Buffer.own(*row) for row in rows]) if rows else self

    def touched(self, names: Iterable[str]) -> list[Buffer]:
        """The buffers of these variables, in the layout's order."""
        numbers = {self.slots[name].buffer for name in names if name in self.slots}
        return [self.buffers[number] for number in sorted(numbers)]

    def __repr__(self) -> str:
        return f"<StateLayout of {len(self.types)} variables in {len(self.buffers)} buffers>"


def public_names(names: Iterable[str]) -> list[str]:
    """The names that users see, without those of hidden state."""
    return [name for name in names if not name.startswith("__")]
