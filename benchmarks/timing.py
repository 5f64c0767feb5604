"""Times two functions side by side in one run. They are interleaved, so that noise affects both."""

from __future__ import annotations

import gc as garbage
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Compared(NamedTuple):
    """The median seconds of each function, and the medians of the pairs' ratios and differences."""

    ours: float
    theirs: float
    ratio: float
    difference: float


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], *, calls: int, rounds: int = 15
) -> Compared:
    """Times `calls` calls of each in turn, `rounds` times after one round of warm-up."""
    pairs = []
    for number in range(rounds + 1):
        order = (ours, theirs) if number % 2 else (theirs, ours)
        seconds = {function: _time(function, calls) for function in order}
        if number:
            pairs.append((seconds[ours], seconds[theirs]))
    return Compared(
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
        statistics.median(a - b for a, b in pairs),
    )


def _time(function: Callable[[], object], calls: int) -> float:
    garbage.collect()
    garbage.disable()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    seconds = (time.perf_counter() - start) / calls
    garbage.enable()
    return seconds
