"""Conversions between colour spaces of images, [..., channels], and colour adjustments.

Values are floating, from 0 to 1. Hue, saturation and value have finite gradients at grey, where
the hue jumps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.node import Tensor
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.core.operands import as_floating
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import (
    add,
    clip,
    divide,
    maximum,
    minimum,
    multiply,
    remainder,
    subtract,
)
from graphc.ops.elementwise.comparison import equal, greater, where
from graphc.ops.matrices.contraction import dot_general
from graphc.ops.reductions.reduction import reduce_max, reduce_mean, reduce_min
from graphc.typing import TensorLike

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "hsv_to_rgb",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "rgb_to_yiq",
    "rgb_to_yuv",
    "yiq_to_rgb",
    "yuv_to_rgb",
]

# BT.601, a standard of colour television, which TensorFlow's functions use too.
_LUMA = np.array([0.299, 0.587, 0.114])
_YUV = np.array(
    [
        _LUMA,
        [-0.14714119, -0.28886916, 0.43601035],
        [0.61497538, -0.51496512, -0.10001026],
    ]
)
_YIQ = np.array(
    [_LUMA, [0.59590059, -0.27455667, -0.32134392], [0.21153661, -0.52273617, 0.31119955]]
)


def rgb_to_hsv(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Red, green and blue as hue, saturation and value.

    Args:
        x: [..., 3], floating, from 0 to 1.
        name: of the last node.

    Returns:
        [..., 3], from 0 to 1: a hue of 0 is red, of 1/3 green, of 2/3 blue. Grey has hue and
        saturation 0; there the derivatives of the hue are 0.

    Raises:
        ShapeError: the last axis is not of 3 channels.
        DTypeError: `x` is not floating.

    Source: Smith, 1978, doi:10.1145/800248.807361; TensorFlow's `tf.image.rgb_to_hsv`.

    Examples:
        >>> run(gc.nn.rgb_to_hsv([1.0, 0.0, 0.0]))
        Array([0., 1., 1.], dtype=float32)
    """
    x, rows = _colors("rgb_to_hsv", x)
    red, green, blue = (rows[..., i] for i in range(3))
    value, least = reduce_max(rows, -1), reduce_min(rows, -1)
    spread = subtract(value, least)
    is_grey = equal(spread, 0)
    # Values that are not selected must be finite, because otherwise the derivatives of the selected
    # values are not.
    over = where(is_grey, 1, spread)
    sector = where(
        equal(value, red),
        remainder(divide(green - blue, over), 6),
        where(equal(value, green), divide(blue - red, over) + 2, divide(red - green, over) + 4),
    )
    hue = where(is_grey, 0, divide(sector, 6))
    some = greater(value, 0)
    saturation = where(some, divide(spread, where(some, value, 1)), 0)
    return to_dtype(stack([hue, saturation, value], -1, name=name), x.dtype)


