"""Signals wait while state changes hands.

A step that donates its state takes the old buffers away when it is dispatched, and the new ones are
there only when the call returns. Python runs the handlers of signals between the two: in JAX's own
frames, after the runtime has returned and before anybody holds what it returned. A handler that
raises there (Ctrl-C) would cost the parameters. So for that time graphc puts a handler of its own
in the place of the user's, which notes the signal; the user's is called when the state is whole.

Handlers are exchanged for one step at a time, and not once for all: asyncio, IPython and pytest
set and compare the handler of SIGINT, and must find the one they expect. What is raised in a thread
by other means (`PyThreadState_SetAsyncExc`) is not delayed: see `LiveState.check`.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from threading import get_ident, main_thread
from types import FrameType
from typing import Any, TypeVar

# The module under `signal` works on plain numbers: 0.2 us a call in place of 2.5 us.
try:
    from _signal import getsignal as _handler_of  # type: ignore[import-not-found]
    from _signal import signal as _set_handler
except ImportError:  # another Python than CPython
    _handler_of, _set_handler = signal.getsignal, signal.signal

T = TypeVar("T")

PATIENCE = 5.0  # seconds after which another signal of the same kind is not delayed any more
_MAIN = main_thread().ident  # Python runs handlers in no other thread
# Besides Ctrl-C those whose handlers may raise (time limits, schedulers that stop a job).
# Windows has the first two only.
_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1")
_NUMBERS = [int(getattr(signal, name, signal.SIGTERM)) for name in _NAMES]
_INT, _TERM, _ALRM, _HUP, _USR1 = _NUMBERS
_Rows = list[tuple[int, int]]  # place and number of each signal that is delayed
# The handlers of the last call, and its rows. At first what is no handler.
_last: tuple[tuple[Any, ...], _Rows] = (object(),) * 5, []
_delayed: list[int] = []  # the signals that wait, in the order in which they came
_since = 0.0  # when the first of them came
_handlers: dict[int, Any] = {}  # the user's, while ours are in their places


def uninterrupted(work: Callable[..., T], *args: Any) -> T:
    """What `work(*args)` gives; the handlers of signals that come meanwhile are called after it.

    A signal of a kind that has waited for `PATIENCE` seconds already is not delayed: a call that
    hangs can be stopped.
    """
    global _last
    if get_ident() != _MAIN:
        return work(*args)
    of = _handler_of  # the loops are written out: each microsecond here is one of each step
    found = of(_INT), of(_TERM), of(_ALRM), of(_HUP), of(_USR1)
    seen, rows = _last
    if not (
        found[0] is seen[0]
        and found[1] is seen[1]
        and found[2] is seen[2]
        and found[3] is seen[3]
        and found[4] is seen[4]
    ):
        rows = _rows(found)
        _last = found, rows
    try:
        for _, number in rows:
            _set_handler(number, _delay)
        return work(*args)
    finally:
        for i, number in rows:
            _set_handler(number, found[i])
        if _delayed:
            _deliver()


def _rows(handlers: tuple[Any, ...]) -> _Rows:
    """What to delay: signals with a handler of the user's. The default and an ignored signal
    (SIGHUP under nohup) have numbers for handlers, and what is delayed already has ours."""
    rows = {}
    for i, (number, handler) in enumerate(zip(_NUMBERS, handlers, strict=True)):
        if handler is _delay:  # of a call outside, which has noted the user's
            continue
        _handlers.pop(number, None)
        if callable(handler):
            rows[number], _handlers[number] = i, handler
    return [(i, number) for number, i in rows.items()]


_DELAYING = uninterrupted.__code__


def _delay(number: int, frame: FrameType | None) -> None:
    """The handler while state changes hands."""
    global _since
    inside = _is_inside(frame)
    if inside and number not in _delayed:
        if not _delayed:
            _since = time.monotonic()
        _delayed.append(number)
        return
    if inside and time.monotonic() - _since < PATIENCE:
        return
    handler = _handlers[number]
    if not inside:  # an exception of another kind kept it from being put back
        _set_handler(number, handler)
    handler(number, frame)


def _is_inside(frame: FrameType | None) -> bool:
    """Whether this frame was called by `uninterrupted`."""
    while frame is not None:
        if frame.f_code is _DELAYING:
            return True
        frame = frame.f_back
    return False


def _deliver() -> None:
    """Calls the handlers of the delayed signals, each even where one before it raises.

    The signals are not sent again: that would write to the wakeup file descriptor a second time,
    and asyncio would take one Ctrl-C for two. Those that a call outside still delays stay.
    """
    for number in _delayed:
        handler = _handler_of(number)
        if handler is not _delay:
            break
    else:
        return
    _delayed.remove(number)
    try:
        if callable(handler):
            handler(number, sys._getframe())
    finally:
        _deliver()
