"""Recurrent layers, as scans over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.ir.node import Tensor
from graphc.ops.control.scan import scan
from graphc.ops.elementwise import activation

Function = Callable[[Any], Any]


def _function(name: str, alpha: float | None, beta: float | None) -> Function:
    def of(value: float | None, default: float) -> float:
        return default if value is None else value

    found: dict[str, Function] = {
        "relu": activation.relu,
        "tanh": ops.tanh,
        "sigmoid": ops.sigmoid,
        "softsign": lambda x: x / (1 + ops.abs(x)),
        "softplus": ops.softplus,
        "affine": lambda x: x * of(alpha, 1.0) + of(beta, 0.0),
        "leakyrelu": lambda x: activation.leaky_relu(x, of(alpha, 0.01)),
        "thresholdedrelu": lambda x: ops.where(x > of(alpha, 1.0), x, ops.zeros_like(x)),
        "scaledtanh": lambda x: of(alpha, 1.0) * ops.tanh(of(beta, 1.0) * x),
        "hardsigmoid": lambda x: ops.clip(x * of(alpha, 0.2) + of(beta, 0.5), 0, 1),
        "elu": lambda x: ops.where(x > 0, x, of(alpha, 1.0) * ops.expm1(ops.minimum(x, 0))),
    }
    if name.lower() not in found:
        raise Refused(f"with the activation {name!r} is not supported")
    return found[name.lower()]


def _functions(
    call: Call, default: Sequence[str], direction: int, directions: int
) -> list[Function]:
    names = call.attr("activations") or [*default] * directions
    each = len(default)
    alphas, betas = call.attr("activation_alpha") or [], call.attr("activation_beta") or []
    found = []
    for i in range(direction * each, (direction + 1) * each):
        alpha = alphas[i] if i < len(alphas) else None
        beta = betas[i] if i < len(betas) else None
        found.append(_function(names[i], alpha, beta))
    return found


class Layer:
    """The inputs of a recurrent layer for one direction.

    Attributes:
        call: the node.
        direction: the number of the direction.
        r: the kernel of the states; a subclass that does not set it has its own `of_state`.
        size: how many units the layer has.
    """

    def __init__(
        self, call: Call, direction: int, directions: int, gates: int, names: Sequence[str]
    ) -> None:
        self.call, self.direction = call, direction
        size = self._read_kernels()
        zeros = ops.zeros((2 * gates * size,), call.x(0).dtype)
        bias = call.x(3)[direction] if call.has(3) else zeros
        self.wb, self.rb = bias[: gates * size], bias[gates * size :]
        self.size: Any = size
        self.functions = _functions(call, names, direction, directions)
        clip = call.attr("clip")
        self.clip: Function = (lambda x: ops.clip(x, -clip, clip)) if clip else (lambda x: x)

    rows_are_apart = True  # no row of the batch has an effect on another

    def _read_kernels(self) -> Any:
        """Sets the kernels; returns the number of units."""
        self.w, self.r = self.call.x(1)[self.direction], self.call.x(2)[self.direction]
        return self.r.shape[1]

    def of_state(self, h: Any) -> Any:
        """The state times its kernel."""
        return ops.matmul(h, ops.transpose(self.r))

    def projected(self, x: Tensor) -> Any:
        """The inputs of all steps times the kernel."""
        return ops.matmul(x, ops.transpose(self.w)) + self.wb

    def part(self, v: Any, i: int) -> Any:
        """The i-th gate's part of the last axis."""
        return v[..., i * self.size : (i + 1) * self.size]


def _rnn_step(layer: Layer) -> Callable[[Any, Any], Any]:
    (f,) = layer.functions

    def step(state: Any, x: Any) -> Any:
        (h,) = state
        return (f(layer.clip(x + layer.of_state(h) + layer.rb)),)

    return step


def _gru_step(layer: Layer) -> Callable[[Any, Any], Any]:
    f, g = layer.functions
    size = layer.size
    after = layer.call.attr("linear_before_reset", 0)

    def step(state: Any, x: Any) -> Any:
        (h,) = state
        gates = (
            x[..., : 2 * size]
            + ops.matmul(h, ops.transpose(layer.r[: 2 * size]))
            + layer.rb[: 2 * size]
        )
        z, r = f(layer.clip(layer.part(gates, 0))), f(layer.clip(layer.part(gates, 1)))
        kernel, bias = ops.transpose(layer.r[2 * size :]), layer.rb[2 * size :]
        inner = r * (ops.matmul(h, kernel) + bias) if after else ops.matmul(r * h, kernel) + bias
        new = g(layer.clip(layer.part(x, 2) + inner))
        return ((1 - z) * new + z * h,)

    return step


