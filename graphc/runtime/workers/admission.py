"""`Admission`: lets workers read and apply in turn, so that no update is too stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import TypeVar

from graphc.runtime.workers.staleness import Staleness

T = TypeVar("T")


class Admission:
    """Makes the threads of workers wait until they may read, and until they may apply.

    Updates are applied one at a time. Readers do not wait for an update that is being applied.

    Args:
        bound: see `Staleness`.

    Attributes:
        turn: held while anything here changes.
    """

    def __init__(self, bound: int | None) -> None:
        self.turn = Condition()
        self._bound = bound
        self._staleness = Staleness(bound)
        self._next_reader = 0
        self._is_updating = False
        self._stopping = False

    @property
    def updates(self) -> int:
        """The number of updates that were applied."""
        return self._staleness.version

    @property
    def stopping(self) -> bool:
        """Whether the workers have to end."""
        return self._stopping

    def stop(self) -> None:
        """Forbids further reads. Workers that have read may still apply."""
        self._stopping = True
        with self.turn:
            self.turn.notify_all()

    def read(self, worker: int, ticket: int, value: Callable[[], T]) -> T | None:
        """The result of `value` for a worker that is about to compute; None if the worker has to
        end. No update is recorded meanwhile.

        Args:
            ticket: the number of its batch. Readers wait in this order, so that no worker is
                skipped. With a bound of 0, the updates have the order of the batches.
        """
        with self.turn:
            self.turn.wait_for(lambda: self._stopping or self._admits(ticket))
            if self._stopping:
                return None
            self._next_reader += 1
            self._staleness.read(worker)
            self.turn.notify_all()
            return value()

    def _admits(self, ticket: int) -> bool:
        if self._bound is None:
            return True
        return ticket == self._next_reader and self._staleness.admits()

    @contextmanager
    def applying(self, worker: int) -> Iterator[None]:
        """Waits until the update of a worker that has read makes no other update too stale. No
        other update is applied inside the context."""
        with self.turn:
            self.turn.wait_for(lambda: not self._is_updating and self._staleness.may_apply(worker))
            self._is_updating = True  # readers that come now are behind it and do not block it
        try:
            yield
        finally:
            with self.turn:
                self._is_updating = False
                self.turn.notify_all()

    def applied(self, worker: int) -> tuple[int, int]:
        """Records the update of a worker, inside `applying`. Returns its number, from 0, and its
        staleness."""
        with self.turn:
            number = self._staleness.version
            staleness = self._staleness.apply(worker)
            self.turn.notify_all()
            return number, staleness

    def leave(self, worker: int) -> None:
        """Removes a worker that ends, and drops the update that it has not applied."""
        with self.turn:
            self._staleness.leave(worker)
            self.turn.notify_all()
