"""Reductions, running values, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.families.arrays import pad
from graphc.exporters.onnx.families.elementwise import log_add_exp, square
from graphc.exporters.onnx.refused import Refused
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import BOOL, INT64, Writer
from graphc.ir.dtypes import is_floating


def _reduced(op: str) -> Rule:
    return lambda c: c.w.reduce(op, c.xs[0], c.attrs["axes"], c.attrs["keepdims"])


def _mean(c: Call) -> Value:
    """The sum divided by a count that may be another than the number of elements."""
    x, axes, keepdims, count = c.xs[0], c.attrs["axes"], c.attrs["keepdims"], c.attrs["count"]
    if count is None:
        return c.w.reduce("ReduceMean", x, axes, keepdims)
    total = c.w.reduce("ReduceSum", x, axes, keepdims)
    return c.w.elementwise("Div", total, c.w.cast(c.sizes.scalar(count), x.dtype))


def _truth(op: str) -> Rule:
    """Any and all of bools as the largest and smallest of integers. Of no elements, these are the
    smallest and the largest int32."""

    def rule(c: Call) -> Value:
        numbers = c.w.cast(c.xs[0], "int32")
        found = c.w.reduce(op, numbers, c.attrs["axes"], c.attrs["keepdims"])
        return c.w.compare("Greater", found, c.w.like(found, 0))

    return rule


def _extreme(op: str) -> Rule:
    """onnxruntime has no extreme of bools without elements."""
    of_numbers, of_bools = _reduced(op), _truth(op)
    return lambda c: of_bools(c) if c.xs[0].dtype == BOOL else of_numbers(c)


def log_sum_exp(w: Writer, x: Value, axes: Any, keepdims: bool) -> Value:
    """With the largest subtracted first, so that nothing overflows."""
    largest = w.reduce("ReduceMax", x, axes, True)
    finite = w.compare("Less", w.elementwise("Abs", largest), w.like(x, math.inf))
    shift = w.where(finite, largest, w.like(x, 0))
    total = w.reduce("ReduceSum", w.elementwise("Exp", w.elementwise("Sub", x, shift)), axes, True)
    y = w.elementwise("Add", w.elementwise("Log", total), shift)
    return y if keepdims else w.squeeze(y, axes)


def _arg(op: str) -> Rule:
    def rule(c: Call) -> Value:
        x, w = c.xs[0], c.w
        if is_floating(x.dtype):  # a NaN comes first
            nan = w.elementwise("IsNaN", x, dtype=BOOL)
            x = w.where(nan, w.like(x, math.inf if op == "ArgMax" else -math.inf), x)
        attrs = {"axis": c.attrs["axis"], "keepdims": 0}
        place = w.op(op, x, dtype=INT64, rank=x.rank - 1, **attrs)
        return w.cast(place, c.attrs["dtype"])

    return rule


def _cum_sum(c: Call) -> Value:
    x, axis = c.xs[0], c.w.constant(c.attrs["axis"], INT64)
    return c.w.op("CumSum", x, axis, rank=x.rank, reverse=int(c.attrs["reverse"]))


def _running(combine: Callable[[Writer, Value, Value], Value], start: float) -> Rule:
    """A running value, in steps that double the distance of what is combined.

    Source: Hillis & Steele, Data parallel algorithms, 1986.
    """

    def rule(c: Call) -> Value:
        x, w, axis = c.xs[0], c.w, c.attrs["axis"]
        size = c.shape()[axis]
        if not isinstance(size, int):
            raise Refused(f"runs over the size {size}, which must be known")
        end = start if is_floating(x.dtype) else _limit(x.dtype, start)
        distance = 1
        while distance < size:
            x = combine(w, x, _shifted(c, x, axis, distance, w.like(x, end)))
            distance *= 2
        return x

    return rule


def _limit(dtype: np.dtype[Any], start: float) -> int:
    """The number of an integer dtype for an infinity."""
    if math.isfinite(start):
        return int(start)
    info = np.iinfo(dtype)
    return int(info.max if start > 0 else info.min)


def _shifted(c: Call, x: Value, axis: int, distance: int, fill: Value) -> Value:
    """`x` moved along an axis, away from where the running value starts."""
    low, high = [0] * x.rank, [0] * x.rank
    ends = (low, high) if not c.attrs["reverse"] else (high, low)
    ends[0][axis], ends[1][axis] = distance, -distance
    return pad(c, x, low, high, fill)


def _larger(op: str) -> Callable[[Writer, Value, Value], Value]:
    return lambda w, x, y: w.elementwise(op, x, y)


# -- sorting -------------------------------------------------------------------------------------


def _sort(c: Call) -> list[Value]:
    """A stable sort by each key in turn, the last one first. NaN is greater than all numbers."""
    w, axis, keys = c.w, c.attrs["axis"], c.attrs["keys"]
    size = c.sizes.vector([c.shape()[axis]])
    xs = list(c.xs)
    for position in reversed(range(keys)):
        key = xs[position]
        if key.dtype == BOOL:
            key = w.cast(key, "int32")
        if is_floating(key.dtype):
            key = w.where(w.elementwise("IsNaN", key, dtype=BOOL), w.like(key, math.inf), key)
        results = [(key.dtype, key.rank), (INT64, key.rank)]
        _, order = w.ops("TopK", key, size, results=results, axis=axis, largest=0, sorted=1)
        xs = [w.op("GatherElements", x, order, rank=x.rank, axis=axis) for x in xs]
    return xs


def _top_k(c: Call) -> list[Value]:
    x, k = c.xs[0], c.w.ints([c.attrs["k"]])
    smallest = c.attrs.get("smallest", False)
    results = [(x.dtype, x.rank), (INT64, x.rank)]
    values, places = c.w.ops("TopK", x, k, results=results, axis=-1, largest=int(not smallest))
    return [values, c.w.cast(places, "int32")]


def _search_sorted(c: Call) -> Value:
    """How many elements of x come before each value."""
    x, values = c.xs
    w = c.w
    left = c.attrs["side"] == "left"
    each = w.unsqueeze(values, [values.rank])
    before = w.compare("Less" if left else "LessOrEqual", x, each)
    if is_floating(x.dtype):  # NaN comes after all numbers
        last = w.elementwise("IsNaN", each, dtype=BOOL)
        if left:
            number = w.invert(w.elementwise("IsNaN", x, dtype=BOOL))
            last = w.elementwise("And", last, number)
        before = w.elementwise("Or", before, last)
    return w.reduce("ReduceSum", w.cast(before, "int32"), [values.rank])


def _variance(c: Call) -> Value:
    x, mean = c.xs
    w = c.w
    squares = square(w, w.elementwise("Sub", x, mean))
    total = w.reduce("ReduceSum", squares, c.attrs["axes"], True)
    return w.elementwise("Div", total, w.cast(c.sizes.scalar(c.attrs["count"]), x.dtype))


RULES: Final[dict[str, Rule]] = {
    "ApproxTopK": _top_k,
    "ArgMax": _arg("ArgMax"),
    "ArgMin": _arg("ArgMin"),
    "CumLogSumExp": _running(log_add_exp, -math.inf),
    "CumMax": _running(_larger("Max"), -math.inf),
    "CumMin": _running(_larger("Min"), math.inf),
    "CumProd": _running(_larger("Mul"), 1.0),
    "CumSum": _cum_sum,
    "LogSumExp": lambda c: log_sum_exp(c.w, c.xs[0], c.attrs["axes"], c.attrs["keepdims"]),
    "ReduceAll": _truth("ReduceMin"),
    "ReduceAny": _truth("ReduceMax"),
    "ReduceMax": _extreme("ReduceMax"),
    "ReduceMean": _mean,
    "ReduceMin": _extreme("ReduceMin"),
    "ReduceProd": _reduced("ReduceProd"),
    "ReduceSum": _reduced("ReduceSum"),
    "SearchSorted": _search_sorted,
    "Sort": _sort,
    "TopK": _top_k,
    "Variance": _variance,
}
