"""Recurrent layers: a cell run along the time axis."""

from __future__ import annotations

from typing import ClassVar

import jax

from graphc.build.initializer_names import AnyInitializer
from graphc.build.initializers import ForgetGateOnes, Orthogonal, Zeros
from graphc.build.scaled_initializers import GlorotUniform
from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.nn.functional.masks import as_lengths
from graphc.nn.layers.activations import Activation
from graphc.nn.layers.layer import Layer, check_rank
from graphc.nn.layers.regularizers import AnyRegularizer
from graphc.nn.recurrent.cells import Cell, SimpleRNNCell, State
from graphc.nn.recurrent.gated_cells import GRUCell, LSTMCell
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.shape import expand_dims, swapaxes
from graphc.ops.control.scan import scan
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert
from graphc.ops.elementwise.comparison import less, where
from graphc.typing import DTypeLike, TensorLike

__all__ = ["GRU", "LSTM", "RNN", "Recurrent", "SimpleRNN"]


class Recurrent(Layer):
    """Base of the layers that run along the time axis and have a state.

    Calling one takes `x` [batch, time, features] and gives the outputs [batch, time, units]; with
    `return_sequences=False` only the last output of each sequence, [batch, units]. `with_state`
    gives the last state too, from which the next call can continue.

    Examples:
        >>> y, state = gc.nn.GRU(4).with_state(gc.ones((2, 5, 3)), lengths=[5, 2])
        >>> y.shape, state.shape
        ((2, 5, 4), (2, 4))
    """

    def __call__(
        self, x: TensorLike, state: State = None, lengths: TensorLike | None = None
    ) -> Tensor:
        return self.with_state(x, state, lengths)[0]

    def with_state(
        self, x: TensorLike, state: State = None, lengths: TensorLike | None = None
    ) -> tuple[Tensor, State]:
        """The outputs, and the state after the last step.

        Args:
            x: [batch, time, features].
            state: to start from; by default zeros.
            lengths: [batch], integers from 0 to time: the number of valid steps of each sequence.
                The outputs after these steps are zero, and the state is that after the last valid
                step. The values of `x` there have no effect if they are finite. Lengths out of
                range are clipped; in runs with `CompileOptions(check_numerics=True)` they are
                errors.

        Returns:
            (outputs, state).

        Examples:
            >>> lstm = gc.nn.LSTM(4)
            >>> y, state = lstm.with_state(gc.ones((2, 5, 3)))
            >>> more, state = lstm.with_state(gc.ones((2, 1, 3)), state)
            >>> y.shape, more.shape
            ((2, 5, 4), (2, 1, 4))
        """
        raise NotImplementedError

    def initial_state(self, batch: Dim, dtype: DTypeLike | None = None) -> State:
        """Zeros for `batch` sequences, by default in the dtype of the variables.

        Examples:
            >>> gc.nn.GRU(4).initial_state(2).shape
            (2, 4)
        """
        raise NotImplementedError


