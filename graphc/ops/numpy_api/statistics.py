"""Statistics over axes: spreads, weighted means and quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, product
from graphc.ir.dtypes import INT32, DType, real_of
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ops.arrays.along_axis import take_along_axis
from graphc.ops.arrays.shape import broadcast_to, expand_dims, moveaxis, reshape, squeeze, transpose
from graphc.ops.core.axes import normalize_axes, normalize_axis
from graphc.ops.core.checks import is_static, refuse
from graphc.ops.core.emit import as_array, constant, convert, dim_value, promote_inexact, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import divide, maximum, subtract
from graphc.ops.elementwise.comparison import equal, isnan, not_equal, where
from graphc.ops.elementwise.powers import sqrt
from graphc.ops.elementwise.roots import flat_at_zero
from graphc.ops.elementwise.rounding import ceil, floor, rint
from graphc.ops.numpy_api.predicates import isinf
from graphc.ops.reductions.reduction import (
    Axes,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_sum,
    reduce_variance,
)
from graphc.ops.reductions.sorting import sort
from graphc.typing import TensorLike

__all__ = [
    "average",
    "count_nonzero",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "ptp",
    "quantile",
    "std",
]

# -- spreads and means -----------------------------------------------------------------------


def std(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    ddof: int = 0,
    *,
    where: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The square root of `var`, for the same arguments; its gradient is 0 where the result is 0.

    Source: numpy.std.

    Examples:
        >>> run(gc.std([1.0, 3.0]))
        Array(1., dtype=float32)
    """
    (x,) = promote_inexact(x)
    variance = reduce_variance(to_dtype(x, wide(x.dtype)), axis, keepdims, ddof, where=where)
    return to_dtype(flat_at_zero(sqrt, variance, name), real_of(x.dtype))


