"""How often the expensive things happened in this process: tests and users count on it."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Counters:
    """Counts since the process started.

    Attributes:
        captures: fetch sets turned into programs and optimised.
        traces: programs traced by JAX.
        compiles: executables compiled by XLA.
    """

    captures: int = 0
    traces: int = 0
    compiles: int = 0

    def snapshot(self) -> Counters:
        """A copy, to compare with later."""
        return Counters(**{f.name: getattr(self, f.name) for f in fields(self)})


COUNTERS = Counters()
