"""Layers of networks: convolutions, pooling, norms, attention.

ONNX has channels as the second axis, graphc as the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.families.arrays import pad
from graphc.exporters.onnx.families.elementwise import rsqrt, square
from graphc.exporters.onnx.families.matrices import transposed
from graphc.exporters.onnx.refused import Refused
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import BOOL, Writer
from graphc.ir.dims import Dim, product
from graphc.ir.dtypes import is_integer

Pairs = Sequence[tuple[int, int]]


def channels_first(w: Writer, x: Value) -> Value:
    """[batch, ..., channels] as [batch, channels, ...]."""
    return w.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def channels_last(w: Writer, x: Value) -> Value:
    """[batch, channels, ...] as [batch, ..., channels]."""
    return w.transpose(x, (0, *range(2, x.rank), 1))


def _flat(pairs: Pairs) -> list[int]:
    return [low for low, _ in pairs] + [high for _, high in pairs]


def _padded(c: Call, x: Value, pairs: Pairs, window: Sequence[int], fill: float) -> Any:
    """(x, padding that the operator takes): windows in padding alone, and negative padding, are
    made by an operator of their own."""
    plain = all(0 <= p < k for row, k in zip(pairs, window, strict=True) for p in row)
    if plain:
        return x, pairs
    low, high = ([0, *(p[i] for p in pairs), 0] for i in (0, 1))
    return pad(c, x, low, high, c.w.like(x, fill)), [(0, 0)] * len(pairs)


# -- convolutions --------------------------------------------------------------------------------


def _conv(c: Call) -> Value:
    x, kernel = c.xs
    w, spatial = c.w, kernel.rank - 2
    pairs = c.attrs["padding"]
    window = c.shape(1)[:-2]
    spans = [
        math.inf if not isinstance(k, int) else d * (k - 1) + 1
        for k, d in zip(window, c.attrs["dilation"], strict=True)
    ]
    x, pairs = _padded(c, x, pairs, spans, 0)  # type: ignore[arg-type]
    y = w.op(
        "Conv",
        channels_first(w, x),
        w.transpose(kernel, (spatial + 1, spatial, *range(spatial))),
        rank=x.rank,
        strides=list(c.attrs["strides"]),
        pads=_flat(pairs),
        dilations=list(c.attrs["dilation"]),
        group=c.attrs["groups"],
    )
    return channels_last(w, y)


def _conv_transpose(c: Call) -> Value:
    """The gradient of a convolution by its input: a transposed convolution."""
    dy, kernel = c.xs
    w, spatial = c.w, kernel.rank - 2
    groups, strides, dilation = (c.attrs[k] for k in ("groups", "strides", "dilation"))
    window, size, given = c.shape(1)[:-2], c.attrs["size"], c.shape()[1:-1]
    padding = c.attrs["padding"]
    if not all(isinstance(k, int) for k in window):
        raise Refused("needs a kernel of known size")
    high = [0]  # elements that no window reads are beyond the end, and have no gradient
    for n, m, k, s, d, (before, after) in zip(
        size, given, window, strides, dilation, padding, strict=True
    ):
        more = n - ((m - 1) * s + d * (k - 1) + 1 - before - after)
        if not isinstance(more, int):
            raise Refused(f"needs a known size where it now has {n}")
        high.append(more - after)
    if any(n < 0 for pair in padding for n in pair):
        raise Refused("has negative padding")
    # [*window, in / groups, out] -> [out, in / groups, *window]; the operator takes `out` channels.
    weights = w.transpose(kernel, (spatial + 1, spatial, *range(spatial)))
    y = w.op(
        "ConvTranspose",
        channels_first(w, dy),
        weights,
        rank=dy.rank,
        strides=list(strides),
        pads=[0] * (2 * spatial),
        dilations=list(dilation),
        group=groups,
    )
    y = channels_last(w, y)
    low = [0, *(-before for before, _ in padding), 0]
    return pad(c, y, low, [*high, 0], w.like(y, 0)) if any((*low, *high)) else y


def _kernel_gradient(c: Call) -> Value:
    """The gradient of a convolution by its kernel: a convolution over the batch, of the channels as
    images, with dy as the kernel."""
    x, dy = c.xs
    w, spatial, groups = c.w, x.rank - 2, c.attrs["groups"]
    strides, dilation = c.attrs["strides"], c.attrs["dilation"]
    window, sizes, counts = c.attrs["size"], c.shape(0)[1:-1], c.shape(1)[1:-1]
    if not all(isinstance(n, int) for n in (*window, *sizes, *counts)):
        raise Refused("needs images of known size")
    spans = [(m - 1) * s + 1 for m, s in zip(counts, strides, strict=True)]
    rows = zip(window, sizes, spans, dilation, c.attrs["padding"], strict=True)
    pairs = [(low, (k - 1) * d + span - n - low) for k, n, span, d, (low, _) in rows]
    x, pairs = _padded(c, _groups_as_images(c, x, groups), pairs, spans, 0)
    y = w.op(
        "Conv",
        w.transpose(x, (x.rank - 1, *range(x.rank - 1))),
        w.transpose(dy, (x.rank - 1, *range(x.rank - 1))),
        rank=x.rank,
        strides=list(dilation),
        pads=_flat(pairs),
        dilations=list(strides),
        group=groups,
    )
    return w.transpose(y, (*range(2, 2 + spatial), 0, 1))


def _groups_as_images(c: Call, x: Value, groups: int) -> Value:
    """[batch, ..., channels] as [groups * batch, ..., channels / groups]."""
    if groups == 1:
        return x
    *rows, channels = c.shape(0)
    apart = c.reshape(x, (*rows, groups, channels // groups))
    moved = c.w.transpose(apart, (x.rank - 1, *range(x.rank - 1), x.rank))
    return c.reshape(moved, (groups * rows[0], *rows[1:], channels // groups))


# -- pooling -------------------------------------------------------------------------------------


def _pool(c: Call, op: str, x: Value, pairs: Pairs, **more: Any) -> Value:
    """Writes a pooling operator of ONNX."""
    y = c.w.op(
        op,
        channels_first(c.w, x),
        rank=x.rank,
        kernel_shape=list(c.attrs["window"]),
        strides=list(c.attrs["strides"]),
        pads=_flat(pairs),
        **more,
    )
    return channels_last(c.w, y)


def _max_pool(c: Call) -> Value:
    x = c.xs[0]
    if is_integer(x.dtype):  # float64 has all integers of 32 bits
        if x.dtype.itemsize > 4:
            raise Refused(f"takes floats in ONNX, and gets {x.dtype.name}")
        x = c.w.cast(x, "float64")
    x, pairs = _padded(c, x, c.attrs["padding"], c.attrs["window"], -math.inf)
    return _pool(c, "MaxPool", x, pairs, dilations=list(c.attrs["dilation"]))


def _avg_pool(c: Call) -> Value:
    x, counted = c.xs[0], c.attrs["count_include_pad"]
    window, pairs = c.attrs["window"], c.attrs["padding"]
    if counted:
        x, pairs = _padded(c, x, pairs, window, 0)
    elif any(not 0 <= p < k for row, k in zip(pairs, window, strict=True) for p in row):
        raise Refused("has windows that lie in padding alone, or negative padding")
    return _pool(c, "AveragePool", x, pairs, count_include_pad=int(counted))


# -- norms ---------------------------------------------------------------------------------------


def _batch_norm(c: Call) -> Value:
    """By the operator of ONNX where the channels are its second axis, otherwise written out."""
    x, mean, variance, scale, offset = c.xs
    w, epsilon = c.w, c.attrs["epsilon"]
    if x.rank >= 2 and x.dtype == mean.dtype:
        y = w.op(
            "BatchNormalization",
            channels_first(w, x),
            *(scale, offset, mean, variance),
            rank=x.rank,
            epsilon=float(epsilon),
        )
        return channels_last(w, y)
    factor = w.elementwise("Mul", rsqrt(w, w.number("Add", variance, epsilon)), scale)
    centred = w.elementwise("Sub", w.cast(x, mean.dtype), mean)
    return w.elementwise("Add", w.elementwise("Mul", centred, factor), offset)


def _local_batch_norm(c: Call) -> list[Value]:
    """The norm of one device: with the statistics of its batch."""
    x, scale, offset = c.xs
    if c.attrs["parts"] != 1 or c.attrs["real"]:
        raise Refused("is a part of a program for several devices")
    w, axes = c.w, range(x.rank - 1)
    wide = w.cast(x, scale.dtype)
    mean = w.reduce("ReduceMean", wide, axes)
    centred = w.elementwise("Sub", wide, mean)
    variance = w.reduce("ReduceMean", square(w, centred), axes)
    factor = rsqrt(w, w.number("Add", variance, c.attrs["epsilon"]))
    y = w.elementwise("Mul", w.elementwise("Mul", centred, factor), scale)
    return [w.cast(w.elementwise("Add", y, offset), x.dtype), mean, variance]


def _layer_norm(c: Call) -> Value:
    x, scale, offset = c.xs
    w, epsilon = c.w, float(c.attrs["epsilon"])
    if w.shared.schemas.has("LayerNormalization") and x.dtype == scale.dtype:
        return w.op("LayerNormalization", x, scale, offset, rank=x.rank, axis=-1, epsilon=epsilon)
    wide = w.cast(x, scale.dtype)
    axes = [x.rank - 1]
    centred = w.elementwise("Sub", wide, w.reduce("ReduceMean", wide, axes, True))
    variance = w.reduce("ReduceMean", square(w, centred), axes, True)
    rows = w.elementwise("Mul", centred, rsqrt(w, w.number("Add", variance, epsilon)))
    return w.elementwise("Add", w.elementwise("Mul", rows, scale), offset)


def _local_response(c: Call) -> Value:
    """LRN divides alpha by the number of neighbours."""
    x, w = c.xs[0], c.w
    size, shape = 2 * c.attrs["radius"] + 1, c.shape()
    x = w.cast(x, "float32") if x.dtype.itemsize < 4 else x  # as graphc adds them
    flat = x if x.rank == 4 else c.reshape(x, (product(shape[:-1]), 1, 1, shape[-1]))
    y = w.op(
        "LRN",
        channels_first(w, flat),
        size=size,
        alpha=float(c.attrs["alpha"] * size),
        beta=float(c.attrs["beta"]),
        bias=float(c.attrs["bias"]),
    )
    y = channels_last(w, y)
    return y if x.rank == 4 else c.reshape(y, shape)


# -- softmax and attention -----------------------------------------------------------------------


def _softmax(op: str) -> Rule:
    return lambda c: c.w.op(op, c.xs[0], axis=c.attrs["axis"])


def _attention(c: Call) -> Value:
    """softmax(scale query keyT + masks) value, for [batch, time, heads, depth]."""
    query, key, value, *masks = c.xs
    if c.attrs["dropout"]:
        raise Refused("draws random numbers for its dropout")
    w, (_, time, heads, _), (_, source, shared, _) = c.w, c.shape(0), c.shape(1)
    assert isinstance(heads, int) and isinstance(shared, int)
    query, key, value = (w.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    if shared != heads:
        key, value = (_repeated(c, x, i + 1, heads // shared) for i, x in enumerate((key, value)))
    wide = np.dtype("float32") if query.dtype.itemsize < 4 else query.dtype
    scores = w.cast(w.op("MatMul", query, transposed(w, key)), wide)
    scores = w.number("Mul", scores, c.attrs["scale"])
    for bias in masks:
        if bias.dtype != BOOL:
            scores = w.elementwise("Add", scores, w.cast(bias, wide))
    seen = [mask for mask in masks if mask.dtype == BOOL]
    if c.attrs["causal"]:
        seen.append(_causal(c, time, source))
    if not seen:
        weights = w.op("Softmax", scores, axis=-1)
        return w.transpose(w.op("MatMul", w.cast(weights, value.dtype), value), (0, 2, 1, 3))
    visible = seen[0]
    for mask in seen[1:]:
        visible = w.elementwise("And", visible, mask)
    # Runtimes may compute the softmax in float16, in which float32's lowest number is infinite.
    narrow = np.finfo(np.float16 if value.dtype == np.float16 else wide)
    lowest = w.like(scores, narrow.min)
    weights = w.op("Softmax", w.where(visible, scores, lowest), axis=-1)
    if not c.attrs["mean_if_blind"]:  # a query that sees nothing gives 0
        weights = w.where(visible, weights, w.like(weights, 0))
    return w.transpose(w.op("MatMul", w.cast(weights, value.dtype), value), (0, 2, 1, 3))


def _repeated(c: Call, x: Value, position: int, times: int) -> Value:
    """[batch, shared heads, source, depth] with each head for `times` heads of the query."""
    batch, source, shared, depth = c.shape(position)
    wide = c.expand(c.w.unsqueeze(x, [2]), (batch, shared, times, source, depth))
    return c.reshape(wide, (batch, shared * times, source, depth))


def _causal(c: Call, time: Dim, source: Dim) -> Value:
    """[time, source]: whether the query comes no later than the key, aligned at the first."""
    rows, columns = c.count(time), c.count(source)
    return c.w.compare("GreaterOrEqual", c.w.unsqueeze(rows, [1]), columns)


RULES: Final[dict[str, Rule]] = {
    "Attention": _attention,
    "AvgPool": _avg_pool,
    "BatchNorm": _batch_norm,
    "Conv": _conv,
    "ConvInputGradient": _conv_transpose,
    "ConvKernelGradient": _kernel_gradient,
    "LayerNorm": _layer_norm,
    "LocalBatchNorm": _local_batch_norm,
    "LocalResponseNorm": _local_response,
    "LogSoftmax": _softmax("LogSoftmax"),
    "MaxPool": _max_pool,
    "Softmax": _softmax("Softmax"),
}
