"""Recurrent layers over sequences. Their states are zeros at the begin of each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc import nn, ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.values import NOTHING, Value
from graphc.importers.tflite.lstm_integers import Rounding, real
from graphc.ir.node import Tensor

FAMILY = Family()
Step = Callable[[tuple[Tensor, ...], Tensor], tuple[tuple[Tensor, ...], Tensor]]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda x: x, "Relu": nn.relu, "Relu6": nn.relu6, "Tanh": ops.tanh,
    "ReluN1To1": lambda x: ops.clip(x, -1, 1),
}  # fmt: skip


def _activation(call: Call) -> Callable[[Tensor], Tensor]:
    name = call.text("activation")
    if name not in _ACTIVATIONS:
        call.refuse(f"has the activation {name}")
    return _ACTIVATIONS[name]


def _scanned(x: Tensor, init: tuple[Tensor, ...], step: Step, backwards: bool) -> Tensor:
    """The results for x [time, batch, ...]."""
    _, found = ops.scan(step, init, ops.flip(x, [0]) if backwards else x)
    return ops.flip(found, [0]) if backwards else found


def _zeros(x: Tensor, size: Tensor, axis: int) -> Tensor:
    return ops.zeros((x.shape[1], size.shape[axis]), x.dtype)


def _times(x: Tensor, w: Tensor | None) -> Tensor:
    """x with a matrix of [outputs, inputs]."""
    assert w is not None
    return ops.matmul(x, w, transpose_b=True)


def _normalised(y: Tensor, scale: Tensor | None) -> Tensor:
    """Gates [batch, units] with mean 0 and variance 1 along the units, times a scale."""
    if scale is None:
        return y
    mean = ops.mean(y, -1, keepdims=True)
    spread = ops.mean(ops.square(y - mean), -1, keepdims=True)
    return (y - mean) * ops.rsqrt(spread + 1e-8) * scale


def _projected(h: Tensor, projection: Tensor | None, bias: Tensor | None, limit: float) -> Tensor:
    """The state of a cell with a projection, limited to [-limit, limit] if that is positive."""
    if projection is None:
        return h
    h = _times(h, projection)
    h = h if bias is None else h + bias
    return ops.clip(h, -limit, limit) if limit > 0 else h


def _lstm(call: Call, x: Tensor, values: Sequence[Value], backwards: bool = False) -> Tensor:
    """An LSTM of x [time, batch, inputs].

    Args:
        values: weights of the inputs, of the recurrence, of the peepholes, the biases, the
            projection and its bias; then perhaps the scales of layer normalisation. The gates are
            in the order input, forget, cell, output; the weights of the input gate are left out if
            it is one less the forget gate.
    """
    found: list[Tensor | None]
    found = [None if value is NOTHING else call.tensor(value) for value in values]
    found += [None] * (21 - len(found))
    w, r, biases = found[:4], found[4:8], found[11:15]
    peepholes = [found[8], found[9], None, found[10]]
    projection, norms = found[15], found[17:21]
    if any(w[i] is None or r[i] is None for i in (1, 2, 3)) or (w[0] is None) != (r[0] is None):
        call.refuse("has no weights for a gate")
    activation = _activation(call)
    cell_clip, out_clip = call.attr("cell_clip", 0.0), call.attr("proj_clip", 0.0)

    plain = not any(each is not None for each in (*peepholes, *norms))
    rounding = Rounding.of(call, rounds_gates=plain)

    def gate(i: int, x: Tensor, h: Tensor, c: Tensor | None = None) -> Tensor:
        own, past, peephole, bias = _times(x, w[i]), _times(h, r[i]), peepholes[i], biases[i]
        if plain:
            own = own if bias is None else own + bias
            return own + past if rounding is None else rounding.gate(own, past)
        y = own + past if peephole is None or c is None else own + past + c * peephole
        y = _normalised(y, norms[i])
        return y if bias is None else y + bias

    def projected(h: Tensor) -> Tensor:
        return _projected(h, projection, found[16], out_clip)

    def results(h: Tensor) -> tuple[Tensor, Tensor]:
        """The next state and the output."""
        if rounding is None:
            return (projected(h),) * 2
        steps = rounding.steps(h, rounding.hidden)
        if projection is not None:
            steps = rounding.steps(projected(real(steps, rounding.hidden)), rounding.state)
        return real(steps, rounding.state), real(steps, rounding.output)

    unit = (lambda y: y) if rounding is None else rounding.unit
    add = ops.add if rounding is None else rounding.new_cell

    def step(state: tuple[Tensor, ...], x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        h, c = state
        forget = unit(ops.sigmoid(gate(1, x, h, c)))
        enter = 1 - forget if w[0] is None else unit(ops.sigmoid(gate(0, x, h, c)))
        c = add(forget * c, enter * unit(activation(gate(2, x, h))))
        c = ops.clip(c, -cell_clip, cell_clip) if cell_clip > 0 else c
        h, y = results(unit(ops.sigmoid(gate(3, x, h, c))) * unit(activation(c)))
        return (h, c), y

    assert r[1] is not None
    state = (_zeros(x, r[1], 1), _zeros(x, r[1], 0))
    return _scanned(x, state, step, backwards)


def _rnn(call: Call, x: Tensor, values: Sequence[Value], backwards: bool = False) -> Tensor:
    """An RNN of x [time, batch, inputs] with weights, weights of the recurrence and bias."""
    w, r, bias = (call.tensor(value) for value in values[:3])
    activation = _activation(call)

    def step(state: tuple[Tensor, ...], x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        h = activation(_times(x, w) + _times(state[0], r) + bias)
        return (h,), h

    return _scanned(x, (_zeros(x, r, 1),), step, backwards)


def _time_first(call: Call, x: Tensor) -> Tensor:
    if x.ndim != 3:
        call.refuse(f"has an input of {x.ndim} axes")
    return x if call.attr("time_major", False) else ops.transpose(x, (1, 0, 2))


@FAMILY.rule("LiteUnidirectionalSequenceLstm", kinds="tv*")
def lstm(call: Call, x: Tensor, *values: Value) -> Tensor:
    weights = [*values[:17], *values[19:23]]  # between them is the state
    return _time_first(call, _lstm(call, _time_first(call, x), weights))


@FAMILY.rule("LiteUnidirectionalSequenceRnn", kinds="tv*")
def rnn(call: Call, x: Tensor, *values: Value) -> Tensor:
    return _time_first(call, _rnn(call, _time_first(call, x), values))


@FAMILY.rule("LiteBidirectionalSequenceLstm", "LiteBidirectionalSequenceRnn", kinds="tv*")
def bidirectional(call: Call, x: Tensor, *values: Value) -> list[Tensor]:
    is_lstm = "Lstm" in call.node.op
    count, places = (17, (0, 17)) if is_lstm else (3, (0, 4))
    if any(value is not NOTHING for value in values[38 if is_lstm else 8 :]):
        call.refuse("has a second input")
    layer, x = _lstm if is_lstm else _rnn, _time_first(call, x)
    found = [
        _time_first(call, layer(call, x, values[start : start + count], backwards))
        for start, backwards in zip(places, (False, True), strict=True)
    ]
    return [ops.concat(found, -1)] if call.attr("merge_outputs", False) else found
