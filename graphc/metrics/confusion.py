"""Metrics computed from a confusion matrix: counts of (true class, predicted class)."""

from __future__ import annotations

from typing import Literal

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import is_inexact
from graphc.ir.node import Tensor
from graphc.metrics.base import SUM, Metric, ratio, same_shape, weighting
from graphc.metrics.classification import classes
from graphc.ops.arrays.along_axis import one_hot
from graphc.ops.arrays.creation import arange
from graphc.ops.arrays.shape import expand_dims, reshape
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.emit import cast, convert
from graphc.ops.elementwise.comparison import greater, greater_equal, where
from graphc.ops.reductions.axiswise import argmax
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike

Average = Literal["binary", "macro", "micro", "weighted"]
AVERAGES = ("binary", "macro", "micro", "weighted")


class _FromConfusion(Metric):
    """The state is a matrix; subclasses say what the value is."""

    def __init__(
        self,
        *,
        labels: TensorLike,
        predictions: TensorLike,
        num_classes: int = 2,
        weights: TensorLike | None = None,
        threshold: float = 0.5,
        name: str | None = None,
    ) -> None:
        what = type(self).__name__
        if type(num_classes) is not int or num_classes < 2:
            raise AttributeValueError.here(
                f"{what}: num_classes must be an int of at least 2, got {num_classes!r}",
                hint="pass the number of classes, such as 10",
            )
        true, predicted = classes(convert(labels), what), convert(predictions)

        def batch() -> dict[str, Tensor]:
            found = _chosen(predicted, true, threshold, what)
            weight = weighting(weights, true, what)
            return {"counts": _counted(true, found, weight, num_classes)}

        self._build(name or what.lower(), batch, lambda state: self._result(state["counts"]))

    def _result(self, counts: Tensor) -> Tensor:
        return cast(counts, SUM)


def _chosen(predicted: Tensor, true: Tensor, threshold: float, what: str) -> Tensor:
    """The predicted classes, of scores [..., classes], binary probabilities or classes."""
    if len(predicted.shape) == len(true.shape) + 1:
        return argmax(predicted, -1)
    same_shape(predicted, true, f"{what}: predictions")
    return greater_equal(predicted, threshold) if is_inexact(predicted.dtype) else predicted


def _counted(true: Tensor, found: Tensor, weight: Tensor, number: int) -> Tensor:
    """The matrix of one batch [true, predicted], in the weights' dtype."""
    flat = [reshape(cast(each, "int32"), (-1,)) for each in (true, found)]
    rows, columns = (one_hot(each, number, "bool") for each in flat)
    scaled = where(rows, expand_dims(reshape(weight, (-1,)), -1), cast(0, weight.dtype))
    hits = [
        reduce_sum(where(columns[:, i : i + 1], scaled, cast(0, weight.dtype)), 0)
        for i in range(number)
    ]
    return stack(hits, 1)


class ConfusionMatrix(_FromConfusion):
    """Counts of examples [num_classes, num_classes]: rows are true classes, columns predicted.

    Examples whose label or prediction is no class from 0 to num_classes - 1 are left out.

    Args:
        labels: the true classes, integers or bools.
        predictions: classes, scores [..., classes], or binary probabilities.
        num_classes: how many classes there are.
        weights: the weight of each example.
        threshold: for binary probabilities.

    Raises:
        AttributeValueError: num_classes is not valid.
        ShapeError: the shapes do not fit.
        DTypeError: the labels are floating, or the weights are complex.

    Examples:
        >>> x = gc.placeholder((None,), "int32", name="x")
        >>> matrix = gc.metrics.ConfusionMatrix(labels=x, predictions=1 - x)
        >>> run([matrix.update, matrix.value], {x: [0, 1, 1]})[1]
        Array([[0., 1.],
               [2., 0.]], dtype=float64)
    """


