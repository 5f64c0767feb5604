"""Layers that multiply by a kernel: `Dense`, `Conv2D`; and `Embedding`, which looks rows up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphc.build.initializers import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    Uniform,
    Zeros,
)
from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.dtypes import is_integer
from graphc.ir.node import Tensor
from graphc.ir.variable import Initializer
from graphc.nn.activations import Activation, as_activation
from graphc.nn.layer import Layer, check_rank, features_of, positive
from graphc.ops.checks import refuse
from graphc.ops.conv import conv2d
from graphc.ops.emit import convert
from graphc.ops.indexing import take
from graphc.ops.linalg import matmul
from graphc.ops.windows import explicit_padding, two_ints

_SCALED = (GlorotNormal, GlorotUniform, HeNormal, HeUniform, LecunNormal)


class Dense(Layer):
    """A linear map of the last axis: `activation(x @ kernel + bias)`.

    Variables: `kernel` [features, units] and `bias` [units].

    Args:
        units: the size of the last axis of the result.
        activation: a function of a tensor such as `gc.nn.relu`, or its name; None for none.
        use_bias: whether a bias is added.
        kernel_initializer, bias_initializer: `(rng, shape, dtype) -> array`.
        name, dtype: see `Layer`.

    Calling it takes `x` [..., features] and gives [..., units].

    Raises:
        AttributeValueError: `units` is not positive, or the activation not known.
        ShapeError: `x` has no axes, or a number of features that is not known or has changed.
    """

    def __init__(
        self,
        units: int,
        activation: Activation | str | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = GlorotUniform(),  # noqa: B008  (frozen)
        bias_initializer: Initializer = Zeros(),  # noqa: B008
        name: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(name, dtype)
        self.units = positive("Dense", "units", units)
        self.activation = as_activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def __call__(self, x: Any) -> Tensor:
        with self.scope(x):
            x = convert(x)
            if x.type.rank == 0:
                refuse(f"{self}: the input must have a last axis of features", x=x)
            shape = (features_of(self, x), self.units)
            kernel = self.variable("kernel", self.kernel_initializer, shape)
            y = matmul(x, kernel)
            if self.use_bias:
                y = y + self.variable("bias", self.bias_initializer, (self.units,))
            return y if self.activation is None else self.activation(y)


class Conv2D(Layer):
    """A 2-D convolution: `activation(conv2d(x, kernel) + bias)`.

    Variables: `kernel` [height, width, features / groups, filters] and `bias` [filters].

    Args:
        filters: the number of features of the result.
        kernel_size: height and width, or one number for both.
        strides, dilation: for height and width, or one number for both.
        padding: "same", "valid", one int for all sides or ((top, bottom), (left, right)).
        groups: features and filters are cut into this many groups that do not see each other.
        activation, use_bias, kernel_initializer, bias_initializer: as for `Dense`.
        name, dtype: see `Layer`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, new height, new width, filters].

    Raises:
        AttributeValueError: an option has a value it cannot have.
        ShapeError: `x` is not of rank 4, or its features do not fit the groups, are not known
            or have changed.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, int],
        strides: int | tuple[int, int] = 1,
        padding: Any = "same",
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        activation: Activation | str | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = GlorotUniform(),  # noqa: B008  (frozen)
        bias_initializer: Initializer = Zeros(),  # noqa: B008
        name: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(name, dtype)
        self.filters = positive("Conv2D", "filters", filters)
        self.kernel_size = two_ints("Conv2D", "kernel_size", kernel_size)
        self.strides = two_ints("Conv2D", "strides", strides)
        self.padding = padding
        self.dilation = two_ints("Conv2D", "dilation", dilation)
        self.groups = positive("Conv2D", "groups", groups)
        if filters % groups:
            refuse(
                f"Conv2D: groups must divide filters, got {groups} and {filters}",
                error=AttributeValueError,
            )
        self.activation = as_activation(activation)
        self.use_bias = use_bias
        if isinstance(kernel_initializer, _SCALED):  # the fans depend on the groups
            kernel_initializer = replace(kernel_initializer, groups=groups)
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def __call__(self, x: Any) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, (4,), "[batch, height, width, features] (rank 4)")
            features = features_of(self, x)
            if features % self.groups:
                refuse(f"{self}: {self.groups} groups do not divide {features} features", x=x)
            padding = explicit_padding(  # may refuse, so before there are variables
                str(self), self.padding, x, self.kernel_size, self.strides, self.dilation
            )
            shape = (*self.kernel_size, features // self.groups, self.filters)
            kernel = self.variable("kernel", self.kernel_initializer, shape)
            y = conv2d(
                x,
                kernel,
                strides=self.strides,
                padding=padding,
                dilation=self.dilation,
                groups=self.groups,
            )
            if self.use_bias:
                y = y + self.variable("bias", self.bias_initializer, (self.filters,))
            return y if self.activation is None else self.activation(y)


class Embedding(Layer):
    """Rows of a table by number.

    Variables: `table` [count, features].

    Args:
        count: the number of rows; indices run from 0 to count - 1.
        features: the size of a row.
        initializer: `(rng, shape, dtype) -> array`.
        name, dtype: see `Layer`.

    Calling it takes integers `indices` [...] and gives [..., features].

    Raises:
        AttributeValueError: `count` or `features` is not positive.
        DTypeError: `indices` are not integers.
    """

    def __init__(
        self,
        count: int,
        features: int,
        initializer: Initializer = Uniform(),  # noqa: B008  (frozen)
        name: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(name, dtype)
        self.count = positive("Embedding", "count", count)
        self.features = positive("Embedding", "features", features)
        self.initializer = initializer

    def __call__(self, indices: Any) -> Tensor:
        with self.scope(indices):
            indices = convert(indices)
            if not is_integer(indices.type.dtype):
                refuse(
                    f"{self}: indices must be integers, got {indices.type.dtype.name}",
                    error=DTypeError,
                    mend='gc.cast them to "int32"',
                    indices=indices,
                )
            table = self.variable("table", self.initializer, (self.count, self.features))
            return embedding_lookup(table, indices)


def embedding_lookup(table: Any, indices: Any, *, name: str | None = None) -> Tensor:
    """The rows of `table` at `indices`.

    Args:
        table: [count, ...].
        indices: [...], integers.
        name: of the node.

    Returns:
        The shape of `indices`, then that of a row.

    Raises:
        DTypeError: `indices` are not integers.
    """
    return take(table, indices, axis=0, name=name)
