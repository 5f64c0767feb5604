"""Slices of a partitioned variable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.dtypes import Array
from graphc.train.tensorflow.tensors import broken


def extent_of(extent: Any, size: int, what: str) -> slice:
    """The range of a `TensorSliceProto.Extent` on an axis of a size; without a length, all of it.

    Raises:
        ModelFileError: it is outside of the axis.
    """
    length = extent.length if extent.WhichOneof("has_length") else -1
    start, stop = (0, size) if length < 0 else (extent.start, extent.start + length)
    if not 0 <= start <= stop <= size:
        raise broken(f"{what} is outside of it")
    return slice(start, stop)


def joined(
    parts: Sequence[tuple[tuple[slice, ...], Callable[[], Array]]],
    sizes: tuple[int, ...],
    dtype: np.dtype[Any],
    what: str,
) -> Array:
    """A variable from the places of its slices and functions that read them.

    Raises:
        ModelFileError: they have not as many elements as the variable.
    """
    counts = (math.prod(s.stop - s.start for s in where) for where, _ in parts)
    if sum(counts) != math.prod(sizes):
        raise broken(f"the slices of {what} do not cover it")
    result = np.zeros(sizes, dtype)  # an altered file may have slices that overlap
    for where, read in parts:
        result[where] = read()
    return result
