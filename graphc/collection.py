"""Python's cyclic garbage collector, paused while many objects are made that stay."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_pauses = 0
_resume = False  # whether it ran when the first of the present pauses began


def _after_fork() -> None:
    """Called in a child process: a thread that exists only in the parent may hold the lock."""
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def without_collection() -> Iterator[None]:
    """A stretch of work in any thread, or a decorator for one, without collections.

    A graph is many small objects, nearly all of which stay. The collector would walk through all
    of them, and through all of JAX's, time and again: a tenth of the time to the first step.
    It is left as it was found; memory without cycles is freed as always.
    """
    global _pauses, _resume
    with _lock:
        if not _pauses:
            _resume = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _resume:
                gc.enable()
