"""Layers that convolve over one, two or three spatial axes: plain, transposed and depthwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final

from graphc.build.initializer_names import AnyInitializer
from graphc.build.initializers import Zeros
from graphc.build.scaled_initializers import GlorotUniform, Scaled
from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.nn.functional.convolutions import conv1d_transpose, conv2d_transpose, conv3d_transpose
from graphc.nn.layers.activations import Activation
from graphc.nn.layers.affine import Affine
from graphc.nn.layers.layer import features_of, positive
from graphc.nn.layers.regularizers import AnyRegularizer
from graphc.nn.layers.shape_checks import check_groups, check_space
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert
from graphc.ops.nn.conv import conv1d, conv2d, conv3d
from graphc.ops.nn.windows import explicit_padding, per_axis
from graphc.typing import DTypeLike, Padding, TensorLike

__all__ = [
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
]

_CONV: Final[dict[int, Callable[..., Tensor]]] = {1: conv1d, 2: conv2d, 3: conv3d}
_TRANSPOSED: Final[dict[int, Callable[..., Tensor]]] = {
    1: conv1d_transpose,
    2: conv2d_transpose,
    3: conv3d_transpose,
}


class Windowed(Affine):
    """Base of all convolutions: it has the window. The arguments after it are those of `Affine`."""

    rank: ClassVar[int]

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        strides: int | tuple[int, ...],
        padding: Padding,
        dilation: int | tuple[int, ...],
        *affine: Any,
    ) -> None:
        super().__init__(*affine)
        kind = type(self).__name__
        self.kernel_size = per_axis(kind, "kernel_size", kernel_size, self.rank)
        self.strides = per_axis(kind, "strides", strides, self.rank)
        self.padding = padding
        self.dilation = per_axis(kind, "dilation", dilation, self.rank)

    def _taken(self, x: Any) -> tuple[Tensor, int]:
        """The checked input and its number of features."""
        x = convert(x)
        check_space(self, x, self.rank)
        return x, features_of(self, x)

    def _convolve(self, x: Tensor, features: int, filters: int, groups: int) -> Tensor:
        padding = explicit_padding(  # before any variable is made, because it may raise an error
            str(self), self.padding, x, self.kernel_size, self.strides, self.dilation
        )
        shape = (*self.kernel_size, features // groups, filters)
        kernel = self._kernel(groups, shape)
        options = {"strides": self.strides, "padding": padding, "dilation": self.dilation}
        return self._finished(_CONV[self.rank](x, kernel, groups=groups, **options), filters)

    def _kernel(self, groups: int, shape: tuple[int, ...]) -> Any:
        """The kernel. An initializer that counts fans has to know the number of groups."""
        initializer = self.kernel_initializer
        if isinstance(initializer, Scaled):
            initializer = replace(initializer, groups=groups)  # type: ignore[type-var]
        return self.variable("kernel", initializer, shape, regularizer=self.kernel_regularizer)


class _Conv(Windowed):
    """A convolution, of any number of spatial axes."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, ...],
        strides: int | tuple[int, ...] = 1,
        padding: Padding = "valid",
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
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
        kind = type(self).__name__
        self.filters = positive(kind, "filters", filters)
        self.groups = positive(kind, "groups", groups)
        if filters % groups:
            refuse(
                f"{kind}: groups must divide filters, got {groups} and {filters}",
                error=AttributeValueError,
            )

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            taken, features = self._taken(x)
            return self._convolve(taken, features, self.filters, self.groups)

    def _taken(self, x: Any) -> tuple[Tensor, int]:
        x, features = super()._taken(x)
        check_groups(self, x, self.groups, features)
        return x, features


class Conv1D(_Conv):
    """A convolution over one axis: `activation(conv1d(x, kernel) + bias)`.

    Variables: `kernel` [width, features / groups, filters] and `bias` [filters].

    Calling it takes `x` [batch, width, features] and gives [batch, new width, filters].
    Args and Raises: see `Conv2D`, for one spatial axis.

    Examples:
        >>> conv = gc.nn.Conv1D(1, 2, kernel_initializer="ones")
        >>> run(conv([[[1.0], [2.0], [4.0]]]))[0, :, 0]
        Array([3., 6.], dtype=float32)
    """

    rank = 1


