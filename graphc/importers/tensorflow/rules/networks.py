"""Layers: convolutions, pooling, normalisation, biases, losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc import nn, ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.rules.matrices import matmul
from graphc.importers.tensorflow.values import NOTHING, Value
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops.nn.normalization import batch_norm_training

FAMILY = Family()
FAMILY.plain(
    {
        "L2Loss": lambda x: ops.sum(ops.square(x)) / 2,
        "LogSoftmax": lambda x: ops.log_softmax(x, -1),
        "Softmax": lambda x: ops.softmax(x, -1),
    }
)


class Layout:
    """Where the channels of an operator are.

    Attributes:
        first: whether they come before the spatial axes.
        rank: the number of spatial axes.
    """

    def __init__(self, call: Call, rank: int) -> None:
        text = call.text("data_format", "NHWC")
        if text not in _FORMATS:
            call.refuse(f"has the data format {text}")
        self.first = text.startswith("NC")
        self.rank = rank

    def last(self, x: Tensor) -> Tensor:
        """x with its channels last."""
        if not self.first:
            return x
        return ops.transpose(x, (0, *range(2, x.ndim), 1))

    def back(self, y: Tensor) -> Tensor:
        """y, whose channels are last, in the layout of the operator."""
        if not self.first:
            return y
        return ops.transpose(y, (0, y.ndim - 1, *range(1, y.ndim - 1)))

    def spatial(self, values: Sequence[int] | None) -> tuple[int, ...]:
        """The entries of an attribute for the spatial axes."""
        if not values:
            return (1,) * self.rank
        return tuple(values[2:] if self.first else values[1:-1])

    def sizes(self, sizes: Sequence[Dim]) -> tuple[Dim, ...]:
        """A shape with its channels last."""
        return tuple((sizes[0], *sizes[2:], sizes[1]) if self.first else sizes)


_FORMATS = ("NHWC", "NCHW", "NDHWC", "NCDHW")


def padding_of(call: Call, layout: Layout) -> Any:
    """The padding: "same", "valid", or pairs."""
    kind = call.text("padding", "VALID")
    if kind != "EXPLICIT":
        return kind.lower()
    flat = call.attr("explicit_paddings", [])
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    return pairs[2:] if layout.first else pairs[1:-1]


@FAMILY.rule("Conv2D", "Conv3D")
def conv(call: Call, x: Tensor, w: Tensor) -> Tensor:
    layout = Layout(call, 2 if call.node.op == "Conv2D" else 3)
    return layout.back(convolved(call, layout, layout.last(x), w))


def convolved(call: Call, layout: Layout, x: Tensor, w: Tensor) -> Tensor:
    """A convolution with channels last."""
    channels, own = x.shape[-1], w.shape[-2]
    if not isinstance(own, int) or (isinstance(channels, int) and channels % own):
        call.refuse(f"has {channels} channels for a kernel of {own}")
    groups = channels // own if isinstance(channels, int) else 1
    function = nn.conv2d if layout.rank == 2 else nn.conv3d
    return function(
        x,
        w,
        strides=layout.spatial(call.attr("strides")),  # type: ignore[arg-type]
        padding=padding_of(call, layout),
        dilation=layout.spatial(call.attr("dilations")),  # type: ignore[arg-type]
        groups=groups,
    )


@FAMILY.rule("DepthwiseConv2dNative")
def depthwise_conv(call: Call, x: Tensor, w: Tensor) -> Tensor:
    layout = Layout(call, 2)
    return layout.back(depthwise(call, layout, layout.last(x), w))


def depthwise(call: Call, layout: Layout, x: Tensor, w: Tensor) -> Tensor:
    """A convolution of each channel, with channels last."""
    return nn.depthwise_conv(
        x,
        w,
        strides=layout.spatial(call.attr("strides")),
        padding=padding_of(call, layout),
        dilation=layout.spatial(call.attr("dilations")),
    )


@FAMILY.rule("MaxPool", "MaxPool3D", "AvgPool", "AvgPool3D")
def pool(call: Call, x: Tensor) -> Tensor:
    layout = Layout(call, 3 if call.node.op.endswith("3D") else 2)
    return layout.back(pooled(call, layout, layout.last(x)))


def pooled(call: Call, layout: Layout, x: Tensor) -> Tensor:
    """Pooling with channels last."""
    ksize = call.attr("ksize", [])
    strides = call.attr("strides", [])
    if any(s != 1 for s in (ksize[0], strides[0], ksize[1] if layout.first else ksize[-1])):
        call.refuse("pools over batch or channels")
    function = nn.max_pool if "Max" in call.node.op else nn.avg_pool
    return function(x, layout.spatial(ksize), layout.spatial(strides), padding_of(call, layout))


@FAMILY.rule("MaxPoolV2", kinds="tss")
def max_pool_v2(call: Call, x: Tensor, window: Any, strides: Any) -> Tensor:
    layout = Layout(call, 2)
    ksize, steps = (layout.spatial([int(v) for v in values]) for values in (window, strides))
    return layout.back(nn.max_pool(layout.last(x), ksize, steps, padding_of(call, layout)))


@FAMILY.rule("MaxPoolWithArgmax", outputs=("output", "argmax"))
def max_pool_with_argmax(call: Call, x: Tensor) -> list[Tensor]:
    layout = Layout(call, 2)
    window, strides = (layout.spatial(call.attr(k)) for k in ("ksize", "strides"))
    y, places = nn.max_pool_with_argmax(x, window, strides, padding_of(call, layout))
    channels = ops.arange(x.shape[3], dtype="int32")
    places = places * x.shape[3] + channels
    if call.attr("include_batch_in_index"):
        image = ops.reshape(ops.arange(x.shape[0], dtype="int32"), (-1, 1, 1, 1))
        places = places + image * (x.shape[1] * x.shape[2] * x.shape[3])
    return [y, ops.cast(places, call.dtype("Targmax", "int64"))]


@FAMILY.rule("BiasAdd", "BiasAddV1")
def bias_add(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    if call.text("data_format", "NHWC").startswith("NC") and x.ndim > 2:
        bias = ops.reshape(bias, (bias.shape[0], *[1] * (x.ndim - 2)))
    return ops.add(x, bias)


_STATISTICS = ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2")


@FAMILY.rule("FusedBatchNorm", "FusedBatchNormV2", outputs=_STATISTICS)
def fused_batch_norm(
    call: Call, x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor
) -> list[Value]:
    layout = Layout(call, x.ndim - 2)
    epsilon = call.attr("epsilon", 1e-4)
    x = layout.last(x)
    if not call.attr("is_training", True):
        y = nn.batch_norm(x, mean, variance, scale, offset, epsilon)
        return [layout.back(y), mean, variance, mean, variance]
    y, own_mean, own_variance = batch_norm_training(x, scale, offset, epsilon)
    own_mean, own_variance = (ops.cast(v, scale.dtype) for v in (own_mean, own_variance))
    count: Any = 1
    for size in x.shape[:-1]:
        count = count * size
    unbiased = own_variance * _ratio(count, own_variance)
    factor = call.attr("exponential_avg_factor", 1.0)
    if factor != 1.0:
        own = [(mean, own_mean), (variance, unbiased)]
        own_mean_, unbiased = (old * (1 - factor) + new * factor for old, new in own)
        return [layout.back(y), own_mean_, unbiased, own_mean, own_variance]
    return [layout.back(y), own_mean, unbiased, own_mean, own_variance]


def _ratio(count: Any, like: Tensor) -> Tensor:
    """count / (count - 1), for a variance over the count less one."""
    number = ops.cast(ops.constant(np.float32(1)) * count, like.dtype)
    return number / ops.maximum(number - 1, 1)


@FAMILY.rule("FusedBatchNormV3", outputs=(*_STATISTICS, "reserve_space_3"))
def fused_batch_norm_v3(call: Call, *tensors: Tensor) -> list[Value]:
    return [*fused_batch_norm(call, *tensors), NOTHING]


@FAMILY.rule("_FusedBatchNormEx")
def fused_batch_norm_ex(call: Call, *tensors: Tensor) -> list[Value]:
    found = fused_batch_norm(call, *tensors[:5])
    y = found[0]
    if call.attr("num_side_inputs"):
        y = ops.add(y, tensors[5])
    activation = call.text("activation_mode", "Identity")
    if activation not in ("Identity", "Relu"):
        call.refuse(f"has the activation {activation}")
    return [nn.relu(y) if activation == "Relu" else y, *found[1:], NOTHING]


@FAMILY.rule("BatchNormWithGlobalNormalization")
def old_batch_norm(
    call: Call, x: Tensor, mean: Tensor, variance: Tensor, offset: Tensor, scale: Tensor
) -> Tensor:
    if not call.attr("scale_after_normalization", True):
        scale = ops.ones_like(scale)
    return nn.batch_norm(x, mean, variance, scale, offset, call.attr("variance_epsilon", 1e-3))


_ACTIVATIONS: dict[bytes, Callable[..., Tensor]] = {
    b"Relu": nn.relu, b"Relu6": nn.relu6, b"Elu": nn.elu, b"Tanh": ops.tanh,
    b"Sigmoid": ops.sigmoid, b"GeluApproximate": nn.gelu,
    b"GeluExact": lambda x: nn.gelu(x, approximate=False),
}  # fmt: skip


@FAMILY.rule("_FusedConv2D", "_FusedMatMul", "_FusedDepthwiseConv2dNative")
def fused(call: Call, x: Tensor, w: Tensor, *rest: Tensor) -> Tensor:
    """What TensorFlow's optimiser makes of a product and the elementwise operators after it."""
    if call.node.op == "_FusedMatMul":
        y: Tensor = matmul(call, x, w)
    else:
        layout = Layout(call, 2)
        if layout.first:
            call.refuse("has channels first")
        y = (depthwise if "Depthwise" in call.node.op else convolved)(call, layout, x, w)
    arguments = list(rest)
    for step in call.attr("fused_ops", []):
        if step == b"BiasAdd" or step == b"Add":
            y = ops.add(y, arguments.pop(0))
        elif step == b"FusedBatchNorm":
            scale, offset, mean, variance = (arguments.pop(0) for _ in range(4))
            y = nn.batch_norm(y, mean, variance, scale, offset, call.attr("epsilon", 1e-4))
        elif step == b"LeakyRelu":
            y = nn.leaky_relu(y, call.attr("leakyrelu_alpha", 0.2))
        elif step in _ACTIVATIONS:
            y = _ACTIVATIONS[step](y)
        else:
            call.refuse(f"has the fused operator {step.decode('utf-8', 'replace')}")
    return y


