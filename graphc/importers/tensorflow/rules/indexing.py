"""Slices, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc import nn, ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.values import Value, is_host
from graphc.ir.dims import Dim, DimExpr
from graphc.ir.node import Tensor

FAMILY = Family()
FAMILY.plain({"Gather": lambda x, indices: ops.take(x, indices, 0), "GatherNd": ops.gather_nd})


def strided_index(call: Call, begin: Sequence[Dim], end: Sequence[Dim], step: Sequence[Dim]) -> Any:
    """The subscript of NumPy for the masks of StridedSlice."""
    masks = {name: int(call.attr(f"{name}_mask", 0)) for name in _MASKS}
    index: list[Any] = []
    for i, (first, last, by) in enumerate(zip(begin, end, step, strict=True)):
        bit = 1 << i
        if masks["ellipsis"] & bit:
            index.append(Ellipsis)
        elif masks["new_axis"] & bit:
            index.append(None)
        elif masks["shrink_axis"] & bit:
            index.append(first)
        else:
            start = None if masks["begin"] & bit else first
            stop = None if masks["end"] & bit else last
            index.append(slice(start, stop, by))
    return tuple(index)


_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


@FAMILY.rule("StridedSlice", kinds="tvvd")
def strided_slice(call: Call, x: Tensor, begin: Value, end: Value, step: Sequence[Dim]) -> Tensor:
    if not any(isinstance(v, Tensor) for v in (begin, end)):
        index = strided_index(call, call.dims(begin, "begin"), call.dims(end, "end"), step)
        return x[_clipped(x, index)]
    return _moving_slice(call, x, begin, step)


def _clipped(x: Tensor, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Bounds of slices of axes of a named size that lie outside for certain, such as 2**31 - 1."""
    if any(i is Ellipsis for i in index):
        return index
    found: list[Any] = []
    axis = 0
    for item in index:
        if item is None:
            found.append(item)
            continue
        if isinstance(item, slice) and isinstance(x.shape[axis], DimExpr):
            far = isinstance(item.stop, int) and abs(item.stop) >= 2**31 - 1
            item = slice(item.start, None if far else item.stop, item.step)
        found.append(item)
        axis += 1
    return tuple(found)


def _moving_slice(call: Call, x: Tensor, begin: Value, step: Sequence[Dim]) -> Tensor:
    """A slice at a place that is known only in a run: one element of axes, or whole axes."""
    masks = {name: int(call.attr(f"{name}_mask", 0)) for name in _MASKS}
    starts = ops.unstack(call.tensor(begin))
    if masks["ellipsis"] or masks["new_axis"]:
        call.refuse("has bounds that are known only in a run, beside an ellipsis or a new axis")
    y, axis = x, 0
    for i, start in enumerate(starts):
        bit = 1 << i
        whole = masks["begin"] & bit and masks["end"] & bit
        if masks["shrink_axis"] & bit:
            size = ops.constant(np.array(1, np.int32)) * y.shape[axis]
            place = ops.where(ops.less(start, 0), start + ops.cast(size, start.dtype), start)
            y = ops.take(y, place, axis)
        elif whole and step[i] == 1:
            axis += 1
        else:
            y = _known_part(call, y, axis, i, masks)
            axis += 1
    return y


def _known_part(call: Call, y: Tensor, axis: int, i: int, masks: dict[str, int]) -> Tensor:
    fixed = _is_fixed(call, 1, i), _is_fixed(call, 2, i)
    first = 0 if masks["begin"] >> i & 1 else fixed[0]
    last = None if masks["end"] >> i & 1 else fixed[1]
    if first is None or (last is None and not masks["end"] >> i & 1):
        call.refuse("takes a slice whose size is known only in a run")
    index: list[Any] = [slice(None)] * y.ndim
    index[axis] = slice(first, last)
    return y[tuple(index)]


def _is_fixed(call: Call, number: int, i: int) -> Any:
    """Element i of a vector that Pack has made, if it is known at import; else None."""
    edge = call.node.inputs[number]
    node = call.scope.graph.nodes.get(edge.node)
    if node is None or node.op != "Pack" or i >= len(node.inputs):
        value = call.scope.value(edge)
        return call.dims(value, "a bound")[i] if is_host(value) else None
    value = call.scope.value(node.inputs[i])
    return call.dim(value, "a bound") if is_host(value) else None


