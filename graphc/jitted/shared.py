"""The programs that all jitted functions of one Python function share, as those of `jax.jit` do."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Final
from weakref import WeakKeyDictionary

from graphc.jitted.program import JitProgram
from graphc.runtime.buffers.layout import StateLayout

_MOST: Final = 4096


class Programs:
    """The programs of a function that is jitted in one way.

    Attributes:
        layouts: the layouts of states, by the types of variables.
    """

    def __init__(self) -> None:
        self.layouts: dict[Any, StateLayout] = {}
        self._made: dict[Any, JitProgram | str] = {}
        self._lock = RLock()

    def get(self, key: Any, make: Callable[[], JitProgram | str]) -> JitProgram | str:
        """The program for calls with this key, or the reason why JAX runs them. It is made once."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
                while len(self._made) > _MOST:
                    del self._made[next(iter(self._made))]
            return self._made[key]

    def clear(self) -> None:
        """Removes all programs."""
        with self._lock:
            self._made.clear()
            self.layouts.clear()

    def __len__(self) -> int:
        return sum(isinstance(made, JitProgram) for made in list(self._made.values()))


_OF: WeakKeyDictionary[Any, dict[Any, Programs]] = WeakKeyDictionary()
_LOCK = RLock()


def programs_of(function: Callable[..., Any], way: Any) -> Programs:
    """The programs of a function that is jitted in this way: `jit(step)(x)` in a loop compiles
    once. They are freed with the function, unless an argument that belongs to their key refers to
    it.

    Args:
        way: a value that is equal for equal arguments of `jit`.
    """
    if not can_be_held(function):
        return Programs()
    with _LOCK:
        return _OF.setdefault(function, {}).setdefault(way, Programs())


def can_be_held(function: Callable[..., Any]) -> bool:
    """Whether tables like this one, also those of `jax.jit`, can hold a function."""
    try:
        with _LOCK:
            _OF.setdefault(function, {})
            _ = _OF[function]  # compares it with itself
    except Exception:  # no hash, no weak references, or a comparison that fails
        return False
    return True
