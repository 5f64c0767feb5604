"""`ParameterServer`: the state that several threads read whole, and update one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition
from typing import Any, NamedTuple, TypeVar

from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.state.live_state import LiveState
from graphc.runtime.workers.staleness import Staleness

T = TypeVar("T")


class Snapshot(NamedTuple):
    """All state between two updates. Its arrays are never written to: an update makes others."""

    layout: StateLayout
    buffers: Sequence[Any]


class ParameterServer:
    """Gives workers snapshots, and applies their updates to the live state, one at a time.

    An update computes outside of the workers' lock, from the state as it is, into new buffers,
    which take the places of the old ones all at once when they are there: readers get
    the old ones until then, and if an update fails, nothing changes.

    Args:
        state: others may change it between updates; workers see the change after the next update.
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
        """How many were applied."""
        return self._staleness.version

    @property
    def stopping(self) -> bool:
        """Whether workers are to end."""
        return self._stopping

    @property
    def snapshot(self) -> Snapshot:
        """The state after the last update."""
        return self._snapshot

    def stop(self) -> None:
        """Lets no worker read any more; those that have may still apply."""
        self._stopping = True
        with self._turn:
            self._turn.notify_all()

    def settle(self, build: Callable[[bool], T]) -> T:
        """What `build` gives, which is told whether it may move the state into other buffers:
        before anybody has read, and then nobody does until it is done."""
        with self._turn:
            if not self._has_been_read:
                result = build(True)
                self._publish()
                return result
        return build(False)

    def read(self, worker: int, ticket: int) -> Snapshot | None:
        """The state for a worker that is going to compute; None where it is to end.

        Args:
            ticket: the how-manieth batch it has. Readers wait in that order, so nobody is passed
                over, and with a bound of 0 the updates have the order of the batches.
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
        """Applies the update of a worker that has read, as soon as that keeps all others fresh.

        Args:
            update: puts new buffers in the places of old ones and gives what else there is,
                when all of it has been computed.
            done: is told the number of the update, from 0, its staleness, and what `update` gave.
                No other update is applied meanwhile.
        """
        with self._turn:
            self._turn.wait_for(lambda: not self._is_updating and self._staleness.may_apply(worker))
            self._is_updating = True  # readers who come now are behind: they forbid nothing
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
        """A worker ends; what it has not applied is dropped."""
        with self._turn:
            self._staleness.leave(worker)
            self._turn.notify_all()

    def _publish(self) -> None:
        self._snapshot = Snapshot(*self._state.snapshot())
