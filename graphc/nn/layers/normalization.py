"""Layers that normalise over the batch or within each example."""

from __future__ import annotations

from typing import Any

from graphc.build.initializers import Ones, Zeros
from graphc.ir.node import Tensor
from graphc.ir.scopes import current_graph
from graphc.ir.variable import Variable
from graphc.nn.functional.norms import group_norm, instance_norm, rms_norm
from graphc.nn.layers.intervals import EPSILON, UNIT, within
from graphc.nn.layers.layer import Layer, check_rank, check_training, features_of, positive
from graphc.nn.layers.regularizers import AnyRegularizer, as_regularizer
from graphc.nn.layers.shape_checks import check_groups
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.comparison import where
from graphc.ops.nn.local_norm import local_batch_norm
from graphc.ops.nn.normalization import batch_norm, batch_norm_training, layer_norm
from graphc.typing import DTypeLike, TensorLike

__all__ = [
    "BatchNorm",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "RMSNorm",
]

UPDATES = "updates"
"""The collection of assignments that belong to a training step without being its gradients."""


def update_in_training(
    variable: Variable, old: Tensor, new: Tensor, training: bool | Tensor
) -> None:
    """Assigns a variable of a layer its new value in training, and notes the assignment."""
    assigned = variable.assign(new if training is True else where(training, new, old))
    graph = current_graph()
    if graph.parent is None:  # an assignment in a body runs whenever the body runs
        graph.add_to_collection(UPDATES, assigned)


class _Norm(Layer):
    """A layer that normalizes, then scales and shifts each feature."""

    def __init__(
        self,
        name: str | None,
        dtype: DTypeLike,
        epsilon: float,
        scale_regularizer: AnyRegularizer,
        offset_regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype)
        kind = type(self).__name__
        self.epsilon = within(kind, "epsilon", epsilon, EPSILON)
        self.scale_regularizer = as_regularizer(scale_regularizer, kind)
        self.offset_regularizer = as_regularizer(offset_regularizer, kind)

    def _scale(self, features: int) -> Variable | Tensor:
        return self.variable("scale", Ones(), (features,), regularizer=self.scale_regularizer)

    def _offset(self, features: int) -> Variable | Tensor:
        return self.variable("offset", Zeros(), (features,), regularizer=self.offset_regularizer)


class _ShiftedNorm(_Norm):
    """A layer whose only options are those that all layers with scale and offset have."""

    def __init__(
        self,
        epsilon: float = 1e-5,
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        scale_regularizer: AnyRegularizer = None,
        offset_regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype, epsilon, scale_regularizer, offset_regularizer)


class BatchNorm(_Norm):
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
        scale_regularizer, offset_regularizer: penalties of the variables, as for `Dense`.
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
        scale_regularizer: AnyRegularizer = None,
        offset_regularizer: AnyRegularizer = None,
        local: bool = False,
    ) -> None:
        super().__init__(name, dtype, epsilon, scale_regularizer, offset_regularizer)
        self.local = local
        self.momentum = within("BatchNorm", "momentum", momentum, UNIT)

    def __call__(self, x: TensorLike, training: bool | Tensor | None = None) -> Tensor:
        with self.scope(x):
            x = convert(x)
            in_training = check_training(self, training)
            check_rank(self, x, range(2, 100), "[batch, ..., features] (rank 2 or more)")
            features = features_of(self, x)
            shape = (features,)
            scale, offset = self._scale(features), self._offset(features)
            averages: Any = (  # these are variables, because no wrapper replaces them
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
                old, new = average.read(), to_dtype(statistic, average.type.dtype)
                new = old * self.momentum + new * (1 - self.momentum)
                update_in_training(average, old, new, in_training)
            return y if served is None else where(in_training, y, served)


class LayerNorm(_ShiftedNorm):
    """Normalizes each example over its last axis, then scales and shifts each feature.

    Variables: `scale` and `offset`, each [features].

    Args:
        epsilon: added to the variance.
        name, dtype: see `Layer`.
        scale_regularizer, offset_regularizer: penalties of the variables, as for `Dense`.

    Calling it takes `x` [..., features], floating, and gives the shape and dtype of `x`.

    Raises:
        AttributeValueError: `epsilon` is not in (0, 1).
        ShapeError: `x` has no axes, or its number of features has changed.

    Source: Ba, Kiros and Hinton, "Layer normalization", 2016.

    Examples:
        >>> run(gc.nn.LayerNorm()([[1.0, 2.0, 3.0]]))
        Array([[-1.2247,  0.    ,  1.2247]], dtype=float32)
    """

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(1, 100), "[..., features] (rank 1 or more)")
            features = features_of(self, x)
            scale, offset = self._scale(features), self._offset(features)
            return layer_norm(x, _beside(x, scale), _beside(x, offset), self.epsilon)


