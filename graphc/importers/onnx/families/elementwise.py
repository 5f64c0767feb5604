"""Arithmetic, comparisons, bits, activations and casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import ml_dtypes
import numpy as np
from jax import numpy as jnp

import graphc.nn.functional.nonlinear as nonlinear
from graphc import ops
from graphc.importers.core.channels_first import beside
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.dtypes import STRING, dtype_of
from graphc.importers.onnx.values import is_dims
from graphc.ir.node import Tensor
from graphc.jaxpr.function import from_jax
from graphc.ops.elementwise import activation


def _unary(function: Callable[[Tensor], Any]) -> Rule:
    return lambda call: function(call.x())


def _binary(function: Callable[[Tensor, Tensor], Any]) -> Rule:
    """Older versions broadcast the second operand from an axis."""

    def rule(call: Call) -> Any:
        x, y = call.x(0), call.x(1)
        if call.version < 7 and call.attr("broadcast") and call.attr("axis") is not None:
            axis = call.attr("axis") % x.ndim
            y = ops.reshape(y, (*y.shape, *(1,) * (x.ndim - axis - y.ndim)))
        return function(x, y)

    return rule


def _variadic(function: Callable[[Tensor, Tensor], Any]) -> Rule:
    return lambda call: reduce(function, call.xs())


def _divide(x: Tensor, y: Tensor) -> Any:
    """Integers are divided towards zero."""
    if x.dtype.kind not in "iu":
        return ops.divide(x, y)
    if x.dtype.kind == "u":
        return ops.floor_divide(x, y)
    floor = ops.floor_divide(x, y)
    inexact = ops.not_equal(floor * y, x)
    return floor + ops.cast(ops.logical_and(inexact, ops.less(floor, 0)), x.dtype)


def _mod(call: Call) -> Any:
    x, y = call.x(0), call.x(1)
    return ops.fmod(x, y) if call.attr("fmod", 0) else ops.remainder(x, y)


def _power(x: Tensor, y: Tensor) -> Any:
    if x.dtype.kind in "iu" and y.dtype.kind in "iu":
        return ops.power(x, ops.cast(y, x.dtype))
    if x.dtype.kind in "iu":
        return ops.cast(ops.power(ops.cast(x, y.dtype), y), x.dtype)
    return ops.power(x, ops.cast(y, x.dtype))


def _mean(call: Call) -> Any:
    xs = call.xs()
    return reduce(ops.add, xs) / len(xs)


def _clip(call: Call) -> Any:
    x = call.x()
    if call.version < 11:
        low, high = call.attr("min"), call.attr("max")
    else:
        low, high = (call.x(i) if call.has(i) else None for i in (1, 2))
    for function, bound in ((ops.maximum, low), (ops.minimum, high)):
        if bound is not None:
            x = function(x, bound if isinstance(bound, Tensor) else ops.cast(bound, x.dtype))
    return x


def _shift(call: Call) -> Any:
    shift = ops.left_shift if call.attr("direction") == "LEFT" else ops.right_shift
    return shift(call.x(0), call.x(1))


def _is_inf(call: Call) -> Any:
    x = call.x()
    positive, negative = call.attr("detect_positive", 1), call.attr("detect_negative", 1)
    if positive and negative:
        return ops.isinf(x)
    if positive:
        return ops.isposinf(x)
    return ops.isneginf(x) if negative else ops.zeros_like(x, dtype="bool")


# -- activations -----------------------------------------------------------------------------


def _elu(call: Call) -> Any:
    x, alpha = call.x(), call.attr("alpha", 1.0)
    return ops.where(x > 0, x, alpha * ops.expm1(ops.minimum(x, 0)))


def _selu(call: Call) -> Any:
    x = call.x()
    alpha, gamma = (
        call.attr("alpha", 1.67326319217681884765625),
        call.attr("gamma", 1.05070102214813232),
    )
    return gamma * ops.where(x > 0, x, alpha * ops.expm1(ops.minimum(x, 0)))


def _celu(call: Call) -> Any:
    x, alpha = call.x(), call.attr("alpha", 1.0)
    return ops.maximum(x, 0) + ops.minimum(alpha * ops.expm1(x / alpha), 0)


def _hard_sigmoid(call: Call) -> Any:
    return ops.clip(call.x() * call.attr("alpha", 0.2) + call.attr("beta", 0.5), 0, 1)


def _hard_swish(call: Call) -> Any:
    x = call.x()
    return x * ops.clip(x / 6 + 0.5, 0, 1)


def _prelu(call: Call) -> Any:
    x, slope = call.x(0), call.x(1)
    if call.version < 7 and slope.ndim == 1 and x.ndim > 1:
        slope = beside(slope, x)
    return ops.where(x < 0, x * slope, x)


def _thresholded(call: Call) -> Any:
    x = call.x()
    return ops.where(x > call.attr("alpha", 1.0), x, ops.zeros_like(x))


def _shrink(call: Call) -> Any:
    x, lambd, bias = call.x(), call.attr("lambd", 0.5), call.attr("bias", 0.0)
    zero = ops.zeros_like(x)
    return ops.where(x < -lambd, x + bias, ops.where(x > lambd, x - bias, zero))


def _gelu(call: Call) -> Any:
    return activation.gelu(call.x(), approximate=call.attr("approximate", "none") == "tanh")


def _swish(call: Call) -> Any:
    x = call.x()
    return x * ops.sigmoid(x * call.attr("alpha", 1.0))


def _softmax(function: Callable[..., Any]) -> Rule:
    """Before version 13, all axes from `axis` on are one."""

    def rule(call: Call) -> Any:
        x = call.x()
        if call.version >= 13:
            return function(x, axis=call.attr("axis", -1))
        axis = call.attr("axis", 1) % max(x.ndim, 1)
        if axis >= x.ndim - 1:
            return function(x, axis=-1)
        flat = ops.reshape(x, (*x.shape[:axis], -1))
        return ops.reshape(function(flat, axis=-1), x.shape)

    return rule


def _hardmax(call: Call) -> Any:
    x = call.x()
    if call.version >= 13:
        axis = call.attr("axis", -1) % x.ndim
        return ops.one_hot(ops.argmax(x, axis=axis), x.shape[axis], x.dtype, axis=axis)
    axis = call.attr("axis", 1) % x.ndim
    flat = ops.reshape(x, (*x.shape[:axis], -1))
    hot = ops.one_hot(ops.argmax(flat, axis=-1), flat.shape[-1], x.dtype)
    return ops.reshape(hot, x.shape)


# -- casts -----------------------------------------------------------------------------------


def cast_to(x: Tensor, dtype: np.dtype[Any], saturate: bool) -> Any:
    """As JAX casts, except that floats become float8 saturated, and integers of 4 bits wrap."""
    is_float8 = dtype.name.startswith("float8")
    if is_float8 and x.dtype.kind in "fV":
        return from_jax(lambda v: _to_float8(v, dtype, saturate), name="Cast")(x)
    if dtype.name in ("int4", "uint4") and x.dtype.kind == "f":
        return from_jax(lambda v: jnp.asarray(v, jnp.int32).astype(dtype), name="Cast")(x)
    return ops.cast(x, dtype)


def _to_float8(x: Any, dtype: Any, saturate: bool) -> Any:
    wide = x.astype(jnp.float32)
    info: Any = ml_dtypes.finfo
    largest = float(info(dtype).max)
    if saturate:
        inside = jnp.clip(wide, -largest, largest)
        return jnp.where(jnp.isnan(wide), jnp.nan, inside).astype(dtype)
    return wide.astype(dtype)


def _cast(call: Call) -> Any:
    to = call.attr("to")
    if isinstance(to, str):
        raise Refused("of version 1 names its type in words, which is not supported")
    if to == STRING:
        raise Refused("to strings is only computed at import", needs=True)
    if is_dims(call.inputs[0]) and to == 7:
        return call.inputs[0]
    return cast_to(call.x(), dtype_of(to), bool(call.attr("saturate", 1)))


def _cast_like(call: Call) -> Any:
    like = call.inputs[1]
    if isinstance(like, np.ndarray) and like.dtype == object:
        raise Refused("to strings is only computed at import", needs=True)
    return cast_to(call.x(), call.x(1).dtype, bool(call.attr("saturate", 1)))


def _bitcast(call: Call) -> Any:
    x, dtype = call.x(), dtype_of(call.attr("to"))
    if x.dtype.kind == "b":
        x = ops.cast(x, "uint8")
    return ops.not_equal(x, 0) if dtype.kind == "b" else ops.bitcast(x, dtype)


def _identity(call: Call) -> Any:
    value = call.inputs[0]
    return value  # also a sequence, an optional value, or sizes


RULES: Final[dict[str, Rule]] = {
    "Abs": _unary(ops.abs),
    "Acos": _unary(ops.arccos),
    "Acosh": _unary(ops.arccosh),
    "Add": _binary(ops.add),
    "And": _binary(ops.logical_and),
    "Asin": _unary(ops.arcsin),
    "Asinh": _unary(ops.arcsinh),
    "Atan": _unary(ops.arctan),
    "Atanh": _unary(ops.arctanh),
    "BitCast": _bitcast,
    "BitShift": _shift,
    "BitwiseAnd": _binary(ops.bitwise_and),
    "BitwiseNot": _unary(ops.bitwise_not),
    "BitwiseOr": _binary(ops.bitwise_or),
    "BitwiseXor": _binary(ops.bitwise_xor),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _unary(ops.ceil),
    "Celu": _celu,
    "Clip": _clip,
    "Cos": _unary(ops.cos),
    "Cosh": _unary(ops.cosh),
    "Div": _binary(_divide),
    "Elu": _elu,
    "Equal": _binary(ops.equal),
    "Erf": _unary(ops.erf),
    "Exp": _unary(ops.exp),
    "Floor": _unary(ops.floor),
    "Gelu": _gelu,
    "Greater": _binary(ops.greater),
    "GreaterOrEqual": _binary(ops.greater_equal),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Hardmax": _hardmax,
    "Identity": _identity,
    "IsInf": _is_inf,
    "IsNaN": _unary(ops.isnan),
    "LeakyRelu": lambda call: activation.leaky_relu(call.x(), call.attr("alpha", 0.01)),
    "Less": _binary(ops.less),
    "LessOrEqual": _binary(ops.less_equal),
    "Log": _unary(ops.log),
    "LogSoftmax": _softmax(activation.log_softmax),
    "Max": _variadic(ops.maximum),
    "Mean": _mean,
    "Min": _variadic(ops.minimum),
    "Mish": _unary(nonlinear.mish),
    "Mod": _mod,
    "Mul": _binary(ops.multiply),
    "Neg": _unary(ops.negative),
    "Not": _unary(ops.logical_not),
    "Or": _binary(ops.logical_or),
    "PRelu": _prelu,
    "Pow": _binary(_power),
    "Reciprocal": _unary(ops.reciprocal),
    "Relu": _unary(activation.relu),
    "Round": _unary(ops.rint),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _unary(ops.sigmoid),
    "Sign": _unary(ops.sign),
    "Sin": _unary(ops.sin),
    "Sinh": _unary(ops.sinh),
    "Softmax": _softmax(activation.softmax),
    "Softplus": _unary(ops.softplus),
    "Softsign": lambda call: call.x() / (1 + ops.abs(call.x())),
    "Sqrt": _unary(ops.sqrt),
    "Sub": _binary(ops.subtract),
    "Sum": _variadic(ops.add),
    "Swish": _swish,
    "Tan": _unary(ops.tan),
    "Tanh": _unary(ops.tanh),
    "ThresholdedRelu": _thresholded,
    "Where": lambda call: ops.where(call.x(0), call.x(1), call.x(2)),
    "Xor": _binary(ops.logical_xor),
}
