"""The programs that all jitted functions of one Python function share, as those of `jax.jit` do."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

from graphc.jitted.program import JitProgram
from graphc.jitted.remembered import Remembered
from graphc.runtime.buffers.layout import StateLayout


class Programs:
    """The programs of a function that is jitted in one way.

    Attributes:
        made: the programs by the arguments, devices and settings of calls; None for calls that JAX
            runs.
        layouts: the layouts of states, by the types of variables.
        remembered: calls that need no search in `made`.
        notes: the reasons why calls were left to JAX.
        lock: held while a program is made.
    """

    def __init__(self) -> None:
        self.made: dict[Any, JitProgram | None] = {}
        self.layouts: dict[Any, StateLayout] = {}
        self.remembered = Remembered()
        self.notes: list[str] = []
        self.lock = RLock()

    def note(self, reason: str) -> None:
        """Adds a reason, unless it is there."""
        if reason not in self.notes:
            self.notes.append(reason)

    def clear(self) -> None:
        """Removes all programs."""
        with self.lock:
            self.made.clear()
            self.layouts.clear()
            self.remembered.clear()


_OF: WeakKeyDictionary[Any, dict[Any, Programs]] = WeakKeyDictionary()
_LOCK = RLock()


def programs_of(function: Callable[..., Any], way: Any) -> Programs:
    """The programs of a function that is jitted in this way: `jit(step)(x)` in a loop compiles
    once. They are freed with the function.

    Args:
        way: a value that is equal for equal arguments of `jit`.
    """
    try:
        with _LOCK:
            return _OF.setdefault(function, {}).setdefault(way, Programs())
    except Exception:  # no hash, no weak references, or a comparison that fails
        return Programs()
