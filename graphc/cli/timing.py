"""Measures the time of runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

_RUNS = 100
_SECONDS = 10.0  # no new run starts after this time


def timed(run: Callable[[], Any]) -> list[float]:
    """The seconds of each of several runs, including the wait for results. The first is omitted."""
    jax.block_until_ready(run())
    seconds: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(seconds) < _RUNS and (not seconds or time.perf_counter() < end):
        start = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return seconds


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """The median and 99th percentile in milliseconds, and the number of runs."""
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"p50": float(1e3 * p50), "p99": float(1e3 * p99), "runs": len(seconds)}
