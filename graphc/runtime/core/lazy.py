"""Values that are made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value that the first who asks makes; other threads that ask meanwhile wait for it.

    Where making it fails, who asked gets the error, and the next who asks makes it again.

    >>> value = Lazy(lambda: print("made") or 3)
    >>> value(), value()
    made
    (3, 3)
    """

    # `functools.cached_property` will not do: in Python 3.11 it makes one value at a time for all
    # objects of a class.

    __slots__ = ("_lock", "_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._lock = Lock()

    def __call__(self) -> T:
        with self._lock:
            if self._make is not None:
                self._value = self._make()
                self._make = None  # and what it holds
            return self._value
