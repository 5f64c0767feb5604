"""Results of other threads for an event loop, all that are there at a time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

_Pair = tuple["asyncio.Future[Any]", "Future[Any]"]


class Arrivals:
    """`asyncio.wrap_future`, but one call into the event loop delivers every result that has
    arrived by then. A batch gives its results one after the other, and each such call wakes the
    loop up by a system call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: dict[asyncio.AbstractEventLoop, list[_Pair]] = {}

    def wrap(self, given: Future[Any]) -> asyncio.Future[Any]:
        """A future of the running loop with the result of `given`. Cancelling it cancels `given`,
        if that does not run yet."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Any] = loop.create_future()
        waiting.add_done_callback(lambda _: waiting.cancelled() and given.cancel())
        # The callback does not hold `given`: they would be a cycle, which keeps the result until
        # the next garbage collection.
        given.add_done_callback(lambda done: self._arrive(loop, (waiting, done)))
        return waiting

    def _arrive(self, loop: asyncio.AbstractEventLoop, pair: _Pair) -> None:
        with self._lock:
            pairs = self._arrived.setdefault(loop, [])
            is_first = not pairs
            pairs.append(pair)
        if not is_first:
            return
        try:
            loop.call_soon_threadsafe(self._deliver, loop)
        except RuntimeError:  # the loop is closed: nobody waits
            self._take(loop)

    def _take(self, loop: asyncio.AbstractEventLoop) -> list[_Pair]:
        with self._lock:
            return self._arrived.pop(loop)

    def _deliver(self, loop: asyncio.AbstractEventLoop) -> None:
        for waiting, given in self._take(loop):
            if waiting.done():  # cancelled meanwhile
                continue
            if given.cancelled():
                waiting.cancel()
                continue
            error = given.exception()
            if isinstance(error, StopIteration):  # a future of asyncio refuses it
                waiting.set_exception(RuntimeError("a run raised StopIteration"))
            elif error is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(given.result())
