"""Values that are computed when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value that the first caller computes. Other threads that call meanwhile wait for it.

    If the computation fails, its caller gets the error, and the next caller computes the value
    again.

    >>> value = Lazy(lambda: print("made") or 3)
    >>> value(), value()
    made
    (3, 3)
    """

    # `functools.cached_property` is not suitable: in Python 3.11, it computes only one value at a
    # time for all objects of a class.

    __slots__ = ("_lock", "_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._lock = Lock()

    def __call__(self) -> T:
        with self._lock:
            if self._make is not None:
                self._value = self._make()
                self._make = None  # frees what it refers to
            return self._value
