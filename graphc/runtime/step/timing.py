"""Measures how long each cluster of a program on several devices takes, and when it would run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp

from graphc.devices.partition import Partition
from graphc.devices.schedule import Span, dispatch_order, timeline
from graphc.runtime.targets.jax_program import x64
from graphc.runtime.targets.scripts import CompiledPartition

_RUNS = 5


def measured_timeline(
    parts: Partition,
    compiled: CompiledPartition,
    state: Sequence[jax.Array],
    feeds: Sequence[Any],
    wide: bool,
) -> list[Span]:
    """The times, in seconds, when each cluster would run if each device had its own machine. Each
    cluster is run alone, and the fastest of a few runs counts. Copies are assumed to take no time.

    Args:
        state: the state values that the program takes; they are not changed.
        wide: whether the program has 64-bit values.
    """
    order = dispatch_order(parts)
    best = [float("inf")] * len(order)
    with x64(wide):
        for _ in range(_RUNS):
            arguments = [jnp.array(value, copy=True) for value in state]
            taken = _seconds(compiled, [*arguments, *feeds])
            best = [min(pair) for pair in zip(best, taken, strict=True)]
    seconds = dict(zip(order, best, strict=True))
    return timeline(parts.clusters, [seconds[i] for i in range(len(order))], parts.schedule)


def _seconds(compiled: CompiledPartition, arguments: Sequence[Any]) -> list[float]:
    """The duration of each executable, in the order of their starts."""
    found = []

    def started(run: Any) -> Any:
        start = time.perf_counter()
        results = jax.block_until_ready(run())
        found.append(time.perf_counter() - start)
        return results

    compiled.step(arguments, started)
    return found
