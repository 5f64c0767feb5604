"""Quotients that are rounded down, and remainders.

Runtimes fail where an integer is divided by 0, and onnxruntime ends the process for the smallest
integer by -1. Both have results in graphc, which a `where` may not even use.
"""

from __future__ import annotations

import numpy as np

from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import Writer
from graphc.ir.dtypes import is_floating


def floor_divide(w: Writer, x: Value, y: Value) -> Value:
    """The quotient, rounded down."""
    if is_floating(x.dtype):
        return _floats_divided(w, x, y)
    safe = _safe(w, y)
    quotient = w.elementwise("Div", x, safe)  # towards 0
    if x.dtype.kind == "u":
        most = w.like(x, np.iinfo(x.dtype).max)
        return quotient if safe is y else w.where(_is(w, y, 0), most, quotient)
    quotient = w.elementwise("Sub", quotient, w.cast(_is_rounded_up(w, x, safe), x.dtype))
    if safe is y:
        return quotient
    quotient = w.where(_is(w, y, -1), w.elementwise("Neg", x), quotient)
    is_other = w.cast(w.invert(_is(w, x, 0)), x.dtype)
    return w.where(_is(w, y, 0), w.elementwise("Sub", w.like(x, -1), is_other), quotient)


def remainder(w: Writer, x: Value, y: Value) -> Value:
    """With the sign of y; 0 where an integer is divided by 0."""
    if not is_floating(x.dtype):
        return w.elementwise("Mod", x, _safe(w, y))
    rest, zero = w.elementwise("Mod", x, y, fmod=1), w.like(x, 0)
    differ = w.elementwise("Xor", w.compare("Less", rest, zero), w.compare("Less", y, zero))
    wrong = w.elementwise("And", differ, w.invert(w.compare("Equal", rest, zero)))
    return w.where(wrong, w.elementwise("Add", rest, y), rest)


def fmod(w: Writer, x: Value, y: Value) -> Value:
    """With the sign of x; x where an integer is divided by 0."""
    safe = y if is_floating(x.dtype) else _safe(w, y)
    rest = w.elementwise("Mod", x, safe, fmod=1)
    return rest if safe is y else w.where(_is(w, y, 0), x, rest)


def _safe(w: Writer, y: Value) -> Value:
    """Integers to divide by: `y`, with 1 in the place of 0 and -1."""
    known = w.array_of(y)
    if known is not None and not np.isin(known, [0, -1]).any():
        return y
    wrong = _is(w, y, 0)
    if y.dtype.kind != "u":
        wrong = w.elementwise("Or", wrong, _is(w, y, -1))
    return w.where(wrong, w.like(y, 1), y)


def _is(w: Writer, x: Value, number: int) -> Value:
    return w.compare("Equal", x, w.like(x, number))


def _is_rounded_up(w: Writer, x: Value, y: Value) -> Value:
    rest = w.elementwise("Sub", x, w.elementwise("Mul", w.elementwise("Div", x, y), y))
    zero = w.like(x, 0)
    differ = w.elementwise("Xor", w.compare("Less", x, zero), w.compare("Less", y, zero))
    return w.elementwise("And", differ, w.invert(w.compare("Equal", rest, zero)))


def _floats_divided(w: Writer, x: Value, y: Value) -> Value:
    """As in NumPy: (x - x % y) / y, rounded, so that rounding of x / y does not matter."""
    rest = remainder(w, x, y)
    quotient = w.elementwise("Div", w.elementwise("Sub", x, rest), y)
    down = w.elementwise("Floor", quotient)
    above = w.compare("Greater", w.elementwise("Sub", quotient, down), w.like(x, 0.5))
    rounded = w.elementwise("Add", down, w.cast(above, x.dtype))
    known = w.array_of(y)
    if known is not None and (known != 0).all():
        return rounded
    return w.where(w.compare("Equal", y, w.like(y, 0)), w.elementwise("Div", x, y), rounded)
