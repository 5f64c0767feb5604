"""Shares of examples that are predicted right."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.dtypes import is_inexact
from graphc.ir.node import Tensor
from graphc.metrics.base import COUNT, Metric, ratio, same_shape, weighting
from graphc.ops.arrays.along_axis import take_along_axis
from graphc.ops.arrays.creation import arange
from graphc.ops.arrays.shape import expand_dims
from graphc.ops.core.emit import cast, convert
from graphc.ops.elementwise.comparison import equal, greater, greater_equal, less, logical_and
from graphc.ops.reductions.axiswise import argmax
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike


class Accuracy(Metric):
    """The share of examples whose predicted class is the true one; nan before the first.

    Predictions with one axis more than integer labels are scores [..., classes]: the class of the
    highest counts, the first of several. Labels and predictions both [..., classes] with
    `dense=True` are compared by their highest entries. Otherwise they are compared element by
    element: floating predictions as `predictions >= threshold`, others as classes.

    Args:
        labels: the true classes, or one-hot rows with `dense=True`.
        predictions: scores, classes or probabilities.
        weights: the weight of each example.
        threshold: for binary predictions that are floating.
        dense: whether labels are one-hot rows.

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: the labels of classes are floating, or the weights are complex.

    Examples:
        >>> scores = gc.placeholder((None, 3), name="scores")
        >>> accuracy = gc.metrics.Accuracy(labels=[0, 2], predictions=scores)
        >>> run([accuracy.update, accuracy.value], {scores: [[9, 1, 1], [1, 9, 1]]})
        [None, Array(0.5, dtype=float64)]
    """

    def __init__(
        self,
        *,
        labels: TensorLike,
        predictions: TensorLike,
        weights: TensorLike | None = None,
        threshold: float = 0.5,
        dense: bool = False,
        name: str = "accuracy",
    ) -> None:
        true, predicted = convert(labels), convert(predictions)

        def right() -> Tensor:
            if dense:
                same_shape(predicted, true, "Accuracy: predictions")
                return equal(argmax(predicted, -1), argmax(true, -1))
            if len(predicted.shape) == len(true.shape) + 1:
                return equal(argmax(predicted, -1), cast(classes(true, "Accuracy"), "int32"))
            same_shape(predicted, true, "Accuracy: predictions")
            if is_inexact(predicted.dtype):
                return equal(greater_equal(predicted, threshold), greater(true, 0))
            return equal(cast(predicted, COUNT), cast(true, COUNT))

        self._build(name, lambda: _right(right, weights, "Accuracy"), _share)


class TopK(Metric):
    """The share of examples whose true class is among the `k` highest scores.

    A class counts as high if fewer than `k` others score higher, or as high with a lower number.
    A score of the true class that is nan is wrong. The value is nan before the first example.

    Args:
        labels: the true classes, integers [...].
        predictions: scores [..., classes].
        k: how many classes count.
        weights: the weight of each example.

    Raises:
        AttributeValueError: k is not a positive int.
        ShapeError: the shapes do not fit.
        DTypeError: the labels are floating, or the weights are complex.

    Examples:
        >>> scores = gc.placeholder((None, 3), name="scores")
        >>> top = gc.metrics.TopK(labels=[0, 1], predictions=scores, k=2)
        >>> run([top.update, top.value], {scores: [[9, 1, 2], [3, 1, 2]]})
        [None, Array(0.5, dtype=float64)]
    """

    def __init__(
        self,
        *,
        labels: TensorLike,
        predictions: TensorLike,
        k: int = 5,
        weights: TensorLike | None = None,
        name: str = "top_k",
    ) -> None:
        if type(k) is not int or k < 1:
            raise AttributeValueError.here(
                f"TopK: k must be a positive int, got {k!r}",
                hint="pass the number of classes that count, such as 5",
            )
        true, scores = classes(convert(labels), "TopK"), convert(predictions)
        self._build(name, lambda: _right(lambda: _among(true, scores, k), weights, "TopK"), _share)


def _among(true: Tensor, scores: Tensor, k: int) -> Tensor:
    same_shape(scores[..., 0], true, "TopK: predictions without their last axis")
    at = expand_dims(cast(true, "int32"), -1)
    own = take_along_axis(scores, at, -1)
    count = scores.shape[-1]
    before = logical_and(equal(scores, own), less(arange(count), at))
    ahead = reduce_sum(cast(greater(scores, own), "int32") + cast(before, "int32"), -1)
    return logical_and(less(ahead, k), equal(own[..., 0], own[..., 0]))


def classes(labels: Tensor, what: str) -> Tensor:
    """Labels that number classes.

    Raises:
        DTypeError: they are floating or complex.
    """
    if is_inexact(labels.dtype):
        raise DTypeError.here(
            f"{what}: labels must be integers, got {labels.type}",
            hint='convert them: gc.cast(labels, "int32")',
        )
    return labels


def _right(right: Callable[[], Tensor], weights: TensorLike | None, what: str) -> dict[str, Tensor]:
    hit = right()
    weight = weighting(weights, hit, what)
    return {
        "right": reduce_sum(cast(hit, weight.dtype) * weight),
        "count": reduce_sum(weight),
    }


def _share(state: Mapping[str, Tensor]) -> Tensor:
    return ratio(state["right"], state["count"], float("nan"))
