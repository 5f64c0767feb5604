"""Reductions, sorting, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.ir.node import Tensor


def _axes(call: Call, x: Tensor) -> tuple[int, ...] | None:
    """The axes; None if nothing is reduced."""
    axes = call.ints(1, "axes", "the axes")
    if axes:
        return tuple(axis % x.ndim for axis in axes)
    return None if call.attr("noop_with_empty_axes", 0) else tuple(range(x.ndim))


def _reduce(function: Callable[[Tensor, tuple[int, ...], bool], Any]) -> Rule:
    """The rule for a reduction `(x, axes, keepdims) -> result`."""

    def rule(call: Call) -> Any:
        x = call.x()
        axes = _axes(call, x)
        if axes is None:
            return function(x, (), True)
        return function(x, axes, bool(call.attr("keepdims", 1)))

    return rule


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return ops.reduce_sum(x, axis=axes, keepdims=keep)


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    if x.dtype.kind in "iu":
        wide = ops.reduce_mean(ops.cast(x, "float64"), axis=axes, keepdims=keep)
        return ops.cast(wide, x.dtype)
    return ops.reduce_mean(x, axis=axes, keepdims=keep)


def _extreme(function: Callable[..., Any], empty: str) -> Callable[..., Any]:
    def reduce(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
        if x.dtype.kind == "b":
            return ops.cast(function(ops.cast(x, "uint8"), axis=axes, keepdims=keep), "bool")
        if any(x.shape[axis] == 0 for axis in axes):
            limit: Any = -np.inf if empty == "min" else np.inf
            if x.dtype.kind in "iu":
                limit = getattr(np.iinfo(x.dtype), empty)
            shape = [1 if i in axes else d for i, d in enumerate(x.shape)]
            if not keep:
                shape = [d for i, d in enumerate(x.shape) if i not in axes]
            return ops.full(shape, limit, dtype=x.dtype)
        return function(x, axis=axes, keepdims=keep)

    return reduce


def _norm2(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    if x.dtype.kind in "iu":
        return ops.cast(_norm2(ops.cast(x, "float64"), axes, keep), x.dtype)
    return ops.sqrt(_sum(ops.square(x), axes, keep))


def _log_sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    if x.dtype.kind in "iu":
        return ops.cast(_log_sum(ops.cast(x, "float64"), axes, keep), x.dtype)
    return ops.log(_sum(x, axes, keep))


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    if x.dtype.kind in "iu":
        return ops.cast(_log_sum_exp(ops.cast(x, "float64"), axes, keep), x.dtype)
    if any(x.shape[axis] == 0 for axis in axes):
        return ops.log(_sum(x, axes, keep))
    return ops.logsumexp(x, axis=axes, keepdims=keep) if axes else x


def _arg(function: Callable[..., Any]) -> Rule:
    def rule(call: Call) -> Any:
        x, axis, keep = call.x(), call.attr("axis", 0), bool(call.attr("keepdims", 1))
        axis %= x.ndim
        if not call.attr("select_last_index", 0):
            return function(x, axis=axis, keepdims=keep, dtype="int64")
        found = function(ops.flip(x, axis), axis=axis, keepdims=keep, dtype="int64")
        return (
            ops.cast(x.shape[axis] - 1, "int64") - found
            if isinstance(x.shape[axis], int)
            else call.refuse("with select_last_index needs a known size")
        )

    return rule


def _cumulative(function: Callable[..., Any]) -> Rule:
    def rule(call: Call) -> Any:
        axis = int(call.need(1, "the axis").reshape(-1)[0])
        x = call.x()
        return function(
            x,
            axis=axis % x.ndim,
            reverse=bool(call.attr("reverse", 0)),
            exclusive=bool(call.attr("exclusive", 0)),
        )

    return rule


def _cumprod(x: Tensor, *, axis: int, reverse: bool, exclusive: bool) -> Any:
    return ops.cumprod(x, axis=axis, reverse=reverse, exclusive=exclusive)


def _top_k(call: Call) -> Any:
    x, axis = call.x(), call.attr("axis", -1)
    k = call.attr("k") if call.version < 10 else call.dims(1, "k")[0]
    axis %= x.ndim
    moved = ops.moveaxis(x, axis, -1)
    if call.attr("largest", 1) and isinstance(k, int):
        values, places = ops.top_k(moved, k)
    else:
        order = _descending(moved) if call.attr("largest", 1) else ops.argsort(moved, axis=-1)
        places = order if k == moved.shape[-1] else order[..., :k]
        values = ops.take_along_axis(moved, places, axis=-1)
    back = [ops.moveaxis(t, -1, axis) for t in (values, ops.cast(places, "int64"))]
    return tuple(back)


def _descending(x: Any) -> Any:
    """The order of the last axis, the greatest first; equal elements in their order."""
    order = ops.flip(ops.argsort(ops.flip(x, -1), axis=-1), -1)  # `argsort` is stable
    return ops.cast(ops.size(x, -1), "int64") - 1 - ops.cast(order, "int64")


def unknown_size(call: Call) -> Any:
    """The rule of an operator that is only computed at import."""
    raise Refused(
        "has a result whose size depends on values; it is only computed at import", needs=True
    )


RULES: Final[dict[str, Rule]] = {
    "ArgMax": _arg(ops.argmax),
    "ArgMin": _arg(ops.argmin),
    "CumProd": _cumulative(_cumprod),
    "CumSum": _cumulative(ops.cumsum),
    "NonZero": unknown_size,
    "ReduceL1": _reduce(lambda x, axes, keep: _sum(ops.abs(x), axes, keep)),
    "ReduceL2": _reduce(_norm2),
    "ReduceLogSum": _reduce(_log_sum),
    "ReduceLogSumExp": _reduce(_log_sum_exp),
    "ReduceMax": _reduce(_extreme(ops.reduce_max, "min")),
    "ReduceMean": _reduce(_mean),
    "ReduceMin": _reduce(_extreme(ops.reduce_min, "max")),
    "ReduceProd": _reduce(lambda x, axes, keep: ops.reduce_prod(x, axis=axes, keepdims=keep)),
    "ReduceSum": _reduce(_sum),
    "ReduceSumSquare": _reduce(lambda x, axes, keep: _sum(ops.square(x), axes, keep)),
    "TopK": _top_k,
    "Unique": unknown_size,
}
