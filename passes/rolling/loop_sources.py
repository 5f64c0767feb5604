"""The sources of the stacks that a loop takes, and the stacks that a loop can return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from graphc.ir.node import Node, Tensor, same_items
from graphc.passes.rolling.recurrence import Carried, Inner, Recurrence

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Entering:
    """Carry `index` as it enters each iteration."""

    index: int


# What a loop can stack: a value computed in an iteration, or a carry as it enters one.
Kept = Inner | Entering


@dataclass(eq=False)
class Loop:
    """A recurrence to become a `Scan`.

    Attributes:
        unroll: how many iterations are compiled as one.
        reverse: whether the first iteration takes the last slice of every stack.
        kept: the values that the loop stacks, in the order of the results.
        loose: for stacked values, the iterations whose slices are used individually.
        xs: the source of each of its stacks; set when it is known.
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
        """The tensors of the iterations in the order in which the loop stacks them."""
        return tensors[::-1] if self.reverse else tensors

    def made(self, what: Kept) -> Tensors:
        """The tensors of `what` in all iterations, in the order in which they are stacked."""
        turns = self.found.turns
        if isinstance(what, Inner):
            return self.stored(tuple([t[what.place].outputs[what.result] for t in turns]))
        return self.stored(self._entering(what.index))

    def last(self, index: int) -> Tensor:
        """The value of carry `index` after the last iteration."""
        made = self.found.carries[index].following
        if isinstance(made, Carried):
            return self._entering(made.index)[-1]
        return self.found.turns[-1][made.place].outputs[made.result]

    def _entering(self, index: int) -> Tensors:
        """Carry `index` as it enters the iterations, from the first to the last."""
        carry = self.found.carries[index]
        made = carry.following
        if isinstance(made, Carried):
            return (carry.initial, *self._entering(made.index)[:-1])
        later = [turn[made.place].outputs[made.result] for turn in self.found.turns[:-1]]
        return (carry.initial, *later)


@dataclass(eq=False)
class Source:
    """A stack of tensors: a stack returned by the loop `maker`; the operand of `apart`, an
    `Unstack`; or, if both are None, the result of a `Stack`."""

    tensors: Tensors
    maker: tuple[Loop, Kept] | None = None
    apart: Node | None = None


class Found(NamedTuple):
    """A stack found as a part of a source, in the same or in reverse order."""

    source: Source
    start: int
    length: int
    backwards: bool


# The operands of a `Stack`: parts of stacks of loops, and single tensors.
Join = list[Found | Tensor]


class Sources:
    """The existing stacks, indexed by the tensors that they contain."""

    def __init__(self) -> None:
        self._places: dict[Tensor, list[tuple[Source, int]]] = {}

    def add(self, source: Source) -> None:
        for i, tensor in enumerate(source.tensors):
            self._places.setdefault(tensor, []).append((source, i))

    def find(self, tensors: Tensors) -> Found | None:
        """Finds a stack in which the tensors are adjacent, in this order."""
        for source, i in self._places.get(tensors[0], ()):
            if same_items(source.tensors[i : i + len(tensors)], tensors):
                return Found(source, i, len(tensors), False)
        return None

    def find_either(self, tensors: Tensors) -> Found | None:
        """Like `find`, but if there is none, also finds the tensors in reverse order."""
        found = self.find(tensors)
        if found is None:
            backwards = self.find(tensors[::-1])
            found = backwards and backwards._replace(backwards=True)
        return found

    def parts(self, tensors: Tensors) -> Join:
        """Splits the tensors into parts of stacks returned by loops, if two or more are adjacent
        there, and single tensors."""
        parts: Join = []
        while tensors:
            found = max(
                filter(None, self._longest(tensors)), key=attrgetter("length"), default=None
            )
            parts.append(tensors[0] if found is None else found)
            tensors = tensors[1 if found is None else found.length :]
        return parts

    def _longest(self, tensors: Tensors) -> Iterator[Found | None]:
        """For each position of the first tensor in a loop's stack, how far the others follow
        there."""
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
