"""Layers as objects that own variables, and the functions that neural networks are made of."""

from graphc.nn.functional.colors import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    hsv_to_rgb,
    rgb_to_grayscale,
    rgb_to_hsv,
    rgb_to_yiq,
    rgb_to_yuv,
    yiq_to_rgb,
    yuv_to_rgb,
)
from graphc.nn.functional.convolutions import (
    conv1d_transpose,
    conv2d_transpose,
    conv3d_transpose,
    separable_conv,
)
from graphc.nn.functional.crf import crf_log_likelihood, crf_log_norm, viterbi_decode
from graphc.nn.functional.ctc import ctc_loss
from graphc.nn.functional.ctc_decoding import ctc_greedy_decode
from graphc.nn.functional.distances import (
    absolute_error,
    cosine_distance,
    cosine_similarity,
    huber_loss,
    kl_divergence,
    log_cosh_loss,
    poisson_loss,
    squared_error,
    triplet_loss,
)
from graphc.nn.functional.images import (
    depth_to_space,
    global_avg_pool,
    global_max_pool,
    resize,
    space_to_depth,
)
from graphc.nn.functional.losses import (
    hinge_loss,
    l2_loss,
    sigmoid_cross_entropy,
    sigmoid_focal_loss,
    smooth_labels,
    softmax_cross_entropy,
    sparse_softmax_cross_entropy,
)
from graphc.nn.functional.masks import masked_mean, sequence_mask
from graphc.nn.functional.nonlinear import (
    celu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_tanh,
    log_sigmoid,
    mish,
    prelu,
    selu,
    softsign,
    squareplus,
    swish,
)
from graphc.nn.functional.norms import group_norm, instance_norm, rms_norm
from graphc.nn.functional.patches import max_pool_with_argmax, patches
from graphc.nn.functional.ranking import in_top_k
from graphc.nn.functional.unpooling import max_unpool
from graphc.nn.layers import initializers
from graphc.nn.layers.activations import ACTIVATIONS
from graphc.nn.layers.conv_layers import (
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    DepthwiseConv1D,
    DepthwiseConv2D,
    SeparableConv2D,
)
from graphc.nn.layers.layer import Layer
from graphc.nn.layers.linear import Dense, Embedding, embedding_lookup
from graphc.nn.layers.normalization import (
    BatchNorm,
    Dropout,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
)
from graphc.nn.layers.pool_layers import (
    AveragePool1D,
    AveragePool2D,
    AveragePool3D,
    GlobalAveragePool,
    GlobalMaxPool,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
)
from graphc.nn.layers.positions import SinusoidalEncoding, rotary_encoding, sinusoidal_encoding
from graphc.nn.layers.structure import Flatten, Sequential
from graphc.nn.recurrent.cells import Cell, GRUCell, LSTMCell, SimpleRNNCell
from graphc.nn.recurrent.recurrent_layers import GRU, LSTM, RNN, Recurrent, SimpleRNN
from graphc.nn.recurrent.recurrent_nets import Bidirectional, StackedRNN
from graphc.nn.transformer.multi_head import AttentionCache, MultiHeadAttention
from graphc.nn.transformer.transformer import TransformerBlock
from graphc.ops.arrays.along_axis import one_hot
from graphc.ops.draws.random_draws import dropout
from graphc.ops.elementwise.activation import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    relu6,
    silu,
    softmax,
)
from graphc.ops.elementwise.transcendental import sigmoid, softplus, tanh
from graphc.ops.nn.attention import attention
from graphc.ops.nn.conv import conv1d, conv2d, conv3d, depthwise_conv
from graphc.ops.nn.local_response import local_response_norm
from graphc.ops.nn.normalization import batch_norm, layer_norm, moments
from graphc.ops.nn.pooling import avg_pool, max_pool
from graphc.ops.tasks.ctc_beams import ctc_beam_search
from graphc.ops.tasks.edit_distance import edit_distance
from graphc.ops.tasks.morphology import dilation2d, erosion2d
from graphc.ops.tasks.sampling import crop_and_resize, map_coordinates
from graphc.ops.tasks.suppression import non_max_suppression

__all__ = [
    "ACTIVATIONS",
    "GRU",
    "LSTM",
    "RNN",
    "AttentionCache",
    "AveragePool1D",
    "AveragePool2D",
    "AveragePool3D",
    "BatchNorm",
    "Bidirectional",
    "Cell",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "Dropout",
    "Embedding",
    "Flatten",
    "GRUCell",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GroupNorm",
    "InstanceNorm",
    "LSTMCell",
    "Layer",
    "LayerNorm",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MultiHeadAttention",
    "RMSNorm",
    "Recurrent",
    "SeparableConv2D",
    "Sequential",
    "SimpleRNN",
    "SimpleRNNCell",
    "SinusoidalEncoding",
    "StackedRNN",
    "TransformerBlock",
    "absolute_error",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "attention",
    "avg_pool",
    "batch_norm",
    "celu",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "cosine_distance",
    "cosine_similarity",
    "crf_log_likelihood",
    "crf_log_norm",
    "crop_and_resize",
    "ctc_beam_search",
    "ctc_greedy_decode",
    "ctc_loss",
    "depth_to_space",
    "depthwise_conv",
    "dilation2d",
    "dropout",
    "edit_distance",
    "elu",
    "embedding_lookup",
    "erosion2d",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "group_norm",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "hinge_loss",
    "hsv_to_rgb",
    "huber_loss",
    "in_top_k",
    "initializers",
    "instance_norm",
    "kl_divergence",
    "l2_loss",
    "layer_norm",
    "leaky_relu",
    "local_response_norm",
    "log_cosh_loss",
    "log_sigmoid",
    "log_softmax",
    "map_coordinates",
    "masked_mean",
    "max_pool",
    "max_pool_with_argmax",
    "max_unpool",
    "mish",
    "moments",
    "non_max_suppression",
    "one_hot",
    "patches",
    "poisson_loss",
    "prelu",
    "relu",
    "relu6",
    "resize",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "rgb_to_yiq",
    "rgb_to_yuv",
    "rms_norm",
    "rotary_encoding",
    "selu",
    "separable_conv",
    "sequence_mask",
    "sigmoid",
    "sigmoid_cross_entropy",
    "sigmoid_focal_loss",
    "silu",
    "sinusoidal_encoding",
    "smooth_labels",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "softsign",
    "space_to_depth",
    "sparse_softmax_cross_entropy",
    "squared_error",
    "squareplus",
    "swish",
    "tanh",
    "triplet_loss",
    "viterbi_decode",
    "yiq_to_rgb",
    "yuv_to_rgb",
]
