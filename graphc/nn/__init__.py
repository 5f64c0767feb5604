"""Layers as objects that own variables, and the functions that neural networks are made of."""

from graphc.nn import initializers
from graphc.nn.activations import ACTIVATIONS
from graphc.nn.layer import Layer
from graphc.nn.linear import Conv2D, Dense, Embedding, embedding_lookup
from graphc.nn.losses import (
    l2_loss,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    sparse_softmax_cross_entropy,
)
from graphc.nn.normalization import BatchNorm, Dropout, LayerNorm
from graphc.nn.structure import AveragePool2D, Flatten, MaxPool2D, Sequential
from graphc.ops.activation import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    relu6,
    silu,
    softmax,
)
from graphc.ops.along_axis import one_hot
from graphc.ops.conv import conv2d
from graphc.ops.math import sigmoid, softplus, tanh
from graphc.ops.normalization import batch_norm, layer_norm, moments
from graphc.ops.pooling import avg_pool, max_pool
from graphc.ops.random import dropout

__all__ = [
    "ACTIVATIONS",
    "AveragePool2D",
    "BatchNorm",
    "Conv2D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "Layer",
    "LayerNorm",
    "MaxPool2D",
    "Sequential",
    "avg_pool",
    "batch_norm",
    "conv2d",
    "dropout",
    "elu",
    "embedding_lookup",
    "gelu",
    "initializers",
    "l2_loss",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "max_pool",
    "moments",
    "one_hot",
    "relu",
    "relu6",
    "sigmoid",
    "sigmoid_cross_entropy",
    "silu",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "sparse_softmax_cross_entropy",
    "tanh",
]
