"""Rules of elementwise primitives."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np

from graphc.ir.dtypes import is_integer
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Results, Rule
from graphc.jaxpr.primitives import primitive
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.core.emit import emit_one, to_dtype
from graphc.ops.elementwise import arithmetic, comparison, powers, rounding, transcendental
from graphc.ops.elementwise.bits import bitcast, right_shift
from graphc.ops.elementwise.floats import fmod

# Primitives for operands of one dtype. graphc's operators also broadcast.
# These have an operator of the same name in CamelCase: IsFinite for is_finite.
_SAME = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e",
    "bessel_i1e", "cbrt", "ceil", "complex", "conj", "cos", "cosh", "digamma", "erf", "erf_inv",
    "erfc", "exp", "exp2", "expm1", "floor", "igamma", "igamma_grad_a", "igammac", "imag",
    "is_finite", "lgamma", "log", "log1p", "polygamma", "population_count", "real", "rsqrt",
    "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "tan", "tanh", "zeta",
)  # fmt: skip
_RENAMED: Mapping[str, str] = {
    "add_any": "Add",
    "and": "LogicalAnd",
    "clz": "LeadingZeros",
    "eq": "Equal",
    "ge": "GreaterEqual",
    "gt": "Greater",
    "le": "LessEqual",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Maximum",
    "min": "Minimum",
    "mul": "Multiply",
    "ne": "NotEqual",
    "neg": "Negative",
    "nextafter": "NextAfter",
    "not": "LogicalNot",
    "or": "LogicalOr",
    "regularized_incomplete_beta": "Betainc",
    "rem": "Fmod",
    "sub": "Subtract",
    "xor": "LogicalXor",
}

_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _operator(name: str) -> Rule:
    op = CATALOGUE[name]
    return lambda eqn, *operands: emit_one(op, operands)


def _identity(eqn: Equation, *operands: Tensor) -> tuple[Tensor, ...]:
    return operands


def _select(eqn: Equation, which: Tensor, *cases: Tensor) -> Tensor:
    """The case that `which` selects (a bool, or an int32 in range)."""
    if which.dtype.kind == "b":
        return comparison.where(which, *cases[::-1])
    result = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        result = comparison.where(comparison.less_equal(which, i), cases[i], result)
    return result


def _power(eqn: Equation, x: Tensor, y: Tensor) -> Tensor:
    # An integer exponent of a floating base is converted, as JAX's own lowering does.
    return emit_one(CATALOGUE["Power"], (x, to_dtype(y, x.dtype)))


def _integer_power(eqn: Equation, x: Tensor) -> Tensor:
    exponent = int(eqn.params["y"])
    if exponent == 2:
        return powers.square(x)
    return emit_one(CATALOGUE["IntegerPower"], (x,), exponent=exponent)


def _divide(eqn: Equation, x: Tensor, y: Tensor) -> Tensor:
    if not is_integer(x.dtype):
        return emit_one(CATALOGUE["Divide"], (x, y))
    if x.dtype.kind == "u":
        return arithmetic.floor_divide(x, y)
    # JAX rounds towards zero, graphc rounds down. By zero both give -1 where x is 0.
    return arithmetic.floor_divide(x - fmod(x, y), y)


def _round(eqn: Equation, x: Tensor) -> Tensor:
    if int(eqn.params["rounding_method"]) == 1:  # lax.RoundingMethod.TO_NEAREST_EVEN
        return emit_one(CATALOGUE["Round"], (x,))
    size = arithmetic.abs(x)
    whole = rounding.floor(size)
    up = to_dtype(comparison.greater_equal(size - whole, 0.5), x.dtype)
    return arithmetic.sign(x) * (whole + up)


def _reduce_precision(eqn: Equation, x: Tensor) -> Tensor:
    names = ("exponent_bits", "mantissa_bits")
    bits: dict[str, Any] = {name: int(eqn.params[name]) for name in names}
    return emit_one(CATALOGUE["ReducePrecision"], (x,), **bits)


def _polynomial(eqn: Equation, x: Tensor, *coefficients: Tensor) -> Tensor:
    """Evaluates a polynomial by Horner's rule. The first coefficient is the constant term."""
    result = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
    return result


def _shift_right(dtypes: Mapping[int, Any]) -> Rule:
    """A shift of integers as those of other dtypes, by the size of an element."""

    def rule(eqn: Equation, x: Tensor, n: Tensor) -> Tensor:
        dtype = dtypes[x.dtype.itemsize]
        return bitcast(right_shift(bitcast(x, dtype), bitcast(n, dtype)), x.dtype)

    return rule


def _bitcast(eqn: Equation, x: Tensor) -> Results:
    # Between dtypes of different widths the shape changes.
    return bitcast(x, eqn.type.dtype) if eqn.type.shape == x.shape else primitive(eqn, x)


def _device_put(eqn: Equation, *operands: Tensor) -> tuple[Tensor, ...]:
    if any(device is not None for device in eqn.params["devices"]):
        eqn.refuse(
            "placement in a JAX function is not imported",
            "place with gc.device, or run under a strategy",
        )
    return operands


RULES: dict[str, Rule] = {
    **{name: _operator("".join(map(str.capitalize, name.split("_")))) for name in _SAME},
    **{primitive: _operator(name) for primitive, name in _RENAMED.items()},
    "bitcast_convert_type": _bitcast,
    "clamp": lambda eqn, low, x, high: emit_one(CATALOGUE["Clip"], (x, low, high)),
    "convert_element_type": lambda eqn, x: to_dtype(x, eqn.type.dtype),
    "copy": _identity,
    "copy_p": _identity,
    "div": _divide,
    "device_put": _device_put,
    "integer_pow": _integer_power,
    "log2": lambda eqn, x: transcendental.log(x) / log(2.0),
    "name": _identity,
    "one_minus_square": lambda eqn, x: (1 - x) * (1 + x),  # also exact near 1
    "optimization_barrier": _identity,
    "polynomial": _polynomial,
    "pow": _power,
    "reduce_precision": _reduce_precision,
    "round": _round,
    "select_n": _select,
    "shift_left": _operator("LeftShift"),
    "shift_right_arithmetic": _shift_right(_SIGNED),
    "shift_right_logical": _shift_right(_UNSIGNED),
}
