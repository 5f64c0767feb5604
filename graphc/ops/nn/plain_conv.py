"""The gradients of a convolution as convolutions in the standard form, for loops on CPU.

XLA:CPU converts convolutions to the form that its libraries accept (NHWC with HWIO) only in the
main computation. JAX writes gradients with other dimension numbers. In the body of a loop, such a
gradient runs through a generic routine: 20 times slower (measured with jaxlib 0.10 and 0.12).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax import numpy as jnp

Ints = Sequence[int]
Pairs = Sequence[Ints]


def dimension_numbers(rank: int) -> lax.ConvDimensionNumbers:
    """The dimension numbers of NHWC and HWIO: operands [batch, ..., channels] and kernels
    [..., channels, filters]."""
    images = (0, rank + 1, *range(1, rank + 1))
    return lax.ConvDimensionNumbers(images, (rank + 1, rank, *range(rank)), images)


def plain_input_gradient(
    dy: Any, w: Any, *, size: Ints, strides: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Any:
    """[batch, *size, channels]: dy, dilated by the strides, convolved with the flipped kernel."""
    pads, rank = [], len(size)
    for axis in range(rank):
        reach = (w.shape[axis] - 1) * dilation[axis]
        spread = (dy.shape[1 + axis] - 1) * strides[axis] + 1
        before = reach - padding[axis][0]
        pads.append((before, size[axis] + reach - spread - before))
    return lax.conv_general_dilated(
        dy,
        jnp.flip(w, range(rank)).swapaxes(-2, -1),
        window_strides=(1,) * rank,
        padding=pads,
        lhs_dilation=strides,
        rhs_dilation=dilation,
        dimension_numbers=dimension_numbers(rank),
    )


def plain_kernel_gradient(
    x: Any, dy: Any, *, size: Ints, strides: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Any:
    """[*size, channels, filters]: a convolution in which the channels of x act as the batch and the
    batch acts as the channels."""
    pads, rank = [], len(size)
    for axis in range(rank):
        before = padding[axis][0]
        spread = (dy.shape[1 + axis] - 1) * strides[axis] + 1
        reach = (size[axis] - 1) * dilation[axis]
        pads.append((before, spread + reach - x.shape[1 + axis] - before))
    dw = lax.conv_general_dilated(
        x.swapaxes(0, -1),
        jnp.moveaxis(dy, 0, -2),
        window_strides=dilation,
        padding=pads,
        rhs_dilation=strides,
        dimension_numbers=dimension_numbers(rank),
    )
    return jnp.moveaxis(dw, 0, -2)
