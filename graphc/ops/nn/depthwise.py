"""Depthwise convolution and its two gradients, tap by tap of the window, for CPUs.

XLA:CPU computes such convolutions one channel at a time: [8, 56, 56, 144] with a 3 x 3 window takes
68 ms forward, 68 for the gradient of x and 61 for that of the kernel; tap by tap it takes 1.3, 1.1
and 4.2 ms. Each tap is an elementwise product with a shifted view, and XLA fuses all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import prod
from operator import add
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ops.nn.windows import Ints, outside_space, views

MOST_TAPS = 49
"""A larger window would make the program long: each tap is several operations."""
_REGISTERS = 16
"""The number of sums for which the registers suffice, together with the operands."""
_DTYPES = ("float32", "float64")  # narrow ones would round after each tap


def is_by_taps(
    channels: Any, results: Any, groups: int, window: tuple[Any, ...], dtype: Any
) -> bool:
    """Whether a convolution is computed tap by tap on CPUs: one group and one result for each
    channel, and a small window."""
    known = all(isinstance(n, int) for n in window)
    return (
        groups > 1
        and channels == results == groups
        and known
        and prod(window) <= MOST_TAPS
        and np.dtype(dtype).name in _DTYPES
    )


def conv_by_taps(x: Any, w: Any, attrs: Mapping[str, Any]) -> Any:
    """The convolution of x [batch, ..., channels] with w [..., 1, channels]."""
    padded = lax.pad(x, np.zeros((), x.dtype), outside_space(attrs["padding"]))
    products = [view * w[(*tap, 0)] for tap, view in views(padded, w.shape[:-2], attrs)]
    return reduce(add, products)


def input_gradient_by_taps(dy: Any, w: Any, size: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """The gradient of the operand, whose spatial sizes are `size`: the convolution of dy, spread by
    the strides, with the kernel turned round."""
    sides = []
    rows = zip(
        w.shape[:-2], attrs["dilation"], attrs["strides"], attrs["padding"], dy.shape[1:-1], size,
        strict=True,
    )  # fmt: skip
    for taps, dilation, step, (low, _), count, n in rows:
        reach = (taps - 1) * dilation
        before = reach - low
        sides.append((before, n + reach - before - ((count - 1) * step + 1), step - 1))
    spread = lax.pad(dy, np.zeros((), dy.dtype), [(0, 0, 0), *sides, (0, 0, 0)])
    turned = lax.rev(w, tuple(range(w.ndim - 2)))
    found = views(spread, w.shape[:-2], {**attrs, "strides": (1,) * len(sides)})
    return reduce(add, [view * turned[(*tap, 0)] for tap, view in found])


def kernel_gradient_by_taps(x: Any, dy: Any, window: Ints, attrs: Mapping[str, Any]) -> Any:
    """The gradient of the kernel [*window, 1, channels]. One pass over x sums for all taps; a
    separate sum for each tap would take four times as long."""
    # Without the barriers, XLA pads x and computes dy again for each tap inside the sums.
    padded = lax.pad(x, np.zeros((), x.dtype), outside_space(attrs["padding"]))
    padded, dy = lax.optimization_barrier((padded, dy))
    products = [view * dy for _, view in views(padded, window, attrs)]
    zeros = [np.zeros((), x.dtype)] * len(products)

    def added(left: list[Any], right: list[Any]) -> list[Any]:
        return list(map(add, left, right))

    kept = _summed_apart(x.shape, len(products))
    axes = tuple(axis for axis in range(x.ndim - 1) if axis not in kept)
    sums = lax.reduce(products, zeros, added, axes)
    if kept:
        sums = [jnp.sum(one, tuple(range(len(kept)))) for one in sums]
    return jnp.stack(sums).reshape(*window, 1, x.shape[-1])


def _summed_apart(shape: tuple[Any, ...], taps: int) -> tuple[int, ...]:
    """The axes along which the sums of the taps are first kept apart; none if sizes have names or
    the sums would be together larger than x.

    For images and few taps, the sums of one row stay in registers while the row is read; this takes
    0.3 to 0.6 of the time of one sum over all axes. With more taps than registers, a sum for each
    image takes 0.9.
    """
    batch, *spatial, _ = shape
    if not all(isinstance(n, int) for n in (batch, *spatial)):
        return ()
    if len(spatial) == 2 and taps <= _REGISTERS and taps <= 2 * spatial[-1]:
        return (0, 1)
    if len(spatial) == 2 and batch > 1:
        return (0,)
    return (len(spatial),) if batch * prod(spatial[:-1]) >= taps else ()
