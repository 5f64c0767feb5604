"""Recurrent layers, as scans over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from graphc import ops
from graphc.importers.torch.call import Call, Rule
from graphc.importers.torch.families.randoms import dropped
from graphc.ops.control.scan import scan
from graphc.ops.elementwise import activation

State = tuple[Any, ...]
Step = Callable[[Any, Any, State], State]
"""(projected input, projected state, state) -> the new state, whose first part is the result."""


def _simple(function: Callable[[Any], Any]) -> Step:
    return lambda x, h, state: (function(x + h),)


def _gru(x: Any, h: Any, state: State) -> State:
    reset_x, update_x, new_x = ops.split(x, 3, axis=-1)
    reset_h, update_h, new_h = ops.split(h, 3, axis=-1)
    update = ops.sigmoid(update_x + update_h)
    new = ops.tanh(new_x + ops.sigmoid(reset_x + reset_h) * new_h)
    return ((1 - update) * new + update * state[0],)


def _lstm(x: Any, h: Any, state: State) -> State:
    enter, keep, new, leave = ops.split(x + h, 4, axis=-1)
    cell = ops.sigmoid(keep) * state[1] + ops.sigmoid(enter) * ops.tanh(new)
    return ops.sigmoid(leave) * ops.tanh(cell), cell


def _direction(
    step: Step, x: Any, init: State, weights: Sequence[Any], reverse: bool
) -> tuple[State, Any]:
    """One direction of one layer over [time, batch, size]: the last state, and all results."""
    kernel, own, *rest = weights
    biases, projection = rest[:2] if len(rest) > 1 else [], rest[len(rest) // 2 * 2 :]
    projected = ops.matmul(x, ops.transpose(kernel))
    if biases:
        projected = projected + biases[0]

    def body(state: Any, now: Any) -> Any:
        h = ops.matmul(state[0], ops.transpose(own))
        if biases:
            h = h + biases[1]
        new = step(now, h, state)
        if projection:
            new = (ops.matmul(new[0], ops.transpose(projection[0])), *new[1:])
        return new, new[0]

    last, ys = scan(body, init, projected, reverse=reverse)
    return tuple(last), ys


def _layers(
    step: Step, x: Any, states: State, weights: Iterator[list[Any]], directions: int, rate: float
) -> tuple[Any, list[State]]:
    """All layers: the results of the last one, and the last states of all."""
    lasts: list[State] = []
    count = states[0].shape[0]
    for first in range(0, count, directions):
        found = []
        for i in range(directions):
            init = tuple(state[first + i] for state in states)
            last, ys = _direction(step, x, init, next(weights), reverse=i == 1)
            lasts.append(last)
            found.append(ys)
        x = found[0] if directions == 1 else ops.concatenate(found, axis=-1)
        if rate and first + directions < count:
            x = dropped(x, rate)
    return x, lasts


def _recurrent(step: Step) -> Rule:
    def rule(
        call: Call,
        x: Any,
        states: Any,
        params: Any,
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        given = tuple(states) if isinstance(states, (list, tuple)) else (states,)
        directions = 2 if bidirectional else 1
        each = len(params) // (layers * directions)  # kernels, biases, and perhaps a projection
        weights = iter([params[i : i + each] for i in range(0, len(params), each)])
        x = ops.swapaxes(x, 0, 1) if batch_first else x
        ys, lasts = _layers(step, x, given, weights, directions, dropout if train else 0)
        ys = ops.swapaxes(ys, 0, 1) if batch_first else ys
        return ys, *(ops.stack([last[i] for last in lasts]) for i in range(len(given)))

    return rule


RULES: Final[dict[str, Rule]] = {
    "aten.gru.input": _recurrent(_gru),
    "aten.lstm.input": _recurrent(_lstm),
    "aten.rnn_relu.input": _recurrent(_simple(activation.relu)),
    "aten.rnn_tanh.input": _recurrent(_simple(ops.tanh)),
}
