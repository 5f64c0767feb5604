"""The area under the ROC and precision-recall curves, by thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.metrics.base import SUM, Metric, ratio, same_shape, weighting
from graphc.ops.arrays.joining import concat
from graphc.ops.arrays.shape import expand_dims, reshape
from graphc.ops.core.emit import cast, constant, convert
from graphc.ops.elementwise.comparison import equal, greater, greater_equal, logical_or, where
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike


class AUC(Metric):
    """The area under the ROC curve, or the average precision, by thresholds.

    Positives and negatives are counted at `thresholds` scores at equal distances from 0 to 1. The
    value is exactly that of `sklearn.metrics.roc_auc_score` or `average_precision_score` if
    there is a threshold between any two different predictions. Otherwise predictions that no
    threshold separates count as equal. The value is nan unless there are positives, and, for ROC,
    negatives.

    Args:
        labels: true for positives: bools or numbers.
        predictions: probabilities; values outside [0, 1] count as the nearest end.
        weights: the weight of each example.
        curve: "ROC" or "PR".
        thresholds: how many thresholds; an update costs examples x thresholds comparisons.

    Raises:
        AttributeValueError: the curve or the number of thresholds is not valid.
        ShapeError: the shapes differ.
        DTypeError: the weights are complex.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> auc = gc.metrics.AUC(labels=x > 0.5, predictions=x)
        >>> run([auc.update, auc.value], {x: [0.1, 0.9]})
        [None, Array(1., dtype=float64)]
    """

    def __init__(
        self,
        *,
        labels: TensorLike,
        predictions: TensorLike,
        weights: TensorLike | None = None,
        curve: Literal["ROC", "PR"] = "ROC",
        thresholds: int = 200,
        name: str = "auc",
    ) -> None:
        if curve not in ("ROC", "PR") or type(thresholds) is not int or thresholds < 2:
            raise AttributeValueError.here(
                f"AUC: no curve {curve!r} with {thresholds!r} thresholds",
                hint='pass curve="ROC" or "PR", and at least 2 thresholds',
            )
        true, scores = convert(labels), cast(predictions, "float32")
        same_shape(scores, true, "AUC: predictions")

        def batch() -> dict[str, Tensor]:
            weight = reshape(weighting(weights, true, "AUC"), (-1,))
            zero = cast(0, weight.dtype)
            limits = np.linspace(0, 1, thresholds, dtype=np.float32)
            column = expand_dims(reshape(scores, (-1,)), -1)
            # All examples are at or above the first threshold, those below 0 and nan too.
            above = logical_or(greater_equal(column, limits), np.arange(thresholds) == 0)
            positive = greater(reshape(true, (-1,)), 0)
            parts = {
                "positives": where(positive, weight, zero),
                "negatives": where(positive, zero, weight),
            }
            return {
                key: reduce_sum(where(above, expand_dims(part, -1), zero), 0)
                for key, part in parts.items()
            }

        self._build(name, batch, _roc if curve == "ROC" else _precision_recall)


def _steps(state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positives and negatives at or above each threshold, and those at or above the next one."""
    both = [cast(state[key], SUM) for key in ("positives", "negatives")]
    end = constant(np.zeros(1), SUM)
    after = [concat([each[1:], end], 0) for each in both]
    return both[0], both[1], after[0], after[1]


def _roc(state: Mapping[str, Tensor]) -> Tensor:
    tp, fp, next_tp, next_fp = _steps(state)
    area = reduce_sum((fp - next_fp) * (tp + next_tp)) / 2
    return ratio(area, tp[0] * fp[0], float("nan"))


def _precision_recall(state: Mapping[str, Tensor]) -> Tensor:
    tp, fp, next_tp, _ = _steps(state)
    area = reduce_sum((tp - next_tp) * ratio(tp, tp + fp, 0.0))
    # 0/0 is nan, and no positives give 0 here
    return where(equal(tp[0], 0), constant(float("nan"), SUM), ratio(area, tp[0], float("nan")))
