"""Normalization over groups of channels, over single channels, and without a mean."""

from __future__ import annotations

from typing import Any

from graphc.ir.node import Tensor
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.emit import to_dtype
from graphc.ops.core.operands import as_floating
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import add, maximum, multiply
from graphc.ops.elementwise.powers import rsqrt, square
from graphc.ops.nn.normalization import moments
from graphc.ops.reductions.reduction import reduce_mean, reduce_sum
from graphc.typing import TensorLike

__all__ = ["group_norm", "instance_norm", "l2_normalize", "rms_norm"]


def group_norm(
    x: TensorLike,
    groups: int,
    scale: TensorLike,
    offset: TensorLike,
    epsilon: float = 1e-5,
    *,
    name: str | None = None,
) -> Tensor:
    """Each group of channels of each example with mean 0 and variance 1, times scale plus offset.

    Args:
        x: [batch, ..., channels], floating.
        groups: the number of groups. It divides the number of channels, which must be known.
        scale, offset: [channels].
        epsilon: added to the variance.
        name: of the last node.

    Returns:
        A tensor of the shape and dtype of `x`. Narrower dtypes are computed in float32.

    Raises:
        ShapeError: the groups do not divide the channels, or parameters have another shape.
        DTypeError: `x` is not floating.

    Source: Wu & He, 2018, arXiv:1803.08494.

    Examples:
        >>> run(gc.nn.group_norm([[1.0, 3.0, 5.0, 9.0]], 2, gc.ones(4), gc.zeros(4)))
        Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    x, rows = _rows("group_norm", x)
    channels = x.shape[-1]
    (count,) = as_dims("group_norm", (groups,))
    if not (isinstance(count, int) and isinstance(channels, int)) or count < 1 or channels % count:
        refuse(
            f"group_norm: {groups!r} groups do not divide {channels!s} channels",
            hint="the number of groups must divide the size of the last axis",
            x=x,
        )
    grouped = reshape(rows, (*x.shape[:-1], count, channels // count))
    mean, variance = moments(grouped, (*range(1, x.ndim - 1), x.ndim), keepdims=True)
    normalized = reshape((grouped - mean) * rsqrt(variance + epsilon), x.shape)
    return _shifted(x, normalized, scale, offset, name)


def instance_norm(
    x: TensorLike,
    scale: TensorLike,
    offset: TensorLike,
    epsilon: float = 1e-5,
    *,
    name: str | None = None,
) -> Tensor:
    """Each channel of each example with mean 0 and variance 1, times scale plus offset.

    Args:
        x: [batch, ..., channels], floating.
        scale, offset: [channels].
        epsilon: added to the variance.
        name: of the last node.

    Returns:
        A tensor of the shape and dtype of `x`. Narrower dtypes are computed in float32.

    Raises:
        ShapeError: `x` without spatial axes, or parameters of another shape.
        DTypeError: `x` is not floating.

    Source: Ulyanov, Vedaldi & Lempitsky, 2016, arXiv:1607.08022.

    Examples:
        >>> run(gc.nn.instance_norm([[[1.0], [3.0]]], [1.0], [0.0]))
        Array([[[-1.],
                [ 1.]]], dtype=float32)
    """
    x, rows = _rows("instance_norm", x)
    if x.ndim < 3:
        refuse(f"instance_norm: x must be [batch, ..., channels], got {x.ndim} axes", x=x)
    mean, variance = moments(rows, tuple(range(1, x.ndim - 1)), keepdims=True)
    return _shifted(x, (rows - mean) * rsqrt(variance + epsilon), scale, offset, name)


def l2_normalize(
    x: TensorLike,
    axis: int | tuple[int, ...] | None = -1,
    epsilon: float = 1e-12,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` divided by its Euclidean length along `axis`: vectors of length 1.

    Args:
        x: floating.
        axis: one or several; None for all.
        epsilon: the least squared length to divide by: shorter vectors stay shorter than 1.
        name: of the last node.

    Returns:
        A tensor of the shape and dtype of `x`. Narrower dtypes are computed in float32.

    Raises:
        DTypeError: `x` is not floating.

    Source: TensorFlow's `math.l2_normalize`.

    Examples:
        >>> run(gc.nn.l2_normalize([3.0, 4.0]))
        Array([0.6, 0.8], dtype=float32)
    """
    x = as_floating("l2_normalize", "x", x)
    rows = to_dtype(x, wide(x.dtype))
    squared = reduce_sum(square(rows), axis=axis, keepdims=True)
    return to_dtype(multiply(rows, rsqrt(maximum(squared, epsilon)), name=name), x.dtype)


def rms_norm(
    x: TensorLike, scale: TensorLike, epsilon: float = 1e-6, *, name: str | None = None
) -> Tensor:
    """`x` over the root of the mean of its squares along the last axis, times scale.

    Args:
        x: [..., channels], floating.
        scale: [channels].
        epsilon: added to the mean of the squares.
        name: of the last node.

    Returns:
        A tensor of the shape and dtype of `x`. Narrower dtypes are computed in float32.

    Raises:
        ShapeError: a scale of another shape.
        DTypeError: `x` is not floating.

    Source: Zhang & Sennrich, 2019, arXiv:1910.07467.

    Examples:
        >>> run(gc.nn.rms_norm([[3.0, 4.0]], [1.0, 1.0]))
        Array([[0.8485, 1.1314]], dtype=float32)
    """
    x, rows = _rows("rms_norm", x)
    squares = reduce_mean(square(rows), axis=-1, keepdims=True)
    return _shifted(x, rows * rsqrt(squares + epsilon), scale, None, name)


def _rows(what: str, x: Any) -> tuple[Tensor, Tensor]:
    """`x`, and `x` in the dtype to compute in."""
    x = as_floating(what, "x", x)
    if x.ndim < 2:
        refuse(f"{what}: x must be [batch, ..., channels], got {x.ndim} axes", x=x)
    return x, to_dtype(x, wide(x.dtype))


def _shifted(x: Tensor, normalized: Tensor, scale: Any, offset: Any, name: str | None) -> Tensor:
    """`normalized` times the scale plus the offset, in the dtype of `x`."""
    dtype = normalized.dtype
    scaled = multiply(normalized, to_dtype(scale, dtype), name=name if offset is None else None)
    if offset is not None:
        scaled = add(scaled, to_dtype(offset, dtype), name=name)
    return to_dtype(scaled, x.dtype)
