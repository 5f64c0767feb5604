"""`Limits`: bounds for programs from a file, checked before they run."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any

import jax
import numpy as np

from graphc.errors import ArtifactError, AttributeValueError
from graphc.runtime.pipeline.fitting import taken_by


@dataclass(frozen=True)
class Limits:
    """Bounds for the programs of an artifact: `gc.load(path, limits=gc.Limits(...))`.

    A small file can hold a program that takes hours to compile, or that needs all memory. Each
    limit is checked when an entry point is first called with inputs of some sizes, before the
    program runs. Native code that is trusted is not limited.

    The time of a run is not limited: a program may contain a loop that never ends. Run a file from
    an untrusted source in a separate process, which you can terminate.

    Attributes:
        operations: the number of operations of a program, where each function counts as often as it
            is called; for a graph, the number of its nodes. The time and the memory that
            compilation takes grow with this number.
        memory: the bytes that a run takes on each device, as XLA counts them: arguments, results
            and temporaries. A program that has a tensor with more elements than this number is
            rejected before it is compiled.
        seconds: the time that XLA may take to compile a program. The program is first compiled in
            another process, which is terminated when the time has passed. So compilation takes
            twice as long, and a program that crashes the compiler does not crash this process. This
            limit supports programs on one CPU device only; other programs are rejected.

    Raises:
        AttributeValueError: a limit is not a positive number.

    Examples:
        >>> gc.Limits(operations=10_000, memory=2**30)
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
        """Rejects a program that has too many operations.

        Raises:
            ArtifactError: it has too many.
        """
        if self.operations is not None and count > self.operations:
            raise _beyond(name, f"it has {count} operations", "operations", self.operations)

    def check_tensor(self, name: str, elements: int) -> None:
        """Rejects a program that has a tensor with more elements than a run may take bytes.

        Raises:
            ArtifactError: it has such a tensor.
        """
        if self.memory is not None and elements > self.memory:
            raise _beyond(name, f"it has a tensor of {elements} elements", "memory", self.memory)

    def check_compiled(self, name: str, compiled: jax.stages.Compiled) -> None:
        """Rejects a compiled program that takes too much memory.

        Raises:
            ArtifactError: it takes too much.
            ExecutionError: XLA does not report its memory use.
        """
        if self.memory is not None and (taken := taken_by(compiled)) > self.memory:
            raise _beyond(name, f"a run takes {taken} bytes", "memory", self.memory)


def _number(value: Any, fractions: bool) -> int | float | None:
    """`value` as a Python number, also from a NumPy number; None if it is not a number. A bool is
    not a number."""
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
        f"program {name!r} is beyond the limits: {what}, but {limit}={value} is allowed",
        hint=f"load it with a larger {limit}, if you trust the file",
    )


def not_compiled(name: str, why: str, seconds: float) -> ArtifactError:
    """The error for a program that could not be compiled within its time."""
    return ArtifactError(
        f"program {name!r} is beyond the limits: it was not compiled within seconds={seconds:g}",
        details=[why],
        hint="load it with more seconds, if you trust the file",
    )
