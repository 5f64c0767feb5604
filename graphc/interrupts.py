"""Delays signals while state is replaced, and while JAX traces and compiles.

A step that donates its state consumes the old buffers when it is dispatched. The new buffers are
available only when the call returns. Python may run signal handlers between the two, in JAX's own
frames, after the runtime has returned and before any variable holds its results. A handler that
raises at that point (Ctrl-C) would lose the parameters. So during that time, graphc replaces the
user's handler with its own, which records the signal. The user's handler is called when the state
is whole.

An exception in the middle of a trace can break JAX for the rest of the process: the trace may stay
the current one of its thread (later calls then fail with "Detected argument of Tracer type"), and
an entry of JAX's caches may stay in progress (`RecursionError: Recursively calling`). So the traces
of graphs and optimizers are not interrupted either. Those of a user's function are, as in JAX: the
function may never end.

Handlers are exchanged for each step, and not once for the whole process. The reason is that
asyncio, IPython and pytest set and compare the handler of SIGINT, and must find the one that they
expect. Exceptions that are raised in a thread in another way (`PyThreadState_SetAsyncExc`) are not
delayed: see `LiveState.check`.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from threading import get_ident, main_thread
from types import FrameType
from typing import Any, TypeVar

# The module under `signal` works on plain numbers: a call takes 0.2 us instead of 2.5 us.
try:
    from _signal import getsignal as _handler_of  # type: ignore[import-not-found]
    from _signal import signal as _set_handler
except ImportError:  # a Python other than CPython
    _handler_of, _set_handler = signal.getsignal, signal.signal

T = TypeVar("T")

PATIENCE = 5.0  # seconds; after that, another signal of the same kind is not delayed
_MAIN = main_thread().ident  # Python runs handlers only in this thread
# Ctrl-C, and signals whose handlers may raise (time limits, schedulers that stop a job). Windows
# has only the first two.
_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1")
_NUMBERS = [int(getattr(signal, name, signal.SIGTERM)) for name in _NAMES]
_INT, _TERM, _ALRM, _HUP, _USR1 = _NUMBERS
_Rows = list[tuple[int, int]]  # place and number of each delayed signal
# The handlers of the last call, and its rows. The initial value is not a handler.
_last: tuple[tuple[Any, ...], _Rows] = (object(),) * 5, []
_delayed: list[int] = []  # the delayed signals, in the order of their arrival
_since = 0.0  # the arrival time of the first of them
_handlers: dict[int, Any] = {}  # the user's handlers while ours are in their places


def uninterrupted(work: Callable[..., T], *args: Any) -> T:
    """The result of `work(*args)`. Handlers of signals that arrive meanwhile are called after it.

    If a signal has been delayed for `PATIENCE` seconds, another signal of its kind is not delayed,
    so that a call that hangs can be stopped.
    """
    global _last
    if get_ident() != _MAIN:
        return work(*args)
    of = _handler_of  # the loops are unrolled because every step pays for this code
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
    """The signals to delay: those with a handler of the user. The default handler and an ignored
    signal (SIGHUP under nohup) are numbers. A signal that is already delayed has our handler."""
    rows = {}
    for i, (number, handler) in enumerate(zip(_NUMBERS, handlers, strict=True)):
        if handler is _delay:  # set by an outer call, which has recorded the user's handler
            continue
        _handlers.pop(number, None)
        if callable(handler):
            rows[number], _handlers[number] = i, handler
    return [(i, number) for number, i in rows.items()]


_DELAYING = uninterrupted.__code__


def _delay(number: int, frame: FrameType | None) -> None:
    """The signal handler while state is replaced."""
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
    if not inside:  # another exception prevented the handler from being restored
        _set_handler(number, handler)
    handler(number, frame)


def _is_inside(frame: FrameType | None) -> bool:
    """Whether this frame was called by `uninterrupted`."""
    while frame is not None:
        if frame.f_code is _DELAYING:
            return True
        frame = frame.f_back
    return False


def is_overdue(frame: FrameType | None) -> bool:
    """Whether a handler that got `frame` was called before `uninterrupted` ended, because the call
    in it hangs."""
    delivered = frame is not None and frame.f_code is _deliver.__code__
    return not delivered and _is_inside(frame)


def _deliver() -> None:
    """Calls the handlers of the delayed signals, all of them even if one raises.

    The signals are not sent again, because that would write to the wakeup file descriptor a second
    time, and asyncio would count one Ctrl-C twice. Signals that an outer call still delays remain.
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
