"""Transposed convolutions and separable convolutions."""

from __future__ import annotations

from typing import Any

from graphc.ir.node import Tensor
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import is_static, refuse, same_shape
from graphc.ops.core.emit import convert, emit_one, promote_operands
from graphc.ops.elementwise.arithmetic import add
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.nn.conv import depthwise_conv
from graphc.ops.nn.conv_rules import CONV_INPUT_GRADIENT
from graphc.ops.nn.windows import Ints, Pairs, check_spatial, explicit_padding, per_axis
from graphc.typing import Padding, TensorLike

__all__ = [
    "bias_add",
    "conv1d_transpose",
    "conv2d_transpose",
    "conv3d_transpose",
    "depthwise_conv2d",
    "separable_conv",
    "separable_conv2d",
]


def conv1d_transpose(
    x: TensorLike,
    w: TensorLike,
    *,
    strides: int | tuple[int] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Transposed convolution of x [batch, width, channels] with w [taps, filters / groups,
    channels].

    Gives [batch, width', filters]. Everything else is as in `conv2d_transpose`, for one spatial
    axis.

    Examples:
        >>> run(gc.nn.conv1d_transpose([[[1.0], [2.0]]], gc.ones((2, 1, 1)), strides=2))
        Array([[[1.],
                [1.],
                [2.],
                [2.]]], dtype=float32)
    """
    return _transposed("conv1d_transpose", 1, x, w, strides, padding, dilation, groups, name)


def conv2d_transpose(
    x: TensorLike,
    w: TensorLike,
    *,
    strides: int | tuple[int, int] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """The transpose of `conv2d` as a linear map: it makes images larger by the strides.

    Args:
        x: [batch, height, width, channels], floating.
        w: [rows, columns, filters / groups, channels], promoted with `x`: the kernel of the
            convolution that this one is the transpose of.
        strides: the distance in the result between neighbouring elements of x.
        padding: of that convolution. "same" gives height * stride rows. "valid" gives the smallest
            number of rows that holds every product. An int or pairs remove that many at the sides.
        dilation: steps between the taps of the kernel.
        groups: splits channels and filters into this number of independent groups.
        name: of the node.

    Returns:
        [batch, height', width', filters].

    Raises:
        ShapeError: channels that do not fit.
        AttributeValueError: strides, padding, dilation or groups of another form.

    Source: Dumoulin & Visin, A guide to convolution arithmetic for deep learning, 2016;
    `jax.lax.conv_transpose` with `transpose_kernel=True`.

    Examples:
        >>> gc.nn.conv2d_transpose(gc.ones((1, 4, 4, 8)), gc.ones((2, 2, 3, 8)), strides=2).shape
        (1, 8, 8, 3)
    """
    return _transposed("conv2d_transpose", 2, x, w, strides, padding, dilation, groups, name)


def conv3d_transpose(
    x: TensorLike,
    w: TensorLike,
    *,
    strides: int | tuple[int, int, int] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int, int, int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Transposed convolution of x [batch, depth, height, width, channels] with w [planes, rows,
    columns, filters / groups, channels].

    Gives [batch, depth', height', width', filters]. Everything else is as in `conv2d_transpose`,
    for three spatial axes.

    Examples:
        >>> gc.nn.conv3d_transpose(
        ...     gc.ones((1, 2, 2, 2, 4)), gc.ones((2, 2, 2, 3, 4)), strides=2
        ... ).shape
        (1, 4, 4, 4, 3)
    """
    return _transposed("conv3d_transpose", 3, x, w, strides, padding, dilation, groups, name)


def _transposed(
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
    if w.ndim != rank + 2 or not is_static(*w.shape[:-2]):
        refuse(f"{label}: w must have {rank} known sizes and two axes of channels", x=x, w=w)
    reaches = tuple((n - 1) * d + 1 for n, d in zip(w.shape, taps, strict=False))
    pairs = _padding(label, padding, x, reaches, steps)
    size = tuple(
        n * step + max(reach - step, 0) - low - high
        for n, step, reach, (low, high) in zip(x.shape[1:-1], steps, reaches, pairs, strict=True)
    )
    attrs = {"strides": steps, "padding": pairs, "dilation": taps, "groups": groups}
    operands = promote_operands(x, w)
    return emit_one(CONV_INPUT_GRADIENT, operands, name=name, size=size, **attrs)


def _padding(label: str, padding: Any, x: Tensor, reaches: Ints, steps: Ints) -> Pairs:
    if isinstance(padding, str) and padding.lower() == "same":  # whatever the size of x
        totals = [max(reach - step, 0) for reach, step in zip(reaches, steps, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return explicit_padding(label, padding, x, reaches, steps, (1,) * len(steps))


def separable_conv(
    x: TensorLike,
    depthwise: TensorLike,
    pointwise: TensorLike,
    *,
    strides: int | tuple[int, ...] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int, ...] = 1,
    name: str | None = None,
) -> Tensor:
    """A depthwise convolution, then a product with one matrix at every position.

    Args:
        x: [batch, ..., channels], floating, with any number of spatial axes.
        depthwise: [..., channels, multiplier], as in `depthwise_conv`.
        pointwise: [channels * multiplier, filters].
        strides, padding, dilation: of the depthwise convolution, as in `conv2d`.
        name: of the last node.

    Returns:
        [batch, ..., filters].

    Raises:
        ShapeError, AttributeValueError: as `depthwise_conv`; or rows of `pointwise` that do not
            fit.

    Source: Chollet, 2017, arXiv:1610.02357.

    Examples:
        >>> gc.nn.separable_conv(gc.ones((1, 8, 3)), gc.ones((3, 3, 2)), gc.ones((6, 5))).shape
        (1, 6, 5)
    """
    places = depthwise_conv(x, depthwise, strides=strides, padding=padding, dilation=dilation)
    return matmul(places, pointwise, name=name)


def depthwise_conv2d(
    x: TensorLike,
    w: TensorLike,
    *,
    strides: int | tuple[int, ...] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int, ...] = 1,
    name: str | None = None,
) -> Tensor:
    """`depthwise_conv` of images: each channel by itself.

    Args:
        x: [batch, height, width, channels], floating.
        w: [rows, columns, channels, multiplier], promoted with `x`.
        strides, padding, dilation: as in `conv2d`.
        name: of the node.

    Returns:
        [batch, height', width', channels * multiplier]; the results of one channel are adjacent.

    Raises:
        ShapeError, AttributeValueError: as `conv2d`; or channels that are not known.

    Examples:
        >>> gc.nn.depthwise_conv2d(gc.ones((1, 4, 4, 3)), gc.ones((3, 3, 3, 2))).shape
        (1, 2, 2, 6)
    """
    x, w = convert(x), convert(w)
    _check_depthwise("depthwise_conv2d", x, w)
    return depthwise_conv(x, w, strides=strides, padding=padding, dilation=dilation, name=name)


def separable_conv2d(
    x: TensorLike,
    depthwise: TensorLike,
    pointwise: TensorLike,
    *,
    strides: int | tuple[int, ...] = 1,
    padding: Padding = "valid",
    dilation: int | tuple[int, ...] = 1,
    name: str | None = None,
) -> Tensor:
    """`separable_conv` of images.

    Args:
        x: [batch, height, width, channels], floating.
        depthwise: [rows, columns, channels, multiplier], as in `depthwise_conv2d`.
        pointwise: [channels * multiplier, filters], or the same as a kernel of one element,
            [1, 1, channels * multiplier, filters].
        strides, padding, dilation: of the depthwise convolution, as in `conv2d`.
        name: of the last node.

    Returns:
        [batch, height', width', filters].

    Raises:
        ShapeError, AttributeValueError: as `separable_conv`.

    Examples:
        >>> gc.nn.separable_conv2d(
        ...     gc.ones((1, 4, 4, 3)), gc.ones((3, 3, 3, 2)), gc.ones((6, 5))
        ... ).shape
        (1, 2, 2, 5)
    """
    x, depthwise, pointwise = convert(x), convert(depthwise), convert(pointwise)
    _check_depthwise("separable_conv2d", x, depthwise)
    if pointwise.ndim == 4 and pointwise.shape[:2] == (1, 1):
        pointwise = reshape(pointwise, pointwise.shape[2:])
    if pointwise.ndim != 2:
        refuse(
            "separable_conv2d: pointwise must be [channels * multiplier, filters], or [1, 1, "
            "channels * multiplier, filters]",
            pointwise=pointwise,
        )
    return separable_conv(
        x,
        depthwise,
        pointwise,
        strides=strides,
        padding=padding,
        dilation=dilation,
        name=name,
    )


def _check_depthwise(label: str, x: Tensor, w: Tensor) -> None:
    check_spatial(label, x, 2)
    if w.ndim != 4:
        refuse(f"{label}: the kernel must be [rows, columns, channels, multiplier]", x=x, w=w)


def bias_add(x: TensorLike, bias: TensorLike, *, name: str | None = None) -> Tensor:
    """`x + bias`, a number for each channel.

    Args:
        x: [..., channels].
        bias: [channels].
        name: of the node.

    Raises:
        ShapeError: a bias of another shape; `+` would broadcast it.

    Examples:
        >>> run(gc.nn.bias_add([[1.0, 2.0]], [10.0, 20.0]))
        Array([[11., 22.]], dtype=float32)
    """
    x, bias = convert(x), convert(bias)
    if x.ndim < 1 or bias.ndim != 1 or not same_shape(x.shape[-1:], bias.shape, x):
        refuse(
            f"bias_add: bias must be [{x.shape[-1] if x.ndim else 'channels'}], one number for "
            f"each channel of x, got {bias.type}",
            hint="x + bias broadcasts other shapes",
            x=x,
            bias=bias,
        )
    return add(x, bias, name=name)
