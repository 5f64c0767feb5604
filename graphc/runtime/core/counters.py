"""Counts the expensive operations of this process. Tests and users rely on the counts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from threading import Lock


@dataclass
class Counters:
    """Counts since the process started.

    Attributes:
        captures: fetch sets that became programs.
        passes: passes that ran over programs; each round counts.
        traces: programs that JAX traced.
        lowerings: programs that were lowered to StableHLO.
        compiles: executables that XLA compiled.
        cache_hits: executables that were loaded from the cache.
        cache_misses: executables that the cache did not have.
    """

    captures: int = 0
    passes: int = 0
    traces: int = 0
    lowerings: int = 0
    compiles: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def add(self, **counts: int) -> None:
        """Adds to counts by name. Any thread may call it."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def snapshot(self) -> Counters:
        """A copy, for a later comparison."""
        with self._lock:
            return Counters(**{f.name: getattr(self, f.name) for f in fields(self) if f.init})


COUNTERS = Counters()
