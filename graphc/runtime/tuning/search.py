"""The search of `gc.tune`: each variant is compiled, checked, and timed against the given options.

The two are timed alternately, so that other activity of the machine affects both. The ratio of each
pair decides. A few pairs are measured first. Then the likely winner is measured again with new and
more pairs, because the best of many measurements is also the luckiest.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from graphc.errors import GraphcError
from graphc.ir.dtypes import Array
from graphc.ir.fingerprint import fingerprint
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.progress import progress_bar
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.executable_cache import CacheBackend, CacheSlot, Found, cache_for
from graphc.runtime.pipeline.stages import Stages
from graphc.runtime.pipeline.tuned import Choice, Tuned, find_tuned, keep_tuned
from graphc.runtime.step.executable import Executable
from graphc.runtime.tuning.trials import Trial, collect_garbage, disagreement, nudged, upper_bound
from graphc.runtime.tuning.tuning_report import Tuning, TuningRow
from graphc.runtime.tuning.variants import variants_for

_FIRST, _AGAIN, _LEAST = 5, 15, 6  # numbers of pairs
_HOPELESS = 1.1  # if each of the first pairs is slower than this, measuring stops
GAIN = 0.98  # a choice must take at most this part of the time, with 95 % confidence
_LOOKS = 2  # times that a doubtful winner is measured again; each gets half the risk
_MEMORY, _LITTLE = 1.25, 64 * 2**20  # at most this factor of memory, or this many bytes more
_TRIED_AGAIN = 3  # how many of the choices that were fastest at first are measured again
_PER_NODE = 0.005  # seconds of compilation, if nothing is known about the program


class Candidate:
    """A choice that gives correct results.

    Attributes:
        choice: the changes that it makes.
        making: the compilation that its executable comes from.
        trial: its executable, ready to run.
        ratio: its time relative to the given options; NaN until it is known.
    """

    def __init__(self, choice: Choice, compilation: Compilation, trial: Trial, held: Held) -> None:
        self.choice, self.compilation, self.trial, self.held = choice, compilation, trial, held
        self.ratio = math.nan


class Held:
    """Keeps an executable as a cache slot would, in case it wins."""

    def __init__(self) -> None:
        self._given: tuple[Stages, jax.stages.Compiled] | None = None

    def find(self) -> Found | None:
        """Returns None, so that each trial is compiled here."""
        return None

    def keep(self, stages: Stages, compiled: jax.stages.Compiled) -> None:
        """Keeps the executable."""
        self._given = stages, compiled

    def pass_on(self, slot: CacheSlot) -> None:
        """Stores the executable in a slot that has none."""
        if self._given is not None and slot.find() is None:
            slot.keep(*self._given)


class Search:
    """One search.

    Args:
        make: returns the executable of a `Compilation`; it looks it up in a `CacheBackend` and
            stores it there.
        compilation: the compilation with the given options.
        layout: the layout of state that no executable has used.
        state: the values of all state by name.
        feeds: the feeds of one call.
        tolerance: see `tune`.
        end: the time, by `time.perf_counter`, after which no compilation is started.
    """

    def __init__(
        self,
        make: Callable[[Compilation, CacheBackend], Executable],
        compilation: Compilation,
        layout: StateLayout,
        state: Mapping[str, Array],
        feeds: Sequence[Array],
        tolerance: float | None,
        end: float,
    ) -> None:
        self._make, self._compilation, self._layout = make, compilation, layout
        self._state, self._feeds = state, feeds
        self._tolerance, self._end = tolerance, end
        self._rows: dict[str, TuningRow] = {}
        self._step = make(compilation, CacheSlot(compilation, layout)).wait()
        self._base = Trial(self._step, state, feeds)
        self._wanted = self._base.results()
        self._nearby = self._results_nearby()
        self._seen = {identity_of(self._step)}
        self._per_node = _compile_seconds(compilation, self._step) / nodes_of(self._step)
        with self._base.started():
            self._base.warm_up()
            self._pair_seconds = 2 * self._base.calls * self._base.seconds()

    def run(self, progress: bool) -> Tuning:
        """Tries all variants for which there is time, and stores the winner."""
        before = find_tuned(self._compilation, self._layout)
        choices = [] if before is None else [before.choice]
        program, target = self._step.program, self._compilation.target
        variants = variants_for(program, target, self._compilation.options)
        choices += [v.choice for v in variants if v.choice not in choices]
        found: list[Candidate] = []
        with progress_bar(progress, len(choices) + 2, "variant", ncols=100) as bar:
            for choice in choices:
                bar.set_description(choice.name)
                self._try(choice, found)
                best = min([1.0, *(candidate.ratio for candidate in found)])
                bar.set_postfix_str(f"{best:.2f} of the time")
                bar.update()
            bar.set_description("several at once")
            self._combine(found)
            bar.update()
            bar.set_description("the best again")
            tuning = self._decide(found, before)
            bar.update()
        return tuning

    # -- trying -----------------------------------------------------------------------------

    def _try(self, choice: Choice, found: list[Candidate]) -> None:
        """Adds a row for the choice. Adds the choice to `found` if it gives correct results in
        time."""
        compiled: float | None = None
        ratio: float | None = None
        try:
            compilation = self._under(choice)
            held = Held()
            step = self._make(compilation, held)
            outcome = self._reason_against(step)
            if outcome is None:
                start = time.perf_counter()
                trial = Trial(step.wait(), self._state, self._feeds)
                compiled = time.perf_counter() - start
                outcome = is_too_large(step, self._step) or disagreement(
                    self._wanted, trial.results(), self._nearby, self._tolerance
                )
            if outcome is None:
                candidate = Candidate(choice, compilation, trial, held)
                ratios = self._measure(trial, _FIRST)
                candidate.ratio = ratio = statistics.median(ratios)
                found.append(candidate)
                outcome = "faster at first" if ratio < GAIN else "not faster"
        except (GraphcError, jax.errors.JaxRuntimeError) as error:
            first = str(error).splitlines()[0]
            outcome = f"not possible: {first}"
        self._rows[choice.name] = TuningRow(choice.name, ratio, compiled, outcome)

    def _under(self, choice: Choice) -> Compilation:
        base = self._compilation
        options = choice.apply(base.options)
        return base.under(options)

    def _reason_against(self, step: Executable) -> str | None:
        measuring = (_FIRST + _LEAST) * self._pair_seconds
        seconds = self._per_node * nodes_of(step) + measuring
        return reason_against(step, self._seen, seconds, self._end)

    def _measure(self, trial: Trial, count: int) -> list[float]:
        """The time ratios of `count` pairs. If time runs out, there may be only `_LEAST` pairs."""
        ratios: list[float] = []
        trial.calls = self._base.calls
        collect_garbage()
        with self._base.started(), trial.started():
            trial.seconds(), self._base.seconds()  # the first calls are slower
            for number in range(count):
                order = (trial, self._base) if number % 2 else (self._base, trial)
                seconds = {each: each.seconds() for each in order}
                ratios.append(seconds[trial] / seconds[self._base])
                if len(ratios) == 3 and min(ratios) > _HOPELESS:
                    break
                if len(ratios) >= _LEAST and time.perf_counter() > self._end:
                    break
        return ratios

    def _combine(self, found: list[Candidate]) -> None:
        """Combines the variants that were faster by themselves, beginning with the fastest."""
        faster = sorted((c for c in found if c.ratio < GAIN), key=lambda each: each.ratio)
        best = faster[0] if faster else None
        for other in faster[1:]:
            if best is None or best.choice.contradicts(other.choice):
                continue
            before = len(found)
            self._try(best.choice + other.choice, found)
            if len(found) > before and found[-1].ratio < best.ratio:
                best = found[-1]

    # -- deciding ---------------------------------------------------------------------------

    def _decide(self, found: list[Candidate], before: Tuned | None) -> Tuning:
        """Measures the fastest candidates again, and stores the first one that is clearly
        faster."""
        likely = sorted((c for c in found if c.ratio < GAIN), key=lambda each: each.ratio)
        for candidate in likely[:_TRIED_AGAIN]:
            ratios: list[float] = []
            wins = False
            for _ in range(_LOOKS):
                ratios += self._measure(candidate.trial, _AGAIN)
                candidate.ratio = statistics.median(ratios)
                wins = upper_bound(ratios, 1 - 0.05 / _LOOKS) <= GAIN
                if wins or candidate.ratio >= GAIN or time.perf_counter() > self._end:
                    break
            self._judge(candidate, "chosen" if wins else "not clearly faster")
            if wins:
                return self._keep(candidate)
        kept = before
        if before is None or any(each.choice == before.choice for each in found):
            # The earlier winner is no longer faster. If its record cannot be removed, it stays in
            # use.
            kept = None if keep_tuned(self._compilation, None, self._step.interface) else before
        return self._tuning(kept, kept is not None)

    def _judge(self, candidate: Candidate, outcome: str) -> None:
        name = candidate.choice.name
        self._rows[name] = replace(self._rows[name], ratio=candidate.ratio, outcome=outcome)

    def _keep(self, candidate: Candidate) -> Tuning:
        interface = candidate.trial.step.interface
        tuned = Tuned(candidate.choice, candidate.ratio, interface.buffers)
        kept = keep_tuned(self._compilation, tuned, interface)
        candidate.held.pass_on(CacheSlot(candidate.compilation, self._layout))
        return self._tuning(tuned, kept)

    def _tuning(self, tuned: Tuned | None, kept: bool) -> Tuning:
        options = self._compilation.options
        return Tuning(
            options=options if tuned is None else tuned.choice.apply(options),
            name=None if tuned is None else tuned.choice.name,
            ratio=1.0 if tuned is None else tuned.ratio,
            seconds=self._pair_seconds / 2 / self._base.calls,
            kept=kept,
            rows=tuple(self._rows.values()),
        )

    def _results_nearby(self) -> dict[str, Array]:
        state = dict(zip(self._state, nudged(list(self._state.values()), 0), strict=True))
        return Trial(self._step, state, nudged(self._feeds, 1)).results()


def identity_of(step: Executable) -> tuple[str, str]:
    """What each device runs, and XLA's options. Equal identities compile to the same executable."""
    made = step.stages.in_jax
    options = made.xla_options(step.stages.compilation.options)
    return fingerprint(made.local), repr(sorted(options.items()))


