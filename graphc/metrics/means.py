"""Means and sums of values over many batches."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.ir.node import Tensor
from graphc.metrics.base import SUM, Metric, ratio, same_shape, weighting
from graphc.ops.core.emit import cast, convert
from graphc.ops.elementwise.arithmetic import abs as absolute
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.elementwise.transcendental import exp
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike


def _weighted(values: Tensor, weight: Tensor) -> Tensor:
    """The sum of the values; those of weight 0 do not count, even if they are nan."""
    weight = cast(weight, SUM)
    products = where(equal(weight, 0), 0.0, values) * weight
    return reduce_sum(products)


class Mean(Metric):
    """The mean of values over all batches; nan before the first.

    Args:
        values: one value for each example, of any shape.
        weights: the weight of each value, such as a mask; values of weight 0 do not count.

    Raises:
        ShapeError: the weights have another shape.
        DTypeError: the weights are complex.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> mean = gc.metrics.Mean(x)
        >>> run([mean.update, mean.value], {x: [1.0, 2.0, 6.0]})
        [None, Array(3., dtype=float64)]
    """

    def __init__(
        self, values: TensorLike, *, weights: TensorLike | None = None, name: str = "mean"
    ) -> None:
        given = cast(values, SUM)
        self._build(name, lambda: self._batch(given, weights), self._result)

    def _batch(self, values: Tensor, weights: TensorLike | None) -> dict[str, Tensor]:
        weight = weighting(weights, values, type(self).__name__)
        return {"total": _weighted(values, weight), "count": reduce_sum(weight)}

    def _result(self, state: Mapping[str, Tensor]) -> Tensor:
        return ratio(state["total"], state["count"], float("nan"))


class Sum(Metric):
    """The sum of values over all batches, in float64.

    Args:
        values: values of any shape.
        weights: factors of the values; values of weight 0 do not count.

    Raises:
        ShapeError, DTypeError: as `Mean`.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> total = gc.metrics.Sum(x)
        >>> run([total.update, total.value], {x: [1.0, 2.0, 6.0]})
        [None, Array(9., dtype=float64)]
    """

    def __init__(
        self, values: TensorLike, *, weights: TensorLike | None = None, name: str = "sum"
    ) -> None:
        given = cast(values, SUM)
        self._build(
            name,
            lambda: {"total": _weighted(given, weighting(weights, given, "Sum"))},
            lambda state: state["total"],
        )


class MeanSquaredError(Mean):
    """The mean of squared differences over all elements of all batches; nan before the first.

    Args:
        labels: the true values.
        predictions: the model's values, of the same shape.
        weights: the weight of each element.

    Raises:
        ShapeError: the shapes differ.
        DTypeError: the weights are complex.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> error = gc.metrics.MeanSquaredError(labels=x, predictions=x + 2)
        >>> run([error.update, error.value], {x: [1.0, 2.0]})
        [None, Array(4., dtype=float64)]
    """

    def __init__(
        self,
        *,
        labels: TensorLike,
        predictions: TensorLike,
        weights: TensorLike | None = None,
        name: str = "mean_squared_error",
    ) -> None:
        difference = _difference(labels, predictions, "MeanSquaredError")
        super().__init__(difference * difference, weights=weights, name=name)


class MeanAbsoluteError(Mean):
    """The mean of absolute differences over all elements of all batches; nan before the first.

    Args and Raises: see `MeanSquaredError`.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> error = gc.metrics.MeanAbsoluteError(labels=x, predictions=x - 2)
        >>> run([error.update, error.value], {x: [1.0, 2.0]})
        [None, Array(2., dtype=float64)]
    """

    def __init__(
        self,
        *,
        labels: TensorLike,
        predictions: TensorLike,
        weights: TensorLike | None = None,
        name: str = "mean_absolute_error",
    ) -> None:
        difference = _difference(labels, predictions, "MeanAbsoluteError")
        super().__init__(absolute(difference), weights=weights, name=name)


def _difference(labels: TensorLike, predictions: TensorLike, what: str) -> Tensor:
    """In float64, where the difference of float32 values loses no bits that matter."""
    true, predicted = convert(labels), convert(predictions)
    same_shape(predicted, true, f"{what}: predictions")
    return cast(predicted, SUM) - cast(true, SUM)


class Perplexity(Mean):
    """exp(mean cross entropy per token) over all batches; nan before the first.

    Args:
        losses: the cross entropy of each token, in nats.
        weights: the weight of each token, such as a mask of padding.

    Raises:
        ShapeError: the weights have another shape.
        DTypeError: the weights are complex.

    Examples:
        >>> losses = gc.placeholder((None,), name="losses")
        >>> perplexity = gc.metrics.Perplexity(losses)
        >>> run([perplexity.update, perplexity.value], {losses: [0.0, 0.0]})
        [None, Array(1., dtype=float64)]
    """

    def __init__(
        self, losses: TensorLike, *, weights: TensorLike | None = None, name: str = "perplexity"
    ) -> None:
        super().__init__(losses, weights=weights, name=name)

    def _result(self, state: Mapping[str, Tensor]) -> Tensor:
        return exp(super()._result(state))
