"""Reductions that skip NaN."""

from __future__ import annotations

import math
from typing import Any

from graphc.ir.dtypes import INT32, is_inexact
from graphc.ir.node import Tensor
from graphc.ops.core.emit import convert, promote_inexact, to_dtype
from graphc.ops.core.precision import highest, lowest, wide
from graphc.ops.elementwise.arithmetic import divide
from graphc.ops.elementwise.comparison import isnan, where
from graphc.ops.elementwise.powers import sqrt, square
from graphc.ops.elementwise.roots import flat_at_zero
from graphc.ops.reductions.axiswise import argmax, argmin, cumsum
from graphc.ops.reductions.reduction import (
    Axes,
    reduce_all,
    reduce_max,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from graphc.typing import TensorLike

__all__ = [
    "nanargmax",
    "nanargmin",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]


def _filled(x: Any, value: Any) -> Tensor:
    tensor = convert(x)
    return where(isnan(tensor), value, tensor) if is_inexact(tensor.dtype) else tensor


def _unless_all_nan(x: Tensor, y: Tensor, axis: Axes, keepdims: bool, name: str | None) -> Tensor:
    if not is_inexact(x.dtype):
        return y
    return where(reduce_all(isnan(x), axis, keepdims), math.nan, y, name=name)


def nansum(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The sum over `axis`, with 0 for NaN. Source: numpy.nansum.

    Examples:
        >>> run(gc.nansum([1.0, np.nan, 3.0]))
        Array(4., dtype=float32)
    """
    return reduce_sum(_filled(x, 0), axis, keepdims, name=name)


def nanprod(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The product over `axis`, with 1 for NaN. Source: numpy.nanprod.

    Examples:
        >>> run(gc.nanprod([2.0, np.nan, 3.0]))
        Array(6., dtype=float32)
    """
    return reduce_prod(_filled(x, 1), axis, keepdims, name=name)


def nanmax(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The greatest element over `axis` that is not NaN; NaN if all are NaN. Source: numpy.nanmax.

    Examples:
        >>> run(gc.nanmax([1.0, np.nan, 3.0]))
        Array(3., dtype=float32)
    """
    x = convert(x)
    found = reduce_max(_filled(x, lowest(x.dtype)), axis, keepdims)
    return _unless_all_nan(x, found, axis, keepdims, name)


def nanmin(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The smallest element over `axis` that is not NaN; NaN if all are NaN. Source: numpy.nanmin.

    Examples:
        >>> run(gc.nanmin([1.0, np.nan, 3.0]))
        Array(1., dtype=float32)
    """
    x = convert(x)
    found = reduce_min(_filled(x, highest(x.dtype)), axis, keepdims)
    return _unless_all_nan(x, found, axis, keepdims, name)


def nanargmax(x: TensorLike, axis: int | None = None, *, name: str | None = None) -> Tensor:
    """The position of the greatest element along `axis` that is not NaN.

    0 if all are NaN. Otherwise as in `argmax`. Source: numpy.nanargmax.

    Examples:
        >>> run(gc.nanargmax([1.0, np.nan, 3.0]))
        Array(2, dtype=int32)
    """
    x = convert(x)
    return argmax(_filled(x, lowest(x.dtype)), axis, name=name)


def nanargmin(x: TensorLike, axis: int | None = None, *, name: str | None = None) -> Tensor:
    """The position of the smallest element along `axis` that is not NaN.

    0 if all are NaN. Otherwise as in `argmin`. Source: numpy.nanargmin.

    Examples:
        >>> run(gc.nanargmin([np.nan, 1.0, 3.0]))
        Array(1, dtype=int32)
    """
    x = convert(x)
    return argmin(_filled(x, highest(x.dtype)), axis, name=name)


def nancumsum(x: TensorLike, axis: int | None = None, *, name: str | None = None) -> Tensor:
    """`cumsum`, with 0 for NaN. Source: numpy.nancumsum.

    Examples:
        >>> run(gc.nancumsum([1.0, np.nan, 3.0]))
        Array([1., 1., 4.], dtype=float32)
    """
    return cumsum(_filled(x, 0), axis, name=name)


def _present(x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """The number of elements that are not NaN, in the dtype of `x`."""
    return to_dtype(reduce_sum(to_dtype(~isnan(x), INT32), axis, keepdims), x.dtype)


def nanmean(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The mean over `axis` of the elements that are not NaN. Source: numpy.nanmean.

    Examples:
        >>> run(gc.nanmean([1.0, np.nan, 3.0]))
        Array(2., dtype=float32)
    """
    (x,) = promote_inexact(x)
    rows = to_dtype(x, wide(x.dtype))
    mean = divide(nansum(rows, axis, keepdims), _present(rows, axis, keepdims), name=name)
    return to_dtype(mean, x.dtype)


def nanvar(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    ddof: int = 0,
    *,
    name: str | None = None,
) -> Tensor:
    """`var` of the elements that are not NaN. Source: numpy.nanvar, of real dtypes.

    Examples:
        >>> run(gc.nanvar([1.0, np.nan, 3.0]))
        Array(1., dtype=float32)
    """
    (x,) = promote_inexact(x)
    rows = to_dtype(x, wide(x.dtype))
    centred = _filled(rows - nanmean(rows, axis, keepdims=True), 0)
    count = _present(rows, axis, keepdims) - ddof
    variance = divide(reduce_sum(square(centred), axis, keepdims), count, name=name)
    return to_dtype(variance, x.dtype)


def nanstd(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    ddof: int = 0,
    *,
    name: str | None = None,
) -> Tensor:
    """The square root of `nanvar`; its gradient is 0 where the result is 0.

    Source: numpy.nanstd, of real dtypes.

    Examples:
        >>> run(gc.nanstd([1.0, np.nan, 3.0]))
        Array(1., dtype=float32)
    """
    (x,) = promote_inexact(x)
    variance = nanvar(to_dtype(x, wide(x.dtype)), axis, keepdims, ddof)
    return to_dtype(flat_at_zero(sqrt, variance, name), x.dtype)
