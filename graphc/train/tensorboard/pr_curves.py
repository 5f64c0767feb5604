"""Precision and recall of a binary classifier at evenly spaced thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.train.tensorboard.protos import protos
from graphc.train.tensorboard.summaries import numbers, summary
from graphc.train.tensorboard.values import Array, Values, host_copy

_LEAST = 1e-7  # in place of a divisor of 0


def pr_table(labels: Values, predictions: Values, weights: Values | None, count: int) -> Array:
    """The numbers of a curve, float32 [6, count]: true positives, false positives, true negatives,
    false negatives, precision, recall. An example is positive if its prediction is at least the
    threshold.

    Raises:
        ShapeError: the shapes differ.
        DTypeError: the labels are neither bools nor 0 and 1.
        AttributeValueError: a prediction is outside [0, 1], or a weight is negative or not finite.
    """
    positive, scores, weight = _checked(labels, predictions, weights)
    bins = np.searchsorted(np.linspace(0.0, 1.0, count), scores, side="right") - 1
    hits = np.bincount(bins[positive], weights=weight[positive], minlength=count)
    misses = np.bincount(bins[~positive], weights=weight[~positive], minlength=count)
    true = hits[::-1].cumsum(dtype=np.float64)[::-1]
    false = misses[::-1].cumsum(dtype=np.float64)[::-1]
    table = np.stack([true, false, false[0] - false, true[0] - true, true, true])
    table[4] /= np.maximum(_LEAST, true + false)
    table[5] /= np.maximum(_LEAST, true[0])
    return table.astype(np.float32)


def _checked(
    labels: Values, predictions: Values, weights: Values | None
) -> tuple[Array, Array, Array]:
    given = host_copy("pr_curve", labels)
    scores = host_copy("pr_curve", predictions).astype(np.float64)
    weight = np.ones(()) if weights is None else host_copy("pr_curve", weights).astype(np.float64)
    if given.shape != scores.shape:
        raise ShapeError.here(
            f"SummaryWriter.pr_curve: labels {given.shape} and predictions {scores.shape} must "
            "have the same shape",
            hint="one label and one probability for each example",
        )
    try:
        weight = np.broadcast_to(weight, scores.shape)
    except ValueError:
        raise ShapeError.here(
            f"SummaryWriter.pr_curve: weights {weight.shape} do not broadcast to {scores.shape}"
        ) from None
    if not np.all((given == 0) | (given == 1)):
        raise DTypeError.here(
            "SummaryWriter.pr_curve: labels must be bools, or 0 and 1",
            hint="for one class of several: labels == index",
        )
    if not np.all((scores >= 0) & (scores <= 1)):
        raise AttributeValueError.here(
            "SummaryWriter.pr_curve: predictions must be probabilities from 0 to 1, without NaN",
            hint="gc.sigmoid(logits) gives probabilities",
        )
    if not np.all((weight >= 0) & np.isfinite(weight)):
        raise AttributeValueError.here(
            "SummaryWriter.pr_curve: weights must be finite and at least 0"
        )
    return given.reshape(-1).astype(bool), scores.reshape(-1), weight.reshape(-1)


def pr_curve(tag: str, table: Array, description: str) -> Any:
    """The curve, for TensorBoard's view of PR curves."""
    message = protos().pr_curve.PrCurvePluginData
    content = message(version=0, num_thresholds=table.shape[1]).SerializeToString()
    return summary(tag, numbers(table), "pr_curves", content, description)
