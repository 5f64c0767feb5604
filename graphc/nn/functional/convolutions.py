"""Transposed convolutions and separable convolutions."""

from __future__ import annotations

from typing import Any

from graphc.ir.node import Tensor
from graphc.ops.core.checks import is_static, refuse
from graphc.ops.core.emit import convert, emit_one, promote_operands
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.nn.conv import CONV_INPUT_GRADIENT, depthwise_conv
from graphc.ops.nn.windows import Ints, Pairs, check_spatial, explicit_padding, per_axis

__all__ = ["conv1d_transpose", "conv2d_transpose", "conv3d_transpose", "separable_conv"]


def conv1d_transpose(
    x: Any,
    w: Any,
    *,
    strides: int | tuple[int] = 1,
    padding: Any = "valid",
    dilation: int | tuple[int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Transposed convolution of x [batch, width, channels] with w [taps, filters / groups,
    channels].

    Gives [batch, width', filters]. All else as in `conv2d_transpose`, for one spatial axis.
    """
    return _transposed("conv1d_transpose", 1, x, w, strides, padding, dilation, groups, name)


def conv2d_transpose(
    x: Any,
    w: Any,
    *,
    strides: int | tuple[int, int] = 1,
    padding: Any = "valid",
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
        padding: of that convolution: "same" gives height * stride rows, "valid" the fewest that
            hold every product, an int or pairs so many less at the sides.
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
    """
    return _transposed("conv2d_transpose", 2, x, w, strides, padding, dilation, groups, name)


def conv3d_transpose(
    x: Any,
    w: Any,
    *,
    strides: int | tuple[int, int, int] = 1,
    padding: Any = "valid",
    dilation: int | tuple[int, int, int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Transposed convolution of x [batch, depth, height, width, channels] with w [planes, rows,
    columns, filters / groups, channels].

    Gives [batch, depth', height', width', filters]. All else as in `conv2d_transpose`, for three
    spatial axes.
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
    x: Any,
    depthwise: Any,
    pointwise: Any,
    *,
    strides: int | tuple[int, ...] = 1,
    padding: Any = "valid",
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
    """
    places = depthwise_conv(x, depthwise, strides=strides, padding=padding, dilation=dilation)
    return matmul(places, pointwise, name=name)
