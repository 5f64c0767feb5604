"""The gradients of a convolution as convolutions of the plainest form, for loops on CPU.

XLA:CPU puts convolutions into the form that its libraries take (NHWC against HWIO) in the main
computation only. A gradient that JAX writes with other dimension numbers runs, in the body of a
loop, through a generic routine: 20 times slower (measured with jaxlib 0.10 and 0.12).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax import numpy as jnp

_DIMENSIONS = ("NHWC", "HWIO", "NHWC")
Pairs = Sequence[Sequence[int]]


def plain_input_gradient(
    dy: Any,
    w: Any,
    *,
    size: Sequence[int],
    strides: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    groups: int,
) -> Any:
    """[batch, *size, channels]: dy, spread by the strides, against the kernel turned around."""
    pads = []
    for axis in range(2):
        reach = (w.shape[axis] - 1) * dilation[axis]
        spread = (dy.shape[1 + axis] - 1) * strides[axis] + 1
        before = reach - padding[axis][0]
        pads.append((before, size[axis] + reach - spread - before))
    return lax.conv_general_dilated(
        dy,
        jnp.flip(w, (0, 1)).transpose(0, 1, 3, 2),
        window_strides=(1, 1),
        padding=pads,
        lhs_dilation=strides,
        rhs_dilation=dilation,
        dimension_numbers=_DIMENSIONS,
    )


def plain_kernel_gradient(
    x: Any,
    dy: Any,
    *,
    size: Sequence[int],
    strides: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    groups: int,
) -> Any:
    """[*size, channels, filters]: channels of x as images, images of dy as its channels."""
    pads = []
    for axis in range(2):
        before = padding[axis][0]
        spread = (dy.shape[1 + axis] - 1) * strides[axis] + 1
        reach = (size[axis] - 1) * dilation[axis]
        pads.append((before, spread + reach - x.shape[1 + axis] - before))
    dw = lax.conv_general_dilated(
        x.transpose(3, 1, 2, 0),
        dy.transpose(1, 2, 0, 3),
        window_strides=dilation,
        padding=pads,
        rhs_dilation=strides,
        dimension_numbers=_DIMENSIONS,
    )
    return dw.transpose(1, 2, 0, 3)
