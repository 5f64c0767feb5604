"""`Feeder`: the batches of a training loop in all epochs, with a position to resume from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from graphc.data import prefetching
from graphc.data.pipeline import Pipeline
from graphc.errors import FeedError, StateError
from graphc.runtime.session import Session

_MARK_EVERY = 1000  # steps: at most this many batches are read again after an interrupt

Feeds = Mapping[Any, Any]


class Feeder:
    """Reads the batches, one epoch at a time.

    The position is a mark and a number of batches to skip after it. The mark is a value that
    `state` of the iterator returned, or the beginning of the epoch for iterators without `state`.
    So the position is always known, even if a batch has been read whose step has not run.

    Args:
        batches: an iterable of feeds.
        prefetch: how many batches to prepare ahead on the device; None for no prefetching.
        limit: how many batches may be read in total; None: any number.

    Attributes:
        epoch: the number of the current epoch.
    """

    def __init__(
        self, session: Session, batches: Any, prefetch: int | None, limit: int | None
    ) -> None:
        self._session, self._batches = session, batches
        self._prefetch, self._limit = prefetch, limit
        self.epoch = 0
        self._first = 0  # the last step before this epoch
        self._items: Iterator[Any] | None = None
        self._has_state = False
        self._mark: tuple[Any, int] = None, 0  # a state, and the step after which it was taken
        self._goal: Mapping[str, Any] | None = None  # the position to which `open` moves
        self._peeked: list[Feeds] = []

    def begin(self, epoch: int, step: int, position: Mapping[str, Any] | None = None) -> None:
        """Begins an epoch, or continues it at a position. `open` opens its batches."""
        self.close()
        self.epoch, self._first, self._goal = epoch, step, position
        self._mark = None, step
        if position is not None:
            self._first = int(position["first_step"])
            self._mark = position["state"], step - int(position["skip"])

    def open(self, step: int) -> None:
        """Opens the batches of the epoch, unless they are open.

        Raises:
            FeedError: the batches cannot be iterated over.
            StateError: the position does not fit the batches.
        """
        if self._items is not None:
            return
        items = _opened(self._batches, self.epoch)
        self._has_state = all(callable(getattr(items, n, None)) for n in ("state", "restore"))
        if self._goal is not None:
            self._go_to(items, self._goal)
            self._goal = None
        if self._prefetch is None:
            self._items = items
            return
        limit = None if self._limit is None else max(self._limit - step, 0)
        source = _Limited(items, limit) if self._has_state else islice(items, limit)
        self._items = prefetching.prefetch(source, self._session, size=self._prefetch)

    def _go_to(self, items: Any, position: Mapping[str, Any]) -> None:
        """Moves the iterator to a position."""
        state, skip = position["state"], int(position["skip"])
        if state is not None:
            if not self._has_state:
                raise StateError(
                    "fit: the checkpoint has a position of the batches, but the job's batches have "
                    "no `restore`",
                    hint="give the job the pipeline with which the training began, "
                    "or fit(resume=False)",
                )
            items.restore(state)
        for number in range(skip):
            if next(items, None) is None:
                raise StateError(
                    f"fit: the batches ended after {number} of the {skip} that came before the "
                    "checkpoint",
                    hint="give the job the batches with which the training began; an iterator must "
                    "be a new one",
                )

    def next(self) -> Feeds | None:
        """The next feeds; None at the end of the epoch."""
        if self._peeked:
            return self._peeked.pop()
        items: Any = self._items
        found: Feeds | None = next(items, None)
        return found

    def take(self, n: int) -> list[Feeds]:
        """The next `n` feeds, or those that are left in the epoch."""
        found: list[Feeds] = []
        while len(found) < n and (feeds := self.next()) is not None:
            found.append(feeds)
        return found

    def is_at_end(self, step: int) -> bool:
        """Whether the epoch is complete after `step` steps. It may read the next batch."""
        if self._peeked:
            return False
        self.mark(step)
        feeds = self.next()
        if feeds is None:
            return True
        self._peeked.append(feeds)
        return False

    def mark_often(self, step: int) -> None:
        """Sets a mark if the last mark is old. The batches of `step` steps have been read."""
        if step - self._mark[1] >= _MARK_EVERY:
            self.mark(step)

    def mark(self, step: int) -> None:
        """Sets a mark if the iterator has positions and no later batch has been read."""
        known = self._items is not None and self._has_state and not self._peeked
        if known and step != self._mark[1]:
            items: Any = self._items
            self._mark = items.state(), step

    def position(self, step: int) -> dict[str, Any]:
        """The position after `step` steps, for `begin`."""
        state, marked = self._mark
        skip = step - (self._first if state is None else marked)
        return {"first_step": self._first, "state": state, "skip": skip}

    def used(self, step: int) -> int:
        """How many batches of this epoch the steps have used."""
        return step - self._first

    def close(self) -> None:
        """Ends the threads that this object has started. The user's iterator stays open."""
        items, self._items, self._peeked = self._items, None, []
        if items is not None and items is not self._batches:
            getattr(items, "close", lambda: None)()


class _Limited(Iterator[Any]):
    """At most `limit` items of an iterator with positions."""

    def __init__(self, items: Any, limit: int | None) -> None:
        self._items, self._left = items, limit

    def __next__(self) -> Any:
        if self._left == 0:
            raise StopIteration
        item = next(self._items)
        if self._left is not None:
            self._left -= 1
        return item

    def state(self) -> Any:
        """The state of the iterator."""
        return self._items.state()

    def restore(self, tree: Any) -> None:
        """Moves the iterator to a position."""
        self._items.restore(tree)

    def close(self) -> None:
        """Closes the iterator."""
        getattr(self._items, "close", lambda: None)()


def _opened(batches: Any, epoch: int) -> Iterator[Any]:
    """An iterator over an epoch. Pipelines shuffle each epoch differently."""
    if isinstance(batches, Pipeline):
        return batches.epoch(epoch)
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
        raise FeedError(
            f"fit: the job's batches must be an iterable of feeds, got {type(batches).__name__}",
            hint="a gc.data.Pipeline, gc.data.Batches, a list of dicts, or a generator",
        )
    return iter(batches)
