"""Layers that act in training only: dropout and noise."""

from __future__ import annotations

from typing import Any

from graphc.ir.node import Tensor
from graphc.ir.variable import Variable
from graphc.nn.layers.intervals import NOT_NEGATIVE, RATE, within
from graphc.nn.layers.layer import Layer, check_rank, check_training
from graphc.ops.arrays.creation import ones
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.core.operands import as_floating
from graphc.ops.draws.dropout import dropout
from graphc.ops.draws.location_scale import normal
from graphc.ops.elementwise.comparison import where
from graphc.typing import TensorLike

__all__ = ["Dropout", "GaussianNoise", "SpatialDropout"]


class _InTraining(Layer):
    """A layer that changes its input in training only."""

    def __call__(self, x: TensorLike, training: bool | Tensor | None = None) -> Tensor:
        with self.scope(x):
            tensor = self._taken(x)
            in_training = check_training(self, training)
            if in_training is False:
                return tensor
            changed = self._changed(tensor)
            return changed if in_training is True else where(in_training, changed, tensor)

    def _taken(self, x: Any) -> Tensor:
        """The checked input."""
        return as_floating(self, "x", x)

    def _changed(self, x: Tensor) -> Tensor:
        """The result in training."""
        raise NotImplementedError


class Dropout(_InTraining):
    """In training, sets elements to zero at random and divides the others by `1 - rate`.

    Args:
        rate: the probability of a zero, in [0, 1): a number or a scalar tensor.
        name: see `Layer`.

    Calling it takes `x` of any shape, and `training`, a bool or a scalar tensor of bool. It gives
    the shape and dtype of `x`.

    Raises:
        AttributeValueError: the rate is out of range, or `training` is not a bool.

    Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting",
    2014.

    Examples:
        >>> dropped = gc.nn.Dropout(0.5)(gc.ones(100), training=True)
        >>> sorted(set(run(dropped).tolist()))
        [0.0, 2.0]
    """

    def __init__(self, rate: float | Tensor | Variable, name: str | None = None) -> None:
        super().__init__(name)
        self.rate: Any = within("Dropout", "rate", rate, RATE, tensors=True)

    def _taken(self, x: Any) -> Tensor:
        return convert(x)

    def _changed(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate)


class SpatialDropout(_InTraining):
    """In training, sets whole features of an example to zero and divides the others by `1 - rate`.

    Adjacent elements of an image or a sequence are similar, so `Dropout` of single elements has
    little effect on them.

    Args:
        rate: the probability of a zero, in [0, 1): a number or a scalar tensor.
        name: see `Layer`.

    Calling it takes `x` [batch, ..., features], floating, with any number of axes between, and
    `training`, a bool or a scalar tensor of bool. It gives the shape of `x`.

    Raises:
        AttributeValueError: the rate is out of range, or `training` is not a bool.
        ShapeError: `x` has no axes between batch and features.
        DTypeError: `x` is not floating.

    Source: Tompson et al., "Efficient object localization using convolutional networks", 2015.

    Examples:
        >>> dropped = run(gc.nn.SpatialDropout(0.5)(gc.ones((8, 10, 16)), training=True))
        >>> bool((dropped == dropped[:, :1]).all())  # each feature is kept or dropped as a whole
        True
    """

    def __init__(self, rate: float | Tensor | Variable, name: str | None = None) -> None:
        super().__init__(name)
        self.rate: Any = within("SpatialDropout", "rate", rate, RATE, tensors=True)

    def _taken(self, x: Any) -> Tensor:
        tensor = super()._taken(x)
        check_rank(self, tensor, range(3, 100), "[batch, ..., features] (rank 3 or more)")
        return tensor

    def _changed(self, x: Tensor) -> Tensor:
        between = (1,) * (x.ndim - 2)
        return x * dropout(ones((x.shape[0], *between, x.shape[-1]), x.dtype), self.rate)


class GaussianNoise(_InTraining):
    """In training, adds normal random numbers with mean 0.

    Args:
        stddev: their standard deviation, 0 or more: a number or a scalar tensor.
        name: see `Layer`.

    Calling it takes `x`, floating, and `training`, a bool or a scalar tensor of bool. It gives the
    shape and dtype of `x`.

    Raises:
        AttributeValueError: the deviation is negative, or `training` is not a bool.
        DTypeError: `x` is not floating.

    Examples:
        >>> noisy = run(gc.nn.GaussianNoise(0.1)(gc.ones(10_000), training=True))
        >>> round(float(noisy.mean()), 1), round(float(noisy.std()), 1)
        (1.0, 0.1)
    """

    def __init__(self, stddev: float | Tensor | Variable, name: str | None = None) -> None:
        super().__init__(name)
        self.stddev: Any = within("GaussianNoise", "stddev", stddev, NOT_NEGATIVE, tensors=True)

    def _changed(self, x: Tensor) -> Tensor:
        return x + to_dtype(normal(x.shape, 0.0, self.stddev, x.dtype), x.dtype)
