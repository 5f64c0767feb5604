"""Layers that convolve each feature separately: depthwise and separable."""

from __future__ import annotations

from graphc.build.initializer_names import AnyInitializer
from graphc.build.initializers import Zeros
from graphc.build.scaled_initializers import GlorotUniform
from graphc.ir.node import Tensor
from graphc.nn.layers.activations import Activation
from graphc.nn.layers.conv_layers import Windowed
from graphc.nn.layers.layer import Layer, positive
from graphc.nn.layers.linear import Dense
from graphc.nn.layers.regularizers import AnyRegularizer
from graphc.typing import DTypeLike, Padding, TensorLike

__all__ = ["DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv2D"]


class _DepthwiseConv(Windowed):
    """A convolution of each feature by itself, of any number of spatial axes."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        strides: int | tuple[int, ...] = 1,
        padding: Padding = "valid",
        dilation: int | tuple[int, ...] = 1,
        multiplier: int = 1,
        activation: Activation | str | None = None,
        use_bias: bool = True,
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        bias_initializer: AnyInitializer = Zeros(),  # noqa: B008
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        kernel_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        window = (kernel_size, strides, padding, dilation)
        initializers = (kernel_initializer, bias_initializer)
        regularizers = (kernel_regularizer, bias_regularizer)
        super().__init__(*window, activation, use_bias, *initializers, name, dtype, *regularizers)
        self.multiplier = positive(type(self).__name__, "multiplier", multiplier)

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            taken, features = self._taken(x)
            return self._convolve(taken, features, features * self.multiplier, features)


class DepthwiseConv1D(_DepthwiseConv):
    """A convolution of each feature by itself over one axis.

    Variables: `kernel` [width, 1, features * multiplier] and `bias` [features * multiplier].

    Calling it takes `x` [batch, width, features] and gives
    [batch, new width, features * multiplier].
    Args and Raises: see `DepthwiseConv2D`, for one spatial axis.

    Examples:
        >>> conv = gc.nn.DepthwiseConv1D(2, kernel_initializer="ones")
        >>> run(conv([[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]]))
        Array([[[ 3., 30.],
                [ 5., 50.]]], dtype=float32)
    """

    rank = 1


class DepthwiseConv2D(_DepthwiseConv):
    """A convolution of each feature by itself: `Conv2D` with as many groups as features.

    Variables: `kernel` [height, width, 1, features * multiplier] and `bias`
    [features * multiplier].

    Args:
        multiplier: how many features each feature gives; they are adjacent in the result.
        kernel_size, strides, ..., dtype: see `Conv2D`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, new height, new width, features * multiplier].

    Raises:
        AttributeValueError, ShapeError: as `Conv2D`.

    Examples:
        >>> conv = gc.nn.DepthwiseConv2D(3, multiplier=2)
        >>> conv(gc.ones((1, 8, 8, 3))).shape
        (1, 6, 6, 6)
    """

    rank = 2


class SeparableConv2D(Layer):
    """A depthwise convolution, then a linear map of the features at every position.

    Chollet, "Xception: deep learning with depthwise separable convolutions", 2017.

    Variables: `depthwise/kernel`, as in `DepthwiseConv2D`; `pointwise/kernel`
    [features * multiplier, filters] and `pointwise/bias` [filters].

    Args:
        filters: the number of features of the result.
        kernel_size, strides, padding, dilation, multiplier: of the depthwise convolution.
        activation, use_bias: of the linear map, as for `Dense`.
        kernel_initializer, bias_initializer: as for `Dense`.
        name, dtype: see `Layer`.
        kernel_regularizer, bias_regularizer: as for `Dense`. The first applies to both kernels.

    Calling it, Raises: see `Conv2D`.

    Examples:
        >>> conv = gc.nn.SeparableConv2D(16, 3, name="conv")
        >>> conv(gc.ones((1, 8, 8, 3))).shape
        (1, 6, 6, 16)
        >>> [v.name for v in conv.variables]
        ['conv/depthwise/kernel', 'conv/pointwise/kernel', 'conv/pointwise/bias']
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, int],
        strides: int | tuple[int, int] = 1,
        padding: Padding = "valid",
        dilation: int | tuple[int, int] = 1,
        multiplier: int = 1,
        activation: Activation | str | None = None,
        use_bias: bool = True,
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        bias_initializer: AnyInitializer = Zeros(),  # noqa: B008
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        kernel_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype)
        window = (kernel_size, strides, padding, dilation)
        self.depthwise = DepthwiseConv2D(
            *window,
            multiplier,
            None,
            False,
            kernel_initializer,
            name="depthwise",
            dtype=dtype,
            kernel_regularizer=kernel_regularizer,
        )
        initializers = (kernel_initializer, bias_initializer)
        positive("SeparableConv2D", "filters", filters)
        self.pointwise = Dense(
            filters,
            activation,
            use_bias,
            *initializers,
            "pointwise",
            dtype,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
        )

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            return self.pointwise(self.depthwise(x))