def hsv_to_rgb(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Hue, saturation and value as red, green and blue: undoes `rgb_to_hsv`.

    Args:
        x: [..., 3], floating, from 0 to 1; hues of any size, which repeat.
        name: of the last node.

    Returns:
        [..., 3].

    Raises:
        ShapeError, DTypeError: as `rgb_to_hsv`.

    Source: Smith, 1978, doi:10.1145/800248.807361; TensorFlow's `tf.image.hsv_to_rgb`.

    Examples:
        >>> run(gc.nn.hsv_to_rgb([0.0, 1.0, 1.0]))
        Array([1., 0., 0.], dtype=float32)
    """
    x, rows = _colors("hsv_to_rgb", x)
    hue, saturation, value = (rows[..., i] for i in range(3))
    parts = []
    for start in (5, 3, 1):
        sector = remainder(add(multiply(hue, 6), start), 6)
        missing = clip(minimum(sector, 4 - sector), 0, 1)
        parts.append(subtract(value, value * saturation * missing))
    return to_dtype(stack(parts, -1, name=name), x.dtype)


def rgb_to_grayscale(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The brightness of red, green and blue: [..., 3] to [..., 1] (BT.601).

    Raises:
        ShapeError, DTypeError: as `rgb_to_hsv`.

    Source: TensorFlow's `tf.image.rgb_to_grayscale`.

    Examples:
        >>> run(gc.nn.rgb_to_grayscale([[[1.0, 1.0, 1.0]]]))
        Array([[[1.]]], dtype=float32)
    """
    return _mixed("rgb_to_grayscale", x, _LUMA[None], name)


def rgb_to_yuv(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Red, green and blue [..., 3] as luma and two differences of colour (PAL).

    Raises the same errors as `rgb_to_hsv`. Source: TensorFlow's `tf.image.rgb_to_yuv`.

    Examples:
        >>> run(gc.nn.rgb_to_yuv([1.0, 0.0, 0.0]))
        Array([ 0.299 , -0.1471,  0.615 ], dtype=float32)
    """
    return _mixed("rgb_to_yuv", x, _YUV, name)


def yuv_to_rgb(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Undoes `rgb_to_yuv`.

    Examples:
        >>> run(gc.nn.yuv_to_rgb([1.0, 0.0, 0.0]))
        Array([1., 1., 1.], dtype=float32)
    """
    return _mixed("yuv_to_rgb", x, np.linalg.inv(_YUV), name)


def rgb_to_yiq(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Red, green and blue [..., 3] as luma and two differences of colour (NTSC).

    Raises the same errors as `rgb_to_hsv`. Source: TensorFlow's `tf.image.rgb_to_yiq`.

    Examples:
        >>> run(gc.nn.rgb_to_yiq([1.0, 0.0, 0.0]))
        Array([0.299 , 0.5959, 0.2115], dtype=float32)
    """
    return _mixed("rgb_to_yiq", x, _YIQ, name)


def yiq_to_rgb(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Undoes `rgb_to_yiq`.

    Examples:
        >>> run(gc.nn.yiq_to_rgb([1.0, 0.0, 0.0]))
        Array([1., 1., 1.], dtype=float32)
    """
    return _mixed("yiq_to_rgb", x, np.linalg.inv(_YIQ), name)


# -- adjusting ------------------------------------------------------------------------------


def adjust_brightness(x: TensorLike, delta: TensorLike, *, name: str | None = None) -> Tensor:
    """Adds `delta`, a number or a tensor that broadcasts to `x`, to the floating `x`.

    Examples:
        >>> run(gc.nn.adjust_brightness([[[0.2, 0.4, 0.6]]], 0.1))
        Array([[[0.3, 0.5, 0.7]]], dtype=float32)
    """
    x, rows = _floating("adjust_brightness", x)
    return to_dtype(add(rows, to_dtype(delta, rows.dtype), name=name), x.dtype)


def adjust_contrast(x: TensorLike, factor: TensorLike, *, name: str | None = None) -> Tensor:
    """Multiplies the differences of `x` from the mean of each channel of each image by `factor`.

    Args:
        x: [..., height, width, channels], floating.
        factor: a number, or a tensor that broadcasts to `x`.
        name: of the last node.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ShapeError: `x` has less than three axes.
        DTypeError: `x` is not floating.

    Source: TensorFlow's `tf.image.adjust_contrast`.

    Examples:
        >>> run(gc.nn.adjust_contrast([[[0.2], [0.4]]], 2.0))
        Array([[[0.1],
                [0.5]]], dtype=float32)
    """
    x, rows = _floating("adjust_contrast", x)
    if x.ndim < 3:
        refuse(f"adjust_contrast: x must be [..., height, width, channels], got {x.ndim} axes", x=x)
    mean = reduce_mean(rows, axis=(-3, -2), keepdims=True)
    far = (rows - mean) * to_dtype(factor, rows.dtype)
    return to_dtype(add(far, mean, name=name), x.dtype)


def adjust_saturation(x: TensorLike, factor: TensorLike, *, name: str | None = None) -> Tensor:
    """`x` with its saturation multiplied by `factor` and clipped to [0, 1].

    Args:
        x: [..., 3], red, green and blue, floating, from 0 to 1.
        factor: a number, or a tensor that broadcasts to [...].
        name: of the last node.

    Raises:
        ShapeError, DTypeError: as `rgb_to_hsv`.

    Source: TensorFlow's `tf.image.adjust_saturation`.

    Examples:
        >>> run(gc.nn.adjust_saturation([[[1.0, 0.5, 0.5]]], 0.0))
        Array([[[1., 1., 1.]]], dtype=float32)
    """
    x, rows = _colors("adjust_saturation", x)
    value = reduce_max(rows, -1, keepdims=True)
    spread = subtract(value, reduce_min(rows, -1, keepdims=True))
    wanted = to_dtype(factor, rows.dtype)
    wanted = wanted[..., None] if wanted.ndim else wanted
    # The hue does not change if all distances from the value are multiplied by the same factor.
    # `most` is the factor that gives full saturation.
    some = greater(spread, 0)
    most = divide(value, where(some, spread, 1))
    scale = where(some, maximum(minimum(wanted, most), 0), 1)
    return to_dtype(subtract(value, (value - rows) * scale, name=name), x.dtype)


def adjust_hue(x: TensorLike, delta: TensorLike, *, name: str | None = None) -> Tensor:
    """`x` with `delta` added to its hue, of which 1 is the whole circle.

    Operands and errors are as for `adjust_saturation`.

    Source: TensorFlow's `tf.image.adjust_hue`.

    Examples:
        >>> run(gc.nn.adjust_hue([[[1.0, 0.0, 0.0]]], 1 / 3))
        Array([[[0., 1., 0.]]], dtype=float32)
    """
    x, rows = _colors("adjust_hue", x)
    hsv = rgb_to_hsv(rows)
    hue = add(hsv[..., 0], to_dtype(delta, rows.dtype))
    turned = stack([hue, hsv[..., 1], hsv[..., 2]], -1)
    return to_dtype(hsv_to_rgb(turned, name=name), x.dtype)


# -- operands -------------------------------------------------------------------------------


def _floating(what: str, x: Any) -> tuple[Tensor, Tensor]:
    """`x`, and `x` in the dtype to compute in."""
    x = as_floating(what, "x", x, "cast it, and divide it by its maximum value")
    return x, to_dtype(x, wide(x.dtype))


def _colors(what: str, x: Any) -> tuple[Tensor, Tensor]:
    x = convert(x)
    if x.ndim == 0 or x.shape[-1] != 3:
        refuse(f"{what}: x must be [..., 3]", x=x)
    return _floating(what, x)


def _mixed(what: str, x: Any, weights: Any, name: str | None) -> Tensor:
    """A tensor in which each channel is a weighted sum of the channels of `x`."""
    x, rows = _colors(what, x)
    mixed = dot_general(rows, to_dtype(weights, rows.dtype), ((x.ndim - 1,), (1,)), name=name)
    return to_dtype(mixed, x.dtype)
