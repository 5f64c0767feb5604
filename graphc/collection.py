"""Pauses Python's cyclic garbage collector while many long-lived objects are created."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_pauses = 0
_resume = False  # whether the collector was enabled when the first of the current pauses began


def _after_fork() -> None:
    """Called in a child process, because a thread that exists only in the parent may hold the
    lock."""
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def without_collection() -> Iterator[None]:
    """A context manager, or a decorator, that pauses collections, in any thread.

    A graph consists of many small objects, nearly all of which are long-lived. The collector would
    repeatedly traverse all of them, and all objects of JAX, which takes a tenth of the time to the
    first step. On exit the collector is enabled again if it was enabled before. Memory without
    cycles is freed as usual.
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