class RNN(Recurrent):
    """Runs a cell along the time axis, in one loop.

    Variables: the cell's.

    Args:
        cell: `LSTMCell(...)` or another cell.
        reverse: run from the last step to the first. Each output keeps the position of its input.
            With `lengths`, each sequence starts at its own last step.
        return_sequences: False to give only the output of the step that runs last.
        name: see `Layer`.

    Calling it: see `Recurrent`.

    Raises:
        AttributeValueError: `cell` is not a cell, an option has an invalid value, or the state is
            not a state of the cell.
        ShapeError: `x` is not of rank 3, or `lengths` is not of rank 1.
        DTypeError: `lengths` are not integers.

    Examples:
        >>> sums = gc.nn.RNN(gc.nn.SimpleRNNCell(1, None, "ones", "ones"), reverse=True)
        >>> run(sums([[[1.0], [2.0], [3.0]]]))[0, :, 0]
        Array([6., 5., 3.], dtype=float32)
    """

    def __init__(
        self,
        cell: Cell,
        reverse: bool = False,
        return_sequences: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if not isinstance(cell, Cell):
            refuse(
                f"{type(self).__name__}: the cell must be a Cell, got {cell!r}",
                error=AttributeValueError,
                hint="gc.nn.RNN(gc.nn.LSTMCell(64)), or gc.nn.LSTM(64)",
            )
        for what, value in (("reverse", reverse), ("return_sequences", return_sequences)):
            if type(value) is not bool:
                refuse(
                    f"{type(self).__name__}: {what} must be True or False, got {value!r}",
                    error=AttributeValueError,
                    hint="the size of the input is known from the first call; options are given by "
                    "name: gc.nn.LSTM(64, activation='relu')",
                )
        self.cell = cell
        self.reverse = reverse
        self.return_sequences = return_sequences

    def with_state(
        self, x: TensorLike, state: State = None, lengths: TensorLike | None = None
    ) -> tuple[Tensor, State]:
        with self.scope(x):
            x = convert(x)
            space = self.cell.space
            between = "".join(f"{size}, " for size in ("depth", "height", "width")[3 - space :])
            layout = f"[batch, time, {between}features] (rank {3 + space})"
            check_rank(self, x, (3 + space,), layout)
            batch, time, *_ = x.type.shape
            counts = None
            if lengths is not None:
                # Layers of the same kind have the same name here, so that they may share a loop.
                kind = type(self).__name__
                counts = as_lengths(str(self), lengths, batch, time, of=kind)
            projected = self.cell.project(x)
            cell = self.cell
            first = cell.first_state(projected) if state is None else cell.as_state(state)
            xs = [swapaxes(projected, 0, 1)]
            if counts is not None:
                xs.append(less(iota((time, 1), 0, counts.dtype), counts))
            outputs, last = self._loop(xs, first)
            return (outputs if self.return_sequences else self.cell.output(last)), last

    def _loop(self, xs: list[Tensor], first: State) -> tuple[Tensor, State]:
        def turn(state: State, slices: list[Tensor]) -> tuple[State, Tensor]:
            following = self.cell.step(slices[0], state)
            y = self.cell.output(following)
            if len(slices) == 2:
                counts = expand_dims(slices[1], tuple(range(1, y.ndim)))
                following = jax.tree.map(lambda a, b: where(counts, a, b), following, state)
                y = where(counts, y, 0)
            return following, y

        last, stacked = scan(turn, first, xs, reverse=self.reverse)
        return swapaxes(stacked, 0, 1), last

    def initial_state(self, batch: Dim, dtype: DTypeLike | None = None) -> State:
        return self.cell.initial_state(batch, dtype)


class _Gated(RNN):
    """An `RNN` that makes its own cell."""

    kind: ClassVar[type[GRUCell | LSTMCell]]

    def __init__(
        self,
        units: int,
        reverse: bool = False,
        return_sequences: bool = True,
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        recurrent_initializer: AnyInitializer = Orthogonal(),  # noqa: B008
        bias_initializer: AnyInitializer = Zeros(),  # noqa: B008
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        activation: Activation | str | None = "tanh",
        recurrent_activation: Activation | str | None = "sigmoid",
        kernel_regularizer: AnyRegularizer = None,
        recurrent_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        initializers = (kernel_initializer, recurrent_initializer, bias_initializer)
        cell = self.kind(
            units,
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


class GRU(_Gated):
    """An `RNN` of a `GRUCell`. Its state is one tensor [batch, units].

    Variables: `cell/kernel`, `cell/recurrent_kernel`, `cell/bias` and `cell/recurrent_bias`.

    Args:
        units: the size of the outputs.
        reverse, return_sequences: see `RNN`.
        kernel_initializer, recurrent_initializer, bias_initializer: see `Cell`.
        name, dtype: see `Layer`.
        activation, recurrent_activation: see `GRUCell`.
        kernel_regularizer, recurrent_regularizer, bias_regularizer: as for `Dense`.

    Calling it takes `x` [batch, time, features] and gives [batch, time, units], or [batch, units]
    with `return_sequences=False`; see `Recurrent`.

    Examples:
        >>> gc.nn.GRU(4)(gc.ones((2, 5, 3))).shape
        (2, 5, 4)
    """

    kind = GRUCell


class LSTM(_Gated):
    """An `RNN` of an `LSTMCell`. Its state is the tuple (h, c), each [batch, units].

    Variables: `cell/kernel`, `cell/recurrent_kernel` and `cell/bias`.

    Args, calling it: see `GRU`. The bias of the forget gate starts as ones.

    Examples:
        >>> gc.nn.LSTM(4, return_sequences=False)(gc.ones((2, 5, 3))).shape
        (2, 4)
    """

    kind = LSTMCell

    def __init__(
        self,
        units: int,
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
        initializers = (kernel_initializer, recurrent_initializer, bias_initializer)
        super().__init__(
            units,
            reverse,
            return_sequences,
            *initializers,
            name,
            dtype,
            activation=activation,
            recurrent_activation=recurrent_activation,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
        )


class SimpleRNN(RNN):
    """An `RNN` of a `SimpleRNNCell`: `h = activation(x @ kernel + h @ recurrent_kernel + bias)`.

    Variables: `cell/kernel`, `cell/recurrent_kernel` and `cell/bias`.

    Args:
        activation: a function of a tensor, or its name; None for none.
        units, reverse, ..., dtype: see `GRU`.

    Calling it takes `x` [batch, time, features] and gives [batch, time, units], or [batch, units]
    with `return_sequences=False`; see `Recurrent`.

    Examples:
        >>> rnn = gc.nn.SimpleRNN(1, None, kernel_initializer="ones", recurrent_initializer="ones")
        >>> run(rnn([[[1.0], [2.0], [3.0]]]))[0, :, 0]
        Array([1., 3., 6.], dtype=float32)
    """

    def __init__(
        self,
        units: int,
        activation: Activation | str | None = "tanh",
        reverse: bool = False,
        return_sequences: bool = True,
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        recurrent_initializer: AnyInitializer = Orthogonal(),  # noqa: B008
        bias_initializer: AnyInitializer = Zeros(),  # noqa: B008
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        kernel_regularizer: AnyRegularizer = None,
        recurrent_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        initializers = (kernel_initializer, recurrent_initializer, bias_initializer)
        cell = SimpleRNNCell(
            units,
            activation,
            *initializers,
            "cell",
            dtype,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
        )
        super().__init__(cell, reverse, return_sequences, name)
