"""Differences of neighbours along an axis, and functions given by points or coefficients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import BOOL
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import zeros_like
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import broadcast_to, moveaxis, ravel
from graphc.ops.arrays.subscript import getitem
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_inexact, promote_operands, to_dtype
from graphc.ops.elementwise.arithmetic import clip, remainder, subtract
from graphc.ops.elementwise.comparison import equal, not_equal, where
from graphc.ops.numpy_api.searching import searchsorted
from graphc.ops.reductions.axiswise import cumsum
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike

__all__ = ["diff", "ediff1d", "gradient", "interp", "polyval", "trapezoid", "unwrap"]


def _neighbours(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """All elements along `axis` except the last, and all except the first."""
    before = (slice(None),) * axis
    return getitem(x, (*before, slice(None, -1))), getitem(x, (*before, slice(1, None)))


def _row(value: Any, x: Tensor, axis: int) -> Tensor:
    """A number, broadcast to a slice of `x` of size 1 along `axis`."""
    tensor = convert(value)
    if tensor.ndim:
        return tensor
    return broadcast_to(tensor, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))


def diff(
    x: TensorLike,
    n: int = 1,
    axis: int = -1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> Tensor:
    """The differences of neighbours along `axis`, `n` times; for bools, whether neighbours differ.

    Args:
        x: any tensor.
        n: how often the differences are computed.
        axis: the axis of the neighbours.
        prepend, append: the elements before the first and after the last: a number, or a tensor
            like `x` except for the size along `axis`.

    Raises:
        AttributeValueError: a negative `n`, or an axis out of range.

    Source: numpy.diff.

    Examples:
        >>> run(gc.diff([1, 4, 9]))
        Array([3, 5], dtype=int32)
    """
    found = convert(x)
    place = normalize_axis("diff", found, axis)
    if n < 0:
        refuse(f"diff: n must not be negative, got {n}", error=AttributeValueError, x=found)
    if n and not (prepend is None and append is None):
        parts = (prepend, found, append)
        found = concatenate([_row(p, found, place) for p in parts if p is not None], place)
    for _ in range(n):
        low, high = _neighbours(found, place)
        found = not_equal(high, low) if found.dtype == BOOL else subtract(high, low)
    return found


def ediff1d(
    x: TensorLike, to_end: TensorLike | None = None, to_begin: TensorLike | None = None
) -> Tensor:
    """`diff` of the raveled `x`, between `to_begin` and `to_end`. Source: numpy.ediff1d.

    Examples:
        >>> run(gc.ediff1d([1, 4, 9]))
        Array([3, 5], dtype=int32)
    """
    found = diff(ravel(x))
    parts = [p if p is found else ravel(p) for p in (to_begin, found, to_end) if p is not None]
    return concatenate(parts) if len(parts) > 1 else found


def gradient(
    f: TensorLike, *spacing: TensorLike, axis: int | Sequence[int] | None = None
) -> Tensor | list[Tensor]:
    """The gradient of `f` along axes: central differences, and one-sided differences at the ends.

    Args:
        f: [n, ...], floating or complex; integers give float32. At least 2 elements along each
            of the axes.
        spacing: one number for all axes, or one for each: the distance between the elements, or a
            vector of their coordinates.
        axis: one, several, or None for all.

    Returns:
        A tensor of f's type for one axis, else a list of them.

    Raises:
        AttributeValueError: an axis is out of range, or the numbers of spacings and axes differ.
        ShapeError: fewer than 2 elements along an axis.

    Source: numpy.gradient with edge_order=1.

    Examples:
        >>> run(gc.gradient([1.0, 4.0, 9.0]))
        Array([3., 4., 5.], dtype=float32)
    """
    (values,) = promote_inexact(f)
    asked = range(values.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = [normalize_axis("gradient", values, one) for one in asked]
    if any(isinstance(size := values.shape[one], int) and size < 2 for one in axes):
        refuse("gradient: needs at least 2 elements along each axis", f=values)
    steps = list(spacing) or [1.0]
    if len(steps) == 1:
        steps *= len(axes)
    if len(steps) != len(axes):
        refuse(
            f"gradient: {len(steps)} spacings for {len(axes)} axes",
            error=AttributeValueError,
            f=values,
        )
    found = [_slope(values, step, place) for step, place in zip(steps, axes, strict=True)]
    return found[0] if (axis is None and values.ndim == 1) or isinstance(axis, int) else found


def _slope(f: Tensor, step: Any, axis: int) -> Tensor:
    moved = moveaxis(f, axis, -1)
    places = convert(step)
    if places.ndim == 0:
        rises = diff(moved) / to_dtype(places, f.dtype)
        inner = (rises[..., :-1] + rises[..., 1:]) * 0.5
    else:
        widths = diff(to_dtype(places, f.dtype))
        before, after = widths[:-1], widths[1:]
        rises = diff(moved) / widths
        inner = (rises[..., :-1] * after + rises[..., 1:] * before) / (before + after)
    whole = concatenate([rises[..., :1], inner, rises[..., -1:]], -1)
    return moveaxis(whole, -1, axis)


def trapezoid(
    y: TensorLike, x: TensorLike | None = None, dx: TensorLike = 1.0, axis: int = -1
) -> Tensor:
    """The integral along `axis` by the trapezoidal rule.

    Args:
        y: values, of any shape.
        x: the coordinates of the values: of the shape of `y`, or a vector along `axis`.
        dx: the distance between the values, if there is no `x`.
        axis: the axis of the points.

    Source: numpy.trapezoid.

    Examples:
        >>> run(gc.trapezoid([1.0, 2.0, 3.0]))
        Array(4., dtype=float32)
    """
    (values,) = promote_inexact(y)
    place = normalize_axis("trapezoid", values, axis)
    low, high = _neighbours(moveaxis(values, place, -1), values.ndim - 1)
    if x is None:
        widths = dx
    else:
        points = convert(x)
        widths = diff(points if points.ndim == 1 else moveaxis(points, place, -1))
    return reduce_sum((low + high) * widths, -1) * 0.5


def interp(
    x: TensorLike,
    xp: TensorLike,
    fp: TensorLike,
    left: TensorLike | None = None,
    right: TensorLike | None = None,
) -> Tensor:
    """Linear interpolation at `x` between the points (xp, fp).

    Args:
        x: real, of any shape.
        xp: [n], in ascending order.
        fp: [n]: the values there.
        left, right: the values before the first point and after the last; by default the values at
            these points.

    Source: numpy.interp.

    Examples:
        >>> run(gc.interp([0.5, 1.5], [0.0, 1.0, 2.0], [0.0, 10.0, 30.0]))
        Array([ 5., 20.], dtype=float32)
    """
    x, points, values = promote_inexact(x, xp, fp)
    last = points.shape[0] - 1
    place = clip(searchsorted(points, x, "right"), 1, last)
    x0, x1 = take(points, place - 1), take(points, place)
    y0, y1 = take(values, place - 1), take(values, place)
    width = x1 - x0
    share = where(equal(width, 0), 0, (x - x0) / where(equal(width, 0), 1, width))
    found = y0 + (y1 - y0) * share
    found = where(x > points[-1], values[-1] if right is None else right, found)
    return where(x < points[0], values[0] if left is None else left, found)


def polyval(coefficients: TensorLike, x: TensorLike) -> Tensor:
    """The value at `x` of the polynomial with these coefficients, the highest power first.

    Args:
        coefficients: a vector of known size.
        x: of any shape.

    Raises:
        AttributeValueError: the number of coefficients is not known.

    Source: numpy.polyval.

    Examples:
        >>> run(gc.polyval([1, 2, 3], 2))
        Array(11, dtype=int32)
    """
    p, x = promote_operands(coefficients, x)
    if p.ndim != 1 or not isinstance(p.shape[0], int):
        refuse("polyval: needs a vector of known size", error=AttributeValueError, p=p)
    result = zeros_like(x)
    for i in range(p.shape[0]):
        result = result * x + p[i]
    return result


def unwrap(x: TensorLike, period: float = 2 * math.pi, axis: int = -1) -> Tensor:
    """Angles plus whole periods, so that neighbours differ by at most half a period.

    Source: numpy.unwrap, of floating dtypes.

    Examples:
        >>> run(gc.unwrap([0.0, 6.0]))
        Array([ 0.    , -0.2832], dtype=float32)
    """
    (angles,) = promote_inexact(x)
    place = normalize_axis("unwrap", angles, axis)
    steps = diff(angles, axis=place)
    half = period / 2
    near = remainder(steps + half, period) - half
    near = where(equal(near, -half) & (steps > 0), half, near)
    moved = where((steps < half) & (steps > -half), 0, near - steps)
    first = getitem(angles, (*(slice(None),) * place, slice(0, 1)))
    return angles + concatenate([zeros_like(first), cumsum(moved, place)], place)
