"""Helpers for property tests: a pass, programs for it, and in how many programs it must act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.ir.program import Program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.passes.core.base import Pass
from graphc.passes.core.validate import check_meaning
from tests.passes import evaluate as by_numpy

Evaluator = Callable[[Program, Sequence[Any]], Sequence[Any]]
EXAMPLES = 60  # for manual runs: thousands


def for_all(
    strategy: st.SearchStrategy[Any], run: Callable[[Any, int], Any], examples: int = EXAMPLES
) -> None:
    """Calls `run` with examples and a seed for their inputs; the examples are always the same."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(example=strategy, seed=st.integers(0, 3))
    def each(example: Any, seed: int) -> None:
        run(example, seed)

    each()


def check_preserving(
    a_pass: Pass,
    programs: st.SearchStrategy[Program],
    *,
    examples: int = EXAMPLES,
    least: float,
    evaluate: Evaluator = by_numpy.evaluate,
    exactly: bool = True,
    settled: bool = True,
    compared: Callable[[Program, Program], None] = lambda before, after: None,
) -> None:
    """Checks that `a_pass` preserves the results of `programs`, and changes many of them.

    Args:
        least: the fraction of programs that must change.
        exactly: results must be equal bit by bit; otherwise they may differ by rounding.
        settled: a second run of the pass must change nothing.
        compared: called with each changed program, before and after.
    """
    counts = []

    def run(before: Program, seed: int) -> None:
        after, changed = preserved(a_pass, before, seed, evaluate, exactly)
        counts.append(changed)
        if settled:
            again = a_pass.run(after)
            assert again.program is after and again.changed == 0, print_program(after)
        if changed:
            compared(before, after)

    for_all(programs, run, examples)
    share = sum(map(bool, counts)) / len(counts)
    assert share >= least, f"it changed only {share:.0%} of the examples"


def preserved(
    a_pass: Pass, before: Program, seed: int, evaluate: Evaluator, exactly: bool
) -> tuple[Program, int]:
    """The result of `a_pass`, after a check that it is valid and computes the same."""
    verify(before, "functional")
    after, changed = a_pass.run(before)
    text = f"{print_program(before)}\n{print_program(after)}"
    assert (after is before) == (changed == 0), text
    if after is before:  # the same program: nothing to compare
        return after, changed
    verify(after, "functional")
    found: list[Sequence[Any]] = []

    def keeping(program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        found.append(evaluate(program, inputs))
        return found[-1]

    wrong = check_meaning(before, after, keeping, seed)
    assert wrong is None, f"{wrong}\n{text}"
    want, got = found
    for a, b in zip(want, got, strict=True) if exactly else ():
        np.testing.assert_array_equal(a, b, err_msg=text)
    return after, changed
