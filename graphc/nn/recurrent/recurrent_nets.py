"""Recurrent layers made of recurrent layers: bidirectional and stacked."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from graphc.errors import AttributeValueError, GraphError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ir.scopes import name_scope
from graphc.nn.layers.dropout import Dropout
from graphc.nn.layers.layer import Layer
from graphc.nn.recurrent.cells import State
from graphc.nn.recurrent.recurrent_layers import RNN, Recurrent
from graphc.ops.arrays.joining import concatenate
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert
from graphc.typing import DTypeLike, TensorLike

__all__ = ["Bidirectional", "StackedRNN"]


class Bidirectional(Recurrent):
    """A forward and a backward layer, whose outputs are concatenated along the last axis.

    The state is the tuple of both layers' states.

    Variables: those of the layers, as `forward/...` and `backward/...`.

    Args:
        forward: an `RNN` that has not been called, such as `gc.nn.LSTM(64)`.
        backward: one that runs in reverse; by default a copy of `forward` with its own variables.
        name: see `Layer`.

    Calling it takes `x` [batch, time, features] and gives [batch, time, forward and backward
    units]; see `Recurrent`.

    Raises:
        AttributeValueError: an argument is not an `RNN`, or runs in the wrong direction.
        GraphError: `forward` has been called, and `backward` is omitted.

    Source: Schuster and Paliwal, "Bidirectional recurrent neural networks", 1997.

    Examples:
        >>> gc.nn.Bidirectional(gc.nn.LSTM(8))(gc.ones((2, 5, 3))).shape
        (2, 5, 16)
    """

    def __init__(self, forward: RNN, backward: RNN | None = None, name: str | None = None) -> None:
        super().__init__(name)
        _check_direction("forward", forward, reverse=False)
        if backward is None:
            if forward.built:
                raise GraphError.here(
                    f"Bidirectional: {forward} has been called, so it cannot be made twice",
                    hint="give the backward layer too: Bidirectional(a, b)",
                )
            backward = copy.deepcopy(forward)
            backward.reverse = True
        _check_direction("backward", backward, reverse=True)
        self.forward = forward
        self.backward = backward

    def with_state(
        self, x: TensorLike, state: State = None, lengths: TensorLike | None = None
    ) -> tuple[Tensor, State]:
        with self.scope(x):
            x = convert(x)
            before, after = _states(self, state, 2)
            with name_scope("forward"):
                a, before = self.forward.with_state(x, before, lengths)
            with name_scope("backward"):
                b, after = self.backward.with_state(x, after, lengths)
            return concatenate([a, b], -1), (before, after)

    def initial_state(self, batch: Dim, dtype: DTypeLike | None = None) -> State:
        return tuple(rnn.initial_state(batch, dtype) for rnn in (self.forward, self.backward))


class StackedRNN(Recurrent):
    """Recurrent layers, each on the outputs of the layer before.

    The state is the tuple of the layers' states.

    Args:
        layers: `RNN`s and `Bidirectional`s. All but the last must return sequences.
        dropout: in training, the rate of dropout between the layers.
        name: see `Layer`.

    Calling it takes `x` [batch, time, features], a state, `lengths` as in `Recurrent.with_state`,
    and `training`, which is required if there is dropout. It gives the outputs of the last layer.

    Raises:
        AttributeValueError: there are no layers, an item is not a recurrent layer, or the rate is
            out of range.

    Examples:
        >>> stack = gc.nn.StackedRNN([gc.nn.LSTM(8), gc.nn.GRU(4, return_sequences=False)])
        >>> stack(gc.ones((2, 5, 3))).shape
        (2, 4)
    """

    def __init__(
        self, layers: Sequence[Recurrent], dropout: float = 0.0, name: str | None = None
    ) -> None:
        super().__init__(name)
        self.layers = list(layers)
        given: Sequence[object] = self.layers
        if not given or not all(isinstance(layer, Recurrent) for layer in given):
            refuse(
                f"StackedRNN: takes recurrent layers, one or more, got {self.layers!r}",
                error=AttributeValueError,
                hint="gc.nn.StackedRNN([gc.nn.LSTM(64), gc.nn.LSTM(64)]); gc.nn.RNN(cell) makes a "
                "layer of a cell",
            )
        self.dropout = Dropout(dropout) if dropout else None

    def __call__(
        self,
        x: TensorLike,
        state: State = None,
        lengths: TensorLike | None = None,
        training: bool | Tensor | None = None,
    ) -> Tensor:
        return self.with_state(x, state, lengths, training)[0]

    def with_state(
        self,
        x: TensorLike,
        state: State = None,
        lengths: TensorLike | None = None,
        training: bool | Tensor | None = None,
    ) -> tuple[Tensor, State]:
        with self.scope(x):
            y, states = convert(x), []
            rows = zip(self.layers, _states(self, state, len(self.layers)), strict=True)
            for place, (rnn, first) in enumerate(rows):
                if place and self.dropout is not None:
                    y = self.dropout(y, training)
                y, last = rnn.with_state(y, first, lengths)
                states.append(last)
            return y, tuple(states)

    def initial_state(self, batch: Dim, dtype: DTypeLike | None = None) -> State:
        return tuple(rnn.initial_state(batch, dtype) for rnn in self.layers)


def _states(layer: Layer, state: State, count: int) -> Sequence[State]:
    """The state of each of `count` layers."""
    if state is None:
        return [None] * count
    if not isinstance(state, (tuple, list)) or len(state) != count:
        refuse(
            f"{layer}: the state must be a tuple of {count}, one for each layer, got {state!r}",
            error=AttributeValueError,
            hint="pass one that the layer gave, or leave it out to start from zeros",
        )
    return state


def _check_direction(which: str, rnn: Any, *, reverse: bool) -> None:
    if not isinstance(rnn, RNN) or rnn.reverse != reverse:
        refuse(
            f"Bidirectional: the {which} layer must be an RNN with reverse={reverse}, got {rnn!r}",
            error=AttributeValueError,
            hint="gc.nn.Bidirectional(gc.nn.LSTM(64))",
        )
