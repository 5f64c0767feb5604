"""Masks: the valid steps of a sequence, and averages over valid elements."""

from __future__ import annotations

from typing import Any

from graphc.errors import DTypeError
from graphc.ir.dims import Dim
from graphc.ir.dtypes import BOOL, INT32
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.shape import broadcast_to, expand_dims
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, dim_value, to_dtype
from graphc.ops.core.operands import as_integers
from graphc.ops.core.precision import wide, wide_integer
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.arithmetic import divide, maximum
from graphc.ops.elementwise.comparison import less, where
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike

__all__ = ["masked_mean", "sequence_mask"]


def sequence_mask(lengths: TensorLike, size: Dim, *, name: str | None = None) -> Tensor:
    """Which of `size` steps are within each length.

    Args:
        lengths: [...], integers.
        size: an int or a named size, as in `x.shape[1]`.
        name: of the node.

    Returns:
        [..., size], bool: True at step i if i is less than the length.

    Raises:
        DTypeError: `lengths` are not integers.

    Examples:
        >>> run(gc.nn.sequence_mask([1, 3], 3))
        Array([[ True, False, False],
               [ True,  True,  True]], dtype=bool)
    """
    counts = _widened(as_integers("sequence_mask", "lengths", lengths))
    return less(iota((size,), 0, counts.type.dtype), expand_dims(counts, -1), name=name)


def as_lengths(what: str, lengths: Any, batch: Dim, most: Dim, *, of: str | None = None) -> Tensor:
    """Returns `lengths`, one for each row of a batch, as integers wide enough for any size.

    Runs with `check_numerics` require 0 <= length <= most. Their errors name `of`, by default
    `what`.

    Raises:
        DTypeError: the lengths are not integers. The error names `what`.
        ShapeError: there is not one length for each row of the batch. The error names `what`.
    """
    counts = as_integers(what, "lengths", lengths)
    shape = counts.type.shape
    if len(shape) != 1 or (
        isinstance(batch, int) and isinstance(shape[0], int) and shape[0] != batch
    ):
        refuse(
            f"{what}: lengths must be of shape [{batch}], one for each sequence, got {counts.type}",
            hint="the first axis of x is the batch: x is [batch, time, ...]",
            lengths=counts,
        )
    return _widened(in_range(counts, 0, most + 1, "lengths", of=of or what))


def _widened(counts: Tensor) -> Tensor:
    """`counts` as integers wide enough for any size."""
    return to_dtype(counts, wide_integer(counts.type.dtype))


def lengths_or_all(what: str, lengths: Any, like: Tensor, size: Dim) -> Tensor:
    """`as_lengths` of the rows of `like`; by default, each row has the length `size`."""
    if lengths is None:
        return broadcast_to(dim_value(size), like.shape[:1])
    return as_lengths(what, lengths, like.shape[0], size)


def masked_mean(x: TensorLike, mask: TensorLike, *, name: str | None = None) -> Tensor:
    """The mean of the elements of `x` where `mask` is True; 0 where it is True nowhere.

    Args:
        x: floating; elements where the mask is False have no effect, not even on gradients.
        mask: bool, of a shape that broadcasts to that of `x`.
        name: of the node.

    Returns:
        A scalar.

    Raises:
        DTypeError: the mask is not bool.
        ShapeError: shapes that do not broadcast.

    Examples:
        >>> run(gc.nn.masked_mean([1.0, 3.0, 9.0], [True, True, False]))
        Array(2., dtype=float32)
    """
    x, mask = convert(x), convert(mask)
    if mask.type.dtype != BOOL:
        refuse(
            f"masked_mean: the mask must be bool, got {mask.type.dtype.name}",
            error=DTypeError,
            mask=mask,
        )
    mask = broadcast_to(mask, x.type.shape)
    rows = to_dtype(x, wide(x.type.dtype))
    count = to_dtype(maximum(reduce_sum(to_dtype(mask, INT32)), 1), rows.type.dtype)
    return to_dtype(divide(reduce_sum(where(mask, rows, 0)), count, name=name), x.type.dtype)
