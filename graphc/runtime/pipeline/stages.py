"""From a bound program to compiled code, stage by stage; each when it is first asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

from graphc.ir.program import Program
from graphc.passes.manager import PassReport
from graphc.passes.memory.recompute import Recompute
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.lazy import Lazy
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.fitting import Try, fit
from graphc.runtime.targets.interface import Interface
from graphc.runtime.targets.jax_program import InJax
from graphc.runtime.targets.loading import noting_reuse

T = TypeVar("T")


class Stages:
    """What an executable is made from, once its state has a layout. Nothing of it is needed to run
    an executable that was found in the cache.

    Args:
        keep: is given the compiled program and its interface once, when it is made.
        budget: what it was found in the cache with, where there is a limit of memory.
    """

    def __init__(
        self,
        compilation: Compilation,
        layout: StateLayout,
        keep: Callable[[Stages, jax.stages.Compiled], None] | None = None,
        budget: int | None = None,
    ) -> None:
        self.compilation, self._layout, self._budget = compilation, layout, budget
        self._keep = keep
        self._seconds: dict[str, float] = {}
        self._reused: list[jax.stages.Compiled] = []  # what JAX had in a cache of its own
        self._in_jax: Lazy[InJax] = Lazy(
            lambda: self._timed("layout", lambda: compilation.in_jax(layout, budget))
        )
        self._lowered: Lazy[Any] = Lazy(lambda: self._lower(self.in_jax))
        self._compiled = Lazy(self._compile)
        limit = compilation.memory_limit
        self._fitted: Lazy[Try[InJax]] | None = None
        if limit is not None and budget is None:
            within = limit
            self._fitted = Lazy(lambda: self._fit(within))

    @property
    def program(self) -> Program:
        """The optimised program, its state by variable."""
        return self.compilation.program

    @property
    def in_jax(self) -> InJax:
        """The physical program, not traced yet: as it is before a limit of memory, where there
        is one.

        Raises:
            LayoutError: the strategy cannot be followed.
        """
        return self._in_jax()

    @property
    def interface(self) -> Interface:
        """What running it takes. A limit of memory changes it only where nodes are checked, for
        there are more of them; then this compiles.

        Raises:
            ExecutionError: it does not fit into the limit of memory.
        """
        if self._fitted is not None and self.compilation.options.check_numerics:
            return self._fitted().made.interface
        return self.in_jax.interface

    @property
    def local(self) -> Program:
        """What each device runs: the program that is lowered.

        Raises:
            ExecutionError: it does not fit into the limit of memory.
        """
        return self.in_jax.local if self._fitted is None else self._fitted().made.local

    @property
    def report(self) -> PassReport:
        """What each pass did."""
        made = self.in_jax if self._fitted is None else self._fitted().made
        return self.compilation.report + made.report

    @property
    def budget(self) -> int | None:
        """What `passes.recompute` was given; None where there is no limit of memory."""
        return self._budget if self._fitted is None else self._fitted().budget

    @property
    def recomputes(self) -> bool:
        """Whether it computes something again to keep to its memory limit."""
        rows = self.report.rows
        return any(row.changed for row in rows if row.name == Recompute.class_name())

    @property
    def lowered(self) -> Any:
        """JAX's stage before XLA."""
        return self._lowered() if self._fitted is None else self._fitted().lowered

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The compiled program.

        Raises:
            ExecutionError: XLA refuses it, or it does not fit into the limit of memory.
        """
        return self._compiled()

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds of the stages that were carried out: "layout", "lower" (tracing included),
        "compile"."""
        return dict(self._seconds)

    def _compile(self) -> jax.stages.Compiled:
        if self._fitted is None:
            compiled = self._through_xla(self.in_jax, self.lowered)
        else:
            compiled = self._fitted().compiled
        if self._keep is not None and not any(compiled is reused for reused in self._reused):
            self._keep(self, compiled)
        return compiled

    def _fit(self, limit: int) -> Try[InJax]:
        """The program under a limit of memory."""

        def compiled(made: InJax) -> tuple[Any, jax.stages.Compiled]:
            lowered = self._lower(made)
            return lowered, self._through_xla(made, lowered)

        compilation, layout = self.compilation, self._layout
        name = None
        if compilation.machine is not None and compilation.options.memory_limit is None:
            name = compilation.machine.memory_in_words()
        return fit(
            self.in_jax, lambda budget: compilation.in_jax(layout, budget), compiled, limit, name
        )

    def _lower(self, made: InJax) -> Any:
        return self._timed("lower", made.lower)

    def _through_xla(self, made: InJax, lowered: Any) -> jax.stages.Compiled:
        with noting_reuse() as reused:
            compiled: jax.stages.Compiled = self._timed(
                "compile", lambda: made.compile(lowered, self.compilation.options)
            )
        if reused:
            self._reused.append(compiled)
        return compiled

    def _timed(self, stage: str, carry_out: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = carry_out()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - start
        return result
