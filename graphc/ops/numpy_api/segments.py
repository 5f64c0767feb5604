"""Reductions of rows by group: segment_sum and related functions, for a known number of groups.

Rows of one segment need not be adjacent. An id outside 0 <= id < num_segments is ignored.
"""

from __future__ import annotations

from typing import Any

from graphc.ir.dims import Dim
from graphc.ir.dtypes import INT32, short_name
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import full, ones
from graphc.ops.arrays.scattering import scatter
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import as_dims, refuse, same_shape
from graphc.ops.core.emit import convert, dim_value, promote_inexact, to_dtype
from graphc.ops.core.operands import as_integers
from graphc.ops.core.precision import highest, lowest, wide, wide_integer
from graphc.ops.elementwise.arithmetic import divide, maximum
from graphc.ops.elementwise.comparison import where
from graphc.typing import TensorLike

__all__ = ["segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum"]


def _reduce(
    op: str, data: Tensor, segment_ids: Any, num_segments: Dim, start: Any, name: str | None
) -> Tensor:
    ids = as_integers("segments", "ids", segment_ids)
    if not same_shape(data.shape[: ids.ndim], ids.shape, data):
        refuse(
            "segments: the data must have a row for each id",
            data=data,
            ids=ids,
            hint="the first axes of the data are those of the ids",
        )
    (count,) = as_dims("segments", (num_segments,))
    ids = to_dtype(ids, wide_integer(ids.dtype))
    if not short_name(ids.dtype).startswith("u"):  # a scatter would count negative ids from the end
        ids = where(ids < 0, dim_value(count, ids.dtype), ids)
    into = full((count, *data.shape[ids.ndim :]), start, data.dtype)
    return scatter(into, ids, data, 0, op, name=name)


def segment_sum(
    data: TensorLike, segment_ids: TensorLike, num_segments: Dim, *, name: str | None = None
) -> Tensor:
    """The sum of the rows of each segment; 0 for a segment without rows.

    Args:
        data: numeric, [rows, ...]; or the first axes are those of the ids.
        segment_ids: integers [rows]: the segment of each row, in any order. An id outside
            0 <= id < num_segments is ignored.
        num_segments: the number of segments: an int or a named size.

    Returns:
        [num_segments, ...], in the dtype of `data`.

    Raises:
        DTypeError: the ids are not integers.
        ShapeError: not one id for each row.

    Source: jax.ops.segment_sum.

    Examples:
        >>> run(gc.segment_sum([1, 5, 3], [0, 0, 1], 2))
        Array([6, 3], dtype=int32)
    """
    return _reduce("add", convert(data), segment_ids, num_segments, 0, name)


def segment_prod(
    data: TensorLike, segment_ids: TensorLike, num_segments: Dim, *, name: str | None = None
) -> Tensor:
    """The product of the rows of each segment; 1 for a segment without rows.

    Otherwise as in `segment_sum`. Source: jax.ops.segment_prod.

    Examples:
        >>> run(gc.segment_prod([1, 5, 3], [0, 0, 1], 2))
        Array([5, 3], dtype=int32)
    """
    return _reduce("mul", convert(data), segment_ids, num_segments, 1, name)


def segment_max(
    data: TensorLike, segment_ids: TensorLike, num_segments: Dim, *, name: str | None = None
) -> Tensor:
    """The elementwise maximum of the rows of each segment.

    A segment without rows gives minus infinity, or the least integer. Otherwise as in
    `segment_sum`. Source: jax.ops.segment_max.

    Examples:
        >>> run(gc.segment_max([1, 5, 3], [0, 0, 1], 2))
        Array([5, 3], dtype=int32)
    """
    rows = convert(data)
    return _reduce("max", rows, segment_ids, num_segments, lowest(rows.dtype), name)


def segment_min(
    data: TensorLike, segment_ids: TensorLike, num_segments: Dim, *, name: str | None = None
) -> Tensor:
    """The elementwise minimum of the rows of each segment.

    A segment without rows gives infinity, or the greatest integer. Otherwise as in `segment_sum`.
    Source: jax.ops.segment_min.

    Examples:
        >>> run(gc.segment_min([1, 5, 3], [0, 0, 1], 2))
        Array([1, 3], dtype=int32)
    """
    rows = convert(data)
    return _reduce("min", rows, segment_ids, num_segments, highest(rows.dtype), name)


def segment_mean(
    data: TensorLike, segment_ids: TensorLike, num_segments: Dim, *, name: str | None = None
) -> Tensor:
    """The mean of the rows of each segment; 0 for a segment without rows.

    Integers give float32. Otherwise as in `segment_sum`. Source: tf.math.unsorted_segment_mean.

    Examples:
        >>> run(gc.segment_mean([1.0, 5.0, 3.0], [0, 0, 1], 2))
        Array([3., 3.], dtype=float32)
    """
    (data,) = promote_inexact(data)
    rows, ids = to_dtype(data, wide(data.dtype)), convert(segment_ids)
    total = _reduce("add", rows, ids, num_segments, 0, None)
    counts = maximum(segment_sum(ones(ids.shape, INT32), ids, num_segments), 1)
    counts = reshape(counts, (*counts.shape, *(1,) * (total.ndim - 1)))
    return to_dtype(divide(total, to_dtype(counts, rows.dtype), name=name), data.dtype)
