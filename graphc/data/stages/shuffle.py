"""The stage `shuffle`: the whole epoch, or a buffer of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.data.core.cursor import Cursor, Following, Items, State, joined
from graphc.data.core.kept import Kept
from graphc.data.core.node import Run
from graphc.data.stages.select import Selection

_AT_ONCE = 1 << 16
_DRAWN = 1024  # random numbers drawn at a time


@dataclass(frozen=True, eq=False)
class Shuffle(Selection):
    """The items of an epoch in random order.

    Attributes:
        buffer: the size of the buffer; None: all items.
        seed: the seed of the order.
    """

    buffer: int | None
    seed: int

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor whose order depends on the seed and the epoch."""
        upstream = self.upstream.open(epoch, run)
        key = (self.seed, epoch, self.upstream.shuffles)
        if self.buffer is None:
            return _Permuted(upstream, key)
        if self.indexed is not None:
            return _BufferOfIndices(upstream, key, self.buffer)
        return _BufferOfRecords(upstream, key, self.buffer)

    @property
    def shuffles(self) -> int:
        """One more than before."""
        return self.upstream.shuffles + 1

    @property
    def label(self) -> str:
        """The stage with its options."""
        size = "" if self.buffer is None else f"{self.buffer}, "
        return f"shuffle({size}seed={self.seed})"


class _Permuted(Following):
    """A permutation of all items. They are read at the first `read`."""

    def __init__(self, upstream: Cursor, key: tuple[int, ...]) -> None:
        super().__init__(upstream)
        self._key = key
        self._items: Items | None = None
        self._order: np.ndarray[Any, Any] | None = None
        self._next = 0
        self._origin = ""

    @property
    def weight(self) -> int:  # type: ignore[override]
        return 1

    def _load(self) -> int:
        """Reads all items, and returns their number."""
        if self._items is None:
            parts = [self.upstream.read(_AT_ONCE)]
            while len(parts[-1]) == _AT_ONCE:
                parts.append(self.upstream.read(_AT_ONCE))
            items = joined(parts)
            order = np.random.default_rng(self._key).permutation(len(items))
            if isinstance(items, np.ndarray):
                self._items = items[order]
            else:
                self._items, self._order = items, order
        return len(self._items)

    def read(self, n: int) -> Items:
        total = self._load()
        start, self._next = self._next, min(self._next + n, total)
        if self._items is None or self._order is None:
            return self._items[start : self._next] if self._items is not None else []
        chosen = self._order[start : self._next].tolist()
        if chosen:
            self._origin = f"item {chosen[-1]} before shuffle"
        return [self._items[i] for i in chosen]

    def skip(self, n: int) -> int:
        start, self._next = self._next, min(self._next + n, self._load())
        return self._next - start

    def state(self) -> State:
        return {"next": self._next}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        self._next = tree["next"]

    def origin(self) -> str:
        return self._origin


class _Slots:
    """Random numbers by their place in the sequence of a key."""

    def __init__(self, key: tuple[int, ...]) -> None:
        self._key = key
        self._block = -1
        self._drawn: list[int] = []

    def __call__(self, number: int) -> int:
        block, place = divmod(number, _DRAWN)
        if block != self._block:
            rng = np.random.default_rng((*self._key, block))
            self._drawn = rng.integers(0, 1 << 62, _DRAWN).tolist()
            self._block = block
        return self._drawn[place]


class _BufferOfIndices(Following):
    """Gives a random item of a buffer, and replaces it by the next item."""

    def __init__(self, upstream: Cursor, key: tuple[int, ...], size: int) -> None:
        super().__init__(upstream)
        self._slots = _Slots(key)
        self._size = size
        self._kept: list[int] = []
        self._given = 0

    @property
    def weight(self) -> int:  # type: ignore[override]
        return self._size + self.upstream.weight

    def read(self, n: int) -> Items:
        kept = self._kept
        # Filling the buffer, and one more for each item that is given.
        fresh = np.asarray(self.upstream.read(self._size - len(kept) + n)).tolist()
        missing = self._size - len(kept)
        kept.extend(fresh[:missing])
        found = []
        for index in fresh[missing:]:
            slot = self._slots(self._given) % self._size
            self._given += 1
            found.append(kept[slot])
            kept[slot] = index
        while kept and len(found) < n:
            slot = self._slots(self._given) % len(kept)
            self._given += 1
            found.append(kept[slot])
            kept[slot] = kept[-1]
            kept.pop()
        return np.asarray(found, np.int64)

    def state(self) -> State:
        return {"given": self._given, "kept": [*self._kept], "upstream": self.upstream.state()}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        self._given, self._kept = tree["given"], [*tree["kept"]]
        self.upstream.restore(tree["upstream"])


class _BufferOfRecords(Following):
    """As `_BufferOfIndices`, for records."""

    def __init__(self, upstream: Cursor, key: tuple[int, ...], size: int) -> None:
        super().__init__(upstream)
        self._slots = _Slots(key)
        self._size = size
        self._source = Kept(upstream)
        self._kept: list[Any] = []  # items, numbers, marks, origins
        self._given = 0
        self._ended = False
        self._origin = ""

    @property
    def weight(self) -> int:  # type: ignore[override]
        return self._size + self.upstream.weight

    def read(self, n: int) -> Items:
        found: list[Any] = []
        kept = self._kept
        while len(found) < n:
            fresh = None if self._ended else self._source.read()
            if fresh is None:
                self._ended = True
                if not kept:
                    break
            elif len(kept) < self._size:
                kept.append(fresh)
                continue
            slot = self._slots(self._given) % len(kept)
            self._given += 1
            item, *_, self._origin = kept[slot]
            found.append(item)
            kept[slot] = kept[-1] if fresh is None else fresh
            if fresh is None:
                kept.pop()
        return found

    def state(self) -> State:
        marks = {number: mark for _, number, mark, _ in self._kept}
        tree = self._source.state(marks)
        oldest = min(marks, default=0)
        kept = [number - oldest for _, number, _, _ in self._kept]
        return {"given": self._given, "kept": kept, **tree}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        numbers = sorted(tree["kept"])
        found = dict(zip(numbers, self._source.restore(tree, numbers), strict=True))
        self._kept = [found[number] for number in tree["kept"]]
        self._given = tree["given"]

    def origin(self) -> str:
        return self._origin
