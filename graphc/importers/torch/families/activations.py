"""Activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphc import ops
from graphc.importers.core.channels_first import beside
from graphc.importers.torch.call import Call, Rule
from graphc.importers.torch.families.elementwise import unary
from graphc.ops.elementwise import activation


def _gelu(call: Call, x: Any, *, approximate: str = "none") -> Any:
    return activation.gelu(x, approximate=approximate == "tanh")


def _elu(call: Call, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    negative = alpha * ops.expm1(ops.minimum(x, 0) * input_scale)
    return scale * ops.where(x > 0, x, negative)


def _celu(call: Call, x: Any, alpha: float = 1.0) -> Any:
    return ops.maximum(x, 0) + ops.minimum(alpha * ops.expm1(x / alpha), 0)


def _softplus(call: Call, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    soft = ops.softplus(x * beta) / beta
    return ops.where(x * beta > threshold, x, soft)


def _prelu(call: Call, x: Any, weight: Any) -> Any:
    if weight.ndim == 1 and weight.shape != (1,) and x.ndim > 1:
        weight = beside(weight, x)
    return ops.where(x > 0, x, weight * x)


def _threshold(call: Call, x: Any, threshold: float, value: float) -> Any:
    return ops.where(x > threshold, x, call.tensor(value, call.dtype))


def _softshrink(call: Call, x: Any, lambd: float = 0.5) -> Any:
    return ops.where(x > lambd, x - lambd, ops.where(x < -lambd, x + lambd, ops.zeros_like(x)))


def _hardshrink(call: Call, x: Any, lambd: float = 0.5) -> Any:
    return ops.where(ops.abs(x) > lambd, x, ops.zeros_like(x))


def _softmax(function: Callable[..., Any]) -> Rule:
    def rule(call: Call, x: Any, dim: int, half_to_float: Any = None, dtype: Any = None) -> Any:
        wide = call.own(x)
        if wide.ndim:
            return function(wide, axis=dim)
        return ops.reshape(function(ops.reshape(wide, (1,)), axis=0), ())

    return rule


def _glu(call: Call, x: Any, dim: int = -1) -> Any:
    a, b = ops.split(x, 2, axis=dim)
    return a * ops.sigmoid(b)


def _logit(call: Call, x: Any, eps: float | None = None) -> Any:
    x = call.own(x)
    return ops.logit(x if eps is None else ops.clip(x, eps, 1 - eps))


_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "hardswish": lambda x: x * ops.clip(x + 3, 0, 6) / 6,
    "log_sigmoid": lambda x: -ops.softplus(-x),
    "mish": lambda x: x * ops.tanh(ops.softplus(x)),
    "relu": activation.relu,
    "relu6": lambda x: ops.clip(x, 0, 6),
    "sigmoid": ops.sigmoid,
    "silu": activation.silu,
    "tanh": ops.tanh,
}

RULES: Final[dict[str, Rule]] = {
    **{f"aten.{name}.default": unary(function) for name, function in _UNARY.items()},
    "aten._log_softmax.default": _softmax(activation.log_softmax),
    "aten._softmax.default": _softmax(activation.softmax),
    "aten.celu.default": _celu,
    "aten.elu.default": _elu,
    "aten.gelu.default": _gelu,
    "aten.glu.default": _glu,
    "aten.hardshrink.default": _hardshrink,
    "aten.hardsigmoid.default": lambda call, x: ops.clip(x + 3, 0, 6) / 6,
    "aten.hardtanh.default": lambda call, x, low=-1, high=1: ops.clip(x, low, high),
    "aten.leaky_relu.default": lambda call, x, slope=0.01: activation.leaky_relu(x, slope),
    "aten.log_softmax.int": _softmax(activation.log_softmax),
    "aten.logit.default": _logit,
    "aten.prelu.default": _prelu,
    "aten.selu.default": lambda call, x: _elu(call, x, 1.6732632423543772, 1.0507009873554805),
    "aten.softmax.int": _softmax(activation.softmax),
    "aten.softplus.default": _softplus,
    "aten.softshrink.default": _softshrink,
    "aten.threshold.default": _threshold,
}