@FAMILY.rule("LRN")
def local_response(call: Call, x: Tensor) -> Tensor:
    return nn.local_response_norm(
        x,
        call.attr("depth_radius", 5),
        call.attr("bias", 1.0),
        call.attr("alpha", 1.0),
        call.attr("beta", 0.5),
    )


@FAMILY.rule("SoftmaxCrossEntropyWithLogits", outputs=("loss", "backprop"))
def softmax_loss(call: Call, logits: Tensor, labels: Tensor) -> list[Tensor]:
    loss = ops.negative(ops.sum(labels * ops.log_softmax(logits, -1), -1))
    return [loss, ops.softmax(logits, -1) - labels]


@FAMILY.rule("SparseSoftmaxCrossEntropyWithLogits", outputs=("loss", "backprop"))
def sparse_softmax_loss(call: Call, logits: Tensor, labels: Tensor) -> list[Tensor]:
    loss = nn.sparse_softmax_cross_entropy(logits=logits, labels=labels)
    hits = ops.one_hot(labels, logits.shape[-1], logits.dtype)
    return [loss, ops.softmax(logits, -1) - hits]


@FAMILY.rule("Dilation2D")
def dilation(call: Call, x: Tensor, kernel: Tensor) -> Tensor:
    strides, rates = (tuple(call.attr(k)[1:3]) for k in ("strides", "rates"))
    return nn.dilation2d(x, kernel, strides, call.text("padding").lower(), rates)


