"""Layers that normalise, over the batch or each example by itself; dropout and noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc.build.initializers import Ones, Zeros
from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ir.scopes import current_graph
from graphc.ir.variable import Variable
from graphc.nn.functional.norms import group_norm, instance_norm, rms_norm
from graphc.nn.layers.layer import Layer, check_rank, check_training, features_of, positive
from graphc.ops.arrays.creation import ones
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.core.operands import as_floating
from graphc.ops.core.precision import wide
from graphc.ops.draws.random_draws import dropout, normal
from graphc.ops.elementwise.comparison import where
from graphc.ops.nn.local_norm import local_batch_norm
from graphc.ops.nn.normalization import batch_norm, batch_norm_training, layer_norm
from graphc.typing import DTypeLike, TensorLike

__all__ = [
    "BatchNorm",
    "Dropout",
    "GaussianNoise",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "RMSNorm",
    "SpatialDropout",
]

Interval = tuple[str, Callable[[Any], bool]]
_UNIT: Final[Interval] = ("[0, 1]", lambda v: 0 <= v <= 1)
_RATE: Final[Interval] = ("[0, 1)", lambda v: 0 <= v < 1)
_POSITIVE: Final[Interval] = ("(0, inf)", lambda v: v > 0)
_NOT_NEGATIVE: Final[Interval] = ("[0, inf)", lambda v: v >= 0)

UPDATES = "updates"
"""The collection of assignments that belong to a training step without being its gradients."""


class BatchNorm(Layer):
    """Normalizes each feature over the batch: `(x - mean) / sqrt(variance + epsilon)`.

    The result is then scaled and shifted. In training, mean and variance are those of the batch (in
    a data-parallel run, of the whole batch). The layer also assigns moving averages of them,
    `average = momentum * average + (1 - momentum) * new`. These assignments are in the collection
    "updates"; a step of `gc.minimize` runs those that its loss depends on. Outside training, the
    moving averages replace mean and variance. The variance is that of the batch itself: it is
    divided by n, not by n - 1.

    Variables: `scale` and `offset`; `mean` and `variance`, which are not trainable; each
    [features].

    Args:
        momentum: in [0, 1].
        epsilon: added to the variance, so that the division is finite.
        name, dtype: see `Layer`.
        local: in training, each device of a data-parallel run, or each micro-batch of
            `gc.minimize(accumulate=)`, normalizes its part of the batch by the mean and variance of
            that part. The moving averages use the mean over the parts. Devices then exchange no
            data for the normalization.

    Calling it takes `x` [batch, ..., features], floating, of rank 2 or more, and `training`, a bool
    or a scalar tensor of bool; it gives the shape and dtype of `x`. With a tensor, both results are
    computed, and the tensor selects one in each run.

    Raises:
        AttributeValueError: an option is out of range, or `training` is not a bool.
        ShapeError: `x` has fewer than two axes, or its number of features has changed.

    Source: Ioffe and Szegedy, "Batch normalization", 2015.

    Examples:
        >>> norm = gc.nn.BatchNorm()
        >>> run(norm([[1.0, 0.0], [3.0, 8.0]], training=True))
        Array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
        >>> run(norm([[1.0, 0.0], [3.0, 8.0]], training=False))  # mean 0 and variance 1 so far
        Array([[1., 0.],
               [3., 8.]], dtype=float32)
    """

    def __init__(
        self,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        local: bool = False,
    ) -> None:
        super().__init__(name, dtype)
        self.local = local
        self.momentum = _within("BatchNorm", "momentum", momentum, _UNIT)
        self.epsilon = _within("BatchNorm", "epsilon", epsilon, _POSITIVE)

    def __call__(self, x: TensorLike, training: bool | Tensor | None = None) -> Tensor:
        with self.scope(x):
            x = convert(x)
            in_training = check_training(self, training)
            check_rank(self, x, range(2, 100), "[batch, ..., features] (rank 2 or more)")
            shape = (features_of(self, x),)
            scale = self.variable("scale", Ones(), shape)
            offset = self.variable("offset", Zeros(), shape)
            averages: Any = (  # variables, which no wrapper replaces
                self.variable("mean", Zeros(), shape, trainable=False),
                self.variable("variance", Ones(), shape, trainable=False),
            )
            gain, shift = _beside(x, scale), _beside(x, offset)
            served: Tensor | None = None
            if in_training is not True:
                mean, variance = (_beside(x, average) for average in averages)
                served = batch_norm(x, mean, variance, gain, shift, self.epsilon)
                if in_training is False:
                    return served
            normalized = local_batch_norm if self.local else batch_norm_training
            y, *statistics = normalized(x, gain, shift, self.epsilon)
            for average, statistic in zip(averages, statistics, strict=True):
                self._update(average, statistic, in_training)
            return y if served is None else where(in_training, y, served)

    def _update(self, average: Variable, statistic: Tensor, training: bool | Tensor) -> None:
        old, new = average.read(), to_dtype(statistic, average.type.dtype)
        new = old * self.momentum + new * (1 - self.momentum)
        assigned = average.assign(new if training is True else where(training, new, old))
        graph = current_graph()
        if graph.parent is None:  # what a body assigns, it assigns whenever it runs
            graph.add_to_collection(UPDATES, assigned)


class LayerNorm(Layer):
    """Normalizes each example over its last axis, then scales and shifts each feature.

    Variables: `scale` and `offset`, each [features].

    Args:
        epsilon: added to the variance.
        name, dtype: see `Layer`.

    Calling it takes `x` [..., features], floating, and gives the shape and dtype of `x`.

    Raises:
        AttributeValueError: `epsilon` is not positive.
        ShapeError: `x` has no axes, or its number of features has changed.

    Source: Ba, Kiros and Hinton, "Layer normalization", 2016.

    Examples:
        >>> run(gc.nn.LayerNorm()([[1.0, 2.0, 3.0]]))
        Array([[-1.2247,  0.    ,  1.2247]], dtype=float32)
    """

    def __init__(
        self, epsilon: float = 1e-5, name: str | None = None, dtype: DTypeLike = "float32"
    ) -> None:
        super().__init__(name, dtype)
        self.epsilon = _within("LayerNorm", "epsilon", epsilon, _POSITIVE)

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(1, 100), "[..., features] (rank 1 or more)")
            shape = (features_of(self, x),)
            scale = self.variable("scale", Ones(), shape)
            offset = self.variable("offset", Zeros(), shape)
            return layer_norm(x, _beside(x, scale), _beside(x, offset), self.epsilon)


class RMSNorm(Layer):
    """Divides each example by the root of the mean of its squares, and scales each feature.

    Variables: `scale` [features].

    Args:
        epsilon: added to the mean of the squares.
        name, dtype: see `Layer`.

    Calling it takes `x` [batch, ..., features], floating, and gives the shape and dtype of `x`.

    Raises:
        AttributeValueError: `epsilon` is not positive.
        ShapeError: `x` has fewer than two axes, or its number of features has changed.

    Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.

    Examples:
        >>> run(gc.nn.RMSNorm()([[1.0, 7.0]]))
        Array([[0.2, 1.4]], dtype=float32)
    """

    def __init__(
        self, epsilon: float = 1e-6, name: str | None = None, dtype: DTypeLike = "float32"
    ) -> None:
        super().__init__(name, dtype)
        self.epsilon = _within("RMSNorm", "epsilon", epsilon, _POSITIVE)

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(2, 100), "[batch, ..., features] (rank 2 or more)")
            scale = self.variable("scale", Ones(), (features_of(self, x),))
            return rms_norm(x, scale, self.epsilon)


class GroupNorm(Layer):
    """Normalizes groups of features of each example, then scales and shifts each feature.

    Variables: `scale` and `offset`, each [features].

    Args:
        groups: the number of groups. Each group is a run of adjacent features.
        epsilon: added to the variance.
        name, dtype: see `Layer`.

    Calling it takes `x` [batch, ..., features], floating, and gives the shape and dtype of `x`.

    Raises:
        AttributeValueError: `epsilon` or `groups` is not positive.
        ShapeError: `x` has fewer than two axes, the groups do not divide its features, or the
            number of features has changed.

    Source: Wu and He, "Group normalization", 2018.

    Examples:
        >>> run(gc.nn.GroupNorm(2)([[1.0, 3.0, 10.0, 30.0]]))
        Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        groups: int,
        epsilon: float = 1e-5,
        name: str | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(name, dtype)
        self.groups = positive("GroupNorm", "groups", groups)
        self.epsilon = _within("GroupNorm", "epsilon", epsilon, _POSITIVE)

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(2, 100), "[batch, ..., features] (rank 2 or more)")
            features = features_of(self, x)
            if features % self.groups:
                refuse(
                    f"{self}: {self.groups} groups do not divide {features} features",
                    hint="the number of groups must divide the size of the last axis",
                    x=x,
                )
            scale = self.variable("scale", Ones(), (features,))
            offset = self.variable("offset", Zeros(), (features,))
            return group_norm(x, self.groups, scale, offset, self.epsilon)


