"""Losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphc import ops
from graphc.importers.core.channels_first import beside
from graphc.importers.torch.call import Call, Rule
from graphc.importers.torch.families.slopes import magnitude
from graphc.ir.dtypes import is_floating
from graphc.ops.elementwise.activation import log_softmax

_NONE, _MEAN, _SUM = range(3)  # how PyTorch counts reductions


def _reduced(loss: Any, reduction: int) -> Any:
    if reduction == _NONE:
        return loss
    return ops.reduce_mean(loss) if reduction == _MEAN else ops.reduce_sum(loss)


def _nll(
    call: Call, x: Any, target: Any, weight: Any = None, reduction: int = _MEAN, ignore: int = -100
) -> Any:
    """The negative log-likelihood; classes are in the second axis, or the only one."""
    axis = 0 if x.ndim == 1 else 1
    kept = ops.not_equal(target, ignore)
    safe = ops.where(kept, target, ops.zeros_like(target))
    picked = ops.take_along_axis(x, ops.expand_dims(safe, axis), axis=axis)
    share: Any = ops.cast(kept, x.dtype)
    if weight is not None:
        share = share * ops.take(weight, safe)
    loss = -ops.squeeze(picked, axis) * share
    if reduction == _MEAN:
        return ops.reduce_sum(loss) / ops.reduce_sum(share)
    return _reduced(loss, reduction)


def _nll_forward(call: Call, *args: Any) -> Any:
    return _nll(call, *args), None


def _cross_entropy(
    call: Call,
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: int = _MEAN,
    ignore: int = -100,
    smoothing: float = 0.0,
) -> Any:
    axis = 0 if x.ndim == 1 else 1
    logs = log_softmax(x, axis=axis)
    if is_floating(target.dtype):
        return _of_probabilities(logs, target, weight, reduction, smoothing)
    loss = _nll(call, logs, target, weight, reduction, ignore)
    if not smoothing:
        return loss
    kept: Any = ops.cast(ops.not_equal(target, ignore), x.dtype)
    spread = -ops.reduce_sum(_weighted(logs, weight), axis=axis) * kept / x.shape[axis]
    if reduction == _MEAN:
        if weight is not None:
            kept = kept * ops.take(weight, ops.where(kept > 0, target, ops.zeros_like(target)))
        spread = ops.reduce_sum(spread) / ops.reduce_sum(kept)
    else:
        spread = _reduced(spread, reduction)
    return (1 - smoothing) * loss + smoothing * spread


def _of_probabilities(logs: Any, target: Any, weight: Any, reduction: int, smoothing: float) -> Any:
    """Cross-entropy with a probability for each class; the mean is one over the examples."""
    axis = 0 if logs.ndim == 1 else 1
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logs.shape[axis]
    return _reduced(-ops.reduce_sum(_weighted(logs, weight) * target, axis=axis), reduction)


def _weighted(logs: Any, weight: Any) -> Any:
    """`logs` times the weights of the classes."""
    if weight is None:
        return logs
    return logs * (weight if logs.ndim == 1 else beside(weight, logs))


def _pointwise(function: Callable[..., Any]) -> Rule:
    """A loss of each element `(x, target, *options)`, reduced."""

    def rule(call: Call, x: Any, target: Any, reduction: int = _MEAN, *options: Any) -> Any:
        return _reduced(function(x, target, *options), reduction)

    return rule


def _smooth(x: Any, y: Any, beta: float = 1.0) -> Any:
    away = magnitude(x - y)
    if beta == 0:
        return away
    return ops.where(away < beta, 0.5 * ops.square(away) / beta, away - 0.5 * beta)


def _huber(x: Any, y: Any, delta: float = 1.0) -> Any:
    away = ops.abs(x - y)
    return ops.where(away <= delta, 0.5 * ops.square(away), delta * (away - 0.5 * delta))


def _binary(call: Call, x: Any, y: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    edge = ops.less(x * (1 - x), 1e-12)  # its slope is limited there
    safe = ops.where(edge, ops.zeros_like(x) + 0.5, x)
    inside = -(y * ops.log(safe) + (1 - y) * ops.log(1 - safe))
    fixed = ops.stop_gradient(x)
    logs = [ops.maximum(ops.log(v), -100.0) for v in (fixed, 1 - fixed)]
    slope = ops.stop_gradient((fixed - y) / 1e-12)
    outside = -(y * logs[0] + (1 - y) * logs[1]) + slope * (x - fixed)
    loss = ops.where(edge, outside, inside)
    return _reduced(loss if weight is None else loss * weight, reduction)


def _binary_logits(
    call: Call, x: Any, y: Any, weight: Any = None, positive: Any = None, reduction: int = _MEAN
) -> Any:
    share: Any = 1.0 if positive is None else (positive - 1) * y + 1
    loss = (1 - y) * x + share * ops.softplus(-x)
    return _reduced(loss if weight is None else loss * weight, reduction)


def _kl(call: Call, x: Any, y: Any, reduction: int = _MEAN, *, log_target: bool = False) -> Any:
    if log_target:
        return _reduced(ops.exp(y) * (y - x), reduction)
    return _reduced(ops.xlogy(y, y) - y * x, reduction)


RULES: Final[dict[str, Rule]] = {
    "aten.binary_cross_entropy.default": _binary,
    "aten.binary_cross_entropy_with_logits.default": _binary_logits,
    "aten.cross_entropy_loss.default": _cross_entropy,
    "aten.huber_loss.default": _pointwise(_huber),
    "aten.kl_div.default": _kl,
    "aten.l1_loss.default": _pointwise(lambda x, y: magnitude(x - y)),
    "aten.mse_loss.default": _pointwise(lambda x, y: ops.square(x - y)),
    "aten.nll_loss.default": _nll,
    "aten.nll_loss2d.default": _nll,
    "aten.nll_loss2d_forward.default": _nll_forward,
    "aten.nll_loss_forward.default": _nll_forward,
    "aten.nll_loss_nd.default": _nll,
    "aten.smooth_l1_loss.default": _pointwise(_smooth),
    "aten.soft_margin_loss.default": _pointwise(lambda x, y: ops.softplus(-x * y)),
}