def _classes(call: Call, logits: Tensor) -> int:
    found = logits.shape[2]
    if not isinstance(found, int):
        call.refuse("needs a known number of classes")
    return found


@FAMILY.rule("CTCLoss", kinds="tsst", outputs=("loss", "gradient"))
def ctc_loss(call: Call, logits: Tensor, places: Any, values: Any, lengths: Tensor) -> list[Value]:
    """Labels are a sparse matrix, which must be constant; the last class is the blank."""
    if not call.attr("ctc_merge_repeated", True) or call.attr("preprocess_collapse_repeated"):
        call.refuse("does not merge repeated labels, or collapses them")
    batch = logits.shape[1]
    count = int(places[:, 1].max()) + 1 if places.size else 1
    rows = int(places[:, 0].max()) + 1 if places.size else 1
    rows = batch if isinstance(batch, int) else rows
    labels = np.zeros((rows, count), np.int32)
    sizes = np.zeros(rows, np.int32)
    for (row, column), value in zip(places, values, strict=True):
        labels[row, column] = value
        sizes[row] = max(sizes[row], column + 1)
    loss = nn.ctc_loss(
        logits=ops.transpose(logits, (1, 0, 2)),
        labels=labels,
        logit_lengths=lengths,
        label_lengths=sizes,
        blank=_classes(call, logits) - 1,
    )
    return [loss, NOTHING]
