"""Fits a program into a memory limit. Budgets are tried until the sizes that XLA reports fit.

The memory use of a program is estimated from its types (`passes/core/peak.py`). The exact value
is known after XLA has compiled the program. The difference corrects the next budget, so the
second budget usually fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax

from graphc.errors import ExecutionError, MemoryLimitError
from graphc.ir.costs import bytes_of
from graphc.ir.program import Program
from graphc.passes.core.peak import peak
from graphc.passes.manager import PassReport
from graphc.passes.memory.recompute import Recompute

_TRIES = 6
_SLACK = (1.02, 1.05, 1.1)  # factors of estimates


class Made(Protocol):
    """A program made under a budget and not compiled yet: the program that each device runs, and
    the report of the passes that made it."""

    @property
    def local(self) -> Program: ...
    @property
    def report(self) -> PassReport: ...


M = TypeVar("M", bound=Made)


class Try(NamedTuple, Generic[M]):
    """A program under one budget.

    Attributes:
        budget: the budget that `Recompute` was given.
        estimate: the bytes that the program uses besides its arguments, estimated from types.
        taken: the bytes that a run uses on each device, as reported by XLA.
    """

    budget: int
    made: M
    lowered: Any
    compiled: jax.stages.Compiled
    estimate: int
    taken: int


def taken_by(compiled: jax.stages.Compiled) -> int:
    """The bytes that a run uses on each device: arguments, temporaries, and results that do not
    reuse the memory of arguments.

    Raises:
        ExecutionError: XLA does not report it.
    """
    found = _analysis(compiled)
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    return int(found.argument_size_in_bytes + results + found.temp_size_in_bytes)


def _analysis(compiled: jax.stages.Compiled) -> Any:
    found = compiled.memory_analysis()
    if found is None:
        raise ExecutionError(
            "memory_limit: XLA does not report how much memory a program uses on this device",
            hint="remove memory_limit",
        )
    return found


def fit(
    plain: M,
    make: Callable[[int], M],
    compile: Callable[[M], tuple[Any, jax.stages.Compiled]],
    limit: int,
    name: str | None = None,
) -> Try[M]:
    """The fastest program found that uses at most `limit` bytes, compiled.

    Args:
        plain: the program without recomputation.
        make: returns the program for a budget.
        compile: returns the lowered and the compiled program.
        name: the name of the limit in errors, if the limit does not come from the options.

    Raises:
        MemoryLimitError: no program fits. The error states how many bytes the smallest one uses.
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
    """The tries of one program. `_fits` is the best try that fits. `_too_large` is the smallest
    estimate of the tries that do not fit."""

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
        """The best program that fits, or None if none fits. The first budget is `first`."""
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
        """Tries the programs with the smallest estimates. Only XLA knows which one is smallest."""
        self._try(0)
        least = min(self._tries)
        for slack in _SLACK:
            if self._fits is None:
                self._try(int(least * slack))

    def _try(self, budget: int) -> Try[M] | None:
        """Tries a budget. Returns None if the resulting program was already tried."""
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
        """The next budget, or None if no improvement is possible. That is so if the program that
        fits recomputes nothing, or if no estimate is left between fitting and not fitting."""
        if found is self._fits and not recomputes(found.made.report):
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
        """The error for a program that does not fit. `name` is as in `fit`."""
        least = min(self._tries.values(), key=lambda found: found.taken)
        temporaries = int(_analysis(least.compiled).temp_size_in_bytes)
        return MemoryLimitError(
            f"the program does not fit into {name or f'memory_limit={self._limit} bytes'}: it "
            f"takes at least {least.taken}",
            least=least.taken,
            details=[
                f"{_in_units(least.taken - temporaries)} are arguments and results",
                f"{_in_units(temporaries)} are temporaries, with all possible recomputation",
                "only values that loops keep for their backward pass can be recomputed: those of "
                'blocks that pipeline="O2" rolls, and of gc.scan',
            ],
            hint="feed a smaller batch, or split it across more devices"
            if name
            else f"pass memory_limit={least.taken} or more, or feed a smaller batch",
        )


def recomputes(report: PassReport) -> bool:
    """Whether the program recomputes values."""
    rows = [row for row in report.rows if row.name == Recompute.class_name()]
    return any(row.changed for row in rows)


def _in_units(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
