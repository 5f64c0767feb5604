"""Operators on values that are known at import: shape arithmetic, with named sizes.

A function returns None if it cannot tell the result; then the rule for tensors applies.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.importers.tensorflow.registry import Call
from graphc.importers.tensorflow.rules.indexing import strided_index
from graphc.importers.tensorflow.rules.shapes import shape_of_value
from graphc.importers.tensorflow.values import Sizes, Value
from graphc.ir.dims import DimExpr, product, sum_of

Host = Callable[..., Value]
HOST: dict[str, Host] = {}
_MOST = 1 << 16  # elements that are computed at import


def _host(*names: str) -> Callable[[Host], Host]:
    def register(function: Host) -> Host:
        for name in names:
            HOST[name] = _limited(function)
        return function

    return register


def _limited(function: Host) -> Host:
    """The function for small values; floats only of up to a few elements, for scales of sizes."""

    def apply(call: Call, *values: Value) -> Value:
        if any(_items(v).size > _MOST for v in values):
            return None
        with np.errstate(all="ignore"):
            return function(call, *values)

    return apply


def _items(value: Value) -> Any:
    return value.items if isinstance(value, Sizes) else value


def _made(items: Any, like: Value) -> Value:
    """Items in the dtype of a value. Items of Sizes may be named sizes."""
    dtype = like.dtype
    if isinstance(like, np.ndarray) and dtype.kind == "O":
        return np.asarray(items, object)
    array = np.asarray(items)
    return Sizes.of(array, dtype) if array.dtype.kind == "O" else array.astype(dtype)


def _mixed(values: tuple[Value, ...]) -> bool:
    return any(isinstance(v, Sizes) for v in values)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "AddV2": operator.add, "Sub": operator.sub, "Mul": operator.mul,
    "FloorDiv": operator.floordiv, "FloorMod": operator.mod, "Maximum": np.maximum,
    "Minimum": np.minimum, "Pow": np.power, "RealDiv": np.true_divide,
}  # fmt: skip


def _arithmetic(name: str) -> Host:
    function = _ARITHMETIC[name]

    def apply(call: Call, x: Value, y: Value) -> Value:
        if not _mixed((x, y)):
            if x.dtype.kind == "O" or _divides_by_zero(name, y):
                return None
            return _made(function(x, y), x)
        if name not in ("Add", "AddV2", "Sub", "Mul", "FloorDiv"):
            return None
        a, b = np.broadcast_arrays(_items(x), _items(y))
        items = [_of_dims(function, name, p, q) for p, q in zip(a.flat, b.flat, strict=True)]
        if any(i is None for i in items):
            return None
        made = np.empty(len(items), object)
        made[:] = items
        return Sizes.of(made.reshape(a.shape), x.dtype)

    return apply


def _divides_by_zero(name: str, y: Any) -> bool:
    return name in ("FloorDiv", "FloorMod", "Pow") and y.dtype.kind in "iu" and bool((y <= 0).any())


def _of_dims(function: Any, name: str, p: Any, q: Any) -> Any:
    p, q = (v if isinstance(v, DimExpr) else int(v) for v in (p, q))
    if name == "FloorDiv" and (isinstance(p, int) or (isinstance(q, int) and q <= 0)):
        return p // q if isinstance(p, int) and isinstance(q, int) and q > 0 else None
    return function(p, q)


for _name in _ARITHMETIC:
    HOST[_name] = _limited(_arithmetic(_name))

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Equal": operator.eq, "NotEqual": operator.ne, "Less": operator.lt,
    "LessEqual": operator.le, "Greater": operator.gt, "GreaterEqual": operator.ge,
    "LogicalAnd": np.logical_and, "LogicalOr": np.logical_or,
}  # fmt: skip


def _comparison(name: str) -> Host:
    def apply(call: Call, x: Value, y: Value) -> Value:
        return None if _mixed((x, y)) else np.asarray(_COMPARISONS[name](x, y), bool)

    return apply


for _name in _COMPARISONS:
    HOST[_name] = _limited(_comparison(_name))

_UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": np.abs, "Neg": operator.neg, "Ceil": np.ceil, "Floor": np.floor, "Sqrt": np.sqrt,
    "Square": np.square, "Round": np.round, "LogicalNot": np.logical_not, "Exp": np.exp,
    "Log": np.log,
}  # fmt: skip


def _unary(name: str) -> Host:
    def apply(call: Call, x: Value) -> Value:
        return None if _mixed((x,)) or x.dtype.kind == "O" else _made(_UNARY[name](x), x)

    return apply


for _name in _UNARY:
    HOST[_name] = _limited(_unary(_name))


@_host("Cast")
def cast(call: Call, x: Value) -> Value:
    wanted = call.dtype("DstT")
    if isinstance(x, Sizes):
        return Sizes(x.items, wanted) if wanted.kind in "iu" else None
    if x.dtype.kind == "O":
        return None
    if x.dtype.kind == "f" and wanted.kind in "iu":  # out of range, NumPy's result has no meaning
        limits = np.iinfo(wanted)
        inside = np.isfinite(x) & (x >= float(limits.min)) & (x <= float(limits.max))
        return x.astype(wanted) if inside.all() else None
    return x.astype(wanted)


@_host("Prod", "Sum", "Max", "Min", "All", "Any", "Mean")
def reduce(call: Call, x: Value, axes: Value) -> Value:
    where = call.axes(axes, _items(x).ndim)
    keep = bool(call.attr("keep_dims", False))
    if isinstance(x, Sizes):
        if call.node.op not in ("Prod", "Sum") or len(where) != x.items.ndim:
            return None
        total = (product if call.node.op == "Prod" else sum_of)(x.items.reshape(-1))
        return Sizes.of(
            np.array([total], object).reshape((1,) * len(where) if keep else ()), x.dtype
        )
    if x.dtype.kind == "O" or (x.size == 0 and call.node.op in ("Max", "Min", "Mean")):
        return None
    function = getattr(np, call.node.op.lower())
    return _made(function(x, axis=where, keepdims=keep), x)


@_host("Pack")
def pack(call: Call, *values: Value) -> Value:
    items = np.stack([_items(v) for v in values], call.attr("axis", 0))
    return _made(items, values[0])


@_host("Unpack")
def unpack(call: Call, x: Value) -> list[Value]:
    rows = np.moveaxis(_items(x), call.attr("axis", 0), 0)
    return [_made(row, x) for row in rows]


@_host("ConcatV2")
def concat_v2(call: Call, *values: Value) -> Value:
    *parts, axis = values
    return _made(
        np.concatenate([_items(v) for v in parts], call.number(axis, "the axis")), parts[0]
    )


@_host("Concat")
def concat(call: Call, axis: Value, *parts: Value) -> Value:
    return concat_v2(call, *parts, axis)


@_host("StridedSlice")
def strided_slice(call: Call, x: Value, begin: Value, end: Value, step: Value) -> Value:
    if _mixed((begin, end)):
        return None
    bounds = [[int(i) for i in v.reshape(-1)] for v in (begin, end, step)]
    return _taken(_items(x), strided_index(call, *bounds), x)


def _taken(items: Any, index: Any, like: Value) -> Value:
    found = items[index]
    if isinstance(found, np.ndarray):
        return _made(found, like)
    scalar = np.empty((), object)
    scalar[()] = found
    return _made(scalar if like.dtype.kind == "O" or isinstance(like, Sizes) else found, like)


@_host("Slice")
def slice_(call: Call, x: Value, begin: Value, sizes: Value) -> Value:
    if _mixed((begin, sizes)):
        return None
    index = tuple(
        slice(int(b), None if s == -1 else int(b + s))
        for b, s in zip(begin.reshape(-1), sizes.reshape(-1), strict=True)
    )
    return _made(_items(x)[index], x)


@_host("Reshape")
def reshape(call: Call, x: Value, sizes: Value) -> Value:
    if isinstance(sizes, Sizes):
        return None
    return _made(_items(x).reshape([int(s) for s in sizes.reshape(-1)]), x)


@_host("ExpandDims")
def expand_dims(call: Call, x: Value, axis: Value) -> Value:
    return _made(np.expand_dims(_items(x), call.number(axis, "the axis")), x)


@_host("Squeeze")
def squeeze(call: Call, x: Value) -> Value:
    axes = call.attr("squeeze_dims") or None
    return _made(np.squeeze(_items(x), None if axes is None else tuple(axes)), x)


@_host("Transpose")
def transpose(call: Call, x: Value, axes: Value) -> Value:
    return None if _mixed((axes,)) else _made(np.transpose(_items(x), axes.reshape(-1)), x)


@_host("GatherV2")
def gather(call: Call, x: Value, indices: Value, axis: Value) -> Value:
    if _mixed((indices, axis)) or call.attr("batch_dims", 0):
        return None
    taken = np.take(_items(x), indices, call.number(axis, "the axis"))
    return _made(taken, x)


@_host("Gather")
def gather_v1(call: Call, x: Value, indices: Value) -> Value:
    return gather(call, x, indices, np.array(0))


@_host("Range")
def range_(call: Call, start: Value, limit: Value, step: Value) -> Value:
    if _mixed((start, limit, step)) or not step.any():
        return None
    count = (limit - start) / step
    if not np.isfinite(count) or count > _MOST:
        return None
    return np.arange(start.item(), limit.item(), step.item()).astype(start.dtype)


@_host("Fill")
def fill(call: Call, sizes: Value, value: Value) -> Value:
    if _mixed((sizes,)) or _count(sizes) > _MOST or _mixed((value,)):
        return None
    return np.full([int(s) for s in sizes.reshape(-1)], value, value.dtype)


def _count(sizes: Any) -> float:
    return float(np.prod(sizes.astype(np.float64)))


@_host("Tile")
def tile(call: Call, x: Value, counts: Value) -> Value:
    if _mixed((counts,)) or _count(counts) * _items(x).size > _MOST or (counts < 0).any():
        return None
    return _made(np.tile(_items(x), [int(c) for c in counts.reshape(-1)]), x)


@_host("Select", "SelectV2")
def select(call: Call, condition: Value, x: Value, y: Value) -> Value:
    if _mixed((condition,)):
        return None
    if condition.ndim == 0:
        return x if bool(condition) else y
    return None if _mixed((x, y)) else np.where(condition, x, y)


@_host("ZerosLike", "OnesLike")
def like(call: Call, x: Value) -> Value:
    if x.dtype.kind == "O":
        return None
    return np.full(_items(x).shape, int(call.node.op == "OnesLike"), x.dtype)


@_host("ReverseV2")
def reverse(call: Call, x: Value, axes: Value) -> Value:
    return _made(np.flip(_items(x), call.axes(axes, _items(x).ndim)), x)


@_host("InvertPermutation")
def invert(call: Call, x: Value) -> Value:
    return None if _mixed((x,)) else np.argsort(x).astype(x.dtype)


@_host("ListDiff")
def difference(call: Call, x: Value, y: Value) -> list[Value] | None:
    if _mixed((x, y)):
        return None
    kept = np.flatnonzero(~np.isin(x, y))
    return [x[kept], kept.astype(call.dtype("out_idx", "int32"))]


@_host("Split")
def split(call: Call, axis: Value, x: Value) -> list[Value]:
    parts = np.split(_items(x), call.attr("num_split", 1), call.number(axis, "the axis"))
    return [_made(part, x) for part in parts]


@_host("SplitV")
def split_v(call: Call, x: Value, sizes: Value, axis: Value) -> list[Value] | None:
    if _mixed((sizes,)) or not _items(x).ndim:
        return None
    at, counts = call.number(axis, "the axis"), [int(n) for n in sizes.reshape(-1)]
    rest = _items(x).shape[at] - sum(n for n in counts if n >= 0)
    counts = [rest if n < 0 else n for n in counts]
    if min(counts, default=0) < 0 or sum(counts) != _items(x).shape[at]:
        return None
    return [_made(part, x) for part in np.split(_items(x), np.cumsum(counts)[:-1], at)]


@_host("Shape")
def shape(call: Call, x: Value) -> Value:
    return np.array(shape_of_value(call, x), call.dtype("out_type", "int32"))


@_host("ScatterNd")
def scatter_nd(call: Call, indices: Value, updates: Value, sizes: Value) -> Value:
    if _mixed((indices, updates, sizes)) or _count(sizes) > _MOST or updates.dtype.kind == "O":
        return None
    if (indices < 0).any() or (indices >= sizes.reshape(-1)[: indices.shape[-1]]).any():
        return None
    result = np.zeros([int(s) for s in sizes.reshape(-1)], updates.dtype)
    np.add.at(result, tuple(np.moveaxis(indices, -1, 0)), updates)
    return result


@_host("Pad")
def pad(call: Call, x: Value, widths: Value) -> Value:
    if _mixed((x, widths)) or float(widths.astype(np.float64).sum()) > 64 or x.dtype.kind == "O":
        return None
    return np.pad(x, widths.reshape(-1, 2))