def reason_against(step: Executable, seen: set[Any], seconds: float, end: float) -> str | None:
    """The reason not to compile a variant, or None if it is worth compiling: it is among those
    `seen`, to which it is added, or `end` is nearer than the `seconds` that it takes."""
    identity = identity_of(step)
    if identity in seen:
        return "the same program"
    seen.add(identity)
    return "no time left" if time.perf_counter() + seconds > end else None


def is_too_large(step: Executable, base: Executable) -> str | None:
    """A text if a step uses so much more memory than `base` that the user might lack it, or
    None."""
    wanted, most = _memory(step), _memory(base)
    if wanted <= max(_MEMORY * most, most + _LITTLE):
        return None
    return f"takes {wanted / 2**20:.0f} MiB; the given options take {most / 2**20:.0f}"


def _memory(step: Executable) -> int:
    found = step.memory()
    return found["arguments"] + found["outputs"] - found["aliased"] + found["temporaries"]


def nodes_of(step: Executable) -> int:
    """The number of nodes that each device runs."""
    return sum(1 for _ in step.stages.in_jax.local.walk()) or 1


def _compile_seconds(compilation: Compilation, step: Executable) -> float:
    """The compile time of the executable, in this process or in the one that stored it."""
    if not step.cached:
        return sum(step.seconds.values())
    cache = cache_for(compilation)
    entry = None if cache is None or compilation.key is None else cache.get(compilation.key)
    seconds: Mapping[str, Any] = {} if entry is None else entry.metadata["seconds"]
    return sum(seconds.values()) or _PER_NODE * nodes_of(step)
