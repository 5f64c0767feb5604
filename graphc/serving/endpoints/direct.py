"""Which calls run in the event loop itself: those that take less time than handing them over."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

_SHORT = 0.001  # seconds
_TRIED = 0.01  # seconds
_MOST = 4096  # keys
_CHANCES = 3
_LEAST_PAUSE, _LONGEST_PAUSE = 16, 4096  # calls


@dataclass(slots=True)
class _Estimate:
    """What is known of a key.

    Attributes:
        best: the shortest call in a thread.
        misses: how many of the last calls in the event loop, in a row, were not short.
        left: how many of the next calls go to threads.
        pause: the value that `left` gets next.
    """

    best: float = math.inf
    misses: int = 0
    left: int = 0
    pause: int = _LEAST_PAUSE


class Direct:
    """Estimates the time of calls. A key stands for calls that take about the same time.

    Handing a call to a thread and back makes the interpreter change threads twice, which takes
    longer than a small model. The time of a call in a thread contains the wait for it. So a key is
    tried in the event loop when one of its calls took less than 10 ms in a thread. When three calls
    in a row take longer than 1 ms there, the next 16 go to threads, unless one takes less than 1 ms
    there. Then the event loop is tried again, because the machine may have been busy; each time
    that this fails, twice as many calls go to threads.
    """

    def __init__(self) -> None:
        self._estimates: dict[Hashable, _Estimate] = {}

    def is_short(self, key: Hashable) -> bool:
        """Whether to run the next call of this key in the event loop."""
        found = self._estimates.get(key)
        return found is not None and found.best < _TRIED and not found.left

    def handed_over(self, key: Hashable, seconds: float) -> None:
        """Notes the time of a call that ran in a thread, with the time that it waited for one."""
        if len(self._estimates) >= _MOST:
            self._estimates.clear()
        found = self._estimates.setdefault(key, _Estimate())
        found.best = min(seconds, found.best)
        found.left = max(0, found.left - 1) if seconds >= _SHORT else 0

    def ran_here(self, key: Hashable, seconds: float) -> None:
        """Notes the time of a call that ran in the event loop."""
        found = self._estimates.setdefault(key, _Estimate())
        if seconds < _SHORT:
            found.misses, found.pause = 0, _LEAST_PAUSE
            return
        found.misses += 1
        if found.misses == _CHANCES:
            found.misses, found.left = 0, found.pause
            found.pause = min(2 * found.pause, _LONGEST_PAUSE)
