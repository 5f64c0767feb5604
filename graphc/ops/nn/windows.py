"""Windows that slide over the spatial axes of [batch, ..., channels]: sizes and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax import lax

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, Shape
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext
from graphc.ops.core.checks import refuse

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def taps_inside(size: int, window: int, results: int, stride: int, low: int, dilation: int) -> int:
    """The number of pairs (result, tap) along one axis that read the operand, not padding.

    Args:
        size: of the operand along the axis.
        window: the number of taps.
        results: the number of positions of the window.
        stride: the distance between two positions.
        low: the padding before the operand.
        dilation: the distance between two taps.
    """
    count = 0
    for tap in range(window):
        # stride * result + offset must be in 0 .. size - 1
        offset = tap * dilation - low
        first = max(0, -(offset // stride))
        last = min(results - 1, (size - 1 - offset) // stride)
        count += max(0, last - first + 1)
    return count


def positive_ints(doc: str) -> Attr:
    """An attribute with one positive int per spatial axis."""
    return Attr("ints", check=lambda v: min(v, default=1) > 0, must="be positive ints", doc=doc)


PADDING = Attr(
    "pairs",
    check=lambda v: all(len(p) == 2 and all(type(i) is int for i in p) for p in v),
    must="be a pair of ints (before, after) for each spatial axis",
    doc="elements added before and after each spatial axis",
)


def per_axis(op: str, what: str, value: Any, rank: int) -> Ints:
    """`value` for each of `rank` spatial axes: one positive int for all, or one for each.

    As in TensorFlow, there may also be one int for each axis of [batch, ..., channels]; then the
    first and the last must be 1.

    Raises:
        AttributeValueError: the value has another form.
    """
    ints = (value,) * rank if type(value) is int else value
    if what != "kernel_size" and isinstance(ints, (tuple, list)) and len(ints) == rank + 2:
        if ints[0] != 1 or ints[-1] != 1:
            refuse(
                f"{op}: {what} of {rank + 2} numbers must be 1 along batch and channels, the first "
                f"and the last, got {value!r}",
                error=AttributeValueError,
                hint="channels are the last axis here: for [batch, channels, ...] gc.transpose "
                "the input first",
            )
        ints = ints[1:-1]
    if (
        isinstance(ints, (tuple, list))
        and len(ints) == rank
        and all(type(v) is int and v > 0 for v in ints)
    ):
        return tuple(ints)
    refuse(
        f"{op}: {what} must be a positive int or {rank} of them, got {value!r}",
        error=AttributeValueError,
        hint=f"{what}={_EXAMPLE.get(rank, '2')}",
    )


def explicit_padding(
    op: str, padding: Any, x: Tensor, window: Ints, strides: Ints, dilation: Ints
) -> Pairs:
    """`padding` as a pair (before, after) for each spatial axis of `x`.

    Args:
        padding: "valid" (none), "same" (the result has ceil(size / stride) elements along an
            axis; an odd remainder goes to the end, as in TensorFlow and JAX), one int for all
            sides, or the pairs.

    Raises:
        AttributeValueError: the padding has another form.
        ShapeError: "same" with a stride over a size that is not known yet.
    """
    rank = len(window)
    check_spatial(op, x, rank)
    if isinstance(padding, str) and padding.lower() == "valid":
        return ((0, 0),) * rank
    if isinstance(padding, str) and padding.lower() == "same":
        rows = zip(x.shape[1:-1], window, strides, dilation, strict=True)
        return tuple(same_padding(op, x, *row) for row in rows)
    if type(padding) is int and padding >= 0:
        return ((padding, padding),) * rank
    if isinstance(padding, (tuple, list)) and len(padding) == rank + 2:
        ends = [list(p) if isinstance(p, tuple) else p for p in (padding[0], padding[-1])]
        padding = padding[1:-1] if ends == [[0, 0]] * 2 else padding  # as in TensorFlow
    if isinstance(padding, Sequence) and not isinstance(padding, str) and len(padding) == rank:
        pairs = tuple(tuple(p) if isinstance(p, Sequence) else () for p in padding)
        if all(len(p) == 2 and all(type(i) is int and i >= 0 for i in p) for p in pairs):
            return pairs
    refuse(
        f'{op}: padding must be "same", "valid", an int of at least 0, or '
        f"a pair (before, after) for each of {rank} spatial axes, got {padding!r}",
        error=AttributeValueError,
        hint="causal: gc.pad(x, ((0, 0), (size - 1, 0), (0, 0))), then padding='valid'"
        if padding == "causal"
        else 'padding="same" keeps the size with stride 1, padding=1 adds one at each side',
    )


def sliding(
    op: str, x: Tensor, window: Any, strides: Any, padding: Any, dilation: Any = 1
) -> dict[str, Any]:
    """The attributes window, strides, padding and dilation, one entry for each spatial axis.

    Args: as in `max_pool`. Without strides the window moves by its own size.

    Raises:
        ShapeError: `x` has no spatial axes.
        AttributeValueError: another argument has a wrong form.
    """
    rank = x.ndim - 2
    if rank < 1:
        refuse(
            f"{op}: x must be [batch, ..., channels] with spatial axes, got {x.ndim} axes",
            hint="x[None] adds a batch of one, x[..., None] a channel",
            x=x,
        )
    extent = per_axis(op, "window", window, rank)
    steps = extent if strides is None else per_axis(op, "strides", strides, rank)
    taps = per_axis(op, "dilation", dilation, rank)
    pairs = explicit_padding(op, padding, x, extent, steps, taps)
    return {"window": extent, "strides": steps, "padding": pairs, "dilation": taps}


_EXAMPLE = {1: "2", 2: "2 or (2, 2)", 3: "2 or (2, 2, 2)"}
_SPACE = {1: "width", 2: "height, width", 3: "depth, height, width"}


def check_spatial(op: str, x: Tensor, rank: int) -> None:
    """Raises `ShapeError` unless `x` has the batch, `rank` spatial axes and channels."""
    if x.ndim != rank + 2:
        space = _SPACE.get(rank, f"{rank} spatial axes")
        refuse(
            f"{op}: x must be [batch, {space}, channels], got {x.ndim} axes",
            hint="x[None] adds a batch of one, x[..., None] a channel"
            if x.ndim < rank + 2
            else "gc.reshape(x, ...) merges axes, such as batch and time",
            x=x,
        )


def same_padding(
    op: str, x: Tensor, size: Dim, window: int, stride: int, dilation: int
) -> tuple[int, int]:
    """The padding before and after, so that the result has ceil(size / stride) elements."""
    extent = (window - 1) * dilation + 1
    needed = (size - 1) // stride * stride + extent - size
    if not isinstance(needed, int):
        refuse(
            f'{op}: padding="same" with stride {stride} depends on the size {size!s}, '
            "which is not known yet",
            x=x,
            hint=f"fix the size, or say that it is a multiple of the stride: '{stride}*height'; or "
            "give the padding as a pair (before, after) for each axis",
        )
    total = max(needed, 0)
    return total // 2, total - total // 2


def window_sizes(
    ctx: InferContext, sizes: Shape, window: Sequence[Dim], attrs: dict[str, Any]
) -> Shape:
    """The number of positions of the window along each spatial axis.

    Raises:
        ShapeError: it is larger than the padded input, or the attributes are for other axes.
    """
    for name in ("strides", "padding", "dilation"):
        ctx.require(
            len(attrs[name]) == len(sizes),
            f"{name} must have one entry for each of {len(sizes)} spatial axes, got {attrs[name]}",
        )
    results: list[Dim] = []
    for axis, (size, extent) in enumerate(zip(sizes, window, strict=True)):
        low, high = attrs["padding"][axis]
        padded = size + low + high
        reach = (extent - 1) * attrs["dilation"][axis] + 1
        if isinstance(padded, int) and isinstance(reach, int) and padded < reach:
            ctx.fail(
                f"a window of {reach} does not fit into {padded} elements of axis {axis + 1}, "
                "padding included",
                hint='use padding="same", or a smaller window or dilation; channels are the last '
                "axis, and a layer is not told how many its input has",
            )
        results.append((padded - reach) // attrs["strides"][axis] + 1)
    return tuple(results)


def outside_space(padding: Pairs) -> list[tuple[int, int, int]]:
    """`padding` for `lax.pad` of [batch, ..., channels]."""
    return [(0, 0, 0), *((low, high, 0) for low, high in padding), (0, 0, 0)]


def views(
    padded: Any, window: Sequence[int], attrs: Mapping[str, Any]
) -> Iterator[tuple[Ints, Any]]:
    """For each tap of the window, the elements that it covers at all positions."""
    strides, dilation = attrs["strides"], attrs["dilation"]
    reach = [(n - 1) * d for n, d in zip(window, dilation, strict=True)]
    for tap in np.ndindex(*window):
        start = [i * d for i, d in zip(tap, dilation, strict=True)]
        sizes = zip(padded.shape[1:-1], reach, start, strict=True)
        end = [n - r + s for n, r, s in sizes]
        first, last = (0, *start, 0), (padded.shape[0], *end, padded.shape[-1])
        yield tap, lax.slice(padded, first, last, (1, *strides, 1))
