"""`ParameterServer`: state that several threads read as a whole and update one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition
from typing import Any, NamedTuple, TypeVar

from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.state.live_state import LiveState
from graphc.runtime.workers.staleness import Staleness

T = TypeVar("T")


class Snapshot(NamedTuple):
    """All state between two updates. Its arrays are never overwritten: an update makes new ones."""

    layout: StateLayout
    buffers: Sequence[Any]


class ParameterServer:
    """Gives workers snapshots, and applies their updates to the live state, one at a time.

    An update computes outside the workers' lock. It reads the current state and writes new buffers,
    which replace the old ones together when they are complete. Until then readers get the old ones.
    If an update fails, nothing changes.

    Args:
        state: other code may change it between updates; workers see the change after the next
            update.
        bound: see `Staleness`.
    """

    def __init__(self, state: LiveState, bound: int | None) -> None:
        self._state = state
        self._bound = bound
        self._turn = Condition()
        self._staleness = Staleness(bound)
        self._snapshot = Snapshot(*state.snapshot())
        self._next_reader = 0
        self._has_been_read = False
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

    @property
    def snapshot(self) -> Snapshot:
        """The state after the last update."""
        return self._snapshot

    def stop(self) -> None:
        """Forbids further reads. Workers that have read may still apply."""
        self._stopping = True
        with self._turn:
            self._turn.notify_all()

    def settle(self, build: Callable[[bool], T]) -> T:
        """The result of `build`. Its argument says whether it may move the state into other
        buffers. It may if no worker has read yet; in that case no worker reads before it
        returns."""
        with self._turn:
            if not self._has_been_read:
                result = build(True)
                self._publish()
                return result
        return build(False)

    def read(self, worker: int, ticket: int) -> Snapshot | None:
        """The state for a worker that is about to compute; None if the worker has to end.

        Args:
            ticket: the number of its batch. Readers wait in this order, so that no worker is
                skipped. With a bound of 0, the updates have the order of the batches.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._stopping or self._admits(ticket))
            if self._stopping:
                return None
            self._next_reader += 1
            self._has_been_read = True
            self._staleness.read(worker)
            self._turn.notify_all()
            return self._snapshot

    def _admits(self, ticket: int) -> bool:
        if self._bound is None:
            return True
        return ticket == self._next_reader and self._staleness.admits()

    def apply(
        self,
        worker: int,
        update: Callable[[StateLayout, list[Any]], T],
        done: Callable[[int, int, T], None],
    ) -> None:
        """Applies the update of a worker that has read, as soon as this makes no other update too
        stale.

        Args:
            update: replaces old buffers with new ones and returns its other results, once all of
                them are computed.
            done: gets the number of the update, from 0, its staleness, and the result of `update`.
                No other update is applied meanwhile.
        """
        with self._turn:
            self._turn.wait_for(lambda: not self._is_updating and self._staleness.may_apply(worker))
            self._is_updating = True  # readers that come now are behind it and do not block it
        try:
            with self._state.lock:
                self._state.check()
                buffers = list(self._state.buffers)
                result = update(self._state.layout, buffers)
                self._state.buffers[:] = buffers
            with self._turn:
                number = self._staleness.version
                staleness = self._staleness.apply(worker)
                self._publish()
                self._turn.notify_all()
            done(number, staleness, result)
        finally:
            with self._turn:
                self._is_updating = False
                self._publish()  # `done` may have set variables
                self._turn.notify_all()

    def leave(self, worker: int) -> None:
        """Removes a worker that ends, and drops the update that it has not applied."""
        with self._turn:
            self._staleness.leave(worker)
            self._turn.notify_all()

    def _publish(self) -> None:
        self._snapshot = Snapshot(*self._state.snapshot())
