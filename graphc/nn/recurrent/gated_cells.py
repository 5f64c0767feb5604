"""Cells of recurrent networks whose gates decide what the state keeps: GRU and LSTM."""

from __future__ import annotations

from graphc.build.initializer_names import AnyInitializer
from graphc.build.initializers import ForgetGateOnes, Orthogonal, Zeros
from graphc.build.scaled_initializers import GlorotUniform
from graphc.ir.node import Tensor
from graphc.nn.layers.activations import Activation, as_activation, identity
from graphc.nn.layers.regularizers import AnyRegularizer
from graphc.nn.recurrent.cells import Cell, State
from graphc.ops.arrays.joining import split
from graphc.typing import DTypeLike

__all__ = ["GRUCell", "LSTMCell"]


class _GatedCell(Cell):
    """A cell whose gates and candidate have activations."""

    def __init__(
        self,
        units: int,
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
        self.activation = as_activation(activation) or identity
        self.recurrent_activation = as_activation(recurrent_activation) or identity


class GRUCell(_GatedCell):
    """Gated recurrent unit: `h = (1 - z) * n + z * h` with gates `r` and `z` in [0, 1].

    `r, z = sigmoid(x W + h U + b)` and `n = tanh(x W + b + r * (h U + recurrent_bias))`: the
    variant that resets after the product, as in cuDNN. The columns of the variables are `r`, `z`,
    `n`. The state is the tensor `h` [batch, units].

    Variables: those of `Cell`, and `recurrent_bias` [units].

    Args:
        activation: in place of tanh: a function of a tensor, or its name; None for none.
        recurrent_activation: in place of sigmoid, for the gates.
        units, kernel_initializer, ..., dtype: see `Cell`.

    Calling it, Raises: see `Cell`.

    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.

    Examples:
        >>> cell = gc.nn.GRUCell(4)
        >>> y, state = cell(gc.ones((2, 3)), cell.initial_state(2))
        >>> y.shape, state.shape
        ((2, 4), (2, 4))
    """

    gates = 3

    def step(self, projected: Tensor, state: State) -> State:
        with self.scope(projected):
            given = split(projected, 3, axis=-1)
            own = split(self.recur(state), 3, axis=-1)
            gate = self.recurrent_activation
            reset, keep = (gate(x + h) for x, h in zip(given[:2], own[:2], strict=True))
            bias = self._made_bias("recurrent_bias", self.units)
            candidate = self.activation(given[2] + reset * (own[2] + bias))
            return candidate + keep * (state - candidate)


class LSTMCell(_GatedCell):
    """Long short-term memory: `c = f * c + i * g; h = o * tanh(c)`.

    `i, f, o` are sigmoids and `g` is the tanh of `x W + h U + b`; the columns of the variables are
    `i`, `f`, `g`, `o`. The state is the tuple (h, c), each [batch, units]; the output is `h`.

    Args:
        activation: in place of tanh: a function of a tensor, or its name; None for none.
        recurrent_activation: in place of sigmoid, for the gates.
        units, kernel_initializer, ..., dtype: see `Cell`. The bias of the forget gate starts as
            ones by default.

    Calling it, Raises: see `Cell`.

    Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997; Gers et al., "Learning to
    forget", 2000.

    Examples:
        >>> cell = gc.nn.LSTMCell(4)
        >>> y, (h, c) = cell(gc.ones((2, 3)), cell.initial_state(2))
        >>> y.shape, c.shape
        ((2, 4), (2, 4))
    """

    parts = 2
    gates = 4

    def __init__(
        self,
        units: int,
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
        super().__init__(
            units,
            kernel_initializer,
            recurrent_initializer,
            bias_initializer,
            name,
            dtype,
            activation=activation,
            recurrent_activation=recurrent_activation,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
        )

    def step(self, projected: Tensor, state: State) -> State:
        with self.scope(projected):
            h, c = state
            i, f, g, o = split(projected + self.recur(h), 4, axis=-1)
            gate = self.recurrent_activation
            c = gate(f) * c + gate(i) * self.activation(g)
            return gate(o) * self.activation(c), c
