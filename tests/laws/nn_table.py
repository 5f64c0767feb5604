"""Every layer and function of `gc.nn`, applied to a small batch: one `Case` each.

`test_named_sizes.py` requires a row for each public name, so that no layer or loss is omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc import nn
from tests.laws.case import Case, In

BATCH = 4

# Public names that compute nothing themselves.
NO_CASE = {
    "ACTIVATIONS", "AttentionCache", "Candidates", "Cell", "L1", "L2", "Layer", "Recurrent",
    "initializers",
}  # fmt: skip


def _in(*shape: int, dtype: str = "float32", **options: Any) -> In:
    """An input with the batch on axis 0."""
    return In((BATCH, *shape), dtype, batch_axis=0, **options)


def _weight(*shape: int) -> In:
    return In(shape, "float32")


def _integers(below: int, *shape: int) -> In:
    count = BATCH
    for size in shape:
        count *= size
    values = [i * 3 % below for i in range(count)]
    return _in(*shape, dtype="int32", values=_shaped(values, (BATCH, *shape)))


def _shaped(values: Sequence[int], shape: Sequence[int]) -> Any:
    if len(shape) == 1:
        return list(values)
    step = len(values) // shape[0]
    return [_shaped(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _case(name: str, build: Callable[..., Any], *inputs: In, label: str = "") -> Case:
    return Case(name, build, inputs, oracle=None, dtypes=("float32",), label=label)


def _layer(name: str, make: Callable[[], Any], *inputs: In, label: str = "", **call: Any) -> Case:
    return _case(name, lambda *xs: make()(*xs, **call), *inputs, label=label)


def _loss(name: str, *keywords: str, inputs: Sequence[In], label: str = "", **options: Any) -> Case:
    function = getattr(nn, name)
    return _case(
        name,
        lambda *xs: function(**dict(zip(keywords, xs, strict=True)), **options),
        *inputs,
        label=label,
    )


def _of_one(name: str, x: In, *rest: Any, **options: Any) -> Case:
    """A function of one tensor."""
    function = getattr(nn, name)
    return _case(name, lambda x: function(x, *rest, **options), x)


ROWS = _in(6)
POSITIVE = _in(6, low=0.1, high=0.9)
SIGNAL, IMAGE, VOLUME = _in(8, 4), _in(8, 8, 4), _in(4, 4, 4, 2)
COLORS = _in(3, 3, 3, low=0.1, high=0.9)
SEQUENCE = _in(5, 4)
LENGTHS = _in(dtype="int32", values=[5, 3, 4, 1])
MASK = _in(1, 5, 5, dtype="bool")


def _penalised(layer: nn.Layer, x: Any) -> Any:
    return layer(x) + nn.penalty(layer)


LAYERS = (
    _layer("Dense", lambda: nn.Dense(5, activation="relu"), ROWS),
    _layer("Embedding", lambda: nn.Embedding(7, 3), _integers(7, 5)),
    _layer("Conv1D", lambda: nn.Conv1D(6, 3, padding="same"), SIGNAL),
    _layer("Conv2D", lambda: nn.Conv2D(6, 3, padding="same"), IMAGE),
    _layer("Conv3D", lambda: nn.Conv3D(3, 3, padding="same"), VOLUME),
    _layer("Conv1DTranspose", lambda: nn.Conv1DTranspose(6, 3, strides=2, padding="same"), SIGNAL),
    _layer("Conv2DTranspose", lambda: nn.Conv2DTranspose(6, 3, strides=2, padding="same"), IMAGE),
    _layer("Conv3DTranspose", lambda: nn.Conv3DTranspose(3, 3, padding="same"), VOLUME),
    _layer("DepthwiseConv1D", lambda: nn.DepthwiseConv1D(3, padding="same"), SIGNAL),
    _layer("DepthwiseConv2D", lambda: nn.DepthwiseConv2D(3, padding="same"), IMAGE),
    _layer("SeparableConv2D", lambda: nn.SeparableConv2D(6, 3, padding="same"), IMAGE),
    _layer("MaxPool1D", nn.MaxPool1D, SIGNAL),
    _layer("MaxPool2D", nn.MaxPool2D, IMAGE),
    _layer("MaxPool3D", nn.MaxPool3D, VOLUME),
    _layer("AveragePool1D", nn.AveragePool1D, SIGNAL),
    _layer("AveragePool2D", nn.AveragePool2D, IMAGE),
    _layer("AveragePool3D", nn.AveragePool3D, VOLUME),
    _layer("GlobalMaxPool", nn.GlobalMaxPool, IMAGE),
    _layer("GlobalAveragePool", nn.GlobalAveragePool, IMAGE),
    _layer("BatchNorm", nn.BatchNorm, IMAGE, training=True),
    _layer("BatchNorm", lambda: nn.BatchNorm(local=True), IMAGE, label="local", training=True),
    _layer("BatchNorm", nn.BatchNorm, IMAGE, label="applied", training=False),
    _layer("LayerNorm", nn.LayerNorm, SEQUENCE),
    _layer("RMSNorm", nn.RMSNorm, SEQUENCE),
    _layer("GroupNorm", lambda: nn.GroupNorm(2), IMAGE),
    _layer("InstanceNorm", nn.InstanceNorm, IMAGE),
    _layer("Dropout", lambda: nn.Dropout(0.5), ROWS, training=True),
    _layer("SinusoidalEncoding", nn.SinusoidalEncoding, SEQUENCE),
    _layer("Flatten", nn.Flatten, IMAGE),
    _layer("Sequential", lambda: nn.Sequential([nn.Dense(5), nn.LayerNorm()]), ROWS),
    _layer("MultiHeadAttention", lambda: nn.MultiHeadAttention(4, 2), SEQUENCE),
    _layer("MultiHeadAttention", lambda: nn.MultiHeadAttention(4, 2), SEQUENCE, SEQUENCE,
           label="of two"),
    _case("MultiHeadAttention", lambda x, mask: nn.MultiHeadAttention(4, 2)(x, mask=mask),
          SEQUENCE, MASK, label="masked"),
    _case("TransformerBlock", lambda x: nn.TransformerBlock(4, 2)(x, training=False), SEQUENCE),
    _case("TransformerBlock",
          lambda x, mask: nn.TransformerBlock(4, 2)(x, mask=mask, training=False),
          SEQUENCE, MASK, label="masked"),
    _layer("SpatialDropout", lambda: nn.SpatialDropout(0.5), IMAGE, training=True),
    _layer("GaussianNoise", lambda: nn.GaussianNoise(0.5), ROWS, training=True),
    _layer("SpectralNorm", lambda: nn.SpectralNorm(nn.Dense(3)), ROWS, training=True),
    _layer("SpectralNorm", lambda: nn.SpectralNorm(nn.Dense(3)), ROWS, label="applied",
           training=False),
    _layer("Reshape", lambda: nn.Reshape((4, -1)), IMAGE),
    _layer("TimeDistributed", lambda: nn.TimeDistributed(nn.Conv1D(3, 2)), _in(3, 4, 2)),
    _layer("UpSampling1D", nn.UpSampling1D, SIGNAL),
    _layer("UpSampling2D", nn.UpSampling2D, IMAGE),
    _layer("UpSampling2D", lambda: nn.UpSampling2D(2, "bilinear"), IMAGE, label="bilinear"),
    _layer("UpSampling3D", nn.UpSampling3D, VOLUME),
    _layer("ZeroPadding1D", nn.ZeroPadding1D, SIGNAL),
    _layer("ZeroPadding2D", nn.ZeroPadding2D, IMAGE),
    _layer("ZeroPadding3D", nn.ZeroPadding3D, VOLUME),
    _layer("Cropping1D", nn.Cropping1D, SIGNAL),
    _layer("Cropping2D", nn.Cropping2D, IMAGE),
    _layer("Cropping3D", nn.Cropping3D, VOLUME),
    _layer("AdditiveAttention", lambda: nn.AdditiveAttention(3), SEQUENCE, SEQUENCE),
    _case("AdditiveAttention",
          lambda x, source, mask: nn.AdditiveAttention(3)(x, source, mask[:, 0]),
          SEQUENCE, SEQUENCE, MASK, label="masked"),
    _layer("ConvLSTM1D", lambda: nn.ConvLSTM1D(3, 2), _in(3, 4, 2)),
    _layer("ConvLSTM2D", lambda: nn.ConvLSTM2D(3, 2), _in(3, 4, 4, 2)),
    _layer("ConvLSTM3D", lambda: nn.ConvLSTM3D(3, 2), _in(3, 4, 4, 4, 2)),
    _case("ConvLSTM1DCell", lambda x, h, c: nn.ConvLSTM1DCell(3, 2)(x, (h, c))[0],
          _in(4, 2), _in(3, 3), _in(3, 3)),
    _case("ConvLSTM2DCell", lambda x, h, c: nn.ConvLSTM2DCell(3, 2)(x, (h, c))[0],
          _in(4, 4, 2), _in(3, 3, 3), _in(3, 3, 3)),
    _case("ConvLSTM3DCell", lambda x, h, c: nn.ConvLSTM3DCell(3, 2)(x, (h, c))[0],
          _in(4, 4, 4, 2), _in(3, 3, 3, 3), _in(3, 3, 3, 3)),
    _layer("GRU", lambda: nn.GRU(3), SEQUENCE),
    _layer("LSTM", lambda: nn.LSTM(3), SEQUENCE),
    _layer("SimpleRNN", lambda: nn.SimpleRNN(3), SEQUENCE),
    _layer("RNN", lambda: nn.RNN(nn.GRUCell(3)), SEQUENCE),
    _case("LSTM", lambda x, n: nn.LSTM(3)(x, lengths=n), SEQUENCE, LENGTHS, label="lengths"),
    _case("GRU", lambda x, s: nn.GRU(3)(x, state=s), SEQUENCE, _in(3), label="state"),
    _case("Bidirectional", lambda x, n: nn.Bidirectional(nn.GRU(3))(x, lengths=n),
          SEQUENCE, LENGTHS),
    _layer("StackedRNN", lambda: nn.StackedRNN([nn.GRU(3), nn.LSTM(3)]), SEQUENCE),
    _case("SimpleRNNCell", lambda x, s: nn.SimpleRNNCell(3)(x, s)[0], ROWS, _in(3)),
    _case("GRUCell", lambda x, s: nn.GRUCell(3)(x, s)[0], ROWS, _in(3)),
    _case("LSTMCell", lambda x, s, c: nn.LSTMCell(3)(x, (s, c))[0], ROWS, _in(3), _in(3)),
)  # fmt: skip

PREDICTED = ("predictions", "labels")
LOGITS = ("logits", "labels")
LOSSES = (
    _loss("absolute_error", *PREDICTED, inputs=(ROWS, ROWS)),
    _loss("squared_error", *PREDICTED, inputs=(ROWS, ROWS)),
    _loss("huber_loss", *PREDICTED, inputs=(ROWS, ROWS)),
    _loss("log_cosh_loss", *PREDICTED, inputs=(ROWS, ROWS)),
    _loss("cosine_distance", *PREDICTED, inputs=(ROWS, ROWS)),
    _case("cosine_similarity", nn.cosine_similarity, ROWS, ROWS),
    _loss("kl_divergence", "log_predictions", "labels", inputs=(ROWS, POSITIVE)),
    _loss("poisson_loss", "log_predictions", "labels", inputs=(ROWS, POSITIVE)),
    _loss("triplet_loss", "anchors", "positives", "negatives", inputs=(ROWS, ROWS, ROWS)),
    _loss("hinge_loss", *LOGITS, inputs=(ROWS, ROWS)),
    _loss("sigmoid_cross_entropy", *LOGITS, inputs=(ROWS, POSITIVE)),
    _loss("sigmoid_focal_loss", *LOGITS, inputs=(ROWS, POSITIVE)),
    _loss("softmax_cross_entropy", *LOGITS, inputs=(ROWS, POSITIVE)),
    _loss("softmax_cross_entropy", *LOGITS, inputs=(ROWS, POSITIVE), label="smoothed",
          label_smoothing=0.1),
    _loss("sparse_softmax_cross_entropy", *LOGITS, inputs=(ROWS, _integers(6))),
    _loss("sparse_softmax_cross_entropy", *LOGITS, inputs=(_in(5, 6), _integers(6, 5)),
          label="smoothed", label_smoothing=0.1),
    _loss("ctc_loss", *LOGITS, "logit_lengths", "label_lengths",
          inputs=(_in(5, 4), _integers(3, 2), LENGTHS, _in(dtype="int32", values=[2, 1, 0, 1]))),
    _case("crf_log_likelihood", nn.crf_log_likelihood, SEQUENCE, _integers(4, 5), _weight(4, 4),
          LENGTHS),
    _case("crf_log_norm", nn.crf_log_norm, SEQUENCE, _weight(4, 4), LENGTHS),
    _case("masked_mean", lambda x, mask: nn.masked_mean(x, mask), _in(5), _in(5, dtype="bool")),
    _case("weighted_cross_entropy",
          lambda x, y: nn.weighted_cross_entropy(logits=x, labels=y, pos_weight=2.0),
          ROWS, POSITIVE),
    _case("nce_loss",
          lambda w, b, x, y: nn.nce_loss(
              weights=w, biases=b, inputs=x, labels=y, samples=3, seed=3),
          _weight(7, 6), _weight(7), ROWS, _integers(7)),
    _case("sampled_softmax_loss",
          lambda w, b, x, y: nn.sampled_softmax_loss(
              weights=w, biases=b, inputs=x, labels=y, samples=3, seed=3),
          _weight(7, 6), _weight(7), ROWS, _integers(7, 2)),
    _case("penalty", lambda x: _penalised(nn.Dense(3, kernel_regularizer="l2"), x), ROWS),
    _of_one("l2_loss", ROWS),
)  # fmt: skip

FUNCTIONS = (
    *(_of_one(name, ROWS) for name in (
        "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu",
        "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softmax",
        "softplus", "softsign", "squareplus", "swish", "tanh",
    )),
    *(_of_one(name, COLORS) for name in (
        "hsv_to_rgb", "rgb_to_grayscale", "rgb_to_hsv", "rgb_to_yiq", "rgb_to_yuv", "yiq_to_rgb",
        "yuv_to_rgb",
    )),
    *(_of_one(name, COLORS, 0.2) for name in (
        "adjust_brightness", "adjust_contrast", "adjust_hue", "adjust_saturation",
    )),
    _of_one("global_avg_pool", IMAGE),
    _of_one("global_max_pool", IMAGE),
    _of_one("depth_to_space", IMAGE, 2),
    _of_one("space_to_depth", IMAGE, 2),
    _of_one("resize", IMAGE, (4, 4)),
    _of_one("avg_pool", IMAGE, 2),
    _of_one("max_pool", IMAGE, 2),
    _of_one("patches", IMAGE, 3),
    _of_one("local_response_norm", IMAGE),
    _of_one("l2_normalize", ROWS),
    _of_one("rotary_encoding", _in(5, 2, 4)),
    _of_one("dropout", ROWS, 0.5, seed=3),
    _case("smooth_labels", lambda x: nn.smooth_labels(x, 0.1), POSITIVE),
    _case("moments", lambda x: nn.moments(x, (1,)), ROWS),
    _case("max_pool_with_argmax", lambda x: nn.max_pool_with_argmax(x, 2)[0], IMAGE),
    _case("max_unpool", lambda y, at: nn.max_unpool(y, at, (4, 4)), _in(2, 2, 3),
          _integers(16, 2, 2, 3)),
    _case("prelu", lambda x, slope: nn.prelu(x, slope), ROWS, _weight(6)),
    _case("attention", nn.attention, _in(3, 4, 3), _in(5, 2, 3), _in(5, 2, 3)),
    _case("attention",
          lambda q, k, v, mask, bias: nn.attention(q, k, v, mask=mask, bias=bias),
          _in(3, 4, 3), _in(5, 2, 3), _in(5, 2, 3), _in(1, 3, 5, dtype="bool"), _in(4, 3, 5),
          label="masked"),
    _case("batch_norm", nn.batch_norm, ROWS, _weight(6), In((6,), "float32", low=0.5), _weight(6),
          _weight(6)),
    _case("layer_norm", nn.layer_norm, ROWS, _weight(6), _weight(6)),
    _case("group_norm", lambda x, s, o: nn.group_norm(x, 2, s, o), IMAGE, _weight(4), _weight(4)),
    _case("instance_norm", nn.instance_norm, IMAGE, _weight(4), _weight(4)),
    _case("rms_norm", nn.rms_norm, ROWS, _weight(6)),
    _case("conv1d", lambda x, w: nn.conv1d(x, w, padding="same"), SIGNAL, _weight(3, 4, 2)),
    _case("conv2d", lambda x, w: nn.conv2d(x, w, padding="same"), IMAGE, _weight(3, 3, 4, 2)),
    _case("conv3d", lambda x, w: nn.conv3d(x, w, padding="same"), VOLUME, _weight(3, 3, 3, 2, 2)),
    _case("conv1d_transpose", nn.conv1d_transpose, SIGNAL, _weight(3, 2, 4)),
    _case("conv2d_transpose", nn.conv2d_transpose, IMAGE, _weight(3, 3, 2, 4)),
    _case("conv3d_transpose", nn.conv3d_transpose, VOLUME, _weight(3, 3, 3, 2, 2)),
    _case("depthwise_conv", nn.depthwise_conv, IMAGE, _weight(3, 3, 4, 1)),
    _case("bias_add", nn.bias_add, IMAGE, _weight(4)),
    _case("depthwise_conv2d", nn.depthwise_conv2d, IMAGE, _weight(3, 3, 4, 1)),
    _case("separable_conv2d", nn.separable_conv2d, IMAGE, _weight(3, 3, 4, 2),
          _weight(1, 1, 8, 2)),
    _case("separable_conv", nn.separable_conv, IMAGE, _weight(3, 3, 4, 1), _weight(1, 1, 4, 2)),
    _case("dilation2d", nn.dilation2d, IMAGE, _weight(3, 3, 4)),
    _case("erosion2d", nn.erosion2d, IMAGE, _weight(3, 3, 4)),
    _case("embedding_lookup", nn.embedding_lookup, _weight(7, 3), _integers(7, 5)),
    _case("crop_and_resize",
          lambda x, boxes, at: nn.crop_and_resize(x, boxes, at, (3, 3)), IMAGE, _weight(5, 4),
          In((5,), "int32", values=[0, 1, 2, 3, 0])),
    _case("map_coordinates", nn.map_coordinates, _in(5), In((2, 6), "float32", 0, 3)),
)  # fmt: skip

# The results of these have no gradient: labels, indices, masks, tables.
WITHOUT_GRADIENT = {
    "UnigramSampler", "ctc_beam_search", "ctc_greedy_decode", "edit_distance", "in_top_k",
    "log_uniform_candidate_sampler", "non_max_suppression", "one_hot", "sequence_mask",
    "sinusoidal_encoding", "uniform_candidate_sampler", "viterbi_decode",
}  # fmt: skip

CASES: tuple[Case, ...] = (*LAYERS, *LOSSES, *FUNCTIONS)
