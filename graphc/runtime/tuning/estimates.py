"""The search of `gc.tune` for a machine that is not present. Each variant is compiled and ranked by
an estimate of its time from the compiled text. Nothing runs, so no results are compared, and
nothing is stored for later compilations."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax

from graphc.devices.machine import Gpu
from graphc.errors import GraphcError
from graphc.runtime.core.progress import progress_bar
from graphc.runtime.hlo.hlo_cost import timeline
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.executable_cache import CacheBackend
from graphc.runtime.pipeline.tuned import Choice
from graphc.runtime.step.executable import Executable
from graphc.runtime.tuning.search import (
    GAIN,
    Held,
    identity_of,
    is_too_large,
    nodes_of,
    reason_against,
)
from graphc.runtime.tuning.tuning_report import Tuning, TuningRow
from graphc.runtime.tuning.variants import variants_for


class Estimates:
    """One search.

    Args:
        compilation: the compilation with the given options, for the machine.
        gpu: the model of the machine's GPUs.
        make, end: as for `Search`.
    """

    def __init__(
        self,
        make: Callable[[Compilation, CacheBackend], Executable],
        compilation: Compilation,
        gpu: Gpu,
        end: float,
    ) -> None:
        self._make, self._compilation, self._gpu, self._end = make, compilation, gpu, end
        start = time.perf_counter()
        self._step = make(compilation, Held()).wait()
        self._per_node = (time.perf_counter() - start) / nodes_of(self._step)
        self._seconds = self._estimated(self._step)
        self._identities = {identity_of(self._step)}
        self._texts = {_without_names(self._step)}
        self._rows: list[TuningRow] = []

    def run(self, progress: bool) -> Tuning:
        """Tries all variants for which there is time."""
        target, options = self._compilation.target, self._compilation.options
        variants = list(variants_for(self._step.program, target, options))
        found: list[tuple[float, Choice]] = []
        with progress_bar(progress, len(variants), "variant", ncols=100) as bar:
            for variant in variants:
                bar.set_description(variant.choice.name)
                self._try(variant.choice, found)
                bar.update()
        best = self._combined(sorted((each for each in found), key=lambda each: each[0]))
        ratio, choice = (1.0, None) if best is None else best
        return Tuning(
            options=options if choice is None else choice.apply(options),
            name=None if choice is None else choice.name,
            ratio=ratio,
            seconds=self._seconds,
            kept=False,
            rows=tuple(self._rows),
            estimated=True,
        )

    def _try(self, choice: Choice, found: list[tuple[float, Choice]]) -> None:
        """Adds a row for the choice. Adds the choice to `found` if it is faster."""
        ratio = seconds = None
        try:
            step = self._make(
                self._compilation.under(choice.apply(self._compilation.options)), Held()
            )
            waiting = self._per_node * nodes_of(step)
            outcome = reason_against(step, self._identities, waiting, self._end)
            if outcome is None:
                start = time.perf_counter()
                step.wait()
                seconds = time.perf_counter() - start
                ratio = self._estimated(step) / self._seconds
                outcome = is_too_large(step, self._step) or self._judged(step, ratio)
                if outcome == "faster":
                    found.append((ratio, choice))
        except (GraphcError, jax.errors.JaxRuntimeError) as error:
            outcome = f"not possible: {str(error).splitlines()[0]}"
        self._rows.append(TuningRow(choice.name, ratio, seconds, outcome))

    def _judged(self, step: Executable, ratio: float) -> str:
        text = _without_names(step)
        if text in self._texts:
            return "the same kernels"
        self._texts.add(text)
        return "faster" if ratio <= GAIN else "not faster"

    def _combined(self, faster: list[tuple[float, Choice]]) -> tuple[float, Choice] | None:
        """The fastest choice, combined with the others that make it faster still."""
        if not faster:
            return None
        best = faster[0]
        for _, other in faster[1:]:
            if best[1].contradicts(other):
                continue
            found: list[tuple[float, Choice]] = []
            self._try(best[1] + other, found)
            if found and found[0][0] < best[0]:
                best = found[0]
        return best

    def _estimated(self, step: Executable) -> float:
        return timeline(step.hlo_cost(), self._gpu).seconds


def _without_names(step: Executable) -> tuple[object, ...]:
    """The kernels of a step in order, without names: equal for programs that XLA compiled to the
    same kernels."""
    return tuple(
        (k.opcode, k.target, k.bytes, tuple(k.matrix_flops.items()), k.beside, k.times)
        for k in step.hlo_cost().launches
    )
