"""`ConvLSTM`: long short-term memory whose products are convolutions, for sequences of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from graphc.build.initializer_names import AnyInitializer
from graphc.build.initializers import ForgetGateOnes, Orthogonal
from graphc.build.scaled_initializers import GlorotUniform
from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.nn.layers.activations import Activation
from graphc.nn.layers.layer import check_rank, features_of, positive
from graphc.nn.layers.regularizers import AnyRegularizer
from graphc.nn.recurrent.cells import State
from graphc.nn.recurrent.gated_cells import LSTMCell
from graphc.nn.recurrent.recurrent_layers import RNN
from graphc.ops.arrays.creation import zeros
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import refuse, same_shape
from graphc.ops.core.emit import convert
from graphc.ops.nn.conv import conv1d, conv2d, conv3d
from graphc.ops.nn.windows import explicit_padding, per_axis
from graphc.typing import DTypeLike, Padding, TensorLike

__all__ = [
    "ConvLSTM1D",
    "ConvLSTM1DCell",
    "ConvLSTM2D",
    "ConvLSTM2DCell",
    "ConvLSTM3D",
    "ConvLSTM3DCell",
]

_CONV: Final[dict[int, Callable[..., Tensor]]] = {1: conv1d, 2: conv2d, 3: conv3d}


class _ConvLSTMCell(LSTMCell):
    """A step of a `_ConvLSTM`, of any number of spatial axes."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, ...],
        strides: int | tuple[int, ...] = 1,
        padding: Padding = "valid",
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        recurrent_initializer: AnyInitializer = Orthogonal(),  # noqa: B008
        bias_initializer: AnyInitializer = ForgetGateOnes(),  # noqa: B008
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        activation: Activation | str | None = "tanh",
        recurrent_activation: Activation | str | None = "sigmoid",
        kernel_regularizer: AnyRegularizer = None,
        recurrent_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        kind = type(self).__name__
        positive(kind, "filters", filters)
        initializers = (kernel_initializer, recurrent_initializer, bias_initializer)
        super().__init__(
            filters,
            *initializers,
            name,
            dtype,
            activation=activation,
            recurrent_activation=recurrent_activation,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
        )
        self.kernel_size = per_axis(kind, "kernel_size", kernel_size, self.space)
        self.strides = per_axis(kind, "strides", strides, self.space)
        self.padding = padding

    def initial_state(
        self, batch: Dim, dtype: DTypeLike | None = None, space: tuple[Dim, ...] = ()
    ) -> State:
        """Zeros for `batch` sequences, by default in the dtype of the variables.

        Args:
            batch: how many sequences.
            dtype: of the state.
            space: the spatial sizes of the convolution's result. The state has the same sizes.

        Raises:
            AttributeValueError: `space` does not have one size for each spatial axis.
        """
        if len(space) != self.space:
            refuse(
                f"{self}: the state needs the {self.space} spatial sizes of the outputs, got "
                f"space={space!r}",
                error=AttributeValueError,
                hint="leave the state out to start from zeros",
            )
        part = zeros((batch, *space, self.units), self.dtype if dtype is None else dtype)
        return part, part

    def first_state(self, projected: Tensor) -> State:
        shape = projected.shape
        return self.initial_state(shape[0], projected.dtype, tuple(shape[2:-1]))

    def project(self, x: TensorLike) -> Tensor:
        """`conv(x, kernel) + bias`: of images [batch, ...] or of sequences [batch, time, ...]."""
        with self.scope(x):
            x = convert(x)
            rank = self.space + 2
            check_rank(self, x, (rank, rank + 1), f"images (rank {rank}) or sequences of them")
            lead, size = x.shape[: x.ndim - rank + 1], self.gates * self.units
            if x.ndim > rank:
                x = reshape(x, (lead[0] * lead[1], *x.shape[2:]))
            ones = (1,) * self.space
            options = (self.kernel_size, self.strides, ones)
            padding = explicit_padding(str(self), self.padding, x, *options)
            kernel = self._made_kernel((*self.kernel_size, features_of(self, x), size))
            y = _CONV[self.space](x, kernel, strides=self.strides, padding=padding)
            y = y + self._made_bias("bias", size)
            return y if len(lead) == 1 else reshape(y, (*lead, *y.shape[1:]))

    def recur(self, h: Tensor) -> Tensor:
        """The convolution of `h` with `recurrent_kernel`. The result has the sizes of `h`."""
        shape = (*self.kernel_size, self.units, self.gates * self.units)
        return _CONV[self.space](h, self._made_recurrent_kernel(shape), padding="same")

    def step(self, projected: Tensor, state: State) -> State:
        for part in state:  # sizes of 1 would broadcast
            if not same_shape(part.shape[:-1], projected.shape[:-1], projected):
                refuse(
                    f"{self}: the state must have the sizes of the outputs, "
                    f"{projected.shape[:-1]}, got {part.type}",
                    state=part,
                )
        return super().step(projected, state)


