"""Compiles a bound program, stage by stage. Each stage runs when it is first needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

from graphc.collection import without_collection
from graphc.ir.program import Program
from graphc.passes.manager import PassReport
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.lazy import Lazy
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.fitting import Try, fit, recomputes
from graphc.runtime.targets.interface import Interface
from graphc.runtime.targets.jax_program import InJax
from graphc.runtime.targets.loading import noting_reuse

T = TypeVar("T")


class Stages:
    """The stages that make an executable after its state has a layout. None of them is needed to
    run an executable that was found in the cache.

    Args:
        keep: called once with the stages and the compiled program, after compilation.
        budget: the budget of the executable in the cache, if there is a memory limit.
        names: the `names_digest` of the program that the executable in the cache was compiled from.
            It may be that of an equal program with other names.
    """

    def __init__(
        self,
        compilation: Compilation,
        layout: StateLayout,
        keep: Callable[[Stages, jax.stages.Compiled], None] | None = None,
        budget: int | None = None,
        names: str | None = None,
    ) -> None:
        self.names = names
        self.compilation, self._layout, self._budget = compilation, layout, budget
        self._keep = keep
        self._seconds: dict[str, float] = {}
        self._reused: list[jax.stages.Compiled] = []  # from JAX's own cache
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
        """The optimised program. Its state is one value per variable."""
        return self.compilation.program

    @property
    def in_jax(self) -> InJax:
        """The physical program, not traced yet. A memory limit is not applied to it.

        Raises:
            LayoutError: the strategy cannot be followed.
        """
        return self._in_jax()

    @property
    def interface(self) -> Interface:
        """The interface for running the program. A memory limit changes it only if numerics are
        checked, because recomputation adds checked nodes. In that case this property compiles.

        Raises:
            ExecutionError: the program does not fit into the memory limit.
        """
        if self._fitted is not None and self.compilation.options.check_numerics:
            return self._fitted().made.interface
        return self.in_jax.interface

    @property
    def local(self) -> Program:
        """The program that each device runs, and that is lowered.

        Raises:
            ExecutionError: the program does not fit into the memory limit.
        """
        return self.in_jax.local if self._fitted is None else self._fitted().made.local

    @property
    def report(self) -> PassReport:
        """What each pass did."""
        made = self.in_jax if self._fitted is None else self._fitted().made
        return self.compilation.report + made.report

    @property
    def budget(self) -> int | None:
        """The budget that `passes.recompute` was given; None if there is no memory limit."""
        return self._budget if self._fitted is None else self._fitted().budget

    @property
    def recomputes(self) -> bool:
        """Whether the program recomputes values to stay within its memory limit."""
        return recomputes(self.report)

    @property
    def lowered(self) -> Any:
        """JAX's stage before XLA."""
        return self._lowered() if self._fitted is None else self._fitted().lowered

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The compiled program.

        Raises:
            ExecutionError: XLA rejects the program, or it does not fit into the memory limit.
        """
        return self._compiled()

    @property
    def seconds(self) -> Mapping[str, float]:
        """The duration of each stage that ran: "layout", "lower" (includes tracing) and
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
        """The program that fits into a memory limit."""

        def compiled(made: InJax) -> tuple[Any, jax.stages.Compiled]:
            lowered = self._lower(made)
            return lowered, self._through_xla(made, lowered)

        compilation, layout = self.compilation, self._layout
        return fit(
            self.in_jax,
            lambda budget: compilation.in_jax(layout, budget),
            compiled,
            limit,
            compilation.memory_in_words,
        )

    @without_collection()
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
