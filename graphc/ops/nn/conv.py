"""Convolution over one, two or three spatial axes, and depthwise convolution."""

from __future__ import annotations

from typing import Any

from graphc.ir.node import Tensor
from graphc.ir.opdef import OpDef
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, emit_one, promote_operands
from graphc.ops.nn.conv_rules import CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT
from graphc.ops.nn.windows import check_spatial, explicit_padding, per_axis
from graphc.typing import Padding, TensorLike

__all__ = ["conv1d", "conv2d", "conv3d", "depthwise_conv"]


def conv1d(
    x: TensorLike,
    w: TensorLike,
    *,
    strides: int | tuple[int] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Convolution of x [batch, width, channels] with w [taps, channels / groups, filters].

    Gives [batch, width', filters]. All else as in `conv2d`, for one spatial axis.

    Examples:
        >>> run(gc.nn.conv1d([[[1.0], [2.0], [3.0]]], gc.ones((2, 1, 1))))
        Array([[[3.],
                [5.]]], dtype=float32)
    """
    return _conv("conv1d", 1, x, w, strides, padding, dilation, groups, name)


def conv2d(
    x: TensorLike,
    w: TensorLike,
    *,
    strides: int | tuple[int, int] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Two-dimensional convolution (cross-correlation, as in other deep-learning libraries).

    Args:
        x: [batch, height, width, channels], floating.
        w: [rows, columns, channels / groups, filters], promoted with `x`.
        strides: steps of the window, one int, (vertical, horizontal), or for all axes
            (1, vertical, horizontal, 1).
        padding: "valid", "same", an int for all sides, or ((top, bottom), (left, right)).
            "same" gives ceil(size / stride) rows.
        dilation: steps between the taps of the kernel.
        groups: splits channels and filters into this number of independent groups;
            `groups=channels` is a depthwise convolution.
        name: of the node.

    Returns:
        [batch, height', width', filters].

    Raises:
        ShapeError: the channels do not fit, the kernel is larger than the padded input, or
            the padding is "same" with a stride over a size that is not known yet.
        AttributeValueError: strides, padding, dilation or groups have another form.

    Examples:
        >>> gc.nn.conv2d(gc.ones((1, 8, 8, 3)), gc.ones((3, 3, 3, 16)), padding="same").shape
        (1, 8, 8, 16)
    """
    return _conv("conv2d", 2, x, w, strides, padding, dilation, groups, name)


def conv3d(
    x: TensorLike,
    w: TensorLike,
    *,
    strides: int | tuple[int, int, int] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int, int, int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Convolution of x [batch, depth, height, width, channels] with w [planes, rows, columns,
    channels / groups, filters].

    Gives [batch, depth', height', width', filters]. All else as in `conv2d`, for three spatial
    axes.

    Examples:
        >>> gc.nn.conv3d(gc.ones((1, 4, 4, 4, 2)), gc.ones((3, 3, 3, 2, 5))).shape
        (1, 2, 2, 2, 5)
    """
    return _conv("conv3d", 3, x, w, strides, padding, dilation, groups, name)


def depthwise_conv(
    x: TensorLike,
    w: TensorLike,
    *,
    strides: int | tuple[int, ...] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int, ...] = 1,
    name: str | None = None,
) -> Tensor:
    """Convolution of each channel by itself, over any number of spatial axes.

    Args:
        x: [batch, ..., channels], floating.
        w: [..., channels, multiplier], promoted with `x`: `multiplier` kernels for each channel.
        strides, padding, dilation: as in `conv2d`.
        name: of the node.

    Returns:
        [batch, ..., channels * multiplier], with the results of each channel next to each other.

    Raises:
        ShapeError, AttributeValueError: as `conv2d`; or the number of channels is unknown.

    Examples:
        >>> gc.nn.depthwise_conv(gc.ones((1, 8, 3)), gc.ones((3, 3, 2))).shape
        (1, 6, 6)
    """
    x, w = convert(x), convert(w)
    channels = w.shape[-2] if w.ndim > 2 else None
    if not isinstance(channels, int):
        refuse("depthwise_conv: w must be [..., channels, multiplier], channels known", x=x, w=w)
    grouped = reshape(w, (*w.shape[:-2], 1, channels * w.shape[-1]))
    rank = w.ndim - 2
    label = "depthwise_conv"
    return _conv(label, rank, x, grouped, strides, padding, dilation, channels, name)


def _conv(
    label: str,
    rank: int,
    x: Any,
    w: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    name: str | None,
) -> Tensor:
    x, w = convert(x), convert(w)
    steps = per_axis(label, "strides", strides, rank)
    taps = per_axis(label, "dilation", dilation, rank)
    check_spatial(label, x, rank)
    if w.ndim != rank + 2:
        refuse(f"{label}: w must have {rank + 2} axes, got {w.ndim}", x=x, w=w)
    pairs = explicit_padding(label, padding, x, w.shape[:-2], steps, taps)
    operands = promote_operands(x, w)
    attrs = {"strides": steps, "padding": pairs, "dilation": taps, "groups": groups}
    return emit_one(CONV, operands, name=name, **attrs)


OPS: tuple[OpDef, ...] = (CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT)
