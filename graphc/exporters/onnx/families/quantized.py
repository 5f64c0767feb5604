"""Integers with a scale."""

from __future__ import annotations

import math
from typing import Any, Final

import ml_dtypes

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import BOOL


def _axis(c: Call) -> dict[str, Any]:
    axis = c.attrs["axis"]
    return {} if axis is None else {"axis": axis}


def _takes(c: Call, op: str) -> bool:
    """Whether ONNX's operator takes these dtypes. For others the rules are written out."""
    return all(c.w.shared.schemas.takes(op, i, x.dtype) for i, x in enumerate(c.xs))


def _along(c: Call, x: Value, value: Value) -> Value:
    """A scale or zero point, so that it broadcasts with x."""
    axis = c.attrs["axis"]
    return (
        c.w.unsqueeze(value, range(1, x.rank - axis)) if axis is not None and value.rank else value
    )


def _grid(c: Call) -> tuple[Value, Value]:
    """Scale and zero point: two vectors if one is a vector, since ONNX's have one shape."""
    _, scale, zero = c.xs
    if scale.rank == zero.rank:
        return scale, zero
    vector = [c.shape()[c.attrs["axis"]]]
    return c.expand(scale, vector), c.expand(zero, vector)


def _quantize(c: Call) -> Value:
    x, scale, zero = c.xs
    w = c.w
    along = _along(c, x, zero)
    if _takes(c, "QuantizeLinear"):
        q = w.op("QuantizeLinear", x, *_grid(c), dtype=zero.dtype, rank=x.rank, **_axis(c))
    else:
        limits: Any = ml_dtypes.iinfo(zero.dtype)  # type: ignore[no-untyped-call]
        step = w.elementwise("Round", w.elementwise("Div", x, _along(c, x, scale)))
        place = w.cast(w.elementwise("Add", step, w.cast(along, x.dtype)), "float64")
        inside = w.number("Min", w.number("Max", place, limits.min), limits.max)
        q = w.cast(inside, zero.dtype)
    return w.where(w.elementwise("IsNaN", x, dtype=BOOL), along, q)


def _dequantize(c: Call) -> Value:
    q, scale, zero = c.xs
    w = c.w
    if _takes(c, "DequantizeLinear"):
        return w.op("DequantizeLinear", q, *_grid(c), dtype=scale.dtype, rank=q.rank, **_axis(c))
    steps = w.elementwise("Sub", w.cast(q, "float64"), w.cast(_along(c, q, zero), "float64"))
    return w.elementwise("Mul", steps, w.cast(_along(c, q, scale), "float64"))


def _fake_quantize(c: Call) -> Value:
    """`x` on the grid of the integers, whose range is moved so that 0 is on it."""
    x, low, high = c.xs
    w = c.w
    low, high = (_along(c, x, value) for value in (low, high))
    first, last = int(c.attrs["narrow_range"]), 2 ** c.attrs["bits"] - 1
    gap = w.elementwise("Sub", high, low)
    gap = w.where(w.compare("GreaterOrEqual", high, low), gap, w.like(x, math.nan))
    scale = w.number("Div", gap, last - first)
    safe = w.where(w.compare("Greater", scale, w.like(x, 0)), scale, w.like(x, 1))
    place = w.elementwise("Sub", w.like(x, first), w.elementwise("Div", low, safe))
    zero = w.elementwise("Round", w.number("Min", w.number("Max", place, first), last))
    lowest = w.elementwise("Sub", w.like(x, first), zero)
    highest = w.elementwise("Sub", w.like(x, last), zero)
    step = w.elementwise("Round", w.elementwise("Div", x, safe))
    inside = w.elementwise("Min", w.elementwise("Max", step, lowest), highest)
    return w.elementwise("Mul", inside, scale)


RULES: Final[dict[str, Rule]] = {
    "Dequantize": _dequantize,
    "FakeQuantize": _fake_quantize,
    "Quantize": _quantize,
}
