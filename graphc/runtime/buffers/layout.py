"""How state lies in memory: which buffers there are, and where in them each variable is.

No user sees it. A variable has a buffer of its own, or shares one with others: several of one
type lie side by side on a leading axis ("stacked"), small ones of one dtype one after the other,
raveled ("flat").
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
    """Variables that are to share a buffer, in their order there.

    `kind` is "stacked" or "flat".
    """

    kind: str
    members: tuple[str, ...]


class Slot(NamedTuple):
    """Where a variable lies: the number of its buffer in the layout, and which of that buffer's
    members it is; None where it is the whole of the buffer."""

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
        """Unique in a layout: the variable's, or one made of the first member's."""
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
        """Where each member begins: its index if stacked, its first element if flat."""
        if self.kind != FLAT:
            return tuple(range(len(self.members)))
        found, at = [], 0
        for type in self.types:
            found.append(at)
            at += elements(type)
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """As plain values, which `from_json` reads back."""
        return {
            "kind": self.kind,
            "members": list(self.members),
            "types": [str(type) for type in self.types],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Buffer:
        """The buffer that `to_json` wrote."""
        parsed = {text: parse_type(text) for text in set(data["types"])}  # many are alike
        types = tuple(parsed[text] for text in data["types"])
        return Buffer(data["kind"], tuple(data["members"]), types)


def elements(type: TensorType) -> int:
    """How many elements a value of a bound type has."""
    return math.prod(dim for dim in type.shape if isinstance(dim, int))


def groups_of(buffers: Iterable[Buffer]) -> list[Group]:
    """The groups that make these buffers of a layout that has not got them."""
    return [Group(b.kind, b.members) for b in buffers if b.kind != OWN]


class StateLayout:
    """The buffers of all variables of a graph, hidden ones included. Immutable.

    Args:
        types: of the variables by name; their order is that of `State` as a mapping.
        buffers: each variable is in one; by default each has its own.
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
            raise StateError(f"a layout has a buffer and a type for each variable, not so: {odd}")
        self.slots: Mapping[str, Slot] = {name: places[name] for name in self.types}

    # -- looking up -------------------------------------------------------------------------

    def slot(self, name: str) -> Slot:
        """Where a variable lies.

        Raises:
            UnknownNameError: there is none of this name; the nearest one is suggested.
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
        """Which of the layout's buffers this is; None where it has no such buffer."""
        return self._numbers.get(buffer)

    def has(self, buffers: Iterable[Buffer]) -> bool:
        """Whether each of these is a buffer of the layout."""
        return all(buffer in self._numbers for buffer in buffers)

    # -- growing ----------------------------------------------------------------------------

    def with_variables(self, types: Mapping[str, TensorType]) -> StateLayout:
        """With these variables too, those that are new in buffers of their own at the end."""
        new = [Buffer.own(name, type) for name, type in types.items() if name not in self.types]
        return StateLayout({**self.types, **types}, (*self.buffers, *new)) if new else self

    def with_groups(self, groups: Iterable[Group]) -> StateLayout:
        """With buffers for these groups, each in the place of those it swallows.

        A group that shares only a part of some buffer there is, is dropped: programs adapt to
        the layout. So is one of variables that are not there or do not fit together.
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
        return Buffer(group.kind, group.members, types)

    def with_buffers(self, buffers: Iterable[Buffer]) -> StateLayout:
        """With these buffers; of those they overlap, what is left over gets buffers of its own."""
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
        """With a buffer of its own for each variable of a buffer whose members lie on several
        devices.

        Args:
            homes: the devices of variables, by name.
        """
        mixed = [b for b in self.buffers if len({homes[m] for m in b.members if m in homes}) > 1]
        rows = [(m, t) for b in mixed for m, t in zip(b.members, b.types, strict=True)]
        return self.with_buffers([Buffer.own(*row) for row in rows]) if rows else self

    def touched(self, names: Iterable[str]) -> list[Buffer]:
        """The buffers that these variables are in, in the layout's order."""
        numbers = {self.slots[name].buffer for name in names if name in self.slots}
        return [self.buffers[number] for number in sorted(numbers)]

    def __repr__(self) -> str:
        return f"<StateLayout of {len(self.types)} variables in {len(self.buffers)} buffers>"


def public_names(names: Iterable[str]) -> list[str]:
    """The names that users see: not those of hidden state."""
    return [name for name in names if not name.startswith("__")]
