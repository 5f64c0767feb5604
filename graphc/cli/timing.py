"""How long runs take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

_RUNS = 100
_SECONDS = 10.0  # no more runs after that


def timed(run: Callable[[], Any]) -> list[float]:
    """Seconds that each of several runs took, its results waited for; the first is left out."""
    jax.block_until_ready(run())
    seconds: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(seconds) < _RUNS and (not seconds or time.perf_counter() < end):
        start = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return seconds


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds, and of how many runs."""
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"p50": float(1e3 * p50), "p99": float(1e3 * p99), "runs": len(seconds)}
