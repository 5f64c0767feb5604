"""Finds repetitions in a sequence: runs of nodes whose kinds repeat many times in a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from graphc.ir.dtypes import Array

_PERIODS = 64  # how many distances between equal items are tried, the most frequent first


@dataclass(frozen=True)
class Repeat:
    """Items `start` to `start + length` of a sequence, which repeat `period` items.

    The last iteration may be incomplete, so there is a choice of where an iteration begins.
    """

    start: int
    length: int
    period: int

    @property
    def turns(self) -> int:
        """The number of complete iterations."""
        return self.length // self.period

    @property
    def saved(self) -> int:
        """The number of items saved if one iteration represents all."""
        return (self.turns - 1) * self.period

    def without(self, taken: Array) -> list[Repeat]:
        """The parts that remain after removing the items marked as used; each has at least two
        iterations."""
        free = np.concatenate([[1], taken[self.start : self.start + self.length], [1]]) == 0
        edges = np.flatnonzero(np.diff(free.astype(np.int8)))
        pieces = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        return [
            Repeat(self.start + first, last - first, self.period)
            for first, last in pieces
            if last - first >= 2 * self.period
        ]


def tandem_repeats(items: Sequence[Hashable], *, turns: int, saved: int) -> list[Repeat]:
    """The maximal repeats of at least `turns` iterations that save `saved` items, best first.

    They may overlap. Of two that save the same, the one with the shorter period comes first,
    because it is part of the other. The time is linear in the number of items for each period
    tried.
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

    Distances between equal sequences of eight items also count, because single items recur within a
    long iteration of few kinds.
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
    """Numbers the sequences of eight items at each position; equal sequences have equal numbers."""
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
