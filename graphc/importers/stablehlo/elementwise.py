"""Operations on elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.importers.stablehlo.operation import NotKnownError, Operation

Rule = Callable[..., Any]

_SAME: Mapping[str, Callable[..., Any]] = {
    "abs": lax.abs, "add": lax.add, "atan2": lax.atan2, "cbrt": lax.cbrt, "ceil": lax.ceil,
    "clamp": lax.clamp, "complex": lax.complex, "cosine": lax.cos, "count_leading_zeros": lax.clz,
    "divide": lax.div, "exponential": lax.exp, "exponential_minus_one": lax.expm1,
    "floor": lax.floor, "imag": lax.imag, "is_finite": lax.is_finite, "log": lax.log,
    "log_plus_one": lax.log1p, "logistic": lax.logistic, "maximum": lax.max, "minimum": lax.min,
    "multiply": lax.mul, "negate": lax.neg, "popcnt": lax.population_count, "power": lax.pow,
    "real": lax.real, "remainder": lax.rem, "rsqrt": lax.rsqrt, "select": lax.select,
    "shift_left": lax.shift_left, "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical, "sign": lax.sign, "sine": lax.sin,
    "sqrt": lax.sqrt, "subtract": lax.sub, "tan": lax.tan, "tanh": lax.tanh,
    "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor, "not": lax.bitwise_not,
}  # fmt: skip

# Operations of CHLO, which occur as composites, custom calls or operations.
CHLO: Mapping[str, Callable[..., Any]] = {
    "acos": lax.acos, "acosh": lax.acosh, "asin": lax.asin, "asinh": lax.asinh, "atan": lax.atan,
    "atanh": lax.atanh, "bessel_i1e": lax.bessel_i1e, "cosh": lax.cosh, "digamma": lax.digamma,
    "erf": lax.erf, "erf_inv": lax.erf_inv, "erfc": lax.erfc, "lgamma": lax.lgamma,
    "sinh": lax.sinh, "square": lax.square, "tan": lax.tan,
}  # fmt: skip

_COMPARE = {
    "EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge,
}  # fmt: skip


def _plain(function: Callable[..., Any]) -> Rule:
    return lambda op, *values: function(*values)


def _reduce_precision(op: Operation, x: Any) -> Any:
    return lax.reduce_precision(x, op.number("exponent_bits"), op.number("mantissa_bits"))


def _integer_power(op: Operation, x: Any, y: Any) -> Any:
    if np.issubdtype(jnp.result_type(y), np.integer):
        raise NotKnownError("stablehlo.power of integers")
    return lax.pow(x, y)


RULES: Mapping[str, Rule] = {
    **{f"stablehlo.{name}": _plain(function) for name, function in _SAME.items()},
    **{f"chlo.{name}": _plain(function) for name, function in CHLO.items()},
    "stablehlo.bitcast_convert": lambda op, x: lax.bitcast_convert_type(x, op.dtype),
    "stablehlo.compare": lambda op, x, y: _COMPARE[op.word("comparison_direction")](x, y),
    "stablehlo.convert": lambda op, x: lax.convert_element_type(x, op.dtype),
    "stablehlo.power": _integer_power,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.round_nearest_afz": lambda op, x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "stablehlo.round_nearest_even": lambda op, x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
}
