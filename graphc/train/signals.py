"""Handles Ctrl-C and SIGTERM in a training loop: between steps, never within one."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from graphc.interrupts import is_overdue


class Signals:
    """Delays Ctrl-C and SIGTERM while `busy`, so that a step and its bookkeeping stay together.

    When not `busy`, the user's handler is called at once. SIGTERM without a handler raises
    SystemExit, so that the loop can save. A second signal while the first is pending is not
    delayed. Then `torn` is set, because the bookkeeping may be incomplete.

    Attributes:
        busy: whether a step and its bookkeeping are in progress.
        pending: the pending signal, or 0.
        torn: whether a signal has interrupted a step or its bookkeeping.
    """

    def __init__(self) -> None:
        self.busy = False
        self.pending = 0
        self.torn = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Python runs handlers only in the main thread.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if callable(before) or (number == signal.SIGTERM and before == signal.SIG_DFL):
                    self._before[number] = before
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:  # the user has not set another handler
                signal.signal(number, before)
        before, self._before = self._before, {}
        number, self.pending = self.pending, 0
        if number and callable(before[number]):  # the step failed while the signal was pending
            before[number](number, sys._getframe())

    @contextmanager
    def delaying(self) -> Iterator[None]:
        """Signals wait until the end of the context. If it fails, they wait until `__exit__`."""
        self.busy = True
        yield
        self.busy = False
        self.deliver()

    def deliver(self) -> None:
        """Calls the handler of the pending signal. Call it when not `busy`."""
        number, self.pending = self.pending, 0
        if number:
            self._call(number, sys._getframe())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.busy:
            if not self.pending and not is_overdue(frame):
                self.pending = number
                return
            self.torn = True
        self.pending = 0
        self._call(number, frame)

    def _call(self, number: int, frame: FrameType | None) -> None:
        handler = self._before.get(number)
        if callable(handler):
            handler(number, frame)
        else:
            raise SystemExit(128 + number)


def noting(error: BaseException, method: Any, *args: Any) -> None:
    """Calls a method of a callback. If it fails, a note is added to the earlier error."""
    try:
        method(*args)
    except BaseException as other:
        error.add_note(f"Then {method.__qualname__} failed: {other!r}")
