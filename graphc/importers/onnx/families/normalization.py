"""Normalization."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.core.channels_first import beside
from graphc.importers.onnx.call import Call, Rule
from graphc.importers.onnx.values import WeightRef
from graphc.ir.node import Tensor
from graphc.ir.scopes import current_graph
from graphc.nn.layers.normalization import UPDATES
from graphc.ops.nn.normalization import moments
from graphc.ops.random import uniform


def _batch_norm(call: Call) -> Any:
    x, scale, bias, mean, variance = (call.x(i) for i in range(5))
    epsilon = call.attr("epsilon", 1e-5)
    training = call.attr("training_mode", 0) if call.version >= 14 else 0
    if not training:
        return (_normalized(x, mean, variance, scale, bias, epsilon),)
    own_mean, own_variance = moments(ops.cast(x, mean.dtype), (0, *range(2, x.ndim)))
    momentum = call.attr("momentum", 0.9)
    new = [
        old * momentum + ops.cast(own, old.dtype) * (1 - momentum)
        for old, own in ((mean, own_mean), (variance, own_variance))
    ]
    _assign(call, new)
    return (_normalized(x, own_mean, own_variance, scale, bias, epsilon), *new)


def _assign(call: Call, new: list[Any]) -> None:
    """The moving averages are variables of the model: a training step assigns them."""
    graph = current_graph()
    for number, value in zip((3, 4), new, strict=True):
        given = call.inputs[number]
        if isinstance(given, WeightRef) and graph.parent is None:
            graph.add_to_collection(UPDATES, call.weight(given.name).assign(value))


def _normalized(
    x: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, bias: Tensor, epsilon: float
) -> Any:
    factor = ops.rsqrt(variance + epsilon) * ops.cast(scale, variance.dtype)
    y = (ops.cast(x, mean.dtype) - beside(mean, x)) * beside(factor, x)
    return ops.cast(y + beside(ops.cast(bias, y.dtype), x), x.dtype)


def _moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """The mean and the variance along axes, which stay, in the dtype of x."""
    mean, variance = moments(x, axes, keepdims=True)
    return ops.cast(mean, x.dtype), ops.cast(variance, x.dtype)


def _instance_norm(call: Call) -> Any:
    x, scale, bias = (call.x(i) for i in range(3))
    mean, variance = _moments(x, tuple(range(2, x.ndim)))
    y = (x - mean) * ops.rsqrt(variance + call.attr("epsilon", 1e-5))
    return y * beside(scale, x) + beside(bias, x)


def _layer_norm(call: Call) -> Any:
    x, scale = call.x(0), call.x(1)
    axis = call.attr("axis", -1) % x.ndim
    wide = ops.cast(x, "float32") if call.attr("stash_type", 1) == 1 and x.dtype.itemsize < 4 else x
    mean, variance = _moments(wide, tuple(range(axis, x.ndim)))
    inverse = ops.rsqrt(variance + call.attr("epsilon", 1e-5))
    y = ops.cast((wide - mean) * inverse, x.dtype) * scale
    return (y + call.x(2) if call.has(2) else y), mean, inverse


def _rms_norm(call: Call) -> Any:
    x, scale = call.x(0), call.x(1)
    axis = call.attr("axis", -1) % x.ndim
    wide = ops.cast(x, "float32") if call.attr("stash_type", 1) == 1 and x.dtype.itemsize < 4 else x
    square = ops.reduce_mean(ops.square(wide), axis=tuple(range(axis, x.ndim)), keepdims=True)
    return ops.cast(wide * ops.rsqrt(square + call.attr("epsilon", 1e-5)), x.dtype) * scale


def _group_norm(call: Call) -> Any:
    x, scale, bias = (call.x(i) for i in range(3))
    groups = call.attr("num_groups")
    batch, channels = x.shape[:2]
    apart = ops.reshape(x, (batch, groups, channels // groups, *x.shape[2:]))
    wide = ops.cast(apart, "float32") if x.dtype.itemsize < 4 else apart
    mean, variance = _moments(wide, tuple(range(2, apart.ndim)))
    y = ops.cast((wide - mean) * ops.rsqrt(variance + call.attr("epsilon", 1e-5)), x.dtype)
    if call.version < 21:  # a scale for each group
        shape = (groups, *(1,) * (apart.ndim - 2))
        return ops.reshape(y * ops.reshape(scale, shape) + ops.reshape(bias, shape), x.shape)
    return ops.reshape(y, x.shape) * beside(scale, x) + beside(bias, x)


def _mean_variance(call: Call) -> Any:
    x = call.x()
    axes = tuple(call.attr("axes") or [0, 2, 3])
    mean, variance = _moments(x, axes)
    return (x - mean) / ops.sqrt(variance + 1e-9)


def _lp_norm(call: Call) -> Any:
    x, axis, p = call.x(), call.attr("axis", -1), call.attr("p", 2)
    size = ops.abs(x) if p == 1 else ops.square(x)
    total = ops.reduce_sum(size, axis=axis, keepdims=True)
    norm = total if p == 1 else ops.sqrt(total)
    return divided(x, norm)


def divided(x: Any, norm: Any) -> Any:
    """x / norm, and 0 where the norm is 0."""
    none = ops.equal(norm, 0)
    return ops.where(none, ops.zeros_like(x), x / ops.where(none, ops.ones_like(norm), norm))


def _lrn(call: Call) -> Any:
    x, size = call.x(), call.attr("size")
    alpha, beta, bias = call.attr("alpha", 1e-4), call.attr("beta", 0.75), call.attr("bias", 1.0)
    low = (size - 1) // 2
    squares = ops.pad(ops.square(x), [(0, 0), (low, size - 1 - low), *[(0, 0)] * (x.ndim - 2)])
    channels = x.shape[1]
    total = sum((squares[:, i : i + channels] for i in range(1, size)), squares[:, :channels])
    return x / ops.power(bias + alpha / size * total, beta)


def _dropout(call: Call) -> Any:
    x = call.x()
    kept = ops.ones_like(x, dtype="bool") if call.version >= 10 else ops.ones_like(x)
    if call.version < 12:
        training, ratio = False, call.attr("ratio", 0.5)
    else:
        training = bool(call.need(2, "whether it trains").reshape(-1)[0]) if call.has(2) else False
        ratio = float(call.need(1, "the ratio").reshape(-1)[0]) if call.has(1) else 0.5
    if not training or ratio == 0:
        return x, kept
    kept = uniform(x.shape, dtype="float32") >= ratio
    return ops.where(kept, x / (1 - ratio), ops.zeros_like(x)), kept


RULES: Final[dict[str, Rule]] = {
    "BatchNormalization": _batch_norm,
    "Dropout": _dropout,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_norm,
}
