"""How long each cluster of a program over several devices takes, and when each would run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import jax
from jax import numpy as jnp

from graphc.devices.partition import Cluster
from graphc.devices.schedule import Span, durations, timeline
from graphc.runtime.targets.scripts import CompiledPartition

_RUNS = 5


def measured_timeline(
    clusters: Sequence[Cluster],
    compiled: CompiledPartition,
    state: Sequence[jax.Array],
    feeds: Sequence[Any],
    wide: bool,
) -> list[Span]:
    """When each cluster would run, in seconds, if each device had a machine of its own: each is run
    alone and waited for, the fastest of a few times counts, and copies take no time.

    Args:
        state: what the program takes of it, which stays as it is.
        wide: whether it holds 64-bit values.
    """
    order = [span.cluster for span in timeline(clusters, durations(clusters))]
    best = [float("inf")] * len(order)
    with jax.enable_x64(True) if wide else nullcontext():
        for _ in range(_RUNS):
            arguments = [jnp.array(value, copy=True) for value in state]
            taken = _seconds(compiled, [*arguments, *feeds])
            best = [min(pair) for pair in zip(best, taken, strict=True)]
    seconds = dict(zip(order, best, strict=True))
    return timeline(clusters, [seconds[i] for i in range(len(clusters))])


def _seconds(compiled: CompiledPartition, arguments: Sequence[Any]) -> list[float]:
    """What each start of an executable takes, in their order."""
    found = []

    def started(run: Any) -> Any:
        start = time.perf_counter()
        results = jax.block_until_ready(run())
        found.append(time.perf_counter() - start)
        return results

    compiled.step(arguments, started)
    return found
