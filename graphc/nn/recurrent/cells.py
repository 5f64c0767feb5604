"""Cells of recurrent networks: one step in time, `y, state = cell(x, state)`."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from graphc.build.initializer_names import AnyInitializer, as_initializer
from graphc.build.initializers import Orthogonal, Zeros
from graphc.build.scaled_initializers import GlorotUniform
from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ir.variable import Variable
from graphc.nn.layers.activations import Activation, as_activation
from graphc.nn.layers.layer import Layer, features_of, positive
from graphc.nn.layers.regularizers import AnyRegularizer, as_regularizer
from graphc.ops.arrays.creation import zeros
from graphc.ops.core.checks import refuse, same_shape
from graphc.ops.core.emit import convert
from graphc.ops.elementwise.arithmetic import add
from graphc.ops.matrices.matrix_product import matmul
from graphc.typing import DTypeLike, TensorLike, TensorTree

__all__ = ["Cell", "SimpleRNNCell"]

State: TypeAlias = TensorTree
"""A tensor [batch, units], or a tuple of them if a cell keeps several."""


class Cell(Layer):
    """Base of all cells, including those that users define: one step in time.

    A step has two parts. `project` computes what does not depend on the state; it runs once for all
    steps of a sequence. `step` computes the rest. The output is the first tensor of the new state.
    A subclass sets the number of tensors in its state (`parts`) and the number of times that its
    kernel has `units` columns (`gates`), and defines `step`.

    Variables: `kernel` [features, gates * units], `recurrent_kernel` [units, gates * units] and
    `bias` [gates * units].

    Args:
        units: the size of the output and of each tensor of the state.
        kernel_initializer, recurrent_initializer, bias_initializer: as for `Dense`.
        name, dtype: see `Layer`.
        kernel_regularizer, recurrent_regularizer, bias_regularizer: as for `Dense`.

    Calling it takes `x` [batch, features] and a state, and gives (`y` [batch, units], the new
    state). The state is a tensor [batch, units], or a tuple of `parts` such tensors.

    Raises:
        AttributeValueError: `units` is not positive, or tensors of the state are missing.
        ShapeError: the number of features is not known or has changed, or the state has another
            shape.

    Examples:
        >>> class Sum(gc.nn.Cell):
        ...     def step(self, projected, state):
        ...         return projected + state
        >>> sums = gc.nn.RNN(Sum(1, kernel_initializer="ones"))
        >>> run(sums([[[1.0], [2.0], [3.0]]]))[0, :, 0]
        Array([1., 3., 6.], dtype=float32)
    """

    parts: ClassVar[int] = 1
    gates: ClassVar[int] = 1
    space: ClassVar[int] = 0  # how many spatial axes there are between batch and features

    def __init__(
        self,
        units: int,
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
        super().__init__(name, dtype)
        self.units = positive(type(self).__name__, "units", units)
        kind = type(self).__name__
        self.kernel_initializer = as_initializer(kernel_initializer, kind)
        self.recurrent_initializer = as_initializer(recurrent_initializer, kind)
        self.bias_initializer = as_initializer(bias_initializer, kind)
        self.kernel_regularizer = as_regularizer(kernel_regularizer, kind)
        self.recurrent_regularizer = as_regularizer(recurrent_regularizer, kind)
        self.bias_regularizer = as_regularizer(bias_regularizer, kind)

    def __call__(self, x: TensorLike, state: State) -> tuple[Tensor, State]:
        with self.scope(x):
            following = self.step(self.project(x), self.as_state(state))
            return self.output(following), following

    def initial_state(self, batch: Dim, dtype: DTypeLike | None = None) -> State:
        """Zeros for `batch` sequences, by default in the dtype of the variables.

        Examples:
            >>> h, c = gc.nn.LSTMCell(4).initial_state(2)
            >>> h.shape, c.shape
            ((2, 4), (2, 4))
        """
        part = zeros((batch, self.units), self.dtype if dtype is None else dtype)
        return part if self.parts == 1 else (part,) * self.parts

    def first_state(self, projected: Tensor) -> State:
        """The initial state, for the result of `project` on sequences [batch, time, ...].

        Examples:
            >>> cell = gc.nn.GRUCell(4)
            >>> cell.first_state(cell.project(gc.ones((2, 5, 3)))).shape
            (2, 4)
        """
        return self.initial_state(projected.shape[0], projected.dtype)

    def as_state(self, state: State) -> State:
        """`state` as tensors.

        Raises:
            AttributeValueError, ShapeError: it is not a state of this cell.

        Examples:
            >>> gc.nn.GRUCell(2).as_state(gc.ones((1, 2))).shape
            (1, 2)
        """
        several = isinstance(state, (tuple, list))
        parts = list(state) if several else [state]
        shape = f"[batch, {'..., ' if self.space else ''}{self.units}]"
        if several != (self.parts > 1) or len(parts) != self.parts:
            wanted = f"one tensor {shape}" if self.parts == 1 else f"{self.parts} tensors {shape}"
            refuse(
                f"{self}: the state must be {wanted}, got {state!r}",
                error=AttributeValueError,
                hint="pass one that the layer gave, or leave it out to start from zeros",
            )
        tensors = [convert(part) for part in parts]
        for tensor in tensors:
            if tensor.ndim != 2 + self.space or not same_shape(
                tensor.shape[-1:], (self.units,), tensor
            ):
                refuse(
                    f"{self}: the state must be of shape {shape}, got {tensor.type}",
                    state=tensor,
                )
        return tuple(tensors) if several else tensors[0]

    def project(self, x: TensorLike) -> Tensor:
        """`x @ kernel + bias`, of any number of steps: [..., features] to [..., gates * units].

        Examples:
            >>> gc.nn.LSTMCell(4).project(gc.ones((2, 5, 3))).shape
            (2, 5, 16)
        """
        with self.scope(x):
            x = convert(x)
            size = self.gates * self.units
            kernel = self._made_kernel((features_of(self, x), size))
            bias = self._made_bias("bias", size)
            return add(matmul(x, kernel), bias)

    def output(self, state: State) -> Tensor:
        """The output of the step that led to `state`: its first part.

        Examples:
            >>> cell = gc.nn.LSTMCell(4)
            >>> h, c = cell.initial_state(2)
            >>> cell.output((h, c)) is h
            True
        """
        first: Tensor = state if self.parts == 1 else state[0]
        return first

    def step(self, projected: Tensor, state: State) -> State:
        """The state after a step. A subclass defines it; it is called inside `self.scope`.

        Args:
            projected: [batch, gates * units], from `project`.
            state: the state after the previous step.

        Examples:
            >>> cell = gc.nn.GRUCell(4)
            >>> cell.step(cell.project(gc.ones((2, 3))), gc.zeros((2, 4))).shape
            (2, 4)
        """
        raise NotImplementedError

    def recur(self, h: Tensor) -> Tensor:
        """`h @ recurrent_kernel`: [batch, units] to [batch, gates * units].

        Examples:
            >>> cell = gc.nn.LSTMCell(4)
            >>> with cell.scope(gc.zeros((2, 4))):
            ...     cell.recur(gc.zeros((2, 4))).shape
            (2, 16)
        """
        return matmul(h, self._made_recurrent_kernel((self.units, self.gates * self.units)))

    def _made_kernel(self, shape: tuple[int, ...]) -> Variable | Tensor:
        init, penalty = self.kernel_initializer, self.kernel_regularizer
        return self.variable("kernel", init, shape, regularizer=penalty)

    def _made_recurrent_kernel(self, shape: tuple[int, ...]) -> Variable | Tensor:
        init, penalty = self.recurrent_initializer, self.recurrent_regularizer
        return self.variable("recurrent_kernel", init, shape, regularizer=penalty)

    def _made_bias(self, name: str, size: int) -> Variable | Tensor:
        init, penalty = self.bias_initializer, self.bias_regularizer
        return self.variable(name, init, (size,), regularizer=penalty)


class SimpleRNNCell(Cell):
    """One step: `h = activation(x @ kernel + h @ recurrent_kernel + bias)`.

    The state is the tensor `h` [batch, units].

    Args:
        activation: a function of a tensor, or its name; None for none.
        units, kernel_initializer, ..., dtype: see `Cell`.

    Calling it, Raises: see `Cell`.

    Source: Elman, "Finding structure in time", 1990.

    Examples:
        >>> cell = gc.nn.SimpleRNNCell(1, None, "ones", "ones")
        >>> y, state = cell([[2.0]], gc.constant([[3.0]]))
        >>> run(y)
        Array([[5.]], dtype=float32)
    """

    def __init__(
        self,
        units: int,
        activation: Activation | str | None = "tanh",
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
        super().__init__(
            units,
            kernel_initializer,
            recurrent_initializer,
            bias_initializer,
            name,
            dtype,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
        )
        self.activation = as_activation(activation)

    def step(self, projected: Tensor, state: State) -> State:
        with self.scope(projected):
            h = projected + self.recur(state)
            return h if self.activation is None else self.activation(h)
