"""Convolutions and pooling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

from graphc import ops
from graphc.importers.core.channels_first import (
    avg_pool_first,
    beside,
    conv,
    conv_transpose,
    max_pool_first,
    max_pool_places,
    one_of_each,
    summed_windows,
)
from graphc.importers.torch.call import PARTS, Call, Refused, Rule, within_reason


def each(value: Any, rank: int) -> list[Any]:
    """A setting for each spatial axis."""
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    return given * rank if len(given) == 1 else given


def _with_batch(x: Any, rank: int) -> tuple[Any, bool]:
    return (ops.expand_dims(x, 0), True) if x.ndim == rank + 1 else (x, False)


def convolution(
    call: Call,
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """`aten.convolution`: a convolution, or a transposed one."""
    rank = w.ndim - 2
    x, single = _with_batch(x, rank)
    strides, dilations = each(stride, rank), each(dilation, rank)
    if isinstance(padding, str):
        pads = [
            _same(d * (k - 1)) if padding == "same" else (0, 0)
            for d, k in zip(dilations, w.shape[2:], strict=True)
        ]
    else:
        pads = [(p, p) for p in each(padding, rank)]
    how: dict[str, Any] = {
        "strides": strides,
        "pads": pads,
        "dilation": dilations,
        "groups": groups,
    }
    if transposed:
        y = conv_transpose(x, w, output_padding=each(output_padding, rank), **how)
    else:
        y = conv(x, w, **how)
    if bias is not None:
        y = y + beside(bias, y)
    return ops.squeeze(y, 0) if single else y


def _same(total: int) -> tuple[int, int]:
    return total // 2, total - total // 2


def _conv(
    call: Call,
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    return convolution(call, x, w, bias, stride, padding, dilation, False, 0, groups)


def _conv_transpose(
    call: Call,
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    return convolution(call, x, w, bias, stride, padding, dilation, True, output_padding, groups)


def _pool_settings(rank: int, window: Any, stride: Any, padding: Any) -> dict[str, Any]:
    windows = each(window, rank)
    within_reason(math.prod(windows), "taps")
    return {
        "window": windows,
        "strides": each(stride, rank) if stride or isinstance(stride, int) else windows,
        "pads": [(p, p) for p in each(padding, rank)],
    }


def _max_pool(places: bool) -> Any:
    def of(rank: int) -> Rule:
        def rule(
            call: Call,
            x: Any,
            window: Any,
            stride: Any = (),
            padding: Any = 0,
            dilation: Any = 1,
            ceil: bool = False,
        ) -> Any:
            x, single = _with_batch(x, rank)
            how = _pool_settings(rank, window, stride, padding) | {
                "dilation": each(dilation, rank),
                "ceil": ceil,
            }
            found: Any = max_pool_places(x, **how) if places else (max_pool_first(x, **how),)
            found = tuple(ops.squeeze(t, 0) for t in found) if single else found
            return found if places else found[0]

        return rule

    return of


def _avg_pool(rank: int) -> Rule:
    def rule(
        call: Call,
        x: Any,
        window: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:
        if divisor_override is not None and ceil:
            raise Refused("with divisor_override and ceil_mode is not supported")
        x, single = _with_batch(x, rank)
        how = _pool_settings(rank, window, stride, padding)
        within_reason(math.prod(x.shape[2:]), "elements")
        sums = divisor_override is not None
        y = avg_pool_first(x, **how, ceil=ceil, count_pads=sums or count_include_pad)
        if sums:
            y = y * (math.prod(how["window"]) / divisor_override)
        return ops.squeeze(y, 0) if single else y

    return rule


def adaptive(rank: int) -> Rule:
    """Means over parts of the input of nearly equal sizes."""

    def rule(call: Call, x: Any, out: Any) -> Any:
        wanted = _wanted(x, out, rank)
        if all(isinstance(o, int) and o == 1 for o in wanted):
            return ops.reduce_mean(x, axis=tuple(range(x.ndim - rank, x.ndim)), keepdims=True)
        for axis, count in enumerate(wanted, x.ndim - rank):
            size = x.shape[axis]
            if isinstance(size, int) and size % count == 0:
                shape = (*x.shape[:axis], count, size // count, *x.shape[axis + 1 :])
                x = ops.reduce_mean(ops.reshape(x, shape), axis=axis + 1)
                continue
            means = [
                ops.reduce_mean(p, axis=axis, keepdims=True) for p, _ in _parts(x, axis, count)
            ]
            x = ops.concatenate(means, axis)
        return x

    return rule


def _wanted(x: Any, out: Any, rank: int) -> list[Any]:
    """The sizes of the result for each spatial axis; None keeps a size."""
    sizes = x.shape[x.ndim - rank :]
    return [s if o is None else o for s, o in zip(sizes, each(out, rank), strict=True)]


def _parts(x: Any, axis: int, count: int) -> Iterator[tuple[Any, int]]:
    """The parts of x along an axis, and where they start."""
    size = x.shape[axis]
    if not isinstance(size, int):
        raise Refused("of named sizes is not supported")
    within_reason(count, "parts", PARTS)
    for i in range(count):
        start = i * size // count
        yield x[(slice(None),) * axis + (slice(start, -(-(i + 1) * size // count)),)], start


def _adaptive_max(rank: int) -> Rule:
    """Maxima over parts of nearly equal sizes, and their places: the first of equals, by rows."""

    def rule(call: Call, x: Any, out: Any) -> Any:
        wanted = _wanted(x, out, rank)
        place: Any = ops.zeros(x.shape, "int64")
        step: Any = 1
        for axis in range(x.ndim - 1, x.ndim - rank - 1, -1):
            values, places = [], []
            size, count = x.shape[axis], wanted[axis - x.ndim]
            pairs = zip(_parts(x, axis, count), _parts(place, axis, count), strict=True)
            for (part, start), (inner, _) in pairs:
                found = ops.argmax(part, axis=axis, keepdims=True, dtype="int64")
                values.append(ops.take_along_axis(part, found, axis=axis))
                inner = ops.take_along_axis(inner, found, axis=axis)
                places.append(inner + (found + start) * step)
            x, place, step = (
                ops.concatenate(values, axis),
                ops.concatenate(places, axis),
                step * size,
            )
        return x, place

    return rule


def _im2col(call: Call, x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """[batch, channels, ...] as [batch, channels * taps, places]."""
    x, single = _with_batch(x, 2)
    kernel, dilation, padding, stride = (each(v, 2) for v in (kernel, dilation, padding, stride))
    within_reason(math.prod(kernel), "taps", PARTS)
    x = ops.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    batch, channels, height, width = x.shape
    if not isinstance(height, int) or not isinstance(width, int):
        raise Refused("of named sizes is not supported")
    places = itertools.product(*map(range, kernel))
    taps = [one_of_each(x, place, kernel, stride, dilation) for place in places]
    rows = (batch, channels * len(taps), math.prod(taps[0].shape[2:]))
    y = ops.reshape(ops.stack(taps, axis=2), rows)
    return ops.squeeze(y, 0) if single else y


def _col2im(
    call: Call, x: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    """[batch, channels * taps, places] added up to [batch, channels, height, width]."""
    kernel, dilation, padding, stride = (each(v, 2) for v in (kernel, dilation, padding, stride))
    within_reason(math.prod(kernel), "taps", PARTS)
    single = x.ndim == 2
    y = summed_windows(
        ops.expand_dims(x, 0) if single else x,
        size,
        window=kernel,
        strides=stride,
        pads=[(p, p) for p in padding],
        dilation=dilation,
        name="col2im",
    )
    return ops.squeeze(y, 0) if single else y


RULES: Final[dict[str, Rule]] = {
    "aten.convolution.default": convolution,
    **{f"aten.conv{n}d.{o}": _conv for n in (1, 2, 3) for o in ("default", "padding")},
    "aten.conv_transpose1d.default": _conv_transpose,
    "aten.conv_transpose2d.input": _conv_transpose,
    "aten.conv_transpose3d.input": _conv_transpose,
    **{f"aten.max_pool{n}d.default": _max_pool(places=False)(n) for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d_with_indices.default": _max_pool(places=True)(n) for n in (1, 2, 3)},
    **{f"aten.avg_pool{n}d.default": _avg_pool(n) for n in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{n}d.default": adaptive(n) for n in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{n}d.default": adaptive(n) for n in (2, 3)},
    **{f"aten.adaptive_max_pool{n}d.default": _adaptive_max(n) for n in (1, 2, 3)},
    "aten.col2im.default": _col2im,
    "aten.im2col.default": _im2col,
}