@FAMILY.rule("Slice", kinds="tvv")
def slice_(call: Call, x: Tensor, begin: Value, sizes: Value) -> Tensor:
    lengths = call.dims(sizes, "the sizes")
    if isinstance(begin, Tensor):
        if any(s == -1 for s in lengths):
            call.refuse("begins at a place that is known only in a run, and ends at the end")
        return ops.dynamic_slice(x, ops.unstack(begin), lengths)
    index = [
        slice(start, None if size == -1 else start + size)
        for start, size in zip(call.dims(begin, "begin"), lengths, strict=True)
    ]
    return x[tuple(index)] if index else x


@FAMILY.rule("GatherV2", kinds="ttn")
def gather_v2(call: Call, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    batch = call.attr("batch_dims", 0)
    if batch:
        batch = batch % indices.ndim if batch < 0 else batch
        return ops.gather(x, indices, axis % x.ndim, batch)
    return ops.take(x, indices, axis)


@FAMILY.rule("ScatterNd", kinds="ttd")
def scatter_nd(call: Call, indices: Tensor, updates: Tensor, sizes: Sequence[Dim]) -> Tensor:
    zeros = ops.zeros(tuple(sizes), updates.dtype)
    if updates.dtype.kind == "b":
        return ops.scatter_nd(zeros, indices, updates)
    return ops.scatter_nd(zeros, indices, updates, "add")


_SCATTERS = {"Update": "set", "Add": "add", "Max": "max", "Min": "min"}


@FAMILY.rule(
    "TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax",
    "TensorScatterMin", "ScatterNdNonAliasingAdd",
)  # fmt: skip
def tensor_scatter(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    kind = call.node.op.removeprefix("TensorScatter").removeprefix("ScatterNdNonAliasing")
    if kind == "Sub":
        return ops.scatter_nd(x, indices, ops.negative(updates), "add")
    return ops.scatter_nd(x, indices, updates, _SCATTERS[kind])


@FAMILY.rule("OneHot", kinds="tntt")
def one_hot(call: Call, indices: Tensor, depth: int, on: Tensor, off: Tensor) -> Tensor:
    axis = call.attr("axis", -1)
    hits = ops.one_hot(indices, depth, np.dtype(np.bool_), axis)
    return ops.where(hits, on, off)


@FAMILY.rule("DynamicStitch", "ParallelDynamicStitch", kinds="v*")
def dynamic_stitch(call: Call, *values: Value) -> Tensor:
    half = len(values) // 2
    places = [call.static(v, "the indices") for v in values[:half]]
    size = max((int(p.max()) + 1 for p in places if p.size), default=0)
    data = [call.tensor(v) for v in values[half:]]
    return ops.dynamic_stitch([ops.constant(p) for p in places], data, size)


@FAMILY.rule("DynamicPartition", kinds="ts")
def dynamic_partition(call: Call, x: Tensor, partitions: Any) -> list[Tensor]:
    count = call.attr("num_partitions", 1)
    flat = ops.reshape(x, (partitions.size, *x.shape[partitions.ndim :]))
    places = [np.flatnonzero(partitions.reshape(-1) == i).astype(np.int32) for i in range(count)]
    return [ops.take(flat, ops.constant(place), 0) for place in places]


@FAMILY.rule("Where", kinds="s")
def where(call: Call, condition: Any) -> Value:
    return np.argwhere(condition).astype(np.int64)


@FAMILY.rule("Unique", "UniqueV2", "UniqueWithCounts", kinds="sv", outputs=("y", "idx", "count"))
def unique(call: Call, x: Any, axis: Value = None) -> list[Value]:
    _, first, inverse, counts = np.unique(x.reshape(-1), True, True, True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    dtype = call.dtype("out_idx", "int32")
    found: list[Value] = [x.reshape(-1)[np.sort(first)], rank[inverse].astype(dtype)]
    return [*found, counts[order].astype(dtype)] if "Counts" in call.node.op else found


@FAMILY.rule("SparseToDense", kinds="tdtt")
def sparse_to_dense(
    call: Call, indices: Tensor, sizes: Sequence[Dim], values: Tensor, default: Tensor
) -> Tensor:
    target = ops.broadcast_to(default, tuple(sizes))
    if indices.ndim == 0:
        indices = ops.reshape(indices, (1, 1))
    elif indices.ndim == 1:
        indices = ops.expand_dims(indices, 1)
    return ops.scatter_nd(target, indices, values)


@FAMILY.rule("ExtractImagePatches")
def image_patches(call: Call, x: Tensor) -> Tensor:
    window, strides, rates = (call.attr(k)[1:3] for k in ("ksizes", "strides", "rates"))
    padding = call.text("padding").lower()
    return nn.patches(x, tuple(window), tuple(strides), padding, tuple(rates))