class ConvLSTM1DCell(_ConvLSTMCell):
    """An `LSTMCell` whose products are convolutions over one axis: one step of a `ConvLSTM1D`.

    Variables: `kernel` [width, features, 4 * filters], `recurrent_kernel`
    [width, filters, 4 * filters] and `bias` [4 * filters].

    Calling it takes `x` [batch, width, features] and a state, a tuple (h, c) of
    [batch, new width, filters], and gives (h, the new state).
    Args and Raises: see `ConvLSTM2DCell`, for one spatial axis.

    Examples:
        >>> cell = gc.nn.ConvLSTM1DCell(4, 3)
        >>> y, state = cell(gc.ones((2, 8, 3)), cell.initial_state(2, space=(6,)))
        >>> y.shape
        (2, 6, 4)
    """

    space = 1


class ConvLSTM2DCell(_ConvLSTMCell):
    """An `LSTMCell` whose products are convolutions: one step of a `ConvLSTM2D`.

    Shi et al., "Convolutional LSTM network: a machine learning approach for precipitation
    nowcasting", 2015, without its peepholes.

    Variables: `kernel` [height, width, features, 4 * filters], `recurrent_kernel`
    [height, width, filters, 4 * filters] and `bias` [4 * filters].

    Args:
        filters: the number of features of the output and of each part of the state.
        kernel_size: height and width of both kernels, or one number for both.
        strides, padding: of the convolution of the input, as for `Conv2D`. The convolution of the
            state keeps the sizes of the state.
        kernel_initializer, recurrent_initializer, bias_initializer: as for `Dense`; the bias of the
            forget gate starts as ones.
        name, dtype: see `Layer`.
        activation, recurrent_activation: see `LSTMCell`.
        kernel_regularizer, recurrent_regularizer, bias_regularizer: as for `Dense`.

    Calling it takes `x` [batch, height, width, features] and a state, a tuple (h, c) of
    [batch, new height, new width, filters], and gives (h, the new state).

    Raises:
        AttributeValueError: an option has an invalid value, or parts of the state are missing.
        ShapeError: `x` or the state is of another rank or size.

    Examples:
        >>> cell = gc.nn.ConvLSTM2DCell(4, 3, padding="same")
        >>> y, (h, c) = cell(gc.ones((2, 8, 8, 3)), cell.initial_state(2, space=(8, 8)))
        >>> y.shape, c.shape
        ((2, 8, 8, 4), (2, 8, 8, 4))
    """

    space = 2


class ConvLSTM3DCell(_ConvLSTMCell):
    """An `LSTMCell` whose products are convolutions over three axes: one step of a `ConvLSTM3D`.

    Variables: `kernel` [depth, height, width, features, 4 * filters], `recurrent_kernel`
    [depth, height, width, filters, 4 * filters] and `bias` [4 * filters].

    Calling it takes `x` [batch, depth, height, width, features] and a state, a tuple (h, c) of
    [batch, new depth, new height, new width, filters], and gives (h, the new state).
    Args and Raises: see `ConvLSTM2DCell`, for three spatial axes.

    Examples:
        >>> cell = gc.nn.ConvLSTM3DCell(4, 2)
        >>> y, state = cell(gc.ones((2, 5, 5, 5, 3)), cell.initial_state(2, space=(4, 4, 4)))
        >>> y.shape
        (2, 4, 4, 4, 4)
    """

    space = 3


