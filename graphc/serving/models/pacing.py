"""`Pace`: loading leaves the cores to requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_RECENT = 0.1  # seconds
_SHORTEST, _LONGEST = 0.0001, 0.01  # seconds


class Pace:
    """Makes a thread that loads rest as long as it works, while requests arrive.

    Reading and checking weights keeps a core busy for as long as it takes. Where all cores are in
    use, each request then waits for some milliseconds until the operating system lets it run. A
    thread with a low priority would not help: it could hold the interpreter's lock while it waits.

    Called after each piece of work. Thread-safe.
    """

    def __init__(self) -> None:
        self._requested = float("-inf")
        self._of_thread = threading.local()

    def requested(self) -> None:
        """Notes that a request arrived."""
        self._requested = time.monotonic()

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Within it, the calls of this thread rest. Those of other threads return at once: a
        request may have to read weights itself."""
        self._of_thread.rested = time.thread_time()
        try:
            yield
        finally:
            del self._of_thread.rested

    def __call__(self) -> None:
        rested = getattr(self._of_thread, "rested", None)
        if rested is None or time.monotonic() - self._requested > _RECENT:
            return
        worked = time.thread_time() - rested
        if worked >= _SHORTEST:
            time.sleep(min(worked, _LONGEST))
            self._of_thread.rested = time.thread_time()
