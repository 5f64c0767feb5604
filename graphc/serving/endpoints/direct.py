"""Which calls run in the event loop itself: those that take less time than handing them over."""

from __future__ import annotations

from collections.abc import Hashable

_SHORT = 0.001  # seconds
_MOST = 4096  # keys


class Direct:
    """Estimates the time of calls. A key stands for calls that take about the same time.

    Handing a call to a thread and back makes the interpreter change threads twice, which takes
    longer than a small model. A call is short when a call of its key took less than a millisecond
    in a thread. A call in the event loop that takes longer makes later ones go to a thread again.
    """

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}

    def is_short(self, key: Hashable) -> bool:
        """Whether to run the next call of this key in the event loop."""
        return self._seconds.get(key, _SHORT) < _SHORT

    def handed_over(self, key: Hashable, seconds: float) -> None:
        """Notes the time of a call that ran in a thread, with the time that it waited for one."""
        if len(self._seconds) >= _MOST:
            self._seconds.clear()
        self._seconds[key] = min(seconds, self._seconds.get(key, seconds))

    def ran_here(self, key: Hashable, seconds: float) -> None:
        """Notes the time of a call that ran in the event loop."""
        self._seconds[key] = (seconds + self._seconds.get(key, seconds)) / 2
