"""Operators of ONNX Runtime on quantized tensors, except products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from graphc import ops
from graphc.importers.core.channels_first import channels_last, channels_second
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.elementwise import RULES as ELEMENTWISE
from graphc.importers.onnx.families.pooling import RULES as POOLING
from graphc.importers.onnx.families.quantized import RULES as STANDARD
from graphc.importers.onnx.families.quantized import quantized
from graphc.importers.onnx.limits import limited
from graphc.importers.onnx.values import Value
from graphc.ops.elementwise import activation


def plain(call: Call, i: int) -> Any:
    """Input i, whose scale and zero point are the next two inputs, as float32."""
    shifted: Any = ops.cast(call.x(i), "int32")
    if call.has(i + 2):
        shifted = shifted - ops.cast(ops.reshape(call.x(i + 2), ()), "int32")
    return ops.cast(shifted, "float32") * ops.reshape(call.x(i + 1), ())


def as_result(call: Call, y: Any, i: int, like: int = 0) -> Any:
    """y in the type of input `like`, with the scale and zero point in the inputs i and i + 1."""
    zero = ops.reshape(call.x(i + 1), ()) if call.has(i + 1) else ops.zeros((), "int32")
    return quantized(y, ops.reshape(call.x(i), ()), zero, call.x(like).dtype)


def _unary(function: Callable[[Call, Any], Any]) -> Rule:
    """An operator with one input: its scale and zero point, then those of the result."""
    return lambda call: as_result(call, function(call, plain(call, 0)), 3)


def _binary(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda call: as_result(call, function(plain(call, 0), plain(call, 3)), 6)


def _where(call: Call) -> Any:
    y = ops.where(call.x(0), plain(call, 1), plain(call, 4))
    return as_result(call, y, 7, like=1)


def _concat(call: Call) -> Any:
    """The scale and zero point of the result, then three inputs for each part."""
    parts = [plain(call, i) for i in range(2, len(call.inputs), 3)]
    return as_result(call, ops.concatenate(parts, call.attr("axis")), 0, like=2)


def _softmax(call: Call) -> Any:
    """The attribute `opset` says which version of the standard's softmax it is.

    ONNX Runtime multiplies with the inverse of the result's scale without its fraction, so that
    1/255 counts as 1/254. Models were tried with these results, so they are the same here.
    """
    version = call.attr("opset")
    if version is None:
        raise Refused("has no attribute 'opset'")
    attrs = {"axis": call.attr("axis", -1)}
    softmax = ELEMENTWISE["Softmax"]
    y = softmax(replace(call, inputs=[plain(call, 0)], version=version, attrs=attrs))
    inverse = ops.floor(1 / ops.reshape(call.x(3), ()))
    zero = ops.reshape(call.x(4), ()) if call.has(4) else ops.zeros((), "int32")
    return quantized(y, 1 / inverse, zero, call.x(0).dtype)


# -- images ----------------------------------------------------------------------------------


def _first(call: Call, function: Callable[[Any], Any], x: Any) -> Any:
    """A function of images with the channels first, for those that have them last too."""
    if not call.attr("channels_last", 0):
        return function(x)
    return channels_last(function(channels_second(x)))


def _without_layout(call: Call, inputs: list[Value]) -> Call:
    attrs = {name: value for name, value in call.attrs.items() if name != "channels_last"}
    return replace(call, inputs=inputs, attrs=attrs)


def _average_pool(call: Call, x: Any) -> Any:
    def pool(x: Any) -> Any:
        return POOLING["AveragePool"](replace(_without_layout(call, [x]), version=19))

    return _first(call, pool, x)


def _global_pool(call: Call, x: Any) -> Any:
    return _first(
        call, lambda x: ops.reduce_mean(x, axis=tuple(range(2, x.ndim)), keepdims=True), x
    )


def _conv(call: Call) -> Any:
    def convolve(x: Any) -> Any:
        return STANDARD["QLinearConv"](_without_layout(call, [x, *call.inputs[1:]]))

    return _first(call, convolve, call.x(0))


def _max_pool(call: Call) -> Any:
    pooled = POOLING["MaxPool"](
        replace(call, inputs=[channels_second(call.x(0))], version=12, outputs=call.outputs[:1])
    )
    return channels_last(pooled)


_WINDOWS: Final = "auto_pad kernel_shape pads strides"

RULES: Final[dict[str, Rule]] = {
    "NhwcMaxPool": limited(_max_pool, 1, f"{_WINDOWS} ceil_mode dilations"),
    "QLinearAdd": limited(_binary(ops.add), 8),
    "QLinearAveragePool": limited(
        _unary(_average_pool), 5, f"{_WINDOWS} ceil_mode channels_last count_include_pad"
    ),
    "QLinearConcat": limited(_concat, None, "axis"),
    "QLinearConv": limited(_conv, 9, f"{_WINDOWS} channels_last dilations group"),
    "QLinearGlobalAveragePool": limited(_unary(_global_pool), 5, "channels_last"),
    "QLinearLeakyRelu": limited(
        _unary(lambda call, x: activation.leaky_relu(x, call.attr("alpha", 0.01))), 5, "alpha"
    ),
    "QLinearMul": limited(_binary(ops.multiply), 8),
    "QLinearSigmoid": limited(_unary(lambda call, x: ops.sigmoid(x)), 5),
    "QLinearSoftmax": limited(_softmax, 5, "axis opset"),
    "QLinearWhere": limited(_where, 9),
}
