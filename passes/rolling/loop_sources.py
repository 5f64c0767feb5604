"""What a loop in place of repeated nodes takes stacked from where, and what it can stack itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from graphc.ir.node import Node, Tensor, same_items
from graphc.passes.rolling.recurrence import Inner, Recurrence

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Entering:
    """Carry `index` as each turn takes it."""

    index: int


# What a loop can stack for others: a value made in a turn, or a carry as it enters one.
Kept = Inner | Entering


@dataclass(eq=False)
class Loop:
    """A recurrence to become a `Scan`.

    Attributes:
        unroll: how many turns are compiled as one.
        reverse: the first turn takes the last slice of every stack.
        kept: what the loop stacks, in the order of the results.
        loose: of what it stacks, the turns whose slices somebody needs by themselves.
        xs: where each of its stacks comes from, set when it is known.
    """

    found: Recurrence
    unroll: int = 1
    reverse: bool = False
    kept: dict[Kept, None] = field(default_factory=dict)
    loose: dict[Kept, set[int]] = field(default_factory=dict)
    xs: list[Found] = field(default_factory=list)

    @property
    def turns(self) -> int:
        return len(self.found.turns)

    def stored(self, tensors: Tensors) -> Tensors:
        """The tensors of the turns in the order in which the loop stacks them."""
        return tensors[::-1] if self.reverse else tensors

    def made(self, what: Kept) -> Tensors:
        """The tensors that `what` is in the turns, in the order in which they are stacked."""
        turns = self.found.turns
        if isinstance(what, Inner):
            return self.stored(tuple([t[what.place].outputs[what.result] for t in turns]))
        carry = self.found.carries[what.index]
        made = carry.following
        later = [turn[made.place].outputs[made.result] for turn in turns[:-1]]
        return self.stored((carry.initial, *later))


@dataclass(eq=False)
class Source:
    """A stack of tensors: what the loop `maker` stacks; the operand of `apart`, an `Unstack`; or,
    with neither, made by a `Stack`."""

    tensors: Tensors
    maker: tuple[Loop, Kept] | None = None
    apart: Node | None = None


class Found(NamedTuple):
    """A stack found as a part of a source, in its order or backwards."""

    source: Source
    start: int
    length: int
    backwards: bool


# The operands of a `Stack`: parts of stacks of loops, and single tensors.
Join = list[Found | Tensor]


class Sources:
    """The stacks there are, found by what is in them."""

    def __init__(self) -> None:
        self._places: dict[Tensor, list[tuple[Source, int]]] = {}

    def add(self, source: Source) -> None:
        for i, tensor in enumerate(source.tensors):
            self._places.setdefault(tensor, []).append((source, i))

    def find(self, tensors: Tensors) -> Found | None:
        """Where these stand side by side, in this order."""
        for source, i in self._places.get(tensors[0], ()):
            if same_items(source.tensors[i : i + len(tensors)], tensors):
                return Found(source, i, len(tensors), False)
        return None

    def find_either(self, tensors: Tensors) -> Found | None:
        """The same, or else where they stand side by side backwards."""
        found = self.find(tensors)
        if found is None:
            backwards = self.find(tensors[::-1])
            found = backwards and backwards._replace(backwards=True)
        return found

    def parts(self, tensors: Tensors) -> Join:
        """The tensors one after the other, as parts of what loops stack where these hold two or
        more."""
        parts: Join = []
        while tensors:
            found = max(
                filter(None, self._longest(tensors)), key=attrgetter("length"), default=None
            )
            parts.append(tensors[0] if found is None else found)
            tensors = tensors[1 if found is None else found.length :]
        return parts

    def _longest(self, tensors: Tensors) -> Iterator[Found | None]:
        """For each place of the first tensor in a loop's stack, how far the others follow there."""
        for source, place in self._places.get(tensors[0], ()):
            if source.maker is None:
                continue
            for step in (1, -1):
                last = place
                count = 1
                while (
                    count < len(tensors)
                    and 0 <= last + step < len(source.tensors)
                    and source.tensors[last + step] is tensors[count]
                ):
                    last, count = last + step, count + 1
                if count > 1:
                    yield Found(source, min(place, last), count, step < 0)
