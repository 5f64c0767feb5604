"""Layers that pool over one, two or three spatial axes, or over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from graphc.ir.node import Tensor
from graphc.nn.functional.images import global_avg_pool, global_max_pool
from graphc.nn.layers.layer import Layer, check_rank
from graphc.nn.layers.shape_checks import check_space
from graphc.nn.layers.structure import OnlyNamed
from graphc.ops.core.emit import convert
from graphc.ops.nn.pooling import avg_pool, max_pool
from graphc.ops.nn.windows import per_axis
from graphc.typing import Padding, TensorLike

__all__ = [
    "AveragePool1D",
    "AveragePool2D",
    "AveragePool3D",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
]


class _Pool(Layer):
    """Base of maximum and average pooling."""

    rank: ClassVar[int]
    pool: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        window: int | tuple[int, ...] = 2,
        strides: int | tuple[int, ...] | None = None,
        padding: Padding = "valid",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        kind = type(self).__name__
        self.window = per_axis(kind, "window", window, self.rank)
        steps = self.window if strides is None else strides
        self.strides = per_axis(kind, "strides", steps, self.rank)
        self.padding = padding

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_space(self, x, self.rank)
            return type(self).pool(x, self.window, self.strides, self.padding)


class MaxPool1D(_Pool):
    """The largest element of each window of one axis.

    Calling it takes `x` [batch, width, features] and gives [batch, new width, features].
    Args and Raises: see `MaxPool2D`, for one spatial axis.

    Examples:
        >>> run(gc.nn.MaxPool1D()([[[1.0], [4.0], [2.0], [3.0]]]))[0, :, 0]
        Array([4., 3.], dtype=float32)
    """

    rank, pool = 1, staticmethod(max_pool)


class MaxPool2D(_Pool):
    """The largest element of each window of height and width.

    Args:
        window: height and width, or one number for both; or (1, height, width, 1).
        strides: between windows; by default the window, so that they do not overlap.
        padding: "same", "valid", one int for all sides or ((top, bottom), (left, right)).
        name: see `Layer`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, new height, new width, features].

    Raises:
        AttributeValueError: an option has an invalid value.
        ShapeError: `x` is not of rank 4.

    Examples:
        >>> image = np.arange(16.0, dtype="float32").reshape(1, 4, 4, 1)
        >>> run(gc.nn.MaxPool2D()(image))[0, :, :, 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """

    rank, pool = 2, staticmethod(max_pool)


class MaxPool3D(_Pool):
    """The largest element of each window of depth, height and width.

    Args, operands and Raises: see `MaxPool2D`, for three spatial axes.

    Examples:
        >>> gc.nn.MaxPool3D(2)(gc.ones((1, 8, 8, 8, 3))).shape
        (1, 4, 4, 4, 3)
    """

    rank, pool = 3, staticmethod(max_pool)


class AveragePool1D(_Pool):
    """The mean of each window of one axis.

    Padding does not count: a window at the border is the mean of the elements inside `x`.

    Calling it takes `x` [batch, width, features], floating, and gives [batch, new width,
    features].
    Args and Raises: see `MaxPool2D`, for one spatial axis.

    Examples:
        >>> run(gc.nn.AveragePool1D()([[[1.0], [4.0], [2.0], [3.0]]]))[0, :, 0]
        Array([2.5, 2.5], dtype=float32)
    """

    rank, pool = 1, staticmethod(avg_pool)


class AveragePool2D(_Pool):
    """The mean of each window of height and width.

    Padding does not count: a window at the border is the mean of the elements inside `x`.

    Calling it takes `x` [batch, height, width, features], floating, and gives
    [batch, new height, new width, features].
    Args and Raises: see `MaxPool2D`.

    Examples:
        >>> image = np.arange(16.0, dtype="float32").reshape(1, 4, 4, 1)
        >>> run(gc.nn.AveragePool2D()(image))[0, :, :, 0]
        Array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """

    rank, pool = 2, staticmethod(avg_pool)


class AveragePool3D(_Pool):
    """The mean of each window of depth, height and width.

    Padding does not count: a window at the border is the mean of the elements inside `x`.

    Args, operands and Raises: see `AveragePool2D`, for three spatial axes.

    Examples:
        >>> gc.nn.AveragePool3D(2, strides=1)(gc.ones((1, 8, 8, 8, 3))).shape
        (1, 7, 7, 7, 3)
    """

    rank, pool = 3, staticmethod(avg_pool)


class _GlobalPool(OnlyNamed):
    """Base of both kinds of pooling over all spatial axes."""

    pool: ClassVar[Callable[..., Tensor]]

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(3, 100), "[batch, ..., features] (rank 3 or more)")
            return type(self).pool(x)


class GlobalMaxPool(_GlobalPool):
    """The largest element of each feature: [batch, ..., features] to [batch, features].

    Args:
        name: see `Layer`.

    Raises:
        ShapeError: the input has no spatial axes.

    Examples:
        >>> run(gc.nn.GlobalMaxPool()([[[1.0, 8.0], [5.0, 2.0]]]))
        Array([[5., 8.]], dtype=float32)
    """

    pool = staticmethod(global_max_pool)


class GlobalAveragePool(_GlobalPool):
    """The mean of each feature: [batch, ..., features] to [batch, features].

    Args and Raises: see `GlobalMaxPool`.

    Examples:
        >>> run(gc.nn.GlobalAveragePool()([[[1.0, 8.0], [5.0, 2.0]]]))
        Array([[3., 5.]], dtype=float32)
    """

    pool = staticmethod(global_avg_pool)
