"""Where a sequence repeats itself: runs of nodes that are the same kinds, many times in a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_PERIODS = 64  # how many distances between equal items are tried, the most frequent first

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Repeat:
    """Items `start` to `start + length` of a sequence: `period` items again and again.

    The last turn may be cut short, so there is a choice of where a turn begins.
    """

    start: int
    length: int
    period: int

    @property
    def turns(self) -> int:
        """How many whole turns there are."""
        return self.length // self.period

    @property
    def saved(self) -> int:
        """How many items are left out if one turn stands for all."""
        return (self.turns - 1) * self.period

    def without(self, taken: Array) -> list[Repeat]:
        """What is left of it beside the items marked as taken: two turns or more each."""
        free = np.concatenate([[1], taken[self.start : self.start + self.length], [1]]) == 0
        edges = np.flatnonzero(np.diff(free.astype(np.int8)))
        pieces = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        return [
            Repeat(self.start + first, last - first, self.period)
            for first, last in pieces
            if last - first >= 2 * self.period
        ]


def tandem_repeats(items: Sequence[Hashable], *, turns: int, saved: int) -> list[Repeat]:
    """The maximal repeats of at least `turns` turns that save `saved` items; best first.

    They may overlap. Of two that save the same, the shorter period comes first: it is the
    other's part. Linear in the items for each period tried.
    """
    numbers: dict[Hashable, int] = {}
    row = np.array([numbers.setdefault(item, len(numbers)) for item in items], np.int64)
    found = [
        repeat
        for period in _periods(row)
        for repeat in _of_period(row, period)
        if repeat.turns >= turns and repeat.saved >= saved
    ]
    return sorted(found, key=lambda r: (-r.saved, r.period, r.start))


def _periods(row: Array) -> Iterable[int]:
    """The distances from an item to the next two equal ones: the likely periods.

    And those from eight items in a row: single ones are equal within a long turn of few kinds.
    """
    distances: Counter[int] = Counter()
    for numbers in (row, _stretches(row)):
        last: dict[int, tuple[int, ...]] = {}
        for i, number in enumerate(numbers.tolist()):
            before = last.get(number, ())
            distances.update(i - j for j in before)
            last[number] = (i, *before[:1])
    return [period for period, _ in distances.most_common(_PERIODS)]


def _stretches(row: Array) -> Array:
    """A number for the eight items from each place, equal for equal ones."""
    for half in (1, 2, 4):
        pairs = row[:-half] * (row.size + 1) + row[half:]
        row = np.unique(pairs, return_inverse=True)[1]
    return row


def _of_period(row: Array, period: int) -> Iterable[Repeat]:
    same = np.concatenate([[False], row[:-period] == row[period:], [False]]).astype(np.int8)
    steps = np.diff(same)
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield Repeat(start, end - start + period, period)