class RMSNorm(_Norm):
    """Divides each example by the root of the mean of its squares, and scales each feature.

    Variables: `scale` [features].

    Args:
        epsilon: added to the mean of the squares.
        name, dtype: see `Layer`.
        scale_regularizer: the penalty of the scale, as for `Dense`.

    Calling it takes `x` [batch, ..., features], floating, and gives the shape and dtype of `x`.

    Raises:
        AttributeValueError: `epsilon` is not in (0, 1).
        ShapeError: `x` has fewer than two axes, or its number of features has changed.

    Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.

    Examples:
        >>> run(gc.nn.RMSNorm()([[1.0, 7.0]]))
        Array([[0.2, 1.4]], dtype=float32)
    """

    def __init__(
        self,
        epsilon: float = 1e-6,
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        scale_regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype, epsilon, scale_regularizer)

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(2, 100), "[batch, ..., features] (rank 2 or more)")
            return rms_norm(x, self._scale(features_of(self, x)), self.epsilon)


class GroupNorm(_Norm):
    """Normalizes groups of features of each example, then scales and shifts each feature.

    Variables: `scale` and `offset`, each [features].

    Args:
        groups: the number of groups. Each group is a run of adjacent features.
        epsilon: added to the variance.
        name, dtype: see `Layer`.
        scale_regularizer, offset_regularizer: penalties of the variables, as for `Dense`.

    Calling it takes `x` [batch, ..., features], floating, and gives the shape and dtype of `x`.

    Raises:
        AttributeValueError: `epsilon` is not in (0, 1), or `groups` is not positive.
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
        *,
        scale_regularizer: AnyRegularizer = None,
        offset_regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype, epsilon, scale_regularizer, offset_regularizer)
        self.groups = positive("GroupNorm", "groups", groups)

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(2, 100), "[batch, ..., features] (rank 2 or more)")
            features = features_of(self, x)
            check_groups(self, x, self.groups, features)
            scale, offset = self._scale(features), self._offset(features)
            return group_norm(x, self.groups, scale, offset, self.epsilon)


class InstanceNorm(_ShiftedNorm):
    """Normalizes each feature of each example over space, then scales and shifts it.

    Variables: `scale` and `offset`, each [features].

    Args: see `LayerNorm`.

    Calling it takes `x` [batch, ..., features], floating, and gives the shape and dtype of `x`.

    Raises:
        AttributeValueError: `epsilon` is not in (0, 1).
        ShapeError: `x` has no axes between batch and features, or its number of features has
            changed.

    Source: Ulyanov, Vedaldi and Lempitsky, "Instance normalization", 2016.

    Examples:
        >>> run(gc.nn.InstanceNorm()([[[1.0], [3.0]]]))
        Array([[[-1.],
                [ 1.]]], dtype=float32)
    """

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(3, 100), "[batch, ..., features] (rank 3 or more)")
            features = features_of(self, x)
            return instance_norm(x, self._scale(features), self._offset(features), self.epsilon)


def _beside(x: Tensor, parameter: Variable | Tensor) -> Tensor:
    """The parameter in the dtype in which `x` is normalised."""
    return to_dtype(parameter, wide(x.type.dtype))
