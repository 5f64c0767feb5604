"""`Remembered`: the calls of a jitted function that are found without a search for a program."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from threading import Lock
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.tree_util import tree_flatten

from graphc.jitted.direct import OTHER
from graphc.jitted.last import LastCall, LeftToJax
from graphc.jitted.packed import is_packed, packing_of

Entry: TypeAlias = LastCall | LeftToJax

_MOST = 1024  # sets of shapes and static arguments
_MOST_ALIKE = 32  # calls of one such set: they differ in element types, in devices, or in classes

_SHAPE = attrgetter("aval.shape")


class Remembered:
    """The calls of a jitted function, by the shapes and static arguments that distinguish most.

    Threads read without a lock: they see each entry complete, or not at all.

    Attributes:
        last: the last call that graphc ran.
    """

    def __init__(self) -> None:
        self.last: LastCall | None = None
        self._latest: Entry | None = None  # perhaps left to JAX
        self._entries: dict[Any, tuple[Entry, ...]] = {}
        self._lock = Lock()

    def call(self, key: Any, values: Sequence[Any]) -> Any:
        """The result of a call that is remembered: `BY_JAX` if JAX must run it; `OTHER` if it is
        not remembered, or its arguments are not valid.

        Args:
            key: the labels, the static arguments, and JAX's settings.
        """
        latest = self._latest
        if latest is not None and latest.key == key:
            found = latest.call(values)
            if found is not OTHER:
                return found
        for entry in self._found(key, values):
            if entry is not latest:
                found = entry.call(values)
                if found is not OTHER:
                    self._use(entry)
                    return found
        return OTHER

    def _found(self, key: Any, values: Sequence[Any]) -> tuple[Entry, ...]:
        if not self._entries:
            return ()
        try:
            return self._entries.get(_place(key, values), ())
        except TypeError:  # metadata of a node without a hash
            return ()

    def add(self, entry: Entry, values: Sequence[Any]) -> None:
        """Remembers a call with these arguments."""
        place = _place(entry.key, values)
        try:
            hash(place)
        except TypeError:
            return
        with self._lock:
            others = [o for o in self._entries.pop(place, ()) if not entry.is_like(o)]
            while len(self._entries) >= _MOST:
                del self._entries[next(iter(self._entries))]
            self._entries[place] = (entry, *others[: _MOST_ALIKE - 1])
            self._use(entry)

    def clear(self) -> None:
        """Forgets all calls."""
        with self._lock:
            self._entries.clear()
            self.last = self._latest = None

    def _use(self, entry: Entry) -> None:
        self._latest = entry
        if isinstance(entry, LastCall):
            self.last = entry


def _place(key: Any, values: Sequence[Any]) -> Any:
    """A value that is the same for calls that differ at most in the element types, the classes or
    the devices of arrays. Packed trees stay packed."""
    packed: list[Any] = []
    if any(map(is_packed, values)):
        packings = list(map(packing_of, values))
        packed = [None if packing is None else packing.form.tree for packing in packings]
        values = [
            value if packing is None else None
            for value, packing in zip(values, packings, strict=True)
        ]
    leaves, tree = tree_flatten(tuple(values))
    try:
        shapes = tuple(map(_SHAPE, leaves))
    except AttributeError:  # NumPy's arrays and numbers have no `aval`
        shapes = tuple(map(_shape, leaves))
    return key, tree, shapes, tuple(packed)


def _shape(leaf: Any) -> Any:
    return leaf.shape if isinstance(leaf, np.ndarray | jax.Array) else type(leaf)
