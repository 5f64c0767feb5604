"""`Waiting`: the pieces of requests that wait, grouped to batches. It has no threads and no clock.

There is one queue for each key, because only requests with equal keys can be joined. The last batch
of a queue is open: it takes further pieces until one does not fit.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from graphc.serving.batching.requests import Piece, Request
from graphc.web.failures import Failure


class Ready(NamedTuple):
    """A batch to run.

    Attributes:
        pieces: its pieces in order.
        reason: why it was released: "full", "timeout", "idle", "closing", or "alone" for a request
            that cannot be joined with others.
    """

    pieces: list[Piece]
    reason: str


class _Batch:
    def __init__(self, alone: bool) -> None:
        self.pieces: list[Piece] = []
        self.rows = 0
        self.is_open = not alone
        self.alone = alone
        self.due = math.inf

    def add(self, piece: Piece, timeout: float) -> None:
        self.pieces.append(piece)
        self.rows += piece.rows
        request = piece.request
        due = request.arrived + timeout
        if request.deadline is not None:  # leaves it half of its time to run
            due = min(due, (request.arrived + request.deadline) / 2)
        self.due = min(self.due, due)

    def drop(self, request: Request) -> None:
        kept = [piece for piece in self.pieces if piece.request is not request]
        self.pieces, self.rows = kept, sum(piece.rows for piece in kept)


class Waiting:
    """The batches that wait.

    Args:
        most_rows: the most rows in a batch.
        most_batches: how many batches may wait.
        timeout: how many seconds the first request of a batch waits for others.
    """

    def __init__(self, most_rows: int, most_batches: int, timeout: float) -> None:
        self._most_rows = most_rows
        self._most_batches = most_batches
        self._timeout = timeout
        # The next batch comes from the first queue that has one; its queue is then the last.
        self._queues: OrderedDict[Hashable, deque[_Batch]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """The number of batches that wait."""
        return self._count

    def add(self, pieces: Sequence[Piece], alone: bool = False) -> bool:
        """Adds the pieces of one request, all or none. Returns whether a batch was opened or is
        full, so that a runner must look.

        Raises:
            Failure: UNAVAILABLE: too many batches wait.
        """
        key = pieces[0].request.key
        queue = self._queues.get(key) or deque[_Batch]()
        self._check_room(queue, pieces, alone)
        changed = False
        for piece in pieces:
            if not queue or not self._fits(queue[-1], piece):
                if queue:
                    queue[-1].is_open = False
                queue.append(_Batch(alone))
                self._count += 1
                changed = True
            batch = queue[-1]
            batch.add(piece, self._timeout)
            if batch.rows >= self._most_rows:
                batch.is_open = False
                changed = True
        self._queues[key] = queue
        return changed

    def _fits(self, batch: _Batch, piece: Piece) -> bool:
        return batch.is_open and batch.rows + piece.rows <= self._most_rows

    def _check_room(self, queue: deque[_Batch], pieces: Sequence[Piece], alone: bool) -> None:
        """Raises the failure if the queue is full. Only the first piece can go into an open batch,
        because all pieces but the last are as large as a batch."""
        joins = bool(queue) and not alone and self._fits(queue[-1], pieces[0])
        count = self._count + len(pieces) - joins
        if count > self._most_batches:
            raise Failure(
                "UNAVAILABLE",
                f"the queue is full: {self._count} of at most {self._most_batches} batches wait, "
                f"and the request needs {len(pieces)}",
            )

    def take(self, now: float, idle: bool, closing: bool) -> Ready | None:
        """Removes and returns the next batch, or None if all must wait.

        Args:
            now: the time.
            idle: whether no batch runs. Then waiting longer would gain nothing.
            closing: whether no more requests come.
        """
        for key, queue in self._queues.items():
            reason = _reason(queue[0], now, idle, closing)
            if reason is None:
                continue
            batch = queue.popleft()
            self._count -= 1
            if queue:
                self._queues.move_to_end(key)
            else:
                del self._queues[key]
            return Ready(batch.pieces, reason)
        return None

    def next_due(self) -> float | None:
        """When the next batch is released because of its timeout; None if none waits."""
        return min((queue[0].due for queue in self._queues.values()), default=None)

    def drop(self, request: Request) -> None:
        """Removes the pieces of a request that was cancelled or failed."""
        key = request.key
        queue = self._queues.get(key)
        if queue is None:
            return
        for batch in queue:
            batch.drop(request)
        kept = deque(batch for batch in queue if batch.pieces)
        self._count -= len(queue) - len(kept)
        if kept:
            self._queues[key] = kept
            last = kept[-1]
            last.is_open = not last.alone and last.rows < self._most_rows
        else:
            del self._queues[key]


def _reason(batch: _Batch, now: float, idle: bool, closing: bool) -> str | None:
    if batch.alone:
        return "alone"
    if not batch.is_open:
        return "full"
    if batch.due <= now:
        return "timeout"
    if closing:
        return "closing"
    return "idle" if idle else None
