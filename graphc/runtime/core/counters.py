"""How often the expensive things happened in this process: tests and users count on it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from threading import Lock


@dataclass
class Counters:
    """Counts since the process started.

    Attributes:
        captures: fetch sets turned into programs.
        passes: passes run over programs, each round counted.
        traces: programs traced by JAX.
        lowerings: programs lowered to StableHLO.
        compiles: executables compiled by XLA.
        cache_hits: executables loaded from the cache.
        cache_misses: executables looked for there in vain.
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
        """Adds to counts by name; from any thread."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def snapshot(self) -> Counters:
        """A copy, to compare with later."""
        with self._lock:
            return Counters(**{f.name: getattr(self, f.name) for f in fields(self) if f.init})


COUNTERS = Counters()
