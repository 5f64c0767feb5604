"""A program under a memory limit: budgets are tried until XLA's own figures fit.

What a program takes is estimated from its types (`passes/core/peak.py`), and known when XLA has
compiled it. The difference corrects the next budget, so the second one usually fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax

from graphc.errors import ExecutionError, MemoryLimitError
from graphc.ir.program import Program
from graphc.passes.core.peak import bytes_of, peak
from graphc.passes.manager import PassReport
from graphc.passes.memory.recompute import Recompute

_TRIES = 6
_SLACK = (1.02, 1.05, 1.1)  # of estimates


class Made(Protocol):
    """What is made under a budget, not compiled yet: the program that each device runs, and what
    the passes for that did."""

    @property
    def local(self) -> Program: ...
    @property
    def report(self) -> PassReport: ...


M = TypeVar("M", bound=Made)


class Try(NamedTuple, Generic[M]):
    """A program under one budget.

    Attributes:
        budget: that `Recompute` was given.
        estimate: the bytes that the program takes beside its arguments, seen from its types.
        taken: the bytes of a run on each device, as XLA counts them.
    """

    budget: int
    made: M
    lowered: Any
    compiled: jax.stages.Compiled
    estimate: int
    taken: int


def taken_by(compiled: jax.stages.Compiled) -> int:
    """The bytes that a run takes on each device: arguments, results that are not written over
    them, and temporaries.

    Raises:
        ExecutionError: XLA does not say.
    """
    found = _analysis(compiled)
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    return int(found.argument_size_in_bytes + results + found.temp_size_in_bytes)


def _analysis(compiled: jax.stages.Compiled) -> Any:
    found = compiled.memory_analysis()
    if found is None:
        raise ExecutionError(
            "memory_limit: XLA does not say how much memory a program takes on this device",
            hint="leave memory_limit out",
        )
    return found


def fit(
    plain: M,
    make: Callable[[int], M],
    compile: Callable[[M], tuple[Any, jax.stages.Compiled]],
    limit: int,
    name: str | None = None,
) -> Try[M]:
    """The fastest program found that takes at most `limit` bytes, compiled.

    Args:
        plain: the program that computes nothing again.
        make: gives the program for a budget.
        compile: gives it lowered and compiled.
        name: what errors call the limit, where it is not that of the options.

    Raises:
        MemoryLimitError: none does; says how many bytes the smallest one takes.
    """
    search = _Search(make, compile, limit)
    local = plain.local
    fetched = [port.tensor for port in local.ports("fetch")]
    around = sum(map(bytes_of, [*local.input_tensors(), *fetched]))
    found = search.run(max(0, limit - around))
    if found is None:
        raise search.refusal(name)
    return found


class _Search(Generic[M]):
    """The tries of one program: `fits` is the best that fits, `too_large` the least estimate of
    those that do not."""

    def __init__(
        self,
        make: Callable[[int], M],
        compile: Callable[[M], tuple[Any, jax.stages.Compiled]],
        limit: int,
    ) -> None:
        self._make, self._compile, self._limit = make, compile, limit
        self._tries: dict[int, Try[M]] = {}
        self._fits: Try[M] | None = None
        self._too_large: int | None = None

    def run(self, first: int) -> Try[M] | None:
        """The best program that fits, None if none does. Begins with the budget `first`."""
        budget: int | None = first
        while budget is not None and len(self._tries) < _TRIES:
            found = self._try(budget)
            if found is None:
                break
            budget = self._next(found)
        if self._fits is None:
            self._try_smallest()
        return self._fits

    def _try_smallest(self) -> None:
        """Tries those with the least estimates: which is the smallest, only XLA knows."""
        self._try(0)
        least = min(self._tries)
        for slack in _SLACK:
            if self._fits is None:
                self._try(int(least * slack))

    def _try(self, budget: int) -> Try[M] | None:
        """Tries a budget; None where it gives a program that was tried."""
        made = self._make(budget)
        estimate = peak(made.local)
        if estimate in self._tries:
            return None
        lowered, compiled = self._compile(made)
        found = Try(budget, made, lowered, compiled, estimate, taken_by(compiled))
        self._tries[estimate] = found
        if found.taken > self._limit:
            self._too_large = min(self._too_large or estimate, estimate)
        elif self._fits is None or estimate > self._fits.estimate:
            self._fits = found
        return found

    def _next(self, found: Try[M]) -> int | None:
        """The next budget; None where there is nothing to gain: what fits computes nothing again,
        or there is no estimate between what fits and what does not."""
        if found is self._fits and not _computes_again(found.made):
            return None
        budget = found.estimate + self._limit - found.taken
        below = -1 if self._fits is None else self._fits.estimate
        if self._too_large is not None:
            budget = min(budget, self._too_large - 1)
            if budget <= below:
                budget = (self._too_large + below) // 2
        elif self._fits is None:
            budget = max(budget, 0)
        return budget if budget > below else None

    def refusal(self, name: str | None) -> MemoryLimitError:
        """The error for a program that does not fit; `name` as for `fit`."""
        least = min(self._tries.values(), key=lambda found: found.taken)
        temporaries = int(_analysis(least.compiled).temp_size_in_bytes)
        return MemoryLimitError(
            f"the program does not fit into {name or f'memory_limit={self._limit} bytes'}: it "
            f"takes at least {least.taken}",
            least=least.taken,
            details=[
                f"{_in_units(least.taken - temporaries)} are arguments and results",
                f"{_in_units(temporaries)} are temporaries, with all computed again that can be",
                "only what loops keep for their backward pass is computed again: blocks that "
                'pipeline="O2" rolls, and gc.scan',
            ],
            hint="feed a smaller batch, or share it among more devices"
            if name
            else f"pass memory_limit={least.taken} or more, or feed a smaller batch",
        )


def _computes_again(made: Made) -> bool:
    rows = [row for row in made.report.rows if row.name == Recompute.class_name()]
    return any(row.changed for row in rows)


def _in_units(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
