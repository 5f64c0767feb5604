"""Stages that choose items by their number: take, skip, shard, repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphc.data.core.cursor import Cursor, Following, Items, State, joined
from graphc.data.core.node import RandomAccess, Run, Stage
from graphc.errors import FeedError

_MOST_EMPTY = 10  # epochs; a filter of random numbers may leave one empty


@dataclass(frozen=True, eq=False)
class Selection(Stage):
    """A stage that chooses items without looking at them: it works on indices as well."""

    @property
    def indexed(self) -> RandomAccess | None:
        """The source of the stage before it."""
        return self.upstream.indexed


# -- take -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Take(Selection):
    """The first items.

    Attributes:
        n: how many.
    """

    n: int

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor that ends after `n` items."""
        return _Taking(self.upstream.open(epoch, run), self.n)

    @property
    def count(self) -> int | None:
        """At most `n`."""
        if self.upstream.endless:
            return self.n
        return None if self.upstream.count is None else min(self.n, self.upstream.count)

    @property
    def endless(self) -> bool:
        """Never."""
        return False

    @property
    def label(self) -> str:
        """The stage with its number."""
        return f"take({self.n})"


class _Taking(Following):
    def __init__(self, upstream: Cursor, n: int) -> None:
        super().__init__(upstream)
        self._left = n

    def read(self, n: int) -> Items:
        items = self.upstream.read(min(n, self._left))
        self._left -= len(items)
        return items

    def skip(self, n: int) -> int:
        done = self.upstream.skip(min(n, self._left))
        self._left -= done
        return done

    def state(self) -> State:
        return {"left": self._left, "upstream": self.upstream.state()}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        self._left = tree["left"]
        self.upstream.restore(tree["upstream"])


# -- skip, shard ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Skip(Selection):
    """All items but the first.

    Attributes:
        n: how many to leave out.
    """

    n: int

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor that starts after `n` items."""
        return _Stepping(self.upstream.open(epoch, run), self.n, 1, False)

    @property
    def count(self) -> int | None:
        """`n` fewer."""
        return None if self.upstream.count is None else max(0, self.upstream.count - self.n)

    @property
    def label(self) -> str:
        """The stage with its number."""
        return f"skip({self.n})"


@dataclass(frozen=True, eq=False)
class Shard(Selection):
    """Every item whose number has a certain remainder.

    Attributes:
        index: the remainder.
        shards: the divisor.
    """

    index: int
    shards: int

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor over this shard."""
        upstream = self.upstream.open(epoch, run)
        return _Stepping(upstream, self.index, self.shards, self.indexed is not None, self.index)

    @property
    def count(self) -> int | None:
        """The size of this shard."""
        total = self.upstream.count
        return None if total is None else len(range(self.index, total, self.shards))

    @property
    def label(self) -> str:
        """The stage with its numbers."""
        return f"shard({self.index}, {self.shards})"


class _Stepping(Following):
    """Item `start`, `start + step`, ...

    Args:
        cheap: reading an item costs no more than passing over it.
        shard: the number of a shard, which positions do not contain: after equally many items, each
            shard can continue from the position of any other.
    """

    def __init__(
        self, upstream: Cursor, start: int, step: int, cheap: bool, shard: int = 0
    ) -> None:
        super().__init__(upstream)
        self._shard = shard
        self._before = start  # how many items to pass over before the next one
        self._step = step
        self._cheap = cheap

    def read(self, n: int) -> Items:
        if n and self._before:
            self.upstream.skip(self._before)
            self._before = 0
        if self._step == 1:
            return self.upstream.read(n)
        if self._cheap and n:
            items = self.upstream.read((n - 1) * self._step + 1)
            self._before = (self._step - 1) if len(items) else 0
            return items[:: self._step]
        parts: list[Items] = []
        for _ in range(n):
            if self._before:
                self.upstream.skip(self._before)
                self._before = 0
            item = self.upstream.read(1)
            if not len(item):
                break
            parts.append(item)
            self._before = self._step - 1
        return joined(parts) if parts else self.upstream.read(0)

    def skip(self, n: int) -> int:
        if not n:
            return 0
        wanted = self._before + 1 + (n - 1) * self._step
        done = self.upstream.skip(wanted)
        if done == wanted:
            self._before = self._step - 1
            return n
        passed = max(0, done - self._before)
        self._before = 0
        return -(-passed // self._step)

    def state(self) -> State:
        # At the end, where nothing is left to pass over, it is below the number of the shard.
        return {"before": max(0, self._before - self._shard), "upstream": self.upstream.state()}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        self._before = tree["before"] + self._shard
        self.upstream.restore(tree["upstream"])


# -- repeat ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Repeat(Selection):
    """Several epochs.

    Attributes:
        n: how many; None for no end.
    """

    n: int | None

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor over all epochs."""
        return _Repeating(self, epoch, run)

    @property
    def count(self) -> int | None:
        """The items of all epochs."""
        one = self.upstream.count
        return None if self.n is None or one is None else self.n * one

    @property
    def endless(self) -> bool:
        """Whether the number of epochs has no limit."""
        return self.n is None or (self.upstream.endless and self.n > 0)

    @property
    def label(self) -> str:
        """The stage with its number."""
        return f"repeat({'' if self.n is None else self.n})"


class _Repeating(Cursor):
    def __init__(self, node: Repeat, epoch: int, run: Run) -> None:
        self._node = node
        self._first = epoch * (node.n or 0)  # the number of this cursor's first epoch
        self._run = run
        self._epoch = 0
        self._empty = 0  # how many epochs without an item have ended, one after the other
        self._given = False  # whether this epoch has given an item
        self._upstream: Cursor | None = None

    def _current(self) -> Cursor:
        if self._upstream is None:
            self._upstream = self._node.upstream.open(self._first + self._epoch, self._run)
        return self._upstream

    def _next_epoch(self) -> None:
        self._empty = 0 if self._given else self._empty + 1
        if self._empty == _MOST_EMPTY and self._node.n is None:
            raise FeedError(
                f"repeat: the pipeline had no items in {_MOST_EMPTY} epochs",
                details=[f"the last epoch: {self._epoch}"],
                source=self._node.made_at,
                hint="check the filter and the files before repeat()",
            )
        self._current().close()
        self._upstream = None
        self._epoch += 1
        self._given = False

    def _ended(self) -> bool:
        return self._node.n is not None and self._epoch >= self._node.n

    @property
    def weight(self) -> int:  # type: ignore[override]
        return 1 if self._upstream is None else self._upstream.weight

    def read(self, n: int) -> Items:
        parts: list[Items] = []
        have = 0
        while have < n and not self._ended():
            part = self._current().read(n - have)
            have += len(part)
            self._given |= len(part) > 0
            if len(part):
                parts.append(part)
            if have < n:
                self._next_epoch()
        return joined(parts) if parts else []

    def skip(self, n: int) -> int:
        done = 0
        while done < n and not self._ended():
            part = self._current().skip(n - done)
            done += part
            self._given |= part > 0
            if done < n:
                self._next_epoch()
        return done

    def state(self) -> State:
        inside = None if self._ended() or self._upstream is None else self._upstream.state()
        counts = {"epoch": self._epoch, "empty": self._empty, "given": self._given}
        return {**counts, "upstream": inside}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        self.close()
        self._epoch, self._empty, self._given = tree["epoch"], tree["empty"], tree["given"]
        if tree["upstream"] is not None:
            self._current().restore(tree["upstream"])

    def origin(self) -> str:
        return "" if self._upstream is None else self._upstream.origin()

    def close(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None
