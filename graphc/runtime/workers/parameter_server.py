"""`ParameterServer`: state that several threads read as a whole and update one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.state.live_state import LiveState
from graphc.runtime.workers.admission import Admission

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
        admission: decides when a worker may read and apply.
    """

    def __init__(self, state: LiveState, admission: Admission) -> None:
        self._state = state
        self._admission = admission
        self._snapshot = Snapshot(*state.snapshot())
        self._has_been_read = False

    @property
    def snapshot(self) -> Snapshot:
        """The state after the last update."""
        return self._snapshot

    def settle(self, build: Callable[[bool], T]) -> T:
        """The result of `build`. Its argument says whether it may move the state into other
        buffers. It may if no worker has read yet; in that case no worker reads before it
        returns."""
        with self._admission.turn:
            if not self._has_been_read:
                result = build(True)
                self._publish()
                return result
        return build(False)

    def read(self, worker: int, ticket: int) -> Snapshot | None:
        """The state for a worker that is about to compute; None if the worker has to end. See
        `Admission.read`."""

        def current() -> Snapshot:
            self._has_been_read = True
            return self._snapshot

        return self._admission.read(worker, ticket, current)

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
        with self._admission.applying(worker):
            with self._state.lock:
                self._state.check()
                buffers = list(self._state.buffers)
                result = update(self._state.layout, buffers)
                self._state.buffers[:] = buffers
            with self._admission.turn:
                number, staleness = self._admission.applied(worker)
                self._publish()
            try:
                done(number, staleness, result)
            finally:
                with self._admission.turn:
                    self._publish()  # `done` may have set variables

    def _publish(self) -> None:
        self._snapshot = Snapshot(*self._state.snapshot())
