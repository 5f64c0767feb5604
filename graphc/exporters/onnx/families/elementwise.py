"""Operators on elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.families.division import floor_divide, fmod, remainder
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import BOOL, Writer
from graphc.ir.dtypes import is_integer


def same(op: str) -> Rule:
    """A rule: ONNX has the same operator."""
    return lambda c: c.w.elementwise(op, *c.xs)


def comparison(op: str) -> Rule:
    """A rule: a comparison."""
    return lambda c: c.w.compare(op, *c.xs)


def negated(op: str) -> Rule:
    """A rule: the opposite of a comparison."""
    return lambda c: c.w.invert(c.w.compare(op, *c.xs))


def unary(function: Callable[[Writer, Value], Value]) -> Rule:
    """A rule that is written with other operators of one operand."""
    return lambda c: function(c.w, c.xs[0])


def binary(function: Callable[[Writer, Value, Value], Value]) -> Rule:
    """A rule that is written with other operators of two operands."""
    return lambda c: function(c.w, *c.xs)


def _logical(op: str, bitwise: str) -> Rule:
    """On bools, or on the bits of integers."""
    return lambda c: c.w.elementwise(op if c.xs[0].dtype == BOOL else bitwise, *c.xs)


# -- arithmetic ----------------------------------------------------------------------------------


def _clip(c: Call) -> Value:
    x, low, high = c.xs
    if low.rank == high.rank == 0:
        return c.w.elementwise("Clip", x, low, high)
    return c.w.elementwise("Min", c.w.elementwise("Max", x, low), high)


def _integer_power(c: Call) -> Value:
    x = c.xs[0]
    return c.w.elementwise("Pow", x, c.w.like(x, c.attrs["exponent"]))


def square(w: Writer, x: Value) -> Value:
    """x * x."""
    return w.elementwise("Mul", x, x)


def rsqrt(w: Writer, x: Value) -> Value:
    """1 / sqrt(x)."""
    return w.elementwise("Reciprocal", w.elementwise("Sqrt", x))


def _whole(op: str) -> Rule:
    return lambda c: c.xs[0] if is_integer(c.xs[0].dtype) else c.w.elementwise(op, c.xs[0])


def _is_finite(w: Writer, x: Value) -> Value:
    """x - x is 0 for finite numbers, otherwise NaN."""
    return w.compare("Equal", w.elementwise("Sub", x, x), w.like(x, 0))


# -- functions -----------------------------------------------------------------------------------


def expm1(w: Writer, x: Value) -> Value:
    """tanh(x / 2) (exp(x) + 1), which is exact near 0; -1 and infinity far from it."""
    near = w.elementwise(
        "Mul",
        w.elementwise("Tanh", w.number("Mul", x, 0.5)),
        w.number("Add", w.elementwise("Exp", x), 1),
    )
    far = w.number("Sub", w.elementwise("Exp", x), 1)
    is_far = w.compare("Greater", w.elementwise("Abs", x), w.like(x, 1))
    return w.where(is_far, far, near)


def log1p(w: Writer, x: Value) -> Value:
    """log(u) x / (u - 1) for u = 1 + x, and x where u is 1. Source: Kahan, HP-15C, 1982."""
    u = w.number("Add", x, 1)
    gap = w.number("Sub", u, 1)
    log = w.elementwise("Log", u)
    one = w.like(x, 1)
    is_one = w.compare("Equal", u, one)
    scaled = w.elementwise("Div", w.elementwise("Mul", log, x), w.where(is_one, one, gap))
    infinite = w.compare("Equal", x, w.like(x, math.inf))
    return w.where(is_one, x, w.where(infinite, x, scaled))


def softplus(w: Writer, x: Value) -> Value:
    """max(x, 0) + log1p(exp(-|x|)), which keeps the digits of small results."""
    small = log1p(w, w.elementwise("Exp", w.elementwise("Neg", w.elementwise("Abs", x))))
    return w.elementwise("Add", w.number("Max", x, 0), small)


def log_add_exp(w: Writer, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)), from the larger one."""
    largest = w.elementwise("Max", x, y)
    gap = w.elementwise("Abs", w.elementwise("Sub", x, y))
    small = log1p(w, w.elementwise("Exp", w.elementwise("Neg", gap)))
    total = w.elementwise("Add", largest, small)
    # Of two infinities of one sign, the difference is not a number.
    return w.where(w.compare("Equal", x, y), w.number("Add", x, math.log(2)), total)


