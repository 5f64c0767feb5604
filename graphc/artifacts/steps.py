"""The compiled programs of an entry point, one for each set of input sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from graphc.artifacts.lowering import Places

Sizes = tuple[tuple[int, ...], ...]
Shapes = Sequence[tuple[int, ...]]


class Step(NamedTuple):
    """A program for one set of sizes, ready to be called with flat arrays."""

    compiled: Any
    places: Places


class Steps:
    """The programs by sizes. `get` needs no lock; the caller of `put` holds one.

    Args:
        limit: how many programs are kept, at least 1; None keeps all. Beyond it, the program is
            removed that has not been used for the longest time.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._steps: dict[Sizes, Step] = {}
        self._last_use: dict[Sizes, int] = {}
        self._times = count()

    def get(self, sizes: Sizes) -> Step | None:
        """The program for these sizes, or None."""
        found = self._steps.get(sizes)
        if found is not None and self._limit is not None:
            self._last_use[sizes] = next(self._times)
        return found

    def put(self, sizes: Sizes, step: Step) -> None:
        """Adds a program, and removes one before if there are too many."""
        while self._limit is not None and len(self._steps) >= self._limit:
            oldest = min(self._steps, key=lambda sizes: self._last_use.get(sizes, -1))
            del self._steps[oldest]
            self._last_use.pop(oldest, None)
        self._steps[sizes] = step

    def clear(self) -> None:
        """Removes all programs."""
        self._steps.clear()
        self._last_use.clear()

    def __iter__(self) -> Iterator[Sizes]:
        return iter(list(self._steps))

    def __len__(self) -> int:
        return len(self._steps)
