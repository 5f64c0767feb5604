"""The elements under each position of a sliding window, and the index of the largest one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.ir.dims import Dim
from graphc.ir.dtypes import BOOL, is_floating
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import iota, ones
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.padding import pad
from graphc.ops.arrays.shape import expand_dims, reshape
from graphc.ops.arrays.slicing import slice_
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import constant, convert, dim_value
from graphc.ops.elementwise.comparison import equal, isnan, logical_and, logical_or
from graphc.ops.nn.pooling import max_pool
from graphc.ops.nn.windows import sliding
from graphc.ops.reductions.axiswise import argmax
from graphc.typing import Padding, TensorLike

__all__ = ["max_pool_with_argmax", "patches"]

Window = int | tuple[int, ...]


def patches(
    x: TensorLike,
    window: Window,
    strides: Window | None = None,
    padding: Padding = "valid",
    dilation: Window = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """Concatenates the elements under each position of a window.

    Args:
        x: [batch, ..., channels], any dtype, with any number of spatial axes.
        window: its size, one int or one for each spatial axis.
        strides: steps of the window; by default the window itself.
        padding: "valid", "same", an int, or a pair (before, after) for each spatial axis. Padding
            is 0.
        dilation: steps between the taps of the window.
        name: of the last node.

    Returns:
        [batch, ..., taps * channels]: the channels of each tap together.

    Raises:
        ShapeError: a window larger than the padded input.
        AttributeValueError: a window, stride, padding or dilation of another form.

    Source: TensorFlow's `tf.image.extract_patches`.

    Examples:
        >>> gc.nn.patches(gc.ones((1, 4, 4, 3)), 2).shape
        (1, 2, 2, 12)
    """
    x = convert(x)
    attrs = sliding("patches", x, window, strides, padding, dilation)
    rows = stack(list(_taps("patches", x, attrs, 0)), -2)
    *places, count, channels = rows.shape
    return reshape(rows, (*places, count * channels), name=name)


def max_pool_with_argmax(
    x: TensorLike,
    window: Window,
    strides: Window | None = None,
    padding: Padding = "valid",
    dilation: Window = 1,
    *,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The maximum of each window, and its index in `x`.

    Args: as of `max_pool`; `name` is that of the first result.

    Returns:
        The maxima, [batch, ..., channels], as from `max_pool`; and the index of each, int32 of the
            same shape. It is the index into the spatial axes of `x` flattened to one axis. If
            elements are equal, the first is chosen. No index is in the padding.

    Raises:
        ShapeError, AttributeValueError: as `max_pool`.

    Examples:
        >>> run(gc.nn.max_pool_with_argmax(gc.reshape([1.0, 4.0, 3.0, 2.0], (1, 4, 1)), 2))
        (Array([[[4.],
                [3.]]], dtype=float32), Array([[[1],
                [2]]], dtype=int32))
    """
    x = convert(x)
    largest = max_pool(x, window, strides, padding, dilation, name=name)
    attrs = sliding("max_pool_with_argmax", x, window, strides, padding, dilation)
    inside = ones((1, *x.shape[1:-1], 1), BOOL)  # False in the padding
    taps = [stack(list(_taps("max_pool_with_argmax", v, attrs, 0)), -2) for v in (x, inside)]
    hits = equal(taps[0], expand_dims(largest, -2))
    if is_floating(x.dtype):
        hits = logical_or(hits, isnan(taps[0]))  # the maximum of a window with a NaN is NaN
    tap = argmax(logical_and(hits, taps[1]), -2)
    offsets = np.array(list(np.ndindex(*attrs["window"])), np.int32) * attrs["dilation"]
    place: Any = 0
    for axis, (size, step) in enumerate(zip(x.shape[1:-1], attrs["strides"], strict=True)):
        start = iota(tap.shape, axis + 1) * step - attrs["padding"][axis][0]
        row = start + take(constant(offsets[:, axis].astype(np.int32)), tap)
        place = place * dim_value(size) + row
    return largest, place


def _taps(op: str, x: Tensor, attrs: dict[str, Any], fill: Any) -> Iterator[Tensor]:
    """For each tap of the window, the elements at all positions: [batch, ..., channels]."""
    padded = pad(x, [(0, 0), *attrs["padding"], (0, 0)], constant_values=fill)
    spans: list[Dim] = []  # from the first position of the window to the last
    known = [attrs[name] for name in ("window", "strides", "dilation")]
    for size, extent, step, gap in zip(padded.shape[1:-1], *known, strict=True):
        room = size - (extent - 1) * gap - 1
        if isinstance(room, int) and room < 0:
            refuse(f"{op}: a window of {size - room} does not fit into {size} elements", x=x)
        spans.append(room // step * step + 1)
    batch, *_, channels = padded.shape
    for tap in np.ndindex(*attrs["window"]):
        starts = [i * gap for i, gap in zip(tap, attrs["dilation"], strict=True)]
        limits = [start + span for start, span in zip(starts, spans, strict=True)]
        yield slice_(padded, (0, *starts, 0), (batch, *limits, channels), (1, *attrs["strides"], 1))