class _ConvLSTM(RNN):
    """An `RNN` of a `_ConvLSTMCell`."""

    kind: ClassVar[type[_ConvLSTMCell]]

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, ...],
        strides: int | tuple[int, ...] = 1,
        padding: Padding = "valid",
        reverse: bool = False,
        return_sequences: bool = True,
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        recurrent_initializer: AnyInitializer = Orthogonal(),  # noqa: B008
        bias_initializer: AnyInitializer = ForgetGateOnes(),  # noqa: B008
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        activation: Activation | str | None = "tanh",
        recurrent_activation: Activation | str | None = "sigmoid",
        kernel_regularizer: AnyRegularizer = None,
        recurrent_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        window = (filters, kernel_size, strides, padding)
        initializers = (kernel_initializer, recurrent_initializer, bias_initializer)
        cell = self.kind(
            *window,
            *initializers,
            "cell",
            dtype,
            activation=activation,
            recurrent_activation=recurrent_activation,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
        )
        super().__init__(cell, reverse, return_sequences, name)

    def initial_state(
        self, batch: Dim, dtype: DTypeLike | None = None, space: tuple[Dim, ...] = ()
    ) -> State:
        cell: Any = self.cell
        return cell.initial_state(batch, dtype, space)


class ConvLSTM1D(_ConvLSTM):
    """An `RNN` of a `ConvLSTM1DCell`, for sequences of signals; its state is (h, c).

    Variables: `cell/kernel`, `cell/recurrent_kernel` and `cell/bias`.

    Calling it takes `x` [batch, time, width, features] and gives [batch, time, new width,
    filters], or [batch, new width, filters] with `return_sequences=False`.
    Args and Raises: see `ConvLSTM2D`, for one spatial axis.

    Examples:
        >>> gc.nn.ConvLSTM1D(4, 3)(gc.ones((2, 5, 8, 3))).shape
        (2, 5, 6, 4)
    """

    kind = ConvLSTM1DCell


class ConvLSTM2D(_ConvLSTM):
    """An `RNN` of a `ConvLSTM2DCell`, for sequences of images; its state is (h, c).

    Variables: `cell/kernel`, `cell/recurrent_kernel` and `cell/bias`.

    Args:
        filters, kernel_size, strides, padding: see `ConvLSTM2DCell`.
        reverse, return_sequences: see `RNN`.
        kernel_initializer, ..., bias_regularizer: see `ConvLSTM2DCell`.

    Calling it takes `x` [batch, time, height, width, features] and gives
    [batch, time, new height, new width, filters], or [batch, new height, new width, filters] with
    `return_sequences=False`; state and `lengths` as in `Recurrent.with_state`.

    Raises:
        AttributeValueError, ShapeError: as `ConvLSTM2DCell` and `RNN`.

    Examples:
        >>> lstm = gc.nn.ConvLSTM2D(4, 3, padding="same", return_sequences=False)
        >>> lstm(gc.ones((2, 5, 8, 8, 3))).shape
        (2, 8, 8, 4)
    """

    kind = ConvLSTM2DCell


class ConvLSTM3D(_ConvLSTM):
    """An `RNN` of a `ConvLSTM3DCell`, for sequences of volumes; its state is (h, c).

    Variables: `cell/kernel`, `cell/recurrent_kernel` and `cell/bias`.

    Calling it takes `x` [batch, time, depth, height, width, features] and gives
    [batch, time, new depth, new height, new width, filters], or the same without the axis of time
    with `return_sequences=False`.
    Args and Raises: see `ConvLSTM2D`, for three spatial axes.

    Examples:
        >>> gc.nn.ConvLSTM3D(4, 3)(gc.ones((2, 5, 6, 6, 6, 3))).shape
        (2, 5, 4, 4, 4, 4)
    """

    kind = ConvLSTM3DCell
