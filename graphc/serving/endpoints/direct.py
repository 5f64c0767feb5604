"""Which calls run in the event loop itself: those that take less time than handing them over."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

_SHORT = 0.001  # seconds
_TRIED = 0.01  # seconds
_MOST = 4096  # keys
_CHANCES = 3


@dataclass(slots=True)
class _Estimate:
    """What is known of a key: `limit` is how short `best`, the shortest call in a thread, must be.
    `misses` counts the last calls in the event loop that were not short."""

    limit: float = _TRIED
    best: float = math.inf
    misses: int = 0


class Direct:
    """Estimates the time of calls. A key stands for calls that take about the same time.

    Handing a call to a thread and back makes the interpreter change threads twice, which takes
    longer than a small model. The time of a call in a thread contains the wait for it. So a key is
    tried in the event loop when one of its calls took less than 10 ms in a thread. When three calls
    in a row take longer than 1 ms there (one may be due to a busy machine), later ones go to
    threads, until one takes less than 1 ms.
    """

    def __init__(self) -> None:
        self._estimates: dict[Hashable, _Estimate] = {}

    def is_short(self, key: Hashable) -> bool:
        """Whether to run the next call of this key in the event loop."""
        found = self._estimates.get(key)
        return found is not None and found.best < found.limit

    def handed_over(self, key: Hashable, seconds: float) -> None:
        """Notes the time of a call that ran in a thread, with the time that it waited for one."""
        if len(self._estimates) >= _MOST:
            self._estimates.clear()
        found = self._estimates.setdefault(key, _Estimate())
        found.best = min(seconds, found.best)

    def ran_here(self, key: Hashable, seconds: float) -> None:
        """Notes the time of a call that ran in the event loop."""
        found = self._estimates.setdefault(key, _Estimate())
        found.misses = 0 if seconds < _SHORT else found.misses + 1
        if found.misses == _CHANCES:
            self._estimates[key] = _Estimate(limit=_SHORT)