def _atan2(w: Writer, y: Value, x: Value) -> Value:
    zero, pi = w.like(x, 0), w.like(x, np.pi)
    at_zero = w.compare("Equal", x, zero)
    slope = w.elementwise("Div", y, w.where(at_zero, w.like(x, 1), x))
    angle = w.elementwise("Atan", slope)
    below = w.compare("Less", y, zero)
    turned = w.elementwise("Add", angle, w.where(below, w.elementwise("Neg", pi), pi))
    side = w.where(w.compare("Less", x, zero), turned, angle)
    sign = w.elementwise("Sign", y)
    return w.where(at_zero, w.elementwise("Mul", sign, w.like(x, np.pi / 2)), side)


def _hypot(w: Writer, x: Value, y: Value) -> Value:
    """Scaled by the larger one, so that squares do not overflow."""
    a, b = w.elementwise("Abs", x), w.elementwise("Abs", y)
    high, low = w.elementwise("Max", a, b), w.elementwise("Min", a, b)
    zero = w.compare("Equal", high, w.like(x, 0))
    ratio = w.elementwise("Div", low, w.where(zero, w.like(x, 1), high))
    root = w.elementwise("Sqrt", w.number("Add", square(w, ratio), 1))
    return w.elementwise("Mul", high, root)


def _cbrt(w: Writer, x: Value) -> Value:
    root = w.number("Pow", w.elementwise("Abs", x), 1 / 3)
    return w.elementwise("Mul", w.elementwise("Sign", x), root)


def _sinc(w: Writer, x: Value) -> Value:
    zero = w.compare("Equal", x, w.like(x, 0))
    angle = w.number("Mul", w.where(zero, w.like(x, 1), x), np.pi)
    return w.where(zero, w.like(x, 1), w.elementwise("Div", w.elementwise("Sin", angle), angle))


def _zero_times(log: Callable[[Writer, Value], Value]) -> Rule:
    """x log(y), and 0 where x is 0."""

    def rule(c: Call) -> Value:
        x, y = c.xs
        zero = c.w.like(x, 0)
        return c.w.where(
            c.w.compare("Equal", x, zero), zero, c.w.elementwise("Mul", x, log(c.w, y))
        )

    return rule


def _relu(w: Writer, x: Value) -> Value:
    # Runtimes have kernels for few integers, and ONNX takes no unsigned ones.
    return w.number("Max", x, 0) if is_integer(x.dtype) else w.elementwise("Relu", x)


def _sign_bit(w: Writer, x: Value) -> Value:
    """1 / -0.0 is negative."""
    if is_integer(x.dtype):
        return w.compare("Less", x, w.like(x, 0))
    reciprocal = w.elementwise("Reciprocal", x)
    return w.elementwise(
        "Or", w.compare("Less", x, w.like(x, 0)), w.compare("Less", reciprocal, w.like(x, 0))
    )


def _shift(direction: str) -> Rule:
    """Shifts by all bits or more give 0, or -1 for negative numbers shifted right."""

    def rule(c: Call) -> Value:
        x, n = c.xs
        bits = 8 * x.dtype.itemsize
        unsigned = np.dtype(f"uint{bits}")
        amount = c.w.cast(n, unsigned)
        wide = c.w.compare("Less", amount, c.w.constant(bits, unsigned))
        small = c.w.where(wide, amount, c.w.constant(bits - 1, unsigned))
        moved = _moved(c.w, x, small, direction)
        if direction == "RIGHT" and x.dtype.kind == "i":
            return moved  # its sign is all that is left
        return c.w.where(wide, moved, c.w.like(x, 0))

    return rule


def _moved(w: Writer, x: Value, amount: Value, direction: str) -> Value:
    unsigned = amount.dtype
    if x.dtype.kind == "u":
        return w.elementwise("BitShift", x, amount, direction=direction)
    if direction == "LEFT":
        bits = w.elementwise("BitShift", w.cast(x, unsigned), amount, direction=direction)
        return w.cast(bits, x.dtype)
    # For negative x: ~(~x >> n).
    negative = w.compare("Less", x, w.like(x, 0))
    flipped = w.elementwise("Sub", w.like(x, -1), x)
    positive = w.cast(w.where(negative, flipped, x), unsigned)
    moved = w.cast(w.elementwise("BitShift", positive, amount, direction=direction), x.dtype)
    return w.where(negative, w.elementwise("Sub", w.like(x, -1), moved), moved)


def _logical_not(c: Call) -> Value:
    x = c.xs[0]
    return c.w.elementwise("Not" if x.dtype == BOOL else "BitwiseNot", x)


# -- activations ---------------------------------------------------------------------------------