class InstanceNorm(Layer):
    """Normalizes each feature of each example over space, then scales and shifts it.

    Variables: `scale` and `offset`, each [features].

    Args:
        epsilon: added to the variance.
        name, dtype: see `Layer`.

    Calling it takes `x` [batch, ..., features], floating, and gives the shape and dtype of `x`.

    Raises:
        AttributeValueError: `epsilon` is not positive.
        ShapeError: `x` has no axes between batch and features, or its number of features has
            changed.

    Source: Ulyanov, Vedaldi and Lempitsky, "Instance normalization", 2016.

    Examples:
        >>> run(gc.nn.InstanceNorm()([[[1.0], [3.0]]]))
        Array([[[-1.],
                [ 1.]]], dtype=float32)
    """

    def __init__(
        self, epsilon: float = 1e-5, name: str | None = None, dtype: DTypeLike = "float32"
    ) -> None:
        super().__init__(name, dtype)
        self.epsilon = _within("InstanceNorm", "epsilon", epsilon, _POSITIVE)

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(3, 100), "[batch, ..., features] (rank 3 or more)")
            shape = (features_of(self, x),)
            scale = self.variable("scale", Ones(), shape)
            offset = self.variable("offset", Zeros(), shape)
            return instance_norm(x, scale, offset, self.epsilon)