class MeanIoU(_FromConfusion):
    """The mean of intersection over union over the classes that occur; nan if none does.

    Arguments and errors are those of `gc.metrics.ConfusionMatrix`.

    Examples:
        >>> x = gc.placeholder((None,), "int32", name="x")
        >>> iou = gc.metrics.MeanIoU(labels=x, predictions=x, num_classes=3)
        >>> run([iou.update, iou.value], {x: [0, 1, 1]})
        [None, Array(1., dtype=float64)]
    """

    def _result(self, counts: Tensor) -> Tensor:
        hits, predicted, true = _parts(counts)
        union = predicted + true - hits
        share = ratio(hits, union, 0.0)
        return ratio(reduce_sum(share), reduce_sum(cast(greater(union, 0), SUM)), float("nan"))


class _Averaged(_FromConfusion):
    """A score of each class, averaged over the classes."""

    def __init__(
        self,
        *,
        labels: TensorLike,
        predictions: TensorLike,
        num_classes: int = 2,
        average: Average = "binary",
        weights: TensorLike | None = None,
        threshold: float = 0.5,
        name: str | None = None,
    ) -> None:
        what = type(self).__name__
        if average not in AVERAGES or (average == "binary" and num_classes != 2):
            raise AttributeValueError.here(
                f"{what}: average {average!r} does not go with {num_classes} classes",
                hint='pass average="macro", "micro" or "weighted"',
            )
        self._average = average
        super().__init__(
            labels=labels,
            predictions=predictions,
            num_classes=num_classes,
            weights=weights,
            threshold=threshold,
            name=name,
        )

    def _result(self, counts: Tensor) -> Tensor:
        hits, predicted, true = _parts(counts)
        if self._average == "micro":
            return self._score(reduce_sum(hits), reduce_sum(predicted), reduce_sum(true))
        each = self._score(hits, predicted, true)
        if self._average == "binary":
            return each[1]
        if self._average == "weighted":
            return ratio(reduce_sum(each * true), reduce_sum(true), 0.0)
        occurs = cast(greater(predicted + true, 0), SUM)
        return ratio(reduce_sum(each * occurs), reduce_sum(occurs), 0.0)

    def _score(self, hits: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
        raise NotImplementedError


class Precision(_Averaged):
    """The share of examples predicted as a class that are of it; 0 if none is predicted.

    `average` is as in scikit-learn: "binary" is the score of class 1; "macro" the mean over the
    classes that occur in labels or predictions; "weighted" weighs them by their true examples;
    "micro" counts over all classes. The other arguments are those of `gc.metrics.ConfusionMatrix`.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> precision = gc.metrics.Precision(labels=x > 0.7, predictions=x)
        >>> run([precision.update, precision.value], {x: [0.6, 0.8]})
        [None, Array(0.5, dtype=float64)]
    """

    def _score(self, hits: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
        return ratio(hits, predicted, 0.0)


class Recall(_Averaged):
    """The share of examples of a class that are predicted as it; 0 if there are none.

    Arguments are those of `gc.metrics.Precision`.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> recall = gc.metrics.Recall(labels=x > 0.2, predictions=x)
        >>> run([recall.update, recall.value], {x: [0.3, 0.8]})
        [None, Array(0.5, dtype=float64)]
    """

    def _score(self, hits: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
        return ratio(hits, true, 0.0)


class F1(_Averaged):
    """The harmonic mean of precision and recall; 0 if both are.

    Arguments are those of `gc.metrics.Precision`.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> f1 = gc.metrics.F1(labels=x > 0.2, predictions=x)
        >>> run([f1.update, f1.value], {x: [0.3, 0.8]})[1].round(4)
        Array(0.6667, dtype=float64)
    """

    def _score(self, hits: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
        return ratio(2 * hits, predicted + true, 0.0)


def _parts(counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each class: how often it is right, predicted, and true."""
    counts = cast(counts, SUM)
    number = counts.shape[0]
    hits = reduce_sum(where(one_hot(arange(number), number, "bool"), counts, 0.0), 0)
    return hits, reduce_sum(counts, 0), reduce_sum(counts, 1)
