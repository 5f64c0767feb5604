"""The operators that TensorFlow's gradients consist of, for graphs that hold a training step.

Those of convolutions and pooling are gradients of graphc's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc import ops
from graphc.autodiff import gradients
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.rules.networks import Layout, convolved, depthwise, pooled
from graphc.importers.tensorflow.values import NOTHING, Value
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops.nn.normalization import batch_norm, batch_norm_training

FAMILY = Family()
FAMILY.plain(
    {
        "ReluGrad": lambda dy, x: ops.where(ops.greater(x, 0), dy, 0),
        "Relu6Grad": lambda dy, x: ops.where(
            ops.logical_and(ops.greater(x, 0), ops.less(x, 6)), dy, 0
        ),
        "EluGrad": lambda dy, y: ops.where(ops.less(y, 0), dy * (y + 1), dy),
        "SeluGrad": lambda dy, y: dy * ops.where(
            ops.less(y, 0), y + 1.7580993408473768, 1.0507009873554805
        ),
        "SigmoidGrad": lambda y, dy: dy * y * (1 - y),
        "TanhGrad": lambda y, dy: dy * (1 - ops.square(y)),
        "SqrtGrad": lambda y, dy: dy * 0.5 / y,
        "RsqrtGrad": lambda y, dy: dy * -0.5 * y * y * y,
        "InvGrad": lambda y, dy: ops.negative(dy * y * y),
        "ReciprocalGrad": lambda y, dy: ops.negative(dy * y * y),
        "SoftplusGrad": lambda dy, x: dy * ops.sigmoid(x),
        "SoftsignGrad": lambda dy, x: dy / ops.square(1 + ops.abs(x)),
    }
)  # fmt: skip


@FAMILY.rule("LeakyReluGrad")
def leaky_relu_grad(call: Call, dy: Tensor, x: Tensor) -> Tensor:
    return ops.where(ops.greater(x, 0), dy, dy * call.attr("alpha", 0.2))


@FAMILY.rule("BiasAddGrad")
def bias_add_grad(call: Call, dy: Tensor) -> Tensor:
    first = call.text("data_format", "NHWC").startswith("NC")
    axes = [a for a in range(dy.ndim) if a != (1 if first else dy.ndim - 1)]
    return ops.sum(dy, tuple(axes))


def _gradient(function: Callable[[Tensor], Tensor], x: Tensor, dy: Tensor) -> Tensor:
    found = gradients(function(x), x, dy)
    assert isinstance(found, Tensor)
    return found


@FAMILY.rule(
    "Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput",
    kinds="vtt",
)  # fmt: skip
def conv_input(call: Call, sizes: Value, w: Tensor, dy: Tensor) -> Tensor:
    layout = Layout(call, 3 if "3D" in call.node.op else 2)
    function = depthwise if "Depthwise" in call.node.op else convolved
    wanted = call.dims(sizes, "the sizes")
    if len(wanted) == layout.rank:  # the spatial sizes only
        channels = w.shape[-2]
        wanted = [dy.shape[0], channels, *wanted] if layout.first else [
            dy.shape[0], *wanted, channels
        ]  # fmt: skip
    zeros = ops.zeros(layout.sizes(wanted), dy.dtype)
    found = _gradient(lambda x: function(call, layout, x, w), zeros, layout.last(dy))
    return layout.back(found)


@FAMILY.rule(
    "Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter",
    kinds="tdt",
)  # fmt: skip
def conv_filter(call: Call, x: Tensor, sizes: Sequence[Dim], dy: Tensor) -> Tensor:
    layout = Layout(call, 3 if "3D" in call.node.op else 2)
    function = depthwise if "Depthwise" in call.node.op else convolved
    zeros = ops.zeros(tuple(sizes), dy.dtype)
    own = layout.last(x)
    return _gradient(lambda w: function(call, layout, own, w), zeros, layout.last(dy))


@FAMILY.rule("MaxPoolGrad", "MaxPool3DGrad")
def max_pool_grad(call: Call, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    layout = Layout(call, 3 if "3D" in call.node.op else 2)
    return layout.back(
        _gradient(lambda v: pooled(call, layout, v), layout.last(x), layout.last(dy))
    )


@FAMILY.rule("AvgPoolGrad", "AvgPool3DGrad", kinds="dt")
def avg_pool_grad(call: Call, sizes: Sequence[Dim], dy: Tensor) -> Tensor:
    layout = Layout(call, 3 if "3D" in call.node.op else 2)
    zeros = ops.zeros(layout.sizes(sizes), dy.dtype)
    return layout.back(_gradient(lambda v: pooled(call, layout, v), zeros, layout.last(dy)))


@FAMILY.rule(
    "FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", kinds="tttttv",
    outputs=("x_backprop", "scale_backprop", "offset_backprop", "reserve_space_3",
             "reserve_space_4"),
)  # fmt: skip
def batch_norm_grad(
    call: Call, dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor, variance: Tensor,
    reserved: Value = None
) -> list[Value]:  # fmt: skip
    layout = Layout(call, x.ndim - 2)
    epsilon = call.attr("epsilon", 1e-4)
    own, offset = layout.last(x), ops.zeros_like(scale)
    if call.attr("is_training", True):
        y = batch_norm_training(own, scale, offset, epsilon)[0]
    else:
        y = batch_norm(own, mean, variance, scale, offset, epsilon)
    found = gradients(y, [own, scale, offset], layout.last(dy))
    return [layout.back(found[0]), found[1], found[2], NOTHING, NOTHING]