class Dropout(Layer):
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
        self.rate: Any = _within("Dropout", "rate", rate, _RATE, tensors=True)

    def __call__(self, x: TensorLike, training: bool | Tensor | None = None) -> Tensor:
        with self.scope(x):
            tensor = convert(x)
            in_training = check_training(self, training)
            if in_training is False:
                return tensor
            dropped = dropout(tensor, self.rate)
            return dropped if in_training is True else where(in_training, dropped, tensor)


class SpatialDropout(Layer):
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
        self.rate: Any = _within("SpatialDropout", "rate", rate, _RATE, tensors=True)

    def __call__(self, x: TensorLike, training: bool | Tensor | None = None) -> Tensor:
        with self.scope(x):
            tensor = as_floating(self, "x", x)
            in_training = check_training(self, training)
            check_rank(self, tensor, range(3, 100), "[batch, ..., features] (rank 3 or more)")
            if in_training is False:
                return tensor
            shape = tensor.type.shape
            between = (1,) * (len(shape) - 2)
            kept = dropout(ones((shape[0], *between, shape[-1]), tensor.type.dtype), self.rate)
            dropped = tensor * kept
            return dropped if in_training is True else where(in_training, dropped, tensor)


class GaussianNoise(Layer):
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
        self.stddev: Any = _within("GaussianNoise", "stddev", stddev, _NOT_NEGATIVE, tensors=True)

    def __call__(self, x: TensorLike, training: bool | Tensor | None = None) -> Tensor:
        with self.scope(x):
            tensor = as_floating(self, "x", x)
            in_training = check_training(self, training)
            if in_training is False:
                return tensor
            noise = normal(tensor.type.shape, 0.0, self.stddev, tensor.type.dtype)
            noisy = tensor + to_dtype(noise, tensor.type.dtype)
            return noisy if in_training is True else where(in_training, noisy, tensor)


def _beside(x: Tensor, parameter: Variable | Tensor) -> Tensor:
    """The parameter in the dtype that `x` is normalised in."""
    return to_dtype(parameter, wide(x.type.dtype))


def _within(layer: str, what: str, value: Any, interval: Interval, tensors: bool = False) -> Any:
    """`value`, a number in the interval. With `tensors`, tensors pass unchecked."""
    if tensors and isinstance(value, Operand):
        return value
    words, fits = interval
    if not isinstance(value, (int, float, np.number)) or not fits(value):
        refuse(f"{layer}: {what} must lie in {words}, got {value!r}", error=AttributeValueError)
    return value