def _gelu(c: Call) -> Value:
    x, w = c.xs[0], c.w
    approximate = c.attrs["approximate"]
    if w.shared.schemas.has("Gelu"):
        return w.elementwise("Gelu", x, approximate="tanh" if approximate else "none")
    if approximate:
        cube = w.number("Mul", w.elementwise("Mul", square(w, x), x), 0.044715)
        inner = w.number("Mul", w.elementwise("Add", x, cube), math.sqrt(2 / math.pi))
        share = w.number("Add", w.elementwise("Tanh", inner), 1)
    else:
        share = w.number("Add", w.elementwise("Erf", w.number("Mul", x, math.sqrt(0.5))), 1)
    return w.number("Mul", w.elementwise("Mul", x, share), 0.5)


def _elu(c: Call) -> Value:
    x, w, alpha = c.xs[0], c.w, c.attrs["alpha"]
    below = w.number("Mul", expm1(w, w.number("Min", x, 0)), alpha)
    return w.where(w.compare("Greater", x, w.like(x, 0)), x, below)


def _cast(c: Call) -> Value:
    x, dtype, w = c.xs[0], np.dtype(c.attrs["dtype"]), c.w
    if dtype == BOOL:
        return w.invert(w.compare("Equal", x, w.like(x, 0)))
    return w.cast(x, dtype)


def _exp2(w: Writer, x: Value) -> Value:
    return w.elementwise("Pow", w.like(x, 2), x)


_SAME: Final = {
    "Abs": "Abs",
    "Acos": "Acos",
    "Acosh": "Acosh",
    "Add": "Add",
    "Asin": "Asin",
    "Asinh": "Asinh",
    "Atan": "Atan",
    "Atanh": "Atanh",
    "Cos": "Cos",
    "Cosh": "Cosh",
    "Divide": "Div",
    "Erf": "Erf",
    "Exp": "Exp",
    "Log": "Log",
    "Maximum": "Max",
    "Minimum": "Min",
    "Multiply": "Mul",
    "Negative": "Neg",
    "Power": "Pow",
    "Reciprocal": "Reciprocal",
    "Sigmoid": "Sigmoid",
    "Sign": "Sign",
    "Sin": "Sin",
    "Sinh": "Sinh",
    "Sqrt": "Sqrt",
    "Subtract": "Sub",
    "Tan": "Tan",
    "Tanh": "Tanh",
}

RULES: Final[dict[str, Rule]] = {
    **{name: same(op) for name, op in _SAME.items()},
    "Atan2": binary(_atan2),
    "Cast": _cast,
    "Cbrt": unary(_cbrt),
    "Ceil": _whole("Ceil"),
    "Clip": _clip,
    "Elu": _elu,
    "Equal": comparison("Equal"),
    "Erfc": unary(lambda w, x: w.elementwise("Sub", w.like(x, 1), w.elementwise("Erf", x))),
    "Exp2": unary(_exp2),
    "Expm1": unary(expm1),
    "Floor": _whole("Floor"),
    "FloorDivide": binary(floor_divide),
    "Fmod": binary(fmod),
    "Gelu": _gelu,
    "Greater": comparison("Greater"),
    "GreaterEqual": comparison("GreaterOrEqual"),
    "Hypot": binary(_hypot),
    "IntegerPower": _integer_power,
    "IsFinite": unary(_is_finite),
    "IsNan": unary(lambda w, x: w.elementwise("IsNaN", x, dtype=BOOL)),
    "Ldexp": binary(lambda w, x, n: w.elementwise("Mul", x, _exp2(w, w.cast(n, x.dtype)))),
    "LeakyRelu": lambda c: c.w.elementwise("LeakyRelu", c.xs[0], alpha=float(c.attrs["alpha"])),
    "LeftShift": _shift("LEFT"),
    "Less": comparison("Less"),
    "LessEqual": comparison("LessOrEqual"),
    "Log1p": unary(log1p),
    "LogAddExp": binary(log_add_exp),
    "LogicalAnd": _logical("And", "BitwiseAnd"),
    "LogicalNot": _logical_not,
    "LogicalOr": _logical("Or", "BitwiseOr"),
    "LogicalXor": _logical("Xor", "BitwiseXor"),
    "NotEqual": negated("Equal"),
    "Relu": unary(_relu),
    "Remainder": binary(remainder),
    "RightShift": _shift("RIGHT"),
    "Round": lambda c: c.xs[0] if is_integer(c.xs[0].dtype) else c.w.elementwise("Round", c.xs[0]),
    "Rsqrt": unary(rsqrt),
    "SignBit": unary(_sign_bit),
    "Silu": unary(lambda w, x: w.elementwise("Mul", x, w.elementwise("Sigmoid", x))),
    "Sinc": unary(_sinc),
    "Softplus": unary(softplus),
    "Square": unary(square),
    "Where": lambda c: c.w.where(*c.xs),
    "Xlog1py": _zero_times(log1p),
    "Xlogy": _zero_times(lambda w, x: w.elementwise("Log", x)),
}