def lstm_step(layer: Layer, peepholes: Any) -> Callable[[Any, Any], Any]:
    """The function of one step of an LSTM. `peepholes` is None, or the weights of the cells in the
    gates."""
    f, g, h_function = layer.functions
    forget = layer.call.attr("input_forget", 0)

    def step(state: Any, x: Any) -> Any:
        h, c = state
        gates = x + layer.of_state(h) + layer.rb
        i, o, fo, ce = (layer.part(gates, n) for n in range(4))
        if peepholes is not None:
            i = i + layer.part(peepholes, 0) * c
            fo = fo + layer.part(peepholes, 2) * c
        i = f(layer.clip(i))
        fo = 1 - i if forget else f(layer.clip(fo))
        new = fo * c + i * g(layer.clip(ce))
        if peepholes is not None:
            o = o + layer.part(peepholes, 1) * new
        return f(layer.clip(o)) * h_function(new), new

    return step


def recurrent(
    gates: int,
    names: Sequence[str],
    step_of: Callable[[Layer, Any], Any],
    states: int,
    layer_of: type[Layer] = Layer,
) -> Rule:
    """The rule of a recurrent layer.

    Args:
        gates: how many parts its kernels have.
        names: its functions, where the node does not name them.
        step_of: gives the function of one step, of a layer and its peepholes.
        states: how many states a step gives to the next.
        layer_of: reads the kernels.
    """

    def rule(call: Call) -> Any:
        x = call.x(0)
        if call.attr("layout", 0):
            x = ops.moveaxis(x, 0, 1)
        direction = call.attr("direction", "forward")
        count = 2 if direction == "bidirectional" else 1
        lengths = ops.cast(call.x(4), "int32") if call.has(4) else None
        outputs, finals = [], []
        for number in range(count):
            layer = layer_of(call, number, count, gates, names)
            initial = tuple(_initial(call, 5 + i, number, x, layer) for i in range(states))
            peepholes = call.x(7)[number] if states == 2 and call.has(7) else None
            backward = direction == "reverse" or number == 1
            step = step_of(layer, peepholes)
            ys, last = _run(layer, x, step, initial, lengths, backward)
            outputs.append(ys)
            finals.append(last)
        y = ops.stack(outputs, axis=1)  # [time, directions, batch, size]
        ends = [ops.stack([last[i] for last in finals], axis=0) for i in range(states)]
        if call.attr("layout", 0):
            y = ops.transpose(y, (2, 0, 1, 3))
            ends = [ops.moveaxis(end, 0, 1) for end in ends]
        return (y, *ends)

    return rule


def _initial(call: Call, i: int, direction: int, x: Tensor, layer: Layer) -> Any:
    if not call.has(i):
        return ops.zeros((x.shape[1], layer.size), x.dtype)
    given = call.x(i)
    if call.attr("layout", 0):
        given = ops.moveaxis(given, 0, 1)
    return given[direction]


def _run(layer: Layer, xs: Any, step: Any, initial: Any, lengths: Any, backward: bool) -> Any:
    """The outputs of all steps, and the last states. Steps after an example's length change
    nothing."""
    time = xs.shape[0]

    def one(state: Any, item: Any) -> Any:
        x, t = item
        seen = state
        if lengths is not None and not layer.rows_are_apart:
            # As in ONNX Runtime, the state of a row is 0 from the second step after its end on.
            seen = (ops.where(ops.expand_dims(t <= lengths, -1), state[0], 0.0), *state[1:])
        new = step(seen, x)
        if lengths is None:
            return new, new[0]
        inside = ops.expand_dims(t < lengths, -1)
        kept = tuple(ops.where(inside, n, old) for n, old in zip(new, state, strict=True))
        return kept, ops.where(inside, new[0], ops.zeros_like(new[0]))

    last, ys = scan(
        one, initial, (layer.projected(xs), ops.arange(time, dtype="int32")), reverse=backward
    )
    return ys, last


RULES: Final[dict[str, Rule]] = {
    "GRU": recurrent(3, ("Sigmoid", "Tanh"), lambda layer, _: _gru_step(layer), 1),
    "LSTM": recurrent(4, ("Sigmoid", "Tanh", "Tanh"), lstm_step, 2),
    "RNN": recurrent(1, ("Tanh",), lambda layer, _: _rnn_step(layer), 1),
}
