"""Optimizers of ai.onnx.preview.training."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Rule


def _groups(call: Call, kinds: int) -> list[list[Any]]:
    """The tensors after the rate and the count: for each kind, one for each parameter."""
    tensors = [call.x(i) for i in range(2, len(call.inputs))]
    count = len(tensors) // kinds
    return [tensors[i * count : (i + 1) * count] for i in range(kinds)]


def _adagrad(call: Call) -> Any:
    rate, step = call.x(0), call.x(1)
    decayed = rate / (1 + ops.cast(step, rate.dtype) * call.attr("decay_factor", 0.0))
    xs, gradients, squares = _groups(call, 3)
    news, sums = [], []
    for x, g, h in zip(xs, gradients, squares, strict=True):
        g = g + call.attr("norm_coefficient", 0.0) * x
        total = h + g * g
        news.append(x - decayed * g / (ops.sqrt(total) + call.attr("epsilon", 0.0)))
        sums.append(total)
    return (*news, *sums)


def _adam(call: Call) -> Any:
    rate, step = call.x(0), call.x(1)
    alpha, beta = call.attr("alpha", 0.9), call.attr("beta", 0.999)
    count = ops.cast(step, rate.dtype)
    corrected = rate * ops.sqrt(1 - ops.power(beta, count)) / (1 - ops.power(alpha, count))
    used = ops.where(step > 0, corrected, rate)
    xs, gradients, firsts, seconds = _groups(call, 4)
    rows = []
    for x, g, v, h in zip(xs, gradients, firsts, seconds, strict=True):
        g = g + call.attr("norm_coefficient", 0.0) * x
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        x = x - used * v / (ops.sqrt(h) + call.attr("epsilon", 0.0))
        rows.append(((1 - call.attr("norm_coefficient_post", 0.0)) * x, v, h))
    return tuple(item for column in zip(*rows, strict=True) for item in column)


def _momentum(call: Call) -> Any:
    rate, step = call.x(0), call.x(1)
    alpha, nesterov = call.attr("alpha"), call.attr("mode") == "nesterov"
    beta = ops.where(step > 0, call.attr("beta"), 1.0)
    xs, gradients, velocities = _groups(call, 3)
    rows = []
    for x, g, v in zip(xs, gradients, velocities, strict=True):
        g = g + call.attr("norm_coefficient", 0.0) * x
        v = alpha * v + ops.cast(beta, g.dtype) * g
        rows.append((x - rate * (g + alpha * v if nesterov else v), v))
    return tuple(item for column in zip(*rows, strict=True) for item in column)


RULES: Final[dict[str, Rule]] = {"Adagrad": _adagrad, "Adam": _adam, "Momentum": _momentum}
