"""Reductions, cumulative operators, sorting, segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.values import Value, WeightValue
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor

FAMILY = Family()

_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "Sum": ops.sum, "Mean": ops.mean, "Max": ops.max, "Min": ops.min, "Prod": ops.prod,
    "All": ops.all, "Any": ops.any,
}  # fmt: skip


@FAMILY.rule(*_REDUCTIONS, "EuclideanNorm", kinds="tv")
def reduce(call: Call, x: Tensor, axes: Value) -> Tensor:
    where = call.axes(axes, x.ndim)
    keepdims = bool(call.attr("keep_dims", False))
    if call.node.op == "EuclideanNorm":
        return ops.sqrt(ops.sum(ops.square(ops.abs(x)), where, keepdims))
    if call.node.op == "Mean" and x.dtype.kind in "iu":
        return ops.cast(ops.trunc(ops.mean(ops.cast(x, "float64"), where, keepdims)), x.dtype)
    if call.node.op in ("Sum", "Prod"):
        return _REDUCTIONS[call.node.op](x, where, keepdims, dtype=x.dtype)
    return _REDUCTIONS[call.node.op](x, where, keepdims)


@FAMILY.rule("ArgMax", "ArgMin", kinds="tn")
def arg(call: Call, x: Tensor, axis: int) -> Tensor:
    function = ops.argmax if call.node.op == "ArgMax" else ops.argmin
    return ops.cast(function(x, axis), call.dtype("output_type", "int64"))


@FAMILY.rule("Cumsum", "Cumprod", "CumulativeLogsumexp", kinds="tn")
def cumulative(call: Call, x: Tensor, axis: int) -> Tensor:
    reverse, exclusive = bool(call.attr("reverse", False)), bool(call.attr("exclusive", False))
    if call.node.op == "CumulativeLogsumexp":
        if exclusive:
            call.refuse("is exclusive")
        return ops.cumlogsumexp(x, axis, reverse=reverse)
    function = ops.cumsum if call.node.op == "Cumsum" else ops.cumprod
    return function(x, axis, reverse=reverse, exclusive=exclusive)


@FAMILY.rule("TopK", "TopKV2", kinds="tv", outputs=("values", "indices"))
def top_k(call: Call, x: Tensor, k: Value = None) -> list[Tensor]:
    count = call.attr("k") if call.node.op == "TopK" else call.number(k, "k")
    values, indices = ops.top_k(x, count)
    return [values, ops.cast(indices, call.dtype("index_type", "int32"))]


@FAMILY.rule("NthElement", kinds="tn")
def nth_element(call: Call, x: Tensor, n: int) -> Tensor:
    return ops.sort(x, -1, descending=bool(call.attr("reverse", False)))[..., n]


@FAMILY.rule("InTopK", "InTopKV2", kinds="ttn")
def in_top_k(call: Call, scores: Tensor, labels: Tensor, k: int = 0) -> Tensor:
    count = call.attr("k") if call.node.op == "InTopK" else k
    own = ops.take_along_axis(scores, ops.expand_dims(labels, 1), 1)
    better = ops.sum(ops.cast(ops.greater(scores, own), "int32"), 1)
    return ops.logical_and(ops.less(better, count), ops.isfinite(ops.squeeze(own, 1)))


def _segments(call: Call, ids: Value, count: Value) -> tuple[Tensor, Dim]:
    """The numbers of segments, and how many there are. Sorted ones must be known for that."""
    if count is not None:
        return call.tensor(ids), call.dim(count, "the number of segments")
    known = ids.array if isinstance(ids, WeightValue) else ids
    if not isinstance(known, np.ndarray):
        call.refuse("needs constant segment numbers: the size of the result depends on them")
    return call.tensor(ids), int(known.max()) + 1 if known.size else 0


_SEGMENTS: dict[str, Callable[..., Any]] = {
    "Sum": ops.segment_sum, "Mean": ops.segment_mean, "Max": ops.segment_max,
    "Min": ops.segment_min, "Prod": ops.segment_prod,
}  # fmt: skip


@FAMILY.rule(
    "SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd", "UnsortedSegmentSum",
    "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd",
    kinds="tvv",
)  # fmt: skip
def segment(call: Call, data: Tensor, ids: Value, count: Value = None) -> Tensor:
    numbers, size = _segments(call, ids, count)
    kind = call.node.op.removeprefix("Unsorted").removeprefix("Segment")
    if numbers.ndim > 1:
        rest = data.shape[numbers.ndim :]
        data, numbers = ops.reshape(data, (-1, *rest)), ops.reshape(numbers, (-1,))
    result: Tensor = _SEGMENTS[kind](data, numbers, size)
    if kind in ("Max", "Min"):
        return _filled_empty(call, kind, result, numbers, size)
    return result


def _filled_empty(call: Call, kind: str, result: Tensor, numbers: Tensor, size: Dim) -> Tensor:
    """Empty segments: 0 for sorted ones, the lowest or highest number for the others."""
    used = ops.segment_sum(ops.ones(numbers.shape, "int32"), numbers, size)
    used = ops.reshape(ops.greater(used, 0), (size, *[1] * (result.ndim - 1)))
    if call.node.op.startswith("Unsorted"):
        limits = np.finfo(result.dtype) if result.dtype.kind == "f" else np.iinfo(result.dtype)
        fill = limits.min if kind == "Max" else limits.max
    else:
        fill = 0
    return ops.where(used, result, ops.full_like(result, fill))


@FAMILY.rule("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN", kinds="ttv")
def sparse_segment(call: Call, data: Tensor, indices: Tensor, ids: Value) -> Tensor:
    numbers, size = _segments(call, ids, None)
    rows = ops.take(data, indices, 0)
    if call.node.op == "SparseSegmentMean":
        return ops.segment_mean(rows, numbers, size)
    total = ops.segment_sum(rows, numbers, size)
    if call.node.op == "SparseSegmentSum":
        return total
    count = ops.segment_sum(ops.ones(numbers.shape, data.dtype), numbers, size)
    count = ops.reshape(ops.sqrt(ops.maximum(count, 1)), (size, *[1] * (data.ndim - 1)))
    return ops.true_divide(total, count)


@FAMILY.rule("Bincount", kinds="tnt")
def bincount(call: Call, x: Tensor, size: int, weights: Tensor) -> Tensor:
    flat = ops.reshape(x, (-1,))
    inside = ops.less(flat, size)
    if 0 in weights.shape:
        amounts = ops.cast(inside, weights.dtype)
    else:
        amounts = ops.where(inside, ops.reshape(weights, (-1,)), 0)
    return ops.segment_sum(amounts, ops.minimum(flat, size - 1), size)


@FAMILY.rule("DenseBincount", kinds="tnt")
def dense_bincount(call: Call, x: Tensor, size: int, weights: Tensor) -> Tensor:
    if x.ndim != 1:
        call.refuse("counts in rows")
    found = bincount(call, x, size, weights)
    return ops.cast(ops.greater(found, 0), found.dtype) if call.attr("binary_output") else found


@FAMILY.rule("LowerBound", "UpperBound")
def bound(call: Call, x: Tensor, values: Tensor) -> Tensor:
    side = "left" if call.node.op == "LowerBound" else "right"
    wanted = call.dtype("out_type", "int32")
    if x.ndim == 2 and x.shape[0] == 1:
        return ops.cast(ops.searchsorted(x[0], values, side), wanted)
    compare = ops.less if side == "left" else ops.less_equal
    hits = compare(ops.expand_dims(x, 1), ops.expand_dims(values, 2))
    return ops.sum(ops.cast(hits, wanted), 2)


@FAMILY.rule("HistogramFixedWidth", kinds="ttn")
def histogram(call: Call, x: Tensor, limits: Tensor, bins: int) -> Tensor:
    flat = ops.reshape(x, (-1,))
    scaled = (flat - limits[0]) * bins / (limits[1] - limits[0])
    places = ops.cast(ops.clip(ops.floor(scaled), 0, bins - 1), "int32")
    ones = ops.ones(places.shape, call.dtype("dtype", "int32"))
    return ops.segment_sum(ones, places, bins)