def ptp(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The greatest element over `axis` minus the smallest. Source: numpy.ptp.

    Examples:
        >>> run(gc.ptp([1, 5, 3]))
        Array(4, dtype=int32)
    """
    x = convert(x)
    return subtract(reduce_max(x, axis, keepdims), reduce_min(x, axis, keepdims), name=name)


def count_nonzero(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The number (int32) of elements over `axis` that are not zero.

    Source: numpy.count_nonzero.

    Examples:
        >>> run(gc.count_nonzero([0, 3, 4]))
        Array(2, dtype=int32)
    """
    hits = to_dtype(not_equal(convert(x), 0), INT32)
    return reduce_sum(hits, axis, keepdims, name=name)


def average(
    x: TensorLike,
    axis: Axes = None,
    weights: TensorLike | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """The mean over `axis`, each element counted `weights` times.

    Args:
        x: any tensor; integers give float32.
        axis: one, several, or None for all.
        weights: of the shape of `x`, or of its axes `axis` only, in the order of `axis`; None for
            equal weights.
        keepdims: keeps the axes, with size 1.
        name: of the node.

    Raises:
        ShapeError: weights of another shape.

    Source: numpy.average.

    Examples:
        >>> run(gc.average([1.0, 3.0], weights=[3.0, 1.0]))
        Array(1.5, dtype=float32)
    """
    if weights is None:
        return reduce_mean(x, axis, keepdims, name=name)
    x, weights = promote_inexact(x, weights)
    if not _may_be(weights.shape, x.shape):
        axes = normalize_axes("average", x, axis)
        named = list(axes)
        if isinstance(axis, Iterable):  # in the caller's order
            named = [normalize_axis("average", x, i) for i in axis]
        if not _may_be(weights.shape, [x.shape[i] for i in named]):
            refuse("average: weights must be of the shape of x or of its axes", x=x, w=weights)
        weights = transpose(weights, [named.index(i) for i in axes])
        weights = expand_dims(weights, [i for i in range(x.ndim) if i not in axes])
    weights = broadcast_to(weights, x.shape)
    total = reduce_sum(weights, axis, keepdims)
    return divide(reduce_sum(x * weights, axis, keepdims), total, name=name)


def _may_be(shape: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    """Whether a shape may be equal to `wanted`, as far as its sizes are known."""
    return len(shape) == len(wanted) and not any(
        is_static(a, b) and a != b for a, b in zip(shape, wanted, strict=True)
    )


# -- quantiles -------------------------------------------------------------------------------


def _rows(x: Tensor, axis: Axes) -> tuple[Tensor, tuple[int, ...]]:
    """`x`, sorted along a last axis that merges the reduced axes; and the reduced axes."""
    axes = normalize_axes("quantile", x, axis)
    last = moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
    size = product(x.shape[i] for i in axes)
    if is_static(size) and size == 0:
        refuse("quantile: there are no elements", x=x)
    return sort(reshape(last, (*last.shape[: x.ndim - len(axes)], size))), axes


_ROUNDED = {"lower": floor, "higher": ceil, "nearest": rint}


def _at_quantile(rows: Tensor, counts: Tensor, q: Tensor, method: str) -> Tensor:
    """The quantiles [..., k] of the first `counts` ([..., 1]) elements of each row."""
    place = q * to_dtype(counts - 1, rows.dtype)
    if method in _ROUNDED:
        return _pick(rows, _ROUNDED[method](place))
    below = floor(place)
    low, high = _pick(rows, below), _pick(rows, ceil(place))
    share = 0.5 * to_dtype(not_equal(place, below), rows.dtype)
    if method == "linear":
        share = place - below
    gap = where(equal(low, high) & isinf(low), 0, high - low)  # else NaN for equal infinities
    return low + gap * share


def _pick(rows: Tensor, place: Tensor) -> Tensor:
    whole = to_dtype(place, INT32)
    each = reshape(whole, (*(1,) * (rows.ndim - whole.ndim), *whole.shape))
    return take_along_axis(rows, each, mode="clip")  # q = 1 may be rounded up


def _shares(q: Any, whole: int, dtype: DType) -> Tensor:
    """The fractions `q / whole`. Known ones must be from 0 to `whole`."""
    if isinstance(q, Operand):
        return to_dtype(q, dtype) if whole == 1 else to_dtype(q, dtype) / whole
    known = as_array(q, np.dtype(np.float64))
    if not ((known >= 0) & (known <= whole)).all():
        refuse(
            f"quantile: q must be from 0 to {whole}, got {q!r}",
            error=AttributeValueError,
            hint="quantile takes fractions of 1, percentile takes percent",
        )
    return constant(known / whole, dtype)


def _quantile(
    x: Any,
    q: Any,
    axis: Axes,
    method: str,
    keepdims: bool,
    name: str | None,
    *,
    whole: int = 1,
    skip_nan: bool = False,
) -> Tensor:
    methods = ("linear", "lower", "higher", "midpoint", "nearest")
    if method not in methods:
        refuse(
            f"quantile: method must be one of {', '.join(methods)}, got {method!r}",
            error=AttributeValueError,
        )
    (given,) = promote_inexact(x)
    tensor = to_dtype(given, wide(given.dtype))  # bfloat16 cannot hold 257
    wanted = _shares(q, whole, tensor.dtype)
    if wanted.ndim > 1:
        refuse("quantile: q must be a number or a vector", q=wanted)
    rows, axes = _rows(tensor, axis)
    holes = isnan(rows)
    if skip_nan:
        counts = reduce_sum(to_dtype(~holes, INT32), -1, keepdims=True)
        found = _at_quantile(rows, maximum(counts, 1), reshape(wanted, (-1,)), method)
    else:
        counts = reshape(dim_value(rows.shape[-1]), (1,))
        found = _at_quantile(rows, counts, reshape(wanted, (-1,)), method)
        found = where(holes[..., -1:], math.nan, found)
    if keepdims:
        found = reshape(
            found,
            (*(1 if i in axes else d for i, d in enumerate(tensor.shape)), found.shape[-1]),
        )
    found = moveaxis(found, -1, 0) if wanted.ndim else squeeze(found, -1, name=name)
    return to_dtype(found, given.dtype)


def quantile(
    x: TensorLike,
    q: TensorLike,
    axis: Axes = None,
    method: str = "linear",
    keepdims: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """The values over `axis` below which the fractions `q` of the elements are.

    Args:
        x: any real tensor; integers give float32. NaN among the elements gives NaN.
        q: fractions from 0 to 1: a number, or a vector [k].
        axis: one, several, or None for all.
        method: the value between two elements: "linear", "lower", "higher", "midpoint" or
            "nearest".
        keepdims: keeps the axes, with size 1.
        name: of the node.

    Returns:
        A tensor with the shape of a reduction; for a vector `q`, with k in front.

    Raises:
        AttributeValueError: an unknown method, an axis out of range, or known fractions that are
            not from 0 to 1.
        ShapeError: there are no elements, or `q` is neither a number nor a vector.

    Source: numpy.quantile.

    Examples:
        >>> run(gc.quantile([1.0, 2.0, 4.0], 0.5))
        Array(2., dtype=float32)
    """
    return _quantile(x, q, axis, method, keepdims, name)


def nanquantile(
    x: TensorLike,
    q: TensorLike,
    axis: Axes = None,
    method: str = "linear",
    keepdims: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """`quantile` of the elements that are not NaN. Source: numpy.nanquantile.

    Examples:
        >>> run(gc.nanquantile([1.0, np.nan, 3.0], 0.5))
        Array(2., dtype=float32)
    """
    return _quantile(x, q, axis, method, keepdims, name, skip_nan=True)


def percentile(
    x: TensorLike,
    q: TensorLike,
    axis: Axes = None,
    method: str = "linear",
    keepdims: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """`quantile` with `q` in percent. Source: numpy.percentile.

    Examples:
        >>> run(gc.percentile([1.0, 2.0, 4.0], 50))
        Array(2., dtype=float32)
    """
    return _quantile(x, q, axis, method, keepdims, name, whole=100)


def nanpercentile(
    x: TensorLike,
    q: TensorLike,
    axis: Axes = None,
    method: str = "linear",
    keepdims: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """`nanquantile` with `q` in percent. Source: numpy.nanpercentile.

    Examples:
        >>> run(gc.nanpercentile([1.0, np.nan, 3.0], 50))
        Array(2., dtype=float32)
    """
    return _quantile(x, q, axis, method, keepdims, name, whole=100, skip_nan=True)


def median(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The middle element over `axis`, or the mean of the middle two. Source: numpy.median.

    Examples:
        >>> run(gc.median([7.0, 1.0, 4.0]))
        Array(4., dtype=float32)
    """
    return quantile(x, 0.5, axis, "linear", keepdims, name=name)


def nanmedian(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """`median` of the elements that are not NaN. Source: numpy.nanmedian.

    Examples:
        >>> run(gc.nanmedian([7.0, np.nan, 1.0]))
        Array(4., dtype=float32)
    """
    return nanquantile(x, 0.5, axis, "linear", keepdims, name=name)
