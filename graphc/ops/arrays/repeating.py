"""Repetition of whole tensors and of single elements, composed of Reshape and BroadcastTo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops.arrays.shape import broadcast_to, one_axis, reshape
from graphc.ops.core.checks import as_dims
from graphc.ops.core.emit import convert
from graphc.typing import TensorLike

__all__ = ["tile"]


def tile(x: TensorLike, reps: int | Sequence[int], *, name: str | None = None) -> Tensor:
    """`x` repeated `reps[i]` times along axis i. Source: numpy.tile.

    Examples:
        >>> run(gc.tile([1, 2], 2))
        Array([1, 2, 1, 2], dtype=int32)
    """
    x = convert(x)
    times = as_dims("BroadcastTo", reps)
    rank = max(x.ndim, len(times))
    shape = (1,) * (rank - x.ndim) + x.type.shape
    times = (1,) * (rank - len(times)) + times
    pairs = list(zip(times, shape, strict=True))
    apart = reshape(x, [d for _, dim in pairs for d in (1, dim)])
    repeated = broadcast_to(apart, [d for pair in pairs for d in pair])
    return reshape(repeated, [n * dim for n, dim in pairs], name=name)


def repeat(x: Any, repeats: Dim, axis: int | None = None, *, name: str | None = None) -> Tensor:
    """`x` with each element along `axis` repeated `repeats` times; raveled first by default.

    Raises:
        AttributeValueError: `repeats` is not one size. `gc.take` repeats elements individually.

    Source: numpy.repeat.
    """
    x, place = one_axis("BroadcastTo", x, axis)
    (times,) = as_dims("BroadcastTo", (repeats,))
    before, after = x.type.shape[: place + 1], x.type.shape[place + 1 :]
    apart = broadcast_to(reshape(x, (*before, 1, *after)), (*before, times, *after))
    return reshape(apart, (*before[:-1], before[-1] * times, *after), name=name)