class Conv2D(_Conv):
    """A 2-D convolution: `activation(conv2d(x, kernel) + bias)`.

    Variables: `kernel` [height, width, features / groups, filters] and `bias` [filters].

    Args:
        filters: the number of features of the result.
        kernel_size: height and width, or one number for both.
        strides, dilation: for height and width, or one number for both; or (1, height, width, 1).
        padding: "valid" (none, the default here and in `conv2d`), "same", one int for all sides or
            ((top, bottom), (left, right)).
        groups: features and filters are split into this many independent groups.
        activation, use_bias, kernel_initializer, bias_initializer: as for `Dense`.
        name, dtype: see `Layer`.
        kernel_regularizer, bias_regularizer: as for `Dense`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, new height, new width, filters].

    Raises:
        AttributeValueError: an option has an invalid value.
        ShapeError: `x` is not of rank 4, or its features do not fit the groups, are not known
            or have changed.

    Examples:
        >>> conv = gc.nn.Conv2D(8, 3, padding="same", activation="relu")
        >>> conv(gc.ones((1, 28, 28, 3))).shape, conv.variables[0].shape
        ((1, 28, 28, 8), (3, 3, 3, 8))
    """

    rank = 2


class Conv3D(_Conv):
    """A convolution over three axes: `activation(conv3d(x, kernel) + bias)`.

    Variables: `kernel` [depth, height, width, features / groups, filters] and `bias` [filters].

    Args, operands and Raises: see `Conv2D`, for three spatial axes.

    Examples:
        >>> conv = gc.nn.Conv3D(8, 3, strides=2)
        >>> conv(gc.ones((1, 15, 15, 15, 2))).shape
        (1, 7, 7, 7, 8)
    """

    rank = 3


class _ConvTranspose(_Conv):
    """A transposed convolution, of any number of spatial axes, with the options of `_Conv`."""

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x, features = self._taken(x)
            # This only checks that it is a valid padding, before any variable is made.
            ones = (1,) * self.rank
            explicit_padding(str(self), self.padding, x, self.kernel_size, ones, ones)
            shape = (*self.kernel_size, self.filters // self.groups, features)
            y = _TRANSPOSED[self.rank](
                x,
                self._kernel(self.groups, shape),
                strides=self.strides,
                padding=self.padding,
                dilation=self.dilation,
                groups=self.groups,
            )
            return self._finished(y, self.filters)


class Conv1DTranspose(_ConvTranspose):
    """A transposed convolution over one axis, which makes sequences longer by the stride.

    Variables: `kernel` [width, filters / groups, features] and `bias` [filters].

    Calling it takes `x` [batch, width, features] and gives [batch, new width, filters].
    Args and Raises: see `Conv2DTranspose`, for one spatial axis.

    Examples:
        >>> conv = gc.nn.Conv1DTranspose(1, 2, strides=2, kernel_initializer="ones")
        >>> run(conv([[[1.0], [2.0]]]))[0, :, 0]
        Array([1., 1., 2., 2.], dtype=float32)
    """

    rank = 1


class Conv2DTranspose(_ConvTranspose):
    """A transposed convolution, which makes images larger by the strides.

    Variables: `kernel` [height, width, filters / groups, features], the kernel of the convolution
    that this one is the transpose of, and `bias` [filters].

    Args:
        padding: of that convolution. "same" gives height * stride rows. "valid" gives the smallest
            number of rows that holds every product.
        filters, kernel_size, ..., dtype: see `Conv2D`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, new height, new width, filters].

    Raises:
        AttributeValueError, ShapeError: as `Conv2D`.

    Examples:
        >>> conv = gc.nn.Conv2DTranspose(4, 3, strides=2, padding="same")
        >>> conv(gc.ones((1, 14, 14, 8))).shape
        (1, 28, 28, 4)
    """

    rank = 2


class Conv3DTranspose(_ConvTranspose):
    """A transposed convolution over three axes, which makes volumes larger by the strides.

    Variables: `kernel` [depth, height, width, filters / groups, features] and `bias` [filters].

    Args, operands and Raises: see `Conv2DTranspose`, for three spatial axes.

    Examples:
        >>> conv = gc.nn.Conv3DTranspose(4, 2, strides=2)
        >>> conv(gc.ones((1, 4, 4, 4, 8))).shape
        (1, 8, 8, 8, 4)
    """

    rank = 3
