"""The extents of slices of a partitioned variable."""

from __future__ import annotations

from typing import Any

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
