"""How values flow through repeated nodes: what a loop over them would carry, take and share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphc.ir.dims import product
from graphc.ir.node import Node, Tensor

_UNKNOWN = 1 << 20  # elements of a tensor with a named size


@dataclass(frozen=True)
class Inner:
    """Result `result` of the node at `place` of the same turn."""

    place: int
    result: int


@dataclass(frozen=True)
class Carried:
    """Carry `index`: the same result of the turn before, or what came from outside at first."""

    index: int


@dataclass(frozen=True)
class Invariant:
    """Invariant `index`: the same outer tensor in every turn."""

    index: int


@dataclass(frozen=True)
class Stacked:
    """Stack `index`: another outer tensor in each turn."""

    index: int


Operand = Inner | Carried | Invariant | Stacked


@dataclass(frozen=True)
class Carry:
    """What the first turn takes, and which result of a turn the next one takes."""

    initial: Tensor
    following: Inner


class Recurrence(NamedTuple):
    """Turns of nodes that do the same, one after the other.

    Attributes:
        begin: where the first node stands among those that were searched.
        turns: the nodes, a row for each turn.
        operands: for each node of a turn, what each of its operands is.
        carries, invariants, stacks: what comes from outside the turn. A stack has one tensor
            for each turn.
    """

    begin: int
    turns: list[Sequence[Node]]
    operands: list[list[Operand]]
    carries: list[Carry]
    invariants: list[Tensor]
    stacks: list[tuple[Tensor, ...]]

    def part(self, first: int, last: int) -> Recurrence:
        """The recurrence of turns `first` to `last` alone, two or more of them."""
        (found,) = recurrences(self.turns[first : last + 1], self.begin + first * self.period)
        return found

    @property
    def period(self) -> int:
        """How many nodes a turn has."""
        return len(self.operands)

    @property
    def saved(self) -> int:
        """How many nodes are left out where one turn stands for all."""
        return (len(self.turns) - 1) * self.period


# Where an operand comes from, seen from its turn: (turns back, place, result), None for outside.
_Origin = tuple[int, int, int] | None


def recurrences(turns: Sequence[Sequence[Node]], begin: int = 0) -> list[Recurrence]:
    """The longest stretches of `turns`, of nodes alike in kind, that a loop could run.

    `begin` is the place of the first node.

    In each, an operand is in every turn a value of the same turn, of the turn before, or of
    outside. Stretches do not overlap, and have two turns or more.
    """
    made: dict[Tensor, tuple[int, int, int]] = {}
    for k, turn in enumerate(turns):
        for place, node in enumerate(turn):
            for result, tensor in enumerate(node.outputs):
                made[tensor] = (k, place, result)
    origins = [_origins(turn, k, made) for k, turn in enumerate(turns)]
    found = []
    first = 0
    while first < len(turns) - 1:
        last = _stretch(origins, first)
        if last == first:
            first += 1
            continue
        place = begin + first * len(turns[0])
        found.append(_classify(place, turns[first : last + 1], origins[first + 1]))
        first = last + 1
    return found


def _origins(
    turn: Sequence[Node], k: int, made: dict[Tensor, tuple[int, int, int]]
) -> list[_Origin]:
    row: list[_Origin] = []
    for node in turn:
        for tensor in node.inputs:
            home = made.get(tensor)
            row.append(None if home is None else (k - home[0], home[1], home[2]))
    return row


def _stretch(origins: Sequence[list[_Origin]], first: int) -> int:
    """The last turn of the stretch that begins with turn `first`."""
    if first + 1 >= len(origins) or not _may_begin(origins[first], origins[first + 1]):
        return first
    second = origins[first + 1]
    last = first + 1
    if any(o is not None and o[0] > 1 for o in second):
        return last  # a value of two turns back: outside for these two, inside for a third
    while last + 1 < len(origins) and origins[last + 1] == second:
        last += 1
    return last


def _may_begin(row: list[_Origin], following: list[_Origin]) -> bool:
    """Whether a turn of origins `row` can be the first before turns of origins `following`.

    It takes a carry from anywhere before it; all else as they do.
    """
    for own, other in zip(row, following, strict=True):
        inside = own is not None and own[0] == 0
        if other is None or other[0] > 1:
            if inside:
                return False
        elif other[0] == 0:
            if own != other:
                return False
        elif inside:  # a carry that the first turn would have to make itself
            return False
    return True


def _classify(begin: int, turns: Sequence[Sequence[Node]], origins: list[_Origin]) -> Recurrence:
    """The recurrence of `turns`, given the origins of its second turn's operands."""
    carries: dict[Carry, int] = {}
    invariants: dict[Tensor, int] = {}
    stacks: dict[tuple[Tensor, ...], int] = {}
    operands: list[list[Operand]] = []
    origin = iter(origins)
    for place, node in enumerate(turns[0]):
        row: list[Operand] = []
        for slot in range(len(node.inputs)):
            home = next(origin)
            if home is not None and home[0] == 0:
                row.append(Inner(home[1], home[2]))
            elif home is not None and home[0] == 1:
                carry = Carry(node.inputs[slot], Inner(home[1], home[2]))
                row.append(Carried(carries.setdefault(carry, len(carries))))
            else:
                tensors = tuple([turn[place].inputs[slot] for turn in turns])
                if all(t is tensors[0] for t in tensors):
                    row.append(Invariant(invariants.setdefault(tensors[0], len(invariants))))
                else:
                    row.append(Stacked(stacks.setdefault(tensors, len(stacks))))
        operands.append(row)
    return Recurrence(begin, list(turns), operands, list(carries), list(invariants), list(stacks))


def elements_in(tensor: Tensor) -> int:
    """How many elements a tensor has, or an estimate."""
    size = product(tensor.type.shape)
    return size if isinstance(size, int) else _UNKNOWN
