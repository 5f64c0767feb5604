"""`Uses`: how many requests use something that is to be closed when nobody uses it."""

from __future__ import annotations

import threading


class Uses:
    """A count of users, which can be closed. Thread-safe.

    Attributes:
        total: how many users there have been.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0
        self._closed = False
        self.total = 0

    def enter(self) -> bool:
        """Adds a user. Returns False, and adds none, if it is closed."""
        with self._condition:
            if self._closed:
                return False
            self._count += 1
            self.total += 1
            return True

    def join(self) -> None:
        """Adds a helper of a user that is still there, even if it is closed."""
        with self._condition:
            self._count += 1

    def leave(self) -> None:
        """Removes a user."""
        with self._condition:
            self._count -= 1
            self._condition.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Admits no further users, and waits until the last one has left.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            whether there are none left.
        """
        with self._condition:
            self._closed = True
            return self._condition.wait_for(lambda: self._count == 0, timeout)
