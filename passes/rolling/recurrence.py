"""Data flow through repeated nodes: the carries, stacks and shared values of a loop over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import is_
from typing import NamedTuple

from graphc.ir.dims import product
from graphc.ir.node import Node, Tensor

_UNKNOWN = 1 << 20  # assumed elements of a tensor with a named size


@dataclass(frozen=True)
class Inner:
    """Result `result` of the node at `place` of the same iteration."""

    place: int
    result: int


@dataclass(frozen=True)
class Carried:
    """Carry `index`: a result of the previous iteration or of the one before it, or at first a
    value from outside."""

    index: int


@dataclass(frozen=True)
class Invariant:
    """Invariant `index`: the same outer tensor in every iteration."""

    index: int


@dataclass(frozen=True)
class Stacked:
    """Stack `index`: a different outer tensor in each iteration."""

    index: int


Operand = Inner | Carried | Invariant | Stacked


@dataclass(frozen=True)
class Carry:
    """The initial value, and the value of an iteration that the next one takes: a result, or
    another carry as it entered the iteration, which is then a result from two iterations back."""

    initial: Tensor
    following: Inner | Carried


class Recurrence(NamedTuple):
    """Consecutive iterations of nodes with the same operations.

    Attributes:
        begin: the position of the first node among those that were searched.
        turns: the nodes, one row for each iteration.
        operands: for each node of an iteration, what each of its operands is.
        carries, invariants, stacks: the values from outside the iteration. A stack has one tensor
            for each iteration.
    """

    begin: int
    turns: list[Sequence[Node]]
    operands: list[list[Operand]]
    carries: list[Carry]
    invariants: list[Tensor]
    stacks: list[tuple[Tensor, ...]]

    def part(self, first: int, last: int) -> Recurrence:
        """The recurrence of only the iterations `first` to `last`, two or more of them."""
        (found,) = recurrences(self.turns[first : last + 1], self.begin + first * self.period)
        return found

    @property
    def period(self) -> int:
        """The number of nodes in an iteration."""
        return len(self.operands)

    @property
    def saved(self) -> int:
        """The number of nodes saved if one iteration represents all."""
        return (len(self.turns) - 1) * self.period


# The origin of an operand: (iterations back, place, result), or None for a value from outside.
_Origin = tuple[int, int, int] | None


def recurrences(turns: Sequence[Sequence[Node]], begin: int = 0) -> list[Recurrence]:
    """The longest ranges of `turns`, whose nodes are equal in kind, that a loop could run.

    `begin` is the position of the first node.

    In each range, an operand has the same origin in every iteration: the same iteration, the
    previous one, the one before it, or outside. Ranges do not overlap, and have at least two
    iterations.
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
        pattern = origins[min(first + 2, last)]
        found.append(_classify(place, turns[first : last + 1], pattern))
        first = last + 1
    return found


def _origins(
    turn: Sequence[Node], k: int, made: dict[Tensor, tuple[int, int, int]]
) -> list[_Origin]:
    homes = [made.get(tensor) for node in turn for tensor in node.inputs]
    return [None if home is None else (k - home[0], home[1], home[2]) for home in homes]


def _stretch(origins: Sequence[list[_Origin]], first: int) -> int:
    """The last iteration of the range that begins with iteration `first`."""
    if first + 1 >= len(origins):
        return first
    if first + 2 < len(origins):  # only the third iteration takes values from two iterations back
        third = origins[first + 2]
        if _is_pattern(third) and _may_begin(origins[first], origins[first + 1], third):
            return _last_like(origins, first + 2)
    second = origins[first + 1]
    if not _may_begin(origins[first], second, second):
        return first
    if any(o is not None and o[0] > 1 for o in second):
        return first + 1  # a value from two back: outside for these two, inside for a third
    return _last_like(origins, first + 1)


def _is_pattern(row: list[_Origin]) -> bool:
    """Whether a row of origins, of iterations after the first two, has values from two iterations
    back and none from further back."""
    return max((o[0] for o in row if o is not None), default=0) == 2


def _last_like(origins: Sequence[list[_Origin]], turn: int) -> int:
    """The last of the iterations from `turn` on whose operands have the same origins as those of
    `turn`."""
    last = turn
    while last + 1 < len(origins) and origins[last + 1] == origins[turn]:
        last += 1
    return last


def _may_begin(first: list[_Origin], second: list[_Origin], pattern: list[_Origin]) -> bool:
    """Whether two iterations can be the first before iterations whose origins are `pattern`.

    If the pattern takes a value from an iteration that does not exist, the first two may take it
    from anywhere before them. All other origins must be the same as in the pattern.
    """
    for one, two, other in zip(first, second, pattern, strict=True):
        inside = one is not None and one[0] == 0
        if other is not None and other[0] == 0:
            if one != other or two != other:
                return False
        elif inside:  # a carry that the first iteration would have to compute itself
            return False
        elif other is not None and other[0] == 1:
            if two != other:
                return False
        elif two is not None and two[0] < 2:
            return False
    return True


def _classify(begin: int, turns: Sequence[Sequence[Node]], origins: list[_Origin]) -> Recurrence:
    """The recurrence of `turns`, given the origins of its operands in the third iteration, or in
    the second if there are only two."""
    carries: dict[Carry, int] = {}
    invariants: dict[Tensor, int] = {}
    stacks: dict[tuple[Tensor, ...], int] = {}
    operands: list[list[Operand]] = []
    origin = iter(origins)
    for place in range(len(turns[0])):
        row: list[Operand] = []
        columns = list(zip(*[turn[place].inputs for turn in turns], strict=True))
        for tensors in columns:
            home = next(origin)
            if home is not None and home[0] == 0:
                row.append(Inner(home[1], home[2]))
            elif home is not None and home[0] <= min(2, len(turns) - 1):
                starts = tensors[: home[0]]
                following: Inner | Carried = Inner(home[1], home[2])
                for start in reversed(starts):
                    carry = Carry(start, following)
                    following = Carried(carries.setdefault(carry, len(carries)))
                row.append(following)
            else:
                if all(map(is_, tensors, repeat(tensors[0]))):
                    row.append(Invariant(invariants.setdefault(tensors[0], len(invariants))))
                else:
                    row.append(Stacked(stacks.setdefault(tensors, len(stacks))))
        operands.append(row)
    return Recurrence(begin, list(turns), operands, list(carries), list(invariants), list(stacks))


def elements_in(tensor: Tensor) -> int:
    """The number of elements of a tensor, or an estimate."""
    size = product(tensor.type.shape)
    return size if isinstance(size, int) else _UNKNOWN
