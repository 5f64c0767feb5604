"""Operators of ONNX Runtime: activations, and products and convolutions fused with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from graphc import ops
from graphc.importers.core.channels_first import channels_last, channels_second
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.convolutions import RULES as CONVOLUTIONS
from graphc.importers.onnx.families.matrices import RULES as MATRICES
from graphc.importers.onnx.limits import limited
from graphc.importers.onnx.values import Value
from graphc.ir.node import Tensor
from graphc.ops.elementwise import activation

Function = Callable[[Any], Any]

_SELU: Final = (1.67326319217681884765625, 1.05070102214813232)


def _gelu(x: Tensor) -> Any:
    return activation.gelu(x, approximate=False)


def _biased(function: Function) -> Rule:
    """The function of the sum of both inputs, of which the second may be left out."""
    return lambda call: function(call.x(0) + call.x(1) if call.has(1) else call.x(0))


def _quick_gelu(call: Call) -> Any:
    x = call.x()
    return x * ops.sigmoid(x * call.attr("alpha", 1.702))


def _bias_split_gelu(call: Call) -> Any:
    x = call.x(0) + call.x(1)
    size = x.shape[-1]
    if not isinstance(size, int):
        raise Refused("needs a known size of the last axis")
    return x[..., : size // 2] * _gelu(x[..., size // 2 :])


def _bias_softmax(call: Call) -> Any:
    """The bias has the axes from `axis` on, and some of those before it."""
    x, bias = call.x(0), call.x(1)
    axis = call.attr("axis", 1) % x.ndim
    if bias.ndim != x.ndim:
        between = (1,) * (x.ndim - bias.ndim)
        inner = call.attr("is_inner_broadcast", 0)
        at = axis - len(between) if inner else 0
        bias = ops.reshape(bias, (*bias.shape[:at], *between, *bias.shape[at:]))
    total = x + bias
    if axis == x.ndim - 1:
        return activation.softmax(total, axis=-1)
    flat = ops.reshape(total, (*x.shape[:axis], -1))
    return ops.reshape(activation.softmax(flat, axis=-1), x.shape)


def _bias_dropout(call: Call) -> Any:
    """Without training, dropout changes nothing."""
    if call.has(4) and bool(call.need(4, "whether it trains").reshape(-1)[0]):
        raise Refused("in training mode is not supported")
    y = call.x(0) + call.x(1)
    return y + call.x(2) if call.has(2) else y


# -- activations by name ---------------------------------------------------------------------


def activated(y: Any, name: str, given: Sequence[float | None]) -> Any:
    """The result of the activation that is fused into an operator.

    Args:
        y: the result without it.
        name: of the operator of the standard; "" for none.
        given: its parameters, in the order of the standard; None for the default.

    Raises:
        Refused: the activation is not supported.
    """

    def number(i: int, default: float) -> float:
        value = given[i] if i < len(given) else None
        return default if value is None else value

    found: dict[str, Function] = {
        "": lambda x: x,
        "Clip": lambda x: ops.clip(x, number(0, -3.4e38), number(1, 3.4e38)),
        "Elu": lambda x: ops.where(x > 0, x, number(0, 1.0) * ops.expm1(ops.minimum(x, 0))),
        "Gelu": _gelu,
        "HardSigmoid": lambda x: ops.clip(x * number(0, 0.2) + number(1, 0.5), 0, 1),
        "HardSwish": lambda x: x * ops.clip(x / 6 + 0.5, 0, 1),
        "LeakyRelu": lambda x: activation.leaky_relu(x, number(0, 0.01)),
        "Relu": activation.relu,
        "Selu": lambda x: (
            number(1, _SELU[1])
            * ops.where(x > 0, x, number(0, _SELU[0]) * ops.expm1(ops.minimum(x, 0)))
        ),
        "Sigmoid": ops.sigmoid,
        "Softplus": ops.softplus,
        "Softsign": lambda x: x / (1 + ops.abs(x)),
        "Tanh": ops.tanh,
        "ThresholdedRelu": lambda x: ops.where(x > number(0, 1.0), x, ops.zeros_like(x)),
    }
    if name not in found:
        raise Refused(f"with the activation {name!r} is not supported")
    return found[name](y)


def _named(call: Call, y: Any) -> Any:
    """For operators with an attribute for each parameter."""
    given = [call.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    if call.attr("activation", "") == "Selu":  # its parameters are alpha and gamma
        given = [given[0], given[2]]
    return activated(y, call.attr("activation", ""), given)


# -- convolutions ----------------------------------------------------------------------------


def _conv_of(call: Call, inputs: Sequence[Value]) -> Any:
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attrs = {name: call.attrs[name] for name in names if name in call.attrs}
    return CONVOLUTIONS["Conv"](replace(call, version=22, inputs=inputs, attrs=attrs))


def _activated_sum(call: Call, y: Tensor) -> Any:
    """The activation of a convolution, after another input has been added."""
    total = y + call.x(3) if call.has(3) else y
    return activated(total, call.attr("activation", ""), call.attr("activation_params") or [])


def _nhwc_conv(call: Call) -> Any:
    """Channels last in the input and in the results; the kernel is as in the standard."""
    y = _conv_of(call, [channels_second(call.x(0)), *call.inputs[1:3]])
    return _activated_sum(call, channels_last(y))


# -- products --------------------------------------------------------------------------------


def _transposed(x: Tensor, last: int, batch: int) -> Any:
    """A factor, with its last two axes exchanged, or its first axis moved behind the batch."""
    if batch and x.ndim > 2:
        x = ops.moveaxis(x, 0, x.ndim - 2)
    return ops.swapaxes(x, -1, -2) if last and x.ndim > 1 else x


def _fused_matmul(call: Call) -> Any:
    a = _transposed(call.x(0), call.attr("transA", 0), call.attr("transBatchA", 0))
    b = _transposed(call.x(1), call.attr("transB", 0), call.attr("transBatchB", 0))
    product, alpha = ops.matmul(a, b), call.attr("alpha", 1.0)
    return product if alpha == 1.0 else product * alpha


def _fused_gemm(call: Call) -> Any:
    return _named(call, MATRICES["Gemm"](call))


_CONV: Final = "activation activation_params auto_pad dilations group kernel_shape pads strides"
_ACTIVATION: Final = "activation activation_alpha activation_beta activation_gamma"
_TRANSPOSED: Final = "alpha transA transB transBatchA transBatchB"

RULES: Final[dict[str, Rule]] = {
    "BiasAdd": limited(lambda call: call.x(0) + call.x(1) + call.x(2), 3),
    "BiasDropout": limited(_bias_dropout, 5, "seed"),
    "BiasGelu": limited(_biased(_gelu), 2),
    "BiasSoftmax": limited(_bias_softmax, 2, "axis is_inner_broadcast"),
    "BiasSplitGelu": limited(_bias_split_gelu, 2),
    "FastGelu": limited(_biased(activation.gelu), 2),
    "FusedConv": limited(
        lambda call: _activated_sum(call, _conv_of(call, call.inputs[:3])), 4, _CONV
    ),
    "FusedGemm": limited(_fused_gemm, 3, f"alpha beta transA transB {_ACTIVATION}"),
    "FusedMatMul": limited(_fused_matmul, 2, _TRANSPOSED),
    "FusedMatMulActivation": limited(
        lambda call: _named(call, _fused_matmul(call)), 2, f"{_TRANSPOSED} {_ACTIVATION}"
    ),
    "Gelu": limited(_biased(_gelu), 1),
    "NhwcConv": limited(_nhwc_conv, 3, _CONV.replace("activation activation_params ", "")),
    "NhwcFusedConv": limited(_nhwc_conv, 4, _CONV),
    "QuickGelu": limited(_quick_gelu, 1, "alpha"),
    "TransposeMatMul": limited(_fused_matmul, 2, "alpha transA transB"),
}
