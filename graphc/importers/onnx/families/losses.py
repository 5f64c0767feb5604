"""Losses."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Rule
from graphc.ir.node import Tensor
from graphc.ops.elementwise.activation import log_softmax


def _nll(call: Call, log_probabilities: Tensor, labels: Tensor, weights: Tensor | None) -> Any:
    """The negative log-likelihood; classes are in the second axis."""
    ignored = call.attr("ignore_index")
    kept = None
    if ignored is not None:
        kept = ops.not_equal(labels, ignored)
        labels = ops.where(kept, labels, ops.zeros_like(labels))
    picked = ops.take_along_axis(log_probabilities, ops.expand_dims(labels, 1), axis=1)
    loss = -ops.squeeze(picked, 1)
    share: Any = ops.ones_like(loss) if weights is None else ops.take(weights, labels)
    share = ops.cast(share, loss.dtype)
    if kept is not None:
        share = ops.where(kept, share, ops.zeros_like(share))
    loss = loss * share
    kind = call.attr("reduction", "mean")
    if kind == "none":
        return loss
    total = ops.reduce_sum(loss)
    return total / ops.reduce_sum(share) if kind == "mean" else total


def _negative_log_likelihood(call: Call) -> Any:
    return _nll(call, call.x(0), call.x(1), call.x(2) if call.has(2) else None)


def _softmax_cross_entropy(call: Call) -> Any:
    logs = log_softmax(call.x(0), axis=1)
    return _nll(call, logs, call.x(1), call.x(2) if call.has(2) else None), logs


RULES: Final[dict[str, Rule]] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
