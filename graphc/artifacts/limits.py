"""`Limits`: how much a program from a file may ask for, before any of it runs."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphc.errors import ArtifactError, AttributeValueError
from graphc.runtime.fitting import taken_by


@dataclass(frozen=True)
class Limits:
    """How much a program of an artifact may ask for: `gc.load(path, limits=gc.Limits(...))`.

    A small file can hold a program that takes hours to compile, or all the memory there is. Each
    limit is checked when an entry point is first called with inputs of some sizes, before the
    program runs. Native code that is trusted is not limited.

    Time on the device is not limited: a program may hold a loop that never ends. Run a file from a
    stranger in a process of its own that you can end.

    Attributes:
        operations: of a program, every function counted as often as it is called; of a graph, its
            nodes. Programs take time and memory to compile by this number.
        memory: bytes that a run takes on each device, as XLA counts them: arguments, results and
            temporaries. A tensor of more elements is refused before it is compiled.
        seconds: that XLA may take to compile a program. It is compiled in another process first,
            which is ended when the time is over; so a program takes twice the time to compile, and
            one that ends the compiler does not end this process. For programs on one CPU device;
            others are refused.

    Raises:
        AttributeValueError: a limit is not a positive number.

    >>> Limits(operations=10_000, memory=2**30)
    Limits(operations=10000, memory=1073741824, seconds=None)
    """

    operations: int | None = None
    memory: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            fractions = field.name == "seconds"
            number = _number(value, fractions)
            if number is None or not 0 < number < float("inf"):
                must = "number" if fractions else "number, an int,"
                raise AttributeValueError(
                    f"Limits: {field.name} must be a positive {must} or None, got {value!r}"
                )
            object.__setattr__(self, field.name, number)

    def check_operations(self, name: str, count: int) -> None:
        """Refuses a program of more operations.

        Raises:
            ArtifactError: it has more.
        """
        if self.operations is not None and count > self.operations:
            raise _beyond(name, f"it has {count} operations", "operations", self.operations)

    def check_tensor(self, name: str, elements: int) -> None:
        """Refuses a program with a tensor of more elements than a run may take bytes.

        Raises:
            ArtifactError: it has one.
        """
        if self.memory is not None and elements > self.memory:
            raise _beyond(name, f"it has a tensor of {elements} elements", "memory", self.memory)

    def check_compiled(self, name: str, compiled: Any) -> None:
        """Refuses a compiled program that takes more memory.

        Raises:
            ArtifactError: it takes more.
            ExecutionError: XLA does not say how much it takes.
        """
        if self.memory is not None and (taken := taken_by(compiled)) > self.memory:
            raise _beyond(name, f"a run takes {taken} bytes", "memory", self.memory)


def _number(value: Any, fractions: bool) -> int | float | None:
    """The Python number that `value` is, NumPy's numbers too; None if it is none, as a bool."""
    if isinstance(value, (bool, np.bool_)):
        return None
    if fractions and isinstance(value, (float, np.floating)):
        return float(value)
    try:
        return operator.index(value)
    except TypeError:
        return None


def _beyond(name: str, what: str, limit: str, value: float) -> ArtifactError:
    return ArtifactError(
        f"program {name!r} is beyond the limits: {what}, and {limit}={value} is allowed",
        mend=f"load it with a larger {limit}, if you trust the file",
    )


def not_compiled(name: str, why: str, seconds: float) -> ArtifactError:
    """The error for a program that could not be compiled within its time."""
    return ArtifactError(
        f"program {name!r} is beyond the limits: it was not compiled within seconds={seconds:g}",
        details=[why],
        mend="load it with more seconds, if you trust the file",
    )
