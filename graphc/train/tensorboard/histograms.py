"""Histograms, which TensorBoard's distributions view shows as percentiles too."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.train.tensorboard.summaries import numbers, summary
from graphc.train.tensorboard.values import Array

_CHUNK = 1 << 16  # elements at a time: they stay in the processor's cache
_FARTHEST = float(np.finfo(np.float64).max) / 4  # two such numbers have a finite difference


def nonfinite(array: Array) -> int:
    """How many elements are NaN or infinite."""
    if array.dtype.kind in "biu" or not array.size:
        return 0
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    return int(array.size - np.count_nonzero(np.isfinite(array)))


def buckets_of(array: Array, count: int) -> Array:
    """`count` rows (left edge, right edge, number of elements), float64.

    NaN and infinite elements are left out. Without elements every number is 0. If all elements are
    equal, every edge is their value, and the last row counts them.
    """
    chunks = [array.reshape(-1)[i : i + _CHUNK] for i in range(0, array.size, _CHUNK)]
    ends = [(v.min(), v.max(), v.size) for v in map(_finite, chunks) if v.size]
    if not ends:
        return np.zeros((count, 3))
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    edges = np.linspace(low, high, count + 1)
    if not np.all(np.diff(edges) > 0):  # equal, or too close for so many edges
        rows = np.full((count, 3), high)
        rows[:, 2] = 0.0
        rows[-1] = low, high, sum(end[2] for end in ends)
        return rows
    counts = np.zeros(count)
    for chunk in chunks:
        counts += np.bincount(_places(_finite(chunk), edges), minlength=count)
    return np.stack([edges[:-1], edges[1:], counts], axis=1)


def _finite(chunk: Array) -> Array:
    """The finite elements as float64, so near to 0 that their differences are finite."""
    values: Array = chunk.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        values = values[finite]
    return np.clip(values, -_FARTHEST, _FARTHEST, out=values)


def _places(values: Array, edges: Array) -> Array:
    """The bucket of each value; the last bucket has its right edge too. As in np.histogram, an
    estimate is corrected by the edges, but without a product that could overflow."""
    last = len(edges) - 2
    estimate = (values - edges[0]) / (edges[-1] - edges[0]) * (last + 1)
    found: Array = estimate.astype(np.int64)
    np.minimum(found, last, out=found)
    found -= values < edges[found]
    found += (values >= edges[found + 1]) & (found != last)
    return found


def histogram(tag: str, array: Array, buckets: int, description: str) -> Any:
    """The histogram in the format that TensorFlow 2 writes."""
    table = numbers(buckets_of(array, buckets))
    return summary(tag, table, "histograms", description=description)
