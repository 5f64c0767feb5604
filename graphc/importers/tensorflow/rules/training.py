"""The updates of optimisers, for graphs that hold a training step: choose its node as an output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc import ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.rules.state import assigned, variable_of
from graphc.importers.tensorflow.values import Value
from graphc.ir.node import Tensor

FAMILY = Family()


def _update(*names: str, kinds: str) -> Callable[[Callable[..., Tensor]], Callable[..., Any]]:
    """Registers an update for variables of both versions. The function returns the new value of
    the first variable, and assigns the others."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Any]:
        def rule(call: Call, target: Value, *rest: Any) -> Value:
            return assigned(call, variable_of(call, target), function(call, target, *rest))

        for name in names:
            FAMILY.rule(name, f"Resource{name}", kinds=kinds)(rule)
        return function

    return register


def _slot(call: Call, target: Value, value: Any) -> Tensor:
    return assigned(call, variable_of(call, target), value)


def _read(call: Call, target: Value) -> Tensor:
    return variable_of(call, target).read()


@_update("ApplyGradientDescent", kinds="vtt")
def gradient_descent(call: Call, var: Value, rate: Tensor, grad: Tensor) -> Tensor:
    return _read(call, var) - rate * grad


@_update("ApplyMomentum", kinds="vvttt")
def momentum(
    call: Call, var: Value, accum: Value, rate: Tensor, grad: Tensor, decay: Tensor
) -> Tensor:
    speed = _slot(call, accum, _read(call, accum) * decay + grad)
    if call.attr("use_nesterov", False):
        return _read(call, var) - (grad * rate + speed * decay * rate)
    return _read(call, var) - rate * speed


@_update("ApplyKerasMomentum", kinds="vvttt")
def keras_momentum(
    call: Call, var: Value, accum: Value, rate: Tensor, grad: Tensor, decay: Tensor
) -> Tensor:
    speed = _slot(call, accum, _read(call, accum) * decay - rate * grad)
    if call.attr("use_nesterov", False):
        return _read(call, var) + speed * decay - rate * grad
    return _read(call, var) + speed


@_update("ApplyAdagrad", kinds="vvtt")
def adagrad(call: Call, var: Value, accum: Value, rate: Tensor, grad: Tensor) -> Tensor:
    total = _read(call, accum)
    if call.attr("update_slots", True):
        total = _slot(call, accum, total + ops.square(grad))
    return _read(call, var) - rate * grad * ops.rsqrt(total)


@_update("ApplyAdagradV2", kinds="vvttt")
def adagrad_v2(
    call: Call, var: Value, accum: Value, rate: Tensor, epsilon: Tensor, grad: Tensor
) -> Tensor:
    total = _slot(call, accum, _read(call, accum) + ops.square(grad))
    return _read(call, var) - rate * grad / (ops.sqrt(total) + epsilon)


@_update("ApplyRMSProp", kinds="vvvttttt")
def rms_prop(
    call: Call, var: Value, ms: Value, mom: Value, rate: Tensor, rho: Tensor, momentum_: Tensor,
    epsilon: Tensor, grad: Tensor
) -> Tensor:  # fmt: skip
    mean = _read(call, ms)
    mean = _slot(call, ms, mean + (ops.square(grad) - mean) * (1 - rho))
    step = _read(call, mom) * momentum_ + rate * grad * ops.rsqrt(mean + epsilon)
    return _read(call, var) - _slot(call, mom, step)


@_update("ApplyAdam", kinds="vvvttttttt")
def adam(
    call: Call, var: Value, m: Value, v: Value, power1: Tensor, power2: Tensor, rate: Tensor,
    beta1: Tensor, beta2: Tensor, epsilon: Tensor, grad: Tensor
) -> Tensor:  # fmt: skip
    first, second = _read(call, m), _read(call, v)
    first = _slot(call, m, first + (grad - first) * (1 - beta1))
    second = _slot(call, v, second + (ops.square(grad) - second) * (1 - beta2))
    scale = rate * ops.sqrt(1 - power2) / (1 - power1)
    if call.attr("use_nesterov", False):
        first = first * beta1 + (1 - beta1) * grad
    return _read(call, var) - scale * first / (ops.sqrt(second) + epsilon)


@_update("ApplyAdadelta", kinds="vvvtttt")
def adadelta(
    call: Call, var: Value, accum: Value, accum_update: Value, rate: Tensor, rho: Tensor,
    epsilon: Tensor, grad: Tensor
) -> Tensor:  # fmt: skip
    total = _slot(call, accum, _read(call, accum) * rho + ops.square(grad) * (1 - rho))
    past = _read(call, accum_update)
    step = ops.sqrt(past + epsilon) * ops.rsqrt(total + epsilon) * grad
    _slot(call, accum_update, past * rho + ops.square(step) * (1 - rho))
    return _read(call, var) - rate * step
