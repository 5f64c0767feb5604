"""Convolutions and pooling of [batch, channels, ...], on operators that have the channels last.

The pass `move-transposes` removes most of the transposes around them.

Sizes of windows, strides and dilations have an item for each spatial axis; `pads` has a pair
(low, high) for each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc import ops
from graphc.ir.node import Tensor
from graphc.jaxpr.function import from_jax
from graphc.ops.nn.conv import conv1d, conv2d, conv3d
from graphc.ops.nn.pooling import avg_pool, max_pool

Ints: TypeAlias = Sequence[int]
Pads: TypeAlias = Sequence[tuple[int, int]]

_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: conv1d, 2: conv2d, 3: conv3d}


def channels_last(x: Tensor) -> Tensor:
    """[batch, channels, ...] as [batch, ..., channels]."""
    return ops.transpose(x, (0, *range(2, x.ndim), 1))


def channels_second(x: Tensor) -> Tensor:
    """[batch, ..., channels] as [batch, channels, ...]."""
    return ops.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def beside(vector: Tensor, x: Tensor) -> Any:
    """A vector over the channels, to broadcast with x [batch, channels, ...]."""
    return ops.reshape(vector, (vector.shape[0], *(1,) * (x.ndim - 2)))


def conv(
    x: Tensor, w: Tensor, *, strides: Ints, pads: Pads, dilation: Ints, groups: int = 1
) -> Tensor:
    """Cross-correlation of x [batch, channels, ...] with w [outputs, channels / groups, ...]."""
    rank = x.ndim - 2
    kernel = ops.transpose(w, (*range(2, w.ndim), 1, 0))
    convolve = _CONVOLUTIONS.get(rank)
    if convolve is None:
        return _conv_of_any_rank(x, w, strides, pads, dilation, groups)
    y = convolve(
        channels_last(x),
        kernel,
        strides=tuple(strides),
        padding=[tuple(pair) for pair in pads],
        dilation=tuple(dilation),
        groups=groups,
    )
    return channels_second(y)


def _conv_of_any_rank(
    x: Tensor, w: Tensor, strides: Ints, pads: Pads, dilation: Ints, groups: int
) -> Tensor:
    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, list(pads), rhs_dilation=dilation, feature_group_count=groups
        )

    found: Tensor = from_jax(convolve, name="conv")(x, w)
    return found


def conv_transpose(
    x: Tensor,
    w: Tensor,
    *,
    strides: Ints,
    pads: Pads,
    output_padding: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv` by its input: x [batch, channels, ...], w [channels, outputs / groups,
    ...]. `pads` is cut off the result, to which `output_padding` is added at the end."""
    rank = x.ndim - 2
    kernel: tuple[Any, ...] = w.shape[2:]
    inputs, outputs = w.shape[0], w.shape[1]
    padding = [
        (d * (k - 1) - low, d * (k - 1) - high + extra)
        for k, d, (low, high), extra in zip(kernel, dilation, pads, output_padding, strict=True)
    ]

    def convolve(x: Any, w: Any) -> Any:
        flipped = jnp.flip(w, range(2, w.ndim))
        apart = flipped.reshape(groups, inputs // groups, outputs, *kernel)
        swapped = jnp.moveaxis(apart, 2, 1).reshape(groups * outputs, inputs // groups, *kernel)
        last = (0, *range(2, rank + 2), 1)
        y = lax.conv_general_dilated(
            jnp.transpose(x, last),
            jnp.transpose(swapped, (*range(2, rank + 2), 1, 0)),
            (1,) * rank,
            padding,
            lhs_dilation=strides,
            rhs_dilation=dilation,
            feature_group_count=groups,
            dimension_numbers=lax.ConvDimensionNumbers(
                (0, rank + 1, *range(1, rank + 1)),
                (rank + 1, rank, *range(rank)),
                (0, rank + 1, *range(1, rank + 1)),
            ),
        )
        return jnp.transpose(y, (0, rank + 1, *range(1, rank + 1)))

    found: Tensor = from_jax(convolve, name="conv_transpose")(x, w)
    return found


def pooled_pads(
    sizes: Sequence[Any], window: Ints, strides: Ints, pads: Pads, dilation: Ints, ceil: bool
) -> list[tuple[int, int]]:
    """The padding with which windows give the sizes of `pool_sizes`: with `ceil`, a last window may
    begin inside the input and end behind the padding."""
    if not ceil:
        return [(low, high) for low, high in pads]
    found = []
    for size, k, s, (low, high), d in zip(sizes, window, strides, pads, dilation, strict=True):
        if not isinstance(size, int):
            raise ValueError("the number of windows must be known")
        span = d * (k - 1) + 1
        count = math.ceil((size + low + high - span) / s) + 1
        if (count - 1) * s >= size + low:
            count -= 1
        found.append((low, max((count - 1) * s + span - size - low, high)))
    return found


def max_pool_first(
    x: Tensor, *, window: Ints, strides: Ints, pads: Pads, dilation: Ints, ceil: bool = False
) -> Tensor:
    """The greatest element of each window."""
    padding = pooled_pads(x.shape[2:], window, strides, pads, dilation, ceil)
    y = max_pool(channels_last(x), tuple(window), tuple(strides), padding, dilation=tuple(dilation))
    return channels_second(y)


def max_pool_places(
    x: Tensor, *, window: Ints, strides: Ints, pads: Pads, dilation: Ints, ceil: bool = False
) -> tuple[Tensor, Tensor]:
    """The greatest element of each window, and its place among the elements of its image and
    channel, as int64."""
    padding = pooled_pads(x.shape[2:], window, strides, pads, dilation, ceil)

    def pool(x: Any) -> Any:
        sizes = x.shape[2:]
        low: Any = -jnp.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
        padded = jnp.pad(x, [(0, 0), (0, 0), *padding], constant_values=low)
        place = jnp.arange(math.prod(sizes)).reshape((1, 1, *sizes))
        places = jnp.pad(place, [(0, 0), (0, 0), *padding], constant_values=-1)
        taps = list(itertools.product(*(range(k) for k in window)))
        values = jnp.stack(
            [one_of_each(padded, tap, window, strides, dilation) for tap in taps], -1
        )
        where = jnp.stack([one_of_each(places, tap, window, strides, dilation) for tap in taps], -1)
        best = jnp.argmax(values, -1)[..., None]
        spread = jnp.broadcast_to(where, values.shape)
        return (
            jnp.take_along_axis(values, best, -1)[..., 0],
            jnp.take_along_axis(spread, best, -1)[..., 0],
        )

    values, places = from_jax(pool, name="max_pool")(x)
    return values, ops.cast(places, "int64")


def one_of_each(
    x: Any, tap: Ints, window: Ints, strides: Ints, dilation: Ints, first: int = 2
) -> Any:
    """The element at `tap` of each window. `first` is the first spatial axis."""
    where: list[Any] = [slice(None)] * first
    sizes = x.shape[first : first + len(window)]
    for size, t, k, s, d in zip(sizes, tap, window, strides, dilation, strict=True):
        count = (size - d * (k - 1) - 1) // s + 1
        where.append(slice(t * d, t * d + (count - 1) * s + 1, s))
    return x[tuple(where)]


def summed_windows(
    x: Tensor, sizes: Ints, *, window: Ints, strides: Ints, pads: Pads, dilation: Ints, name: str
) -> Any:
    """[batch, channels * taps, places] added up to [batch, channels, *sizes].

    Args:
        name: of the node.
    """
    padded = [size + low + high for size, (low, high) in zip(sizes, pads, strict=True)]
    steps = [
        (size - d * (k - 1) - 1) // s + 1
        for size, d, k, s in zip(padded, dilation, window, strides, strict=True)
    ]
    taps = list(itertools.product(*map(range, window)))

    def combine(x: Any) -> Any:
        channels = x.shape[1] // len(taps)
        apart = x.reshape(x.shape[0], channels, len(taps), *steps)
        total = jnp.zeros((x.shape[0], channels, *padded), x.dtype)
        for i, tap in enumerate(taps):
            where = [
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, dilation, steps, strides, strict=True)
            ]
            total = total.at[(slice(None), slice(None), *where)].add(apart[:, :, i])
        inner = [slice(low, low + size) for (low, _), size in zip(pads, sizes, strict=True)]
        return total[(slice(None), slice(None), *inner)]

    return from_jax(combine, name=name)(x)


def avg_pool_first(
    x: Tensor,
    *,
    window: Ints,
    strides: Ints,
    pads: Pads,
    dilation: Ints | None = None,
    ceil: bool = False,
    count_pads: bool = False,
) -> Tensor:
    """The mean of each window.

    Args:
        count_pads: whether elements of `pads` count, as zeros. Elements behind them, which `ceil`
            adds, never count.
    """
    steps = dilation or (1,) * (x.ndim - 2)
    padding = pooled_pads(x.shape[2:], window, strides, pads, steps, ceil)
    if all(d == 1 for d in steps) and (not count_pads or padding == [tuple(p) for p in pads]):
        y = avg_pool(
            channels_last(x), tuple(window), tuple(strides), padding, count_include_pad=count_pads
        )
        return channels_second(y)

    sizes = x.shape[2:]
    if not all(isinstance(size, int) for size in sizes):
        raise ValueError("the number of windows must be known")
    # Sums are those of windows over zeros; how many elements count is known now.
    apart = ops.pad(x, [(0, 0), (0, 0), *padding])
    if all(d == 1 for d in steps):
        means = avg_pool(channels_last(apart), tuple(window), tuple(strides))
        total = channels_second(means) * math.prod(window)
    else:
        taps = itertools.product(*(range(k) for k in window))
        pieces = [one_of_each(apart, tap, window, strides, steps) for tap in taps]
        total = sum(pieces[1:], pieces[0])
    whole: Any = sizes
    counted = np.pad(np.ones(whole), pads, constant_values=float(count_pads))
    beyond = [(0, high - pair[1]) for (_, high), pair in zip(padding, pads, strict=True)]
    counted = np.pad(counted, beyond)[None, None]
    taps = itertools.product(*(range(k) for k in window))
    count = sum(one_of_each(counted, tap, window, strides, steps) for tap in taps)
    return total / np.asarray(count, x.dtype)


__all__ = [
    "avg_pool_first",
    "beside",
    "channels_last",
    "channels_second",
    "conv",
    "conv_transpose",
    "max_pool_first",
    "max_pool_places",
    "one_of_each",
    "summed_windows",
]
