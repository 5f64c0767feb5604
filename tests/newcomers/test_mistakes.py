"""Mistakes of newcomers from TensorFlow 1, Keras, PyTorch and NumPy, and graphc's errors.

Each row has the mistake, the class of the error, and phrases of its message: the problem, and the
hint if there is one. A message about code names the line of this file.
"""

import copy
import math
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import graphc as gc
from graphc import errors, nn

F = np.float32


class Bare(nn.Layer):
    """Does not call the constructor of its base class."""

    def __init__(self):
        self.size = 3

    def __call__(self, x):
        with self.scope(x):
            return x


class Forward(nn.Layer):
    """Defines `forward`, as in PyTorch."""

    def forward(self, x):
        return x


class CallM(nn.Layer):
    """Defines `call`, as in Keras."""

    def call(self, x):
        return x


def closed(graph):
    """A closed session."""
    session = gc.Session(graph)
    session.close()
    return session


def change(x):
    x[0] = 1.0


def drop(x):
    del x[0]


class Row(NamedTuple):
    """One mistake: `make` gets a `World`. `placed`: whether the message names the user's line."""

    name: str
    make: Callable[[Any], Any]
    error: type[errors.GraphcError]
    phrases: Sequence[str]
    placed: bool


class World:
    """A graph under construction, with some tensors and variables."""

    def __init__(self, folder):
        self.tmp = folder
        self.graph = gc.Graph(seed=0)
        with self.graph:
            self.c = gc.constant(np.ones((3, 4), F))
            self.y = gc.placeholder(("batch", 4), name="y")
            self.y2 = gc.placeholder(("batch", 4), name="y2")
            self.v = gc.variable(np.ones((4, 2), F), name="v")
            self.b = gc.variable(np.ones((2,), F), name="b")
            self.i = gc.constant([0, 1, 2])
            self.img = gc.ones((1, 8, 8, 3))
            self.kern = gc.ones((3, 3, 3, 4))
            self.sq = gc.eye(3)
            self.k = gc.placeholder((3,), "int32", name="k")
            self.images = gc.placeholder((None, 8, 8, 3), name="images")

    def outside(self, f):
        """Calls `f` outside of any graph."""
        raised = []

        def call():
            try:
                f()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    def within(self, f):
        with f():
            gc.ones((2,))


def bad_cond(m):
    return gc.cond(m.c.sum() > 0, lambda: m.c, lambda: m.v)


def run(m, f, feeds=None):
    return gc.Session(m.graph).run(f, feeds)


def add_later(m):
    run(m, m.c)
    return m.c + 1


def other(m):
    with gc.Graph():
        o = gc.ones((3, 4))
    return m.c + o


def loop(m):
    for _row in m.y:
        pass


def dense_other(m):
    layer = nn.Dense(3)
    layer(m.c)
    return layer(m.v)


def bn_other(m):
    layer = nn.BatchNorm()
    layer(m.c, training=True)
    return layer(m.v, training=True)


def setv(m, name, val):
    s = gc.Session(m.graph)
    s.set(name, val)


def nograph(m):
    return m.outside(lambda: gc.placeholder((3,), name="x"))


def nograph_op(m):
    return m.outside(lambda: gc.ones((3,)))


def lr_inject(m):
    lr = gc.placeholder((), name="lr")
    return gc.minimize(m.v.sum(), optax.inject_hyperparams(optax.sgd)(learning_rate=lr))


def leak(m):
    inner = []
    gc.scan(lambda a, x: (inner.append(x), (a + x, x))[1], gc.zeros((4,)), m.c)
    return inner[0] + 1


ROWS = [
    Row(
        "gc_misspelt",
        lambda m: gc.sofmax(m.c),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'sofmax'", "did you mean 'softmax'?"],
        True,
    ),
    Row(
        "gc_Variable",
        lambda m: gc.Variable(np.ones(3)),
        errors.ArgumentError,
        [
            "Variable: missing a required argument: 'name'",
            "gc.variable(initial, name=...) makes a variable",
        ],
        True,
    ),
    Row(
        "get_variable",
        lambda m: gc.get_variable("w", (3,)),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'get_variable'", "write gc.variable(initial, name=...)"],
        True,
    ),
    Row(
        "global_init",
        lambda m: gc.global_variables_initializer(),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute",
            "write nothing: a session begins with the initial values",
        ],
        True,
    ),
    Row(
        "GradientTape",
        lambda m: gc.GradientTape(),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'GradientTape'", "write gc.gradients(loss, variables)"],
        True,
    ),
    Row(
        "cat",
        lambda m: gc.cat([m.c, m.c]),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'cat'", "write gc.concatenate(tensors, axis)"],
        True,
    ),
    Row(
        "reset_default_graph",
        lambda m: gc.reset_default_graph(),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'reset_default_graph'",
            "write nothing: each gc.Graph() is new",
        ],
        True,
    ),
    Row(
        "ConfigProto",
        lambda m: gc.ConfigProto(),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'ConfigProto'", "write gc.CompileOptions"],
        True,
    ),
    Row(
        "InteractiveSession",
        lambda m: gc.InteractiveSession(),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'InteractiveSession'", "write gc.Session(graph)"],
        True,
    ),
    Row(
        "gc_optim",
        lambda m: gc.optimizers.Adam(),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'optimizers'",
            "write gc.minimize(loss, optax.adam(rate)): the optimizers are those of optax",
        ],
        True,
    ),
    Row(
        "gc_layers",
        lambda m: gc.layers.dense(m.c, 4),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'layers'",
            "write gc.nn.Dense(units) and the other layers of gc.nn",
        ],
        True,
    ),
    Row(
        "gc_keras",
        lambda m: gc.keras.Sequential(),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'keras'",
            "write gc.nn.Dense(units) and the other layers of gc.nn",
        ],
        True,
    ),
    Row(
        "gc_contrib",
        lambda m: gc.contrib,
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'contrib'",
            "write gc.nn.Dense(units) and the other layers of gc.nn",
        ],
        True,
    ),
    Row(
        "gc_losses",
        lambda m: gc.losses.mean_squared_error(m.c, m.c),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'losses'",
            "write gc.nn.softmax_cross_entropy(labels=..., logits=...) and the other losses",
        ],
        True,
    ),
    Row(
        "gc_float32",
        lambda m: gc.placeholder((3,), gc.float32, name="z"),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'float32'", 'write the name of the dtype, "float32"'],
        True,
    ),
    Row(
        "random_normal",
        lambda m: gc.random_normal((3,)),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'random_normal'", "write gc.random.normal(shape)"],
        True,
    ),
    Row(
        "truncated_normal",
        lambda m: gc.truncated_normal((3,)),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'truncated_normal'",
            "write gc.random.truncated_normal(shape)",
        ],
        True,
    ),
    Row(
        "random_uniform",
        lambda m: gc.random_uniform((3,)),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'random_uniform'", "write gc.random.uniform(shape)"],
        True,
    ),
    Row(
        "gc_to_float",
        lambda m: gc.to_float(m.i),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'to_float'", 'write gc.cast(x, "float32")'],
        True,
    ),
    Row(
        "gc_relu",
        lambda m: gc.relu(m.c),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'relu'", "write gc.nn.relu"],
        True,
    ),
    Row(
        "gc_manual_seed",
        lambda m: gc.manual_seed(0),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'manual_seed'",
            "write gc.Graph(seed=...) or seed= of the function that draws",
        ],
        True,
    ),
    Row(
        "gc_no_grad",
        lambda m: gc.no_grad(),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'no_grad'", "write gc.stop_gradient(x)"],
        True,
    ),
    Row(
        "gc_tensor",
        lambda m: gc.tensor([1, 2]),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'tensor'", "write gc.constant(value)"],
        True,
    ),
    Row(
        "newaxis",
        lambda m: m.c[gc.newaxis],
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'newaxis'", "write None, as in x[:, None]"],
        True,
    ),
    Row(
        "nn_Linear",
        lambda m: nn.Linear(4, 3),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'Linear'", "write gc.nn.Dense(units)"],
        True,
    ),
    Row(
        "nn_Conv2d",
        lambda m: nn.Conv2d(3, 8, 3),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'Conv2d'",
            "write gc.nn.Conv2D: channels are the last axis",
        ],
        True,
    ),
    Row(
        "nn_Module",
        lambda m: nn.Module(),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'Module'",
            "write gc.nn.Layer",
        ],
        True,
    ),
    Row(
        "nn_CrossEntropyLoss",
        lambda m: nn.CrossEntropyLoss(),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'CrossEntropyLoss'",
            "write gc.nn.sparse_softmax_cross_entropy(",
        ],
        True,
    ),
    Row(
        "nn_MSELoss",
        lambda m: nn.MSELoss(),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'MSELoss'",
            "write gc.reduce_mean((y - t) ** 2)",
        ],
        True,
    ),
    Row(
        "nn_mse",
        lambda m: nn.mean_squared_error(m.c, m.c),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'mean_squared_error'",
            "write gc.mean(gc.nn.squared_error(...))",
        ],
        True,
    ),
    Row(
        "nn_BatchNorm2d",
        lambda m: nn.BatchNorm2d(3),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'BatchNorm2d'", "write gc.nn.BatchNorm"],
        True,
    ),
    Row(
        "nn_BatchNormalization",
        lambda m: nn.BatchNormalization(),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'BatchNormalization'", "write gc.nn.BatchNorm()"],
        True,
    ),
    Row(
        "nn_LayerNormalization",
        lambda m: nn.LayerNormalization(),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'LayerNormalization'", "write gc.nn.LayerNorm()"],
        True,
    ),
    Row(
        "nn_ReLU",
        lambda m: nn.ReLU(),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'ReLU'",
            "write gc.nn.relu, a function, which may be in the list of gc.nn.Sequential",
        ],
        True,
    ),
    Row(
        "nn_MaxPool2d",
        lambda m: nn.MaxPool2d(2),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'MaxPool2d'", "write gc.nn.MaxPool2D"],
        True,
    ),
    Row(
        "nn_MaxPooling2D",
        lambda m: nn.MaxPooling2D(2),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'MaxPooling2D'", "write gc.nn.MaxPool2D"],
        True,
    ),
    Row(
        "nn_BasicLSTMCell",
        lambda m: nn.BasicLSTMCell(4),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'BasicLSTMCell'", "write gc.nn.LSTMCell"],
        True,
    ),
    Row(
        "nn_dynamic_rnn",
        lambda m: nn.dynamic_rnn(m.c),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'dynamic_rnn'",
            "write gc.nn.RNN(cell)",
        ],
        True,
    ),
    Row(
        "nn_softmax_v2",
        lambda m: nn.softmax_cross_entropy_with_logits(logits=m.c, labels=m.c),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute", "write gc.nn.softmax_cross_entropy"],
        True,
    ),
    Row(
        "nn_sparse_v2",
        lambda m: nn.sparse_softmax_cross_entropy_with_logits(logits=m.c, labels=m.i),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute", "write gc.nn.sparse_softmax_cross_entropy"],
        True,
    ),
    Row(
        "nn_sigmoid_v2",
        lambda m: nn.sigmoid_cross_entropy_with_logits(logits=m.c, labels=m.c),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute", "write gc.nn.sigmoid_cross_entropy"],
        True,
    ),
    Row(
        "nn_max_pool2d",
        lambda m: nn.max_pool2d(m.img, 2),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'max_pool2d'", "write gc.nn.max_pool"],
        True,
    ),
    Row(
        "nn_leaky",
        lambda m: nn.LeakyReLU(0.2),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'LeakyReLU'", "write gc.nn.leaky_relu"],
        True,
    ),
    Row(
        "tensor_numpy",
        lambda m: m.c.numpy(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'numpy'", "write session.run(x)"],
        True,
    ),
    Row(
        "tensor_backward",
        lambda m: m.c.sum().backward(),
        errors.UnknownAttributeError,
        [
            "<Tensor ReduceSum:0 f32[]> has no attribute 'backward'",
            "write gc.gradients(loss, variables) or gc.minimize(loss,",
        ],
        True,
    ),
    Row(
        "tensor_detach",
        lambda m: m.c.detach(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'detach'", "write gc.stop_gradient(x)"],
        True,
    ),
    Row(
        "tensor_item",
        lambda m: m.c.item(),
        errors.UnknownAttributeError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no attribute 'item'",
            "write session.run(x), which returns an array; its item() is a",
        ],
        True,
    ),
    Row(
        "tensor_view",
        lambda m: m.c.view(2, 6),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'view'", "write x.reshape(shape)"],
        True,
    ),
    Row(
        "tensor_unsqueeze",
        lambda m: m.c.unsqueeze(0),
        errors.UnknownAttributeError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no attribute 'unsqueeze'",
            "write gc.expand_dims(x, axis)",
        ],
        True,
    ),
    Row(
        "tensor_permute",
        lambda m: m.c.permute(1, 0),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'permute'", "write x.transpose(axes)"],
        True,
    ),
    Row(
        "tensor_to",
        lambda m: m.c.to("cuda"),
        errors.UnknownAttributeError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no attribute 'to'",
            "write x.astype(dtype), or gc.device(name) when the node is",
        ],
        True,
    ),
    Row(
        "tensor_cuda",
        lambda m: m.c.cuda(),
        errors.UnknownAttributeError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no attribute 'cuda'",
            'write with gc.device("/gpu:0"): when the node is made',
        ],
        True,
    ),
    Row(
        "tensor_eval",
        lambda m: m.c.eval(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'eval'", "write session.run(x)"],
        True,
    ),
    Row(
        "tensor_get_shape",
        lambda m: m.c.get_shape(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'get_shape'", "write x.shape"],
        True,
    ),
    Row(
        "tensor_relu",
        lambda m: m.c.relu(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'relu'", "write gc.nn.relu(x)"],
        True,
    ),
    Row(
        "tensor_exp",
        lambda m: m.c.exp(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'exp'", "write gc.exp(x)"],
        True,
    ),
    Row(
        "tensor_add_",
        lambda m: m.c.add_(1),
        errors.UnknownAttributeError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no attribute 'add_'",
            "write x + y: a tensor never changes",
        ],
        True,
    ),
    Row(
        "tensor_grad",
        lambda m: m.v.grad,
        errors.UnknownAttributeError,
        ["<Variable v f32[4, 2]> has no attribute 'grad'", "write gc.gradients(loss, variables)"],
        True,
    ),
    Row(
        "variable_initializer",
        lambda m: m.v.initializer,
        errors.UnknownAttributeError,
        [
            "<Variable v f32[4, 2]> has no attribute 'initializer'",
            "nothing: a session begins with the initial values",
        ],
        True,
    ),
    Row(
        "variable_initialized_value",
        lambda m: m.v.initialized_value(),
        errors.UnknownAttributeError,
        ["<Variable v f32[4, 2]> has no attribute 'initialized_value'", "write v.initial"],
        True,
    ),
    Row(
        "variable_data",
        lambda m: m.v.data,
        errors.UnknownAttributeError,
        [
            "<Variable v f32[4, 2]> has no attribute 'data'",
            "write gc.stop_gradient(x), or session.run(x) for numbers",
        ],
        True,
    ),
    Row(
        "variable_value",
        lambda m: m.v.value(),
        errors.UnknownAttributeError,
        [
            "<Variable v f32[4, 2]> has no attribute 'value'",
            "write session.run(x), which gives numbers",
        ],
        True,
    ),
    Row(
        "variable_numpy",
        lambda m: m.v.numpy(),
        errors.UnknownAttributeError,
        ["<Variable v f32[4, 2]> has no attribute 'numpy'", "write session.run(x)"],
        True,
    ),
    Row(
        "graph_unknown_tensor",
        lambda m: m.graph.tensor("absent"),
        errors.UnknownNameError,
        ["no node 'absent' in graph 'graph'", "did you mean 'Cast'?"],
        True,
    ),
    Row(
        "graph_unknown_variable",
        lambda m: m.graph.variable("absent"),
        errors.UnknownNameError,
        ["no variable 'absent' in graph 'graph'", "graph.variables has the names 'v', 'b'"],
        True,
    ),
    Row(
        "model_add",
        lambda m: nn.Sequential().add(nn.Dense(3)),
        errors.ArgumentError,
        ["Sequential: missing a required argument: 'layers'", "Sequential(layers)"],
        True,
    ),
    Row(
        "kw_axes",
        lambda m: gc.reduce_sum(m.c, axes=0),
        errors.ArgumentError,
        ["reduce_sum: it has no argument 'axes'", "it is called axis= here"],
        True,
    ),
    Row(
        "kw_dim",
        lambda m: gc.softmax(m.c, dim=-1),
        errors.ArgumentError,
        ["softmax: it has no argument 'dim'", "it is called axis= here"],
        True,
    ),
    Row(
        "kw_keep_dims",
        lambda m: gc.sum(m.c, keep_dims=True),
        errors.ArgumentError,
        ["reduce_sum: it has no argument 'keep_dims'", "it is called keepdims= here"],
        True,
    ),
    Row(
        "kw_keepdim",
        lambda m: gc.mean(m.c, keepdim=True),
        errors.ArgumentError,
        ["reduce_mean: it has no argument 'keepdim'", "it is called keepdims= here"],
        True,
    ),
    Row(
        "kw_reduction_indices",
        lambda m: gc.reduce_mean(m.c, reduction_indices=[1]),
        errors.ArgumentError,
        ["reduce_mean: it has no argument 'reduction_indices'", "it is called axis= here"],
        True,
    ),
    Row(
        "kw_ksize",
        lambda m: nn.max_pool(m.img, ksize=2),
        errors.ArgumentError,
        ["max_pool: it has no argument 'ksize'", "it is called window= here"],
        True,
    ),
    Row(
        "kw_keep_prob",
        lambda m: nn.dropout(m.c, keep_prob=0.5),
        errors.ArgumentError,
        [
            "dropout: it has no argument 'keep_prob'",
            "rate= is the probability of zero: rate = 1 - keep_prob",
        ],
        True,
    ),
    Row(
        "kw_p",
        lambda m: nn.dropout(m.c, p=0.5),
        errors.ArgumentError,
        ["dropout: it has no argument 'p'", "it is called rate= here"],
        True,
    ),
    Row(
        "kw_feed_dict",
        lambda m: gc.Session(m.graph).run(m.c, feed_dict={}),
        errors.ArgumentError,
        ["Session.run: it has no argument 'feed_dict'", "it is called feeds= here"],
        True,
    ),
    Row(
        "kw_stride",
        lambda m: nn.conv2d(m.img, m.kern, stride=1),
        errors.ArgumentError,
        ["conv2d: it has no argument 'stride'", "it is called strides= here"],
        True,
    ),
    Row(
        "kw_filters",
        lambda m: nn.conv2d(m.img, filters=m.kern),
        errors.ArgumentError,
        ["conv2d: it has no argument 'filters'", "it is called w= here"],
        True,
    ),
    Row(
        "kw_data_format",
        lambda m: nn.conv2d(m.img, m.kern, data_format="NCHW"),
        errors.ArgumentError,
        [
            "conv2d: it has no argument 'data_format'",
            "leave it out: channels come last: gc.transpose(x, (0, 2, 3,",
        ],
        True,
    ),
    Row(
        "kw_Dense_features",
        lambda m: nn.Dense(features=3),
        errors.ArgumentError,
        ["Dense: it has no argument 'features'", "it is called units= here"],
        True,
    ),
    Row(
        "kw_Dense_in_out",
        lambda m: nn.Dense(in_features=3, out_features=4),
        errors.ArgumentError,
        [
            "Dense: it has no argument 'in_features'",
            "leave it out: the size of the input is known from the first",
        ],
        True,
    ),
    Row(
        "kw_Dense_input_shape",
        lambda m: nn.Dense(3, input_shape=(4,)),
        errors.ArgumentError,
        [
            "Dense: it has no argument 'input_shape'",
            "leave it out: the size of the input is known from the first",
        ],
        True,
    ),
    Row(
        "kw_Dense_bias",
        lambda m: nn.Dense(3, bias=False),
        errors.ArgumentError,
        ["Dense: it has no argument 'bias'", "it is called use_bias= here"],
        True,
    ),
    Row(
        "kw_Conv_out_channels",
        lambda m: nn.Conv2D(out_channels=3, kernel_size=3),
        errors.ArgumentError,
        ["Conv2D: it has no argument 'out_channels'", "it is called filters= here"],
        True,
    ),
    Row(
        "kw_Conv_act",
        lambda m: nn.Conv2D(3, 3, act="relu"),
        errors.ArgumentError,
        ["Conv2D: it has no argument 'act'", "it is called activation= here"],
        True,
    ),
    Row(
        "kw_LSTM_hidden_size",
        lambda m: nn.LSTM(hidden_size=4),
        errors.ArgumentError,
        ["LSTM: it has no argument 'hidden_size'", "it is called units= here"],
        True,
    ),
    Row(
        "kw_LSTM_go_backwards",
        lambda m: nn.LSTM(4, go_backwards=True),
        errors.ArgumentError,
        ["LSTM: it has no argument 'go_backwards'", "it is called reverse= here"],
        True,
    ),
    Row(
        "kw_LSTM_batch_first",
        lambda m: nn.LSTM(4, batch_first=True),
        errors.ArgumentError,
        [
            "LSTM: it has no argument 'batch_first'",
            "leave it out: inputs are [batch, time, features] always",
        ],
        True,
    ),
    Row(
        "kw_LSTM_return_state",
        lambda m: nn.LSTM(4, return_state=True),
        errors.ArgumentError,
        [
            "LSTM: it has no argument 'return_state'",
            "leave it out: layer.with_state(x) gives the state too",
        ],
        True,
    ),
    Row(
        "kw_Embedding_input_dim",
        lambda m: nn.Embedding(input_dim=3, output_dim=4),
        errors.ArgumentError,
        ["Embedding: it has no argument 'input_dim'", "it is called count= here"],
        True,
    ),
    Row(
        "kw_Embedding_torch",
        lambda m: nn.Embedding(num_embeddings=3, embedding_dim=4),
        errors.ArgumentError,
        ["Embedding: it has no argument 'num_embeddings'", "it is called count= here"],
        True,
    ),
    Row(
        "kw_MaxPool_pool_size",
        lambda m: nn.MaxPool2D(pool_size=2),
        errors.ArgumentError,
        ["MaxPool2D: it has no argument 'pool_size'", "it is called window= here"],
        True,
    ),
    Row(
        "kw_MHA",
        lambda m: nn.MultiHeadAttention(num_heads=2, key_dim=4),
        errors.ArgumentError,
        ["MultiHeadAttention: it has no argument 'num_heads'", "it is called heads= here"],
        True,
    ),
    Row(
        "kw_BN_eps",
        lambda m: nn.BatchNorm(eps=1e-3),
        errors.ArgumentError,
        ["BatchNorm: it has no argument 'eps'", "did you mean 'epsilon'?"],
        True,
    ),
    Row(
        "kw_Dropout_keep",
        lambda m: nn.Dropout(keep_prob=0.5),
        errors.ArgumentError,
        [
            "Dropout: it has no argument 'keep_prob'",
            "rate= is the probability of zero: rate = 1 - keep_prob",
        ],
        True,
    ),
    Row(
        "kw_loss_positional",
        lambda m: nn.softmax_cross_entropy(m.c, m.c),
        errors.ArgumentError,
        [
            "softmax_cross_entropy: too many positional arguments",
            "softmax_cross_entropy(logits=..., labels=...)",
        ],
        True,
    ),
    Row(
        "kw_loss_y_true",
        lambda m: nn.squared_error(y_true=m.c, y_pred=m.c),
        errors.ArgumentError,
        ["squared_error: it has no argument 'y_true'", "it is called labels= here"],
        True,
    ),
    Row(
        "kw_loss_targets",
        lambda m: nn.sigmoid_cross_entropy(logits=m.c, targets=m.c),
        errors.ArgumentError,
        ["sigmoid_cross_entropy: it has no argument 'targets'", "it is called labels= here"],
        True,
    ),
    Row(
        "kw_placeholder_type_first",
        lambda m: gc.placeholder("float32", (None, 3)),
        errors.AttributeValueError,
        [
            "'float32' is a dtype, where the shape is expected",
            'gc.placeholder((None, 3), "float32")',
        ],
        True,
    ),
    Row(
        "kw_placeholder_shape_kw",
        lambda m: gc.placeholder(dtype="float32"),
        errors.ArgumentError,
        ["placeholder: missing a required argument: 'shape'", "placeholder(shape)"],
        True,
    ),
    Row(
        "kw_variable_no_shape",
        lambda m: gc.variable(nn.initializers.Zeros(), name="w"),
        errors.ShapeError,
        ["variable 'w': an initializer needs a shape", "pass shape=(...)"],
        True,
    ),
    Row(
        "kw_variable_initial_value",
        lambda m: gc.variable(initial_value=1.0),
        errors.ArgumentError,
        ["variable: it has no argument 'initial_value'", "it is called init= here"],
        True,
    ),
    Row(
        "kw_minimize_learning_rate",
        lambda m: gc.minimize(m.v.sum(), learning_rate=0.1),
        errors.ArgumentError,
        [
            "minimize: it has no argument 'learning_rate'",
            "leave it out: the optimizer has it: gc.minimize(loss,",
        ],
        True,
    ),
    Row(
        "kw_minimize_var_list",
        lambda m: gc.minimize(m.v.sum(), optax.sgd(0.1), var_list=[m.v]),
        errors.ArgumentError,
        ["minimize: it has no argument 'var_list'", "it is called variables= here"],
        True,
    ),
    Row(
        "kw_concat_dim",
        lambda m: gc.concatenate([m.c, m.c], dim=0),
        errors.ArgumentError,
        ["concatenate: it has no argument 'dim'", "it is called axis= here"],
        True,
    ),
    Row(
        "kw_split_num",
        lambda m: gc.split(m.c, num_or_size_splits=2, axis=1),
        errors.ArgumentError,
        ["split: it has no argument 'num_or_size_splits'", "did you mean 'sections_or_sizes'?"],
        True,
    ),
    Row(
        "kw_while_loop_vars",
        lambda m: gc.while_loop(lambda i: i < 3, lambda i: i + 1, loop_vars=0),
        errors.ArgumentError,
        ["while_loop: it has no argument 'loop_vars'", "it is called init= here"],
        True,
    ),
    Row(
        "kw_cond_pred",
        lambda m: gc.cond(pred=True, true_fn=lambda: 1, false_fn=lambda: 2),
        errors.ArgumentError,
        ["cond: it has no argument 'pred'", "did you mean 'predicate'?"],
        True,
    ),
    Row(
        "kw_scan_elems",
        lambda m: gc.scan(lambda a, x: (a, x), elems=m.c, initializer=m.c),
        errors.ArgumentError,
        ["scan: it has no argument 'elems'", "it is called xs= here"],
        True,
    ),
    Row(
        "kw_tile_multiples",
        lambda m: gc.tile(m.c, multiples=[1, 2]),
        errors.ArgumentError,
        ["tile: it has no argument 'multiples'", "it is called reps= here"],
        True,
    ),
    Row(
        "kw_top_k",
        lambda m: gc.top_k(m.c, num=2),
        errors.ArgumentError,
        ["top_k: it has no argument 'num'", "did you mean 'name'?"],
        True,
    ),
    Row(
        "kw_expand_dims_dim",
        lambda m: gc.expand_dims(m.c, dim=0),
        errors.ArgumentError,
        ["expand_dims: it has no argument 'dim'", "it is called axis= here"],
        True,
    ),
    Row(
        "too_many",
        lambda m: gc.exp(m.c, m.c, m.c),
        errors.ArgumentError,
        ["exp: too many positional arguments", "exp(x)"],
        True,
    ),
    Row(
        "too_few",
        lambda m: gc.matmul(m.c),
        errors.ArgumentError,
        ["matmul: missing a required argument: 'b'", "matmul(a, b)"],
        True,
    ),
    Row(
        "gradients_tape",
        lambda m: gc.gradients(m.v.sum()),
        errors.ArgumentError,
        ["gradients: missing a required argument: 'xs'", "gradients(ys, xs)"],
        True,
    ),
    Row(
        "sh_matmul",
        lambda m: gc.matmul(m.c, m.c),
        errors.ShapeError,
        [
            "MatMul: inner dimensions differ, 4 and 3",
            "b needs 4 rows to follow a; gc.transpose or gc.reshape one of",
        ],
        True,
    ),
    Row(
        "sh_at",
        lambda m: m.c @ m.c,
        errors.ShapeError,
        [
            "MatMul: inner dimensions differ, 4 and 3",
            "b needs 4 rows to follow a; gc.transpose or gc.reshape one of",
        ],
        True,
    ),
    Row(
        "sh_matmul_vec",
        lambda m: gc.matmul(m.c, gc.ones((3,))),
        errors.ShapeError,
        [
            "DotGeneral: contracted dimensions differ, 4 and 3",
            "axes that are multiplied must have one size; a.T reverses",
        ],
        True,
    ),
    Row(
        "sh_add",
        lambda m: m.c + gc.ones((3,)),
        errors.ShapeError,
        [
            "Add: shapes (3, 4) and (3) do not broadcast together: 4",
            "aligned from the right, sizes must be equal or 1",
        ],
        True,
    ),
    Row(
        "sh_sub_numpy",
        lambda m: m.c - np.ones((2, 4), F),
        errors.ShapeError,
        [
            "Subtract: shapes (3, 4) and (2, 4) do not broadcast together:",
            "aligned from the right, sizes must be equal or 1",
        ],
        True,
    ),
    Row(
        "sh_where",
        lambda m: gc.where(gc.ones((2,)) > 0, m.c, m.c),
        errors.ShapeError,
        [
            "Where: shapes (2) and (3, 4) and (3, 4) do not broadcast",
            "aligned from the right, sizes must be equal or 1",
        ],
        True,
    ),
    Row(
        "sh_concat",
        lambda m: gc.concatenate([m.c, m.v], 0),
        errors.ShapeError,
        [
            "Concatenate: sizes of axis 1 differ, 4 and 2",
            "only the sizes of axis 0, the joined axis, may differ",
        ],
        True,
    ),
    Row(
        "sh_concat_rank",
        lambda m: gc.concatenate([m.c, gc.ones((3,))]),
        errors.ShapeError,
        [
            "Concatenate: ranks differ, 2 and 1",
            "gc.expand_dims(x, axis) adds an axis; gc.stack joins along",
        ],
        True,
    ),
    Row(
        "sh_stack",
        lambda m: gc.stack([m.c, m.v]),
        errors.ShapeError,
        [
            "Stack: only tensors of one shape: sizes of axis 0 differ, 3",
            "gc.concatenate joins along an existing axis; gc.pad makes",
        ],
        True,
    ),
    Row(
        "sh_reshape",
        lambda m: gc.reshape(m.c, (5, 3)),
        errors.ShapeError,
        [
            "Reshape: 12 elements do not fit the shape (5, 3), which holds",
            "the sizes must multiply to the same number; -1 is computed",
        ],
        True,
    ),
    Row(
        "sh_reshape_2minus",
        lambda m: gc.reshape(m.c, (-1, -1)),
        errors.ShapeError,
        [
            "Reshape: more than one -1 in (-1, -1)",
            "one size can follow from the others: (x.shape[0], -1)",
        ],
        True,
    ),
    Row(
        "sh_reshape_none",
        lambda m: gc.reshape(m.c, (None, 2)),
        errors.AttributeValueError,
        [
            "Reshape: a size must be an int or a named size, got None",
            "where a function takes -1, it follows from the others",
        ],
        True,
    ),
    Row(
        "sh_transpose",
        lambda m: gc.transpose(m.c, (0, 1, 2)),
        errors.AttributeValueError,
        ["Transpose: axis 2 is out of range for rank 2", "axes run from -2 to 1"],
        True,
    ),
    Row(
        "sh_transpose_dup",
        lambda m: gc.transpose(m.c, (0, 0)),
        errors.ShapeError,
        ["Transpose: axes (0, 0) are not a permutation of the 2 axes of x", "name each axis once"],
        True,
    ),
    Row(
        "sh_squeeze",
        lambda m: gc.squeeze(m.c, 0),
        errors.ShapeError,
        [
            "Reshape: axis 0 has size 3, not 1, and cannot be squeezed",
            "x[0] is the first of 3 slices; gc.reshape merges axes",
        ],
        True,
    ),
    Row(
        "sh_axis",
        lambda m: gc.sum(m.c, axis=2),
        errors.AttributeValueError,
        ["ReduceSum: axis 2 is out of range for rank 2", "axes run from -2 to 1"],
        True,
    ),
    Row(
        "sh_axis_str",
        lambda m: gc.sum(m.c, axis="rows"),
        errors.AttributeValueError,
        [
            "ReduceSum: axis must be an int, got 'r'",
            "axes are counted from 0, or from -1 at the end; a tuple",
        ],
        True,
    ),
    Row(
        "sh_expand",
        lambda m: gc.expand_dims(m.c, 5),
        errors.AttributeValueError,
        [
            "Reshape: axis 5 is out of range for a result of rank 3",
            "places for the new axis run from -3 to 2",
        ],
        True,
    ),
    Row(
        "sh_split",
        lambda m: gc.split(m.c, 3, axis=1),
        errors.ShapeError,
        [
            "Split: size 4 of axis 1 does not divide by 3",
            "pass a list of sizes to split it unevenly",
        ],
        True,
    ),
    Row(
        "sh_split_sizes",
        lambda m: gc.split(m.c, [1, 2], axis=1),
        errors.ShapeError,
        [
            "Split: sizes (1, 2) add to 3, axis 1 has 4",
            "give the sizes of the pieces, not the positions of the cuts",
        ],
        True,
    ),
    Row(
        "sh_broadcast",
        lambda m: gc.broadcast_to(m.c, (4, 3)),
        errors.ShapeError,
        [
            "BroadcastTo: shape (3, 4) does not broadcast to (4, 3)",
            "each dim of x, counted from the right, must be 1 or equal",
        ],
        True,
    ),
    Row(
        "sh_tile",
        lambda m: gc.tile(m.c, "2"),
        errors.AttributeValueError,
        [
            "BroadcastTo: a size must be an int or a named size, got '2'",
            "sizes are static: take them from x.shape",
        ],
        True,
    ),
    Row(
        "sh_pad",
        lambda m: gc.pad(m.c, ((1, 1),) * 3),
        errors.AttributeValueError,
        [
            "Pad: ((1, 1), (1, 1), (1, 1)) does not give (before, after)",
            "gc.pad(x, ((1, 1), (1, 1))), or one pair for all axes",
        ],
        True,
    ),
    Row(
        "sh_index",
        lambda m: m.c[5],
        errors.ShapeError,
        ["getitem: index 5 is out of range for axis 0 of size 3", "indices run from -3 to 2"],
        True,
    ),
    Row(
        "sh_index_many",
        lambda m: m.c[0, 0, 0],
        errors.ShapeError,
        [
            "getitem: 3 indices for 2 axes",
            "None adds an axis: x[:, None]; x.ndim is the number of axes",
        ],
        True,
    ),
    Row(
        "sh_index_str",
        lambda m: m.c["a"],
        errors.DTypeError,
        ["'a' is not numeric", "pass a tensor, a variable, a number or an array of numbers"],
        True,
    ),
    Row(
        "sh_index_float",
        lambda m: m.c[0.5],
        errors.DTypeError,
        [
            "getitem: an index must be an integer, a slice, ... or None,",
            "gc.cast the index to int32",
        ],
        True,
    ),
    Row(
        "sh_index_floattensor",
        lambda m: m.c[m.c],
        errors.DTypeError,
        [
            "getitem: an index must be an integer, a slice, ... or None,",
            "gc.cast the index to int32",
        ],
        True,
    ),
    Row(
        "sh_boolmask",
        lambda m: m.c[m.c > 0],
        errors.DTypeError,
        [
            "getitem: an index must be an integer, a slice, ... or None,",
            "a mask has no static number of elements: use gc.where(mask,",
        ],
        True,
    ),
    Row(
        "sh_einsum",
        lambda m: gc.einsum("ij,jk->ik", m.c, m.c),
        errors.ShapeError,
        [
            "einsum: sizes under 'j' differ, 4 and 3",
            "one letter names axes of one size: give the axes other",
        ],
        True,
    ),
    Row(
        "sh_einsum_rank",
        lambda m: gc.einsum("ijk->i", m.c),
        errors.AttributeValueError,
        [
            "einsum: 'ijk' names 3 axes of an operand of rank 2, in",
            "a letter for each axis of each operand, as in",
        ],
        True,
    ),
    Row(
        "sh_einsum_text",
        lambda m: gc.einsum("ij->ijk", m.c),
        errors.AttributeValueError,
        [
            "einsum: 'k' of the result must occur once, and in an operand,",
            "a letter for each axis of each operand, as in",
        ],
        True,
    ),
    Row(
        "sh_tensordot",
        lambda m: gc.tensordot(m.c, m.c, axes=1),
        errors.ShapeError,
        [
            "DotGeneral: contracted dimensions differ, 4 and 3",
            "axes that are multiplied must have one size; a.T reverses",
        ],
        True,
    ),
    Row(
        "sh_conv_channels",
        lambda m: nn.conv2d(m.img, gc.ones((3, 3, 1, 4))),
        errors.ShapeError,
        [
            "Conv: channels of x and input channels of w times groups",
            "w is [height, width, input channels, output channels], x",
        ],
        True,
    ),
    Row(
        "sh_conv_rank",
        lambda m: nn.conv2d(m.c, m.kern),
        errors.ShapeError,
        [
            "conv2d: x must be [batch, height, width, channels], got 2 axes",
            "x[None] adds a batch of one, x[..., None] a channel",
        ],
        True,
    ),
    Row(
        "sh_conv_padding",
        lambda m: nn.conv2d(m.img, m.kern, padding="half"),
        errors.AttributeValueError,
        [
            'conv2d: padding must be "same", "valid", an int of at least',
            'padding="same" keeps the size with stride 1, padding=1 adds',
        ],
        True,
    ),
    Row(
        "sh_conv_stride0",
        lambda m: nn.conv2d(m.img, m.kern, strides=0),
        errors.AttributeValueError,
        ["conv2d: strides must be a positive int or 2 of them, got 0", "strides=2 or (2, 2)"],
        True,
    ),
    Row(
        "sh_pool_rank",
        lambda m: nn.max_pool(m.c, 2),
        errors.ShapeError,
        [
            "MaxPool: x must be [batch, ..., channels] with spatial axes,",
            "x[None] adds a batch of one, x[..., None] a channel",
        ],
        True,
    ),
    Row(
        "sh_pool_big",
        lambda m: nn.max_pool(m.img, 9),
        errors.ShapeError,
        [
            "MaxPool: a window of 9 does not fit into 8 elements of axis",
            'use padding="same", or a smaller window or dilation',
        ],
        True,
    ),
    Row(
        "sh_Conv2D_rank",
        lambda m: nn.Conv2D(4, 3)(m.c),
        errors.ShapeError,
        [
            "Conv2D 'conv2d': the input must be [batch, height, width,",
            "gc.reshape or gc.expand_dims the input",
        ],
        True,
    ),
    Row(
        "sh_Dense_other",
        dense_other,
        errors.ShapeError,
        [
            "Dense 'dense': its kernel has the shape (4, 3) from the first",
            "call it on inputs with the same number of features, or make another",
        ],
        True,
    ),
    Row(
        "sh_BN_other",
        bn_other,
        errors.ShapeError,
        [
            "BatchNorm 'batch_norm': its scale has the shape (4,) from the",
            "call it on inputs with the same number of features, or make another",
        ],
        True,
    ),
    Row(
        "sh_Dense_scalar",
        lambda m: nn.Dense(3)(gc.constant(1.0)),
        errors.ShapeError,
        [
            "Dense 'dense': the input must have a last axis of features",
            "x[None] makes one feature of a scalar",
        ],
        True,
    ),
    Row(
        "sh_Dense_flattened_unknown",
        lambda m: nn.Dense(3)(gc.placeholder((None, None), name="u")),
        errors.ShapeError,
        [
            "Dense 'dense': the number of features (the last axis) must be",
            "give the placeholder a fixed last size",
        ],
        True,
    ),
    Row(
        "sh_LSTM_rank",
        lambda m: nn.LSTM(4)(m.c),
        errors.ShapeError,
        [
            "LSTM 'lstm': the input must be [batch, time, features] (rank",
            "gc.reshape or gc.expand_dims the input",
        ],
        True,
    ),
    Row(
        "sh_LSTM_init",
        lambda m: nn.LSTM(4).with_state(gc.ones((2, 3, 5)), gc.ones((2, 4))),
        errors.AttributeValueError,
        [
            "LSTMCell 'lstm/cell': the state must be 2 tensors [batch, 4],",
            "pass one that the layer gave, or leave it out to start from",
        ],
        True,
    ),
    Row(
        "sh_LSTMCell_state",
        lambda m: nn.LSTMCell(4)(m.c, gc.zeros((3, 4))),
        errors.AttributeValueError,
        [
            "LSTMCell 'lstm_cell': the state must be 2 tensors [batch, 4],",
            "pass one that the layer gave, or leave it out to start from",
        ],
        True,
    ),
    Row(
        "sh_LSTM_lengths",
        lambda m: nn.LSTM(4)(gc.ones((2, 3, 5)), lengths=gc.constant([1, 2, 3])),
        errors.ShapeError,
        [
            "LSTM 'lstm': lengths must be of shape [2], one for each",
            "the first axis of x is the batch: x is [batch, time, ...]",
        ],
        True,
    ),
    Row(
        "sh_MHA_rank",
        lambda m: nn.MultiHeadAttention(4, 2)(m.c),
        errors.ShapeError,
        [
            "MultiHeadAttention 'multi_head_attention': the input must be",
            "gc.reshape or gc.expand_dims the input",
        ],
        True,
    ),
    Row(
        "sh_MHA_heads",
        lambda m: nn.MultiHeadAttention(5, 2)(gc.ones((2, 3, 5))),
        errors.AttributeValueError,
        ["MultiHeadAttention: heads must divide units, got 2 and 5", "or give head_size="],
        True,
    ),
    Row(
        "sh_MHA_mask",
        lambda m: nn.MultiHeadAttention(4, 2)(gc.ones((2, 3, 4)), mask=gc.ones((5, 5), "bool")),
        errors.ShapeError,
        [
            "Attention: a mask of two axes may be [batch, source] or",
            "say which: mask[:, None, None, :] if it is [batch, source],",
        ],
        True,
    ),
    Row(
        "sh_GroupNorm",
        lambda m: nn.GroupNorm(3)(gc.ones((1, 4, 4, 4))),
        errors.ShapeError,
        [
            "GroupNorm 'group_norm': 3 groups do not divide 4 features",
            "the number of groups must divide the size of the last axis",
        ],
        True,
    ),
    Row(
        "sh_xent",
        lambda m: nn.softmax_cross_entropy(logits=m.c, labels=gc.ones((3, 5))),
        errors.ShapeError,
        [
            "SoftmaxCrossEntropy: sizes of logits and labels differ, 4 and",
            "labels have the shape of logits: gc.one_hot(numbers, 4)",
        ],
        True,
    ),
    Row(
        "sh_xent_int",
        lambda m: nn.softmax_cross_entropy(logits=m.c, labels=m.i),
        errors.ShapeError,
        [
            "SoftmaxCrossEntropy: labels must have the shape of logits,",
            "for labels that are class numbers use",
        ],
        True,
    ),
    Row(
        "sh_sparse_onehot",
        lambda m: nn.sparse_softmax_cross_entropy(logits=m.c, labels=gc.cast(m.c, "int32")),
        errors.ShapeError,
        [
            "SparseSoftmaxCrossEntropy: labels must have one axis fewer",
            "one-hot labels are for softmax_cross_entropy;",
        ],
        True,
    ),
    Row(
        "sh_sparse_float",
        lambda m: nn.sparse_softmax_cross_entropy(logits=m.c, labels=gc.ones((3,))),
        errors.DTypeError,
        [
            "SparseSoftmaxCrossEntropy: labels must be integers (class",
            "for labels that are distributions use softmax_cross_entropy",
        ],
        True,
    ),
    Row(
        "sh_sparse_batch",
        lambda m: nn.sparse_softmax_cross_entropy(logits=m.c, labels=gc.constant([0, 1])),
        errors.ShapeError,
        [
            "SparseSoftmaxCrossEntropy: sizes of logits and labels differ,",
            "labels needs one entry for each row of logits",
        ],
        True,
    ),
    Row(
        "sh_sigmoid",
        lambda m: nn.sigmoid_cross_entropy(logits=m.c, labels=gc.ones((3,))),
        errors.ShapeError,
        [
            "SigmoidCrossEntropy: shapes (3, 4) and (3) do not broadcast",
            "aligned from the right, sizes must be equal or 1",
        ],
        True,
    ),
    Row(
        "sh_mse",
        lambda m: nn.squared_error(predictions=m.c, labels=gc.ones((3,))),
        errors.ShapeError,
        [
            "Subtract: shapes (3, 4) and (3) do not broadcast together: 4",
            "aligned from the right, sizes must be equal or 1",
        ],
        True,
    ),
    Row(
        "sh_ctc",
        lambda m: nn.ctc_loss(logits=m.c, labels=m.c),
        errors.ShapeError,
        [
            "ctc_loss: logits must be [batch, time, classes] and labels",
            "x[None] adds a batch of one; the time is the second axis,",
        ],
        True,
    ),
    Row(
        "sh_loss_vector",
        lambda m: gc.minimize(gc.square(m.v), optax.sgd(0.1)),
        errors.ShapeError,
        [
            "minimize: the loss must be a scalar, got f32[4, 2]",
            "take its gc.reduce_mean or gc.reduce_sum",
        ],
        True,
    ),
    Row(
        "sh_assign",
        lambda m: m.v.assign(np.ones((2, 2), F)),
        errors.ShapeError,
        [
            "Assign: variable 'v' is f32[4, 2], the value f32[2, 2]",
            "gc.cast or gc.reshape the value",
        ],
        True,
    ),
    Row(
        "sh_var_shape",
        lambda m: gc.variable(np.ones((2, 2)), shape=(3,), name="q"),
        errors.ShapeError,
        [
            "variable 'q': the initial value has the shape (2, 2), not (3)",
            "omit the shape, or give a value with this shape",
        ],
        True,
    ),
    Row(
        "sh_solve",
        lambda m: gc.linalg.solve(m.c, m.c),
        errors.ShapeError,
        [
            "Solve: the sides of a matrix that must be square differ, 3",
            "gc.linalg.lstsq, pinv and svd take matrices that are not",
        ],
        True,
    ),
    Row(
        "sh_det",
        lambda m: gc.linalg.det(m.c),
        errors.ShapeError,
        [
            "Determinant: the sides of a matrix that must be square",
            "gc.linalg.lstsq, pinv and svd take matrices that are not",
        ],
        True,
    ),
    Row(
        "sh_depth_to_space",
        lambda m: nn.depth_to_space(m.img, 2),
        errors.ShapeError,
        [
            "depth_to_space: 3 channels of x do not form blocks of 2",
            "the channels must divide by 2**2",
        ],
        True,
    ),
    Row(
        "sh_neg",
        lambda m: gc.zeros((-1, 3)),
        errors.AttributeValueError,
        [
            "BroadcastTo: shape must be a tuple of sizes, none negative,",
            "-1 is for gc.reshape only; x.shape[0] is a size that may be",
        ],
        True,
    ),
    Row(
        "sh_zero_float",
        lambda m: gc.zeros((3.5,)),
        errors.AttributeValueError,
        [
            "BroadcastTo: a size must be an int or a named size, got 3.5",
            "sizes are static: take them from x.shape",
        ],
        True,
    ),
    Row(
        "sh_zero_args",
        lambda m: gc.zeros(3, 4),
        errors.ArgumentError,
        ["zeros: the shape is one argument, a tuple, got 3 and then 4", "zeros((3, 4))"],
        True,
    ),
    Row(
        "sh_zero_none",
        lambda m: gc.zeros((None, 3)),
        errors.AttributeValueError,
        [
            "BroadcastTo: a size must be an int or a named size, got None",
            "x.shape has the sizes",
        ],
        True,
    ),
    Row(
        "sh_placeholder_neg",
        lambda m: gc.placeholder((-1, 3), name="n"),
        errors.ShapeError,
        [
            "placeholder: -1 is not a size",
            "sizes are 0 or more; write None for a size that is known only",
        ],
        True,
    ),
    Row(
        "sh_placeholder_args",
        lambda m: gc.placeholder(3, 4, name="n"),
        errors.DTypeError,
        ["4 is not a dtype of graphc", 'a dtype is a name such as "float32"; the sizes of a shape'],
        True,
    ),
    Row(
        "sh_ragged",
        lambda m: gc.constant([[1, 2], [3]]),
        errors.DTypeError,
        [
            "list [[1, 2], [3]] cannot be read as an array",
            "pass an array, or lists of numbers of one length",
        ],
        True,
    ),
    Row(
        "sh_top_k",
        lambda m: gc.top_k(m.c, 9),
        errors.ShapeError,
        ["TopK: k is 9 of 4 elements", "elements are selected along the last axis: k is at most"],
        True,
    ),
    Row(
        "sh_take_axis",
        lambda m: gc.take(m.c, m.i, axis=4),
        errors.AttributeValueError,
        ["Take: axis 4 is out of range for rank 2", "axes run from -2 to 1"],
        True,
    ),
    Row(
        "sh_segment",
        lambda m: gc.segment_sum(m.c, gc.constant([0, 1]), num_segments=2),
        errors.ShapeError,
        [
            "segments: the data must have a row for each id",
            "the first axes of the data are those of the ids",
        ],
        True,
    ),
    Row(
        "sh_segment_no_n",
        lambda m: gc.segment_sum(m.c, m.i),
        errors.ArgumentError,
        [
            "segment_sum: missing a required argument: 'num_segments'",
            "segment_sum(data, segment_ids, num_segments)",
        ],
        True,
    ),
    Row(
        "sh_cross",
        lambda m: gc.cross(m.c, m.c),
        errors.ShapeError,
        [
            "cross: a must have 3 elements along axis -1, not 4",
            "axis= names the axis of the three coordinates",
        ],
        True,
    ),
    Row(
        "sh_eye_neg",
        lambda m: gc.eye(-2),
        errors.AttributeValueError,
        [
            "Iota: shape must be a tuple of sizes, none negative, got (-2,",
            "-1 is for gc.reshape only; x.shape[0] is a size that may be",
        ],
        True,
    ),
    Row(
        "sh_glu",
        lambda m: nn.glu(gc.ones((3, 5))),
        errors.ShapeError,
        [
            "glu: the size 5 is odd and cannot be halved",
            "a layer before it with twice the units: gc.nn.Dense(2 *",
        ],
        True,
    ),
    Row(
        "dt_and_float",
        lambda m: m.c & m.c,
        errors.DTypeError,
        [
            "LogicalAnd: x must be bool or integer, got float32",
            "compare: x > 0, or gc.not_equal(x, 0)",
        ],
        True,
    ),
    Row(
        "dt_not_float",
        lambda m: ~m.c,
        errors.DTypeError,
        [
            "LogicalNot: x must be bool or integer, got float32",
            "compare: x > 0, or gc.not_equal(x, 0)",
        ],
        True,
    ),
    Row(
        "dt_logical",
        lambda m: gc.logical_and(m.c, m.c),
        errors.DTypeError,
        [
            "LogicalAnd: x must be bool or integer, got float32",
            "compare: x > 0, or gc.not_equal(x, 0)",
        ],
        True,
    ),
    Row(
        "dt_cond_float",
        lambda m: gc.cond(m.c.sum(), lambda: m.c, lambda: m.c),
        errors.DTypeError,
        [
            "cond: the predicate must be a bool scalar, got f32[]",
            "compare (x > 0), and reduce with gc.all or gc.any; gc.where",
        ],
        True,
    ),
    Row(
        "dt_cond_vector",
        lambda m: gc.cond(m.c > 0, lambda: m.c, lambda: m.c),
        errors.ShapeError,
        [
            "cond: the predicate must be a bool scalar, got bool[3, 4]",
            "compare (x > 0), and reduce with gc.all or gc.any; gc.where",
        ],
        True,
    ),
    Row(
        "dt_take_float",
        lambda m: gc.take(m.c, gc.ones((2,))),
        errors.DTypeError,
        ["Take: indices must be integers, got float32", "gc.cast them to int32"],
        True,
    ),
    Row(
        "dt_embedding_float",
        lambda m: nn.Embedding(4, 3)(m.c),
        errors.DTypeError,
        ["Embedding 'embedding': indices must be integers, got float32", 'gc.cast them to "int32"'],
        True,
    ),
    Row(
        "dt_one_hot_float",
        lambda m: gc.one_hot(gc.ones((3,)), 3),
        errors.DTypeError,
        ["OneHot: indices must be integers, got float32", 'gc.cast(indices, "int32")'],
        True,
    ),
    Row(
        "dt_name2",
        lambda m: gc.cast(m.c, "flaot32"),
        errors.DTypeError,
        ["'flaot32' is not a dtype of graphc", "did you mean 'float32'?"],
        True,
    ),
    Row(
        "dt_string",
        lambda m: gc.constant("hello"),
        errors.DTypeError,
        ["'hello' is not numeric", "pass a tensor, a variable, a number or an array of numbers"],
        True,
    ),
    Row(
        "dt_add_str",
        lambda m: m.c + "1",
        errors.DTypeError,
        ["'1' is not numeric", "pass a tensor, a variable, a number or an array of numbers"],
        True,
    ),
    Row(
        "dt_add_none",
        lambda m: m.c + None,
        errors.DTypeError,
        ["None is not numeric", "pass a tensor, a variable, a number or an array of numbers"],
        True,
    ),
    Row(
        "dt_add_list",
        lambda m: m.c + [m.c, "a"],  # noqa: RUF005
        errors.GraphError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no value while the graph is",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "dt_object",
        lambda m: gc.constant(np.array([None, 1], object)),
        errors.DTypeError,
        [
            "array([None, 1], dtype=object) is not numeric",
            "pass a tensor, a variable, a number or an array of numbers",
        ],
        True,
    ),
    Row(
        "dt_sum_list",
        lambda m: gc.sum("abc"),
        errors.DTypeError,
        ["'abc' is not numeric", "pass a tensor, a variable, a number or an array of numbers"],
        True,
    ),
    Row(
        "dt_neg_bool",
        lambda m: -(m.c > 0),
        errors.DTypeError,
        ["Negative: x must be numeric, got bool", 'gc.cast(x, "float32")'],
        True,
    ),
    Row(
        "dt_sub_bool",
        lambda m: (m.c > 0) - (m.c > 1),
        errors.DTypeError,
        ["Subtract: x must be numeric, got bool", 'gc.cast(x, "float32")'],
        True,
    ),
    Row(
        "dt_mod_complex",
        lambda m: gc.constant(1j) % 2,
        errors.DTypeError,
        [
            "Remainder: x must be integer or floating, got complex64",
            "gc.real(x), gc.imag(x) and gc.abs(x) are real",
        ],
        True,
    ),
    Row(
        "dt_argmax_complex",
        lambda m: gc.argmax(gc.constant([1j])),
        errors.DTypeError,
        [
            "ArgMax: x must be real or bool, got complex64",
            "gc.real(x), gc.imag(x) and gc.abs(x) are real",
        ],
        True,
    ),
    Row(
        "dt_relu_int",
        lambda m: nn.relu(gc.constant(1j)),
        errors.DTypeError,
        [
            "Relu: x must be integer or floating, got complex64",
            "gc.real(x), gc.imag(x) and gc.abs(x) are real",
        ],
        True,
    ),
    Row(
        "dt_dropout_int",
        lambda m: nn.dropout(m.i, 0.5),
        errors.DTypeError,
        ["Dropout: x must be floating, got int32", 'gc.cast(x, "float32")'],
        True,
    ),
    Row(
        "dt_dropout_rate",
        lambda m: nn.dropout(m.c, 1.5),
        errors.AttributeValueError,
        [
            "Dropout: rate must be at least 0 and less than 1, got 1.5",
            "it is the fraction of elements that become 0: 0.1 for",
        ],
        True,
    ),
    Row(
        "dt_softmax_int",
        lambda m: gc.softmax(m.i),
        errors.DTypeError,
        ["Softmax: x must be floating, got int32", 'gc.cast(x, "float32")'],
        True,
    ),
    Row(
        "dt_assign_float",
        lambda m: gc.variable(0, name="n").assign(0.5),
        errors.DTypeError,
        ["Assign: variable 'n' is i32[], the value f32[]", "gc.cast or gc.reshape the value"],
        True,
    ),
    Row(
        "dt_assign_bool",
        lambda m: m.v.assign(True),
        errors.ShapeError,
        ["Assign: variable 'v' is f32[4, 2], the value f32[]", "gc.cast or gc.reshape the value"],
        True,
    ),
    Row(
        "dt_int_overflow",
        lambda m: gc.constant(2**40),
        errors.DTypeError,
        [
            "1099511627776 is out of range for int32",
            'request a wider dtype, as in gc.constant(value, "int64")',
        ],
        True,
    ),
    Row(
        "dt_uint8_neg",
        lambda m: gc.constant(-1, "uint8"),
        errors.DTypeError,
        [
            "-1 is out of range for uint8",
            'request a wider dtype, as in gc.constant(value, "int64")',
        ],
        True,
    ),
    Row(
        "dt_grad_int",
        lambda m: gc.gradients(gc.sum(m.i), [m.i]),
        errors.GradientError,
        [
            "'ReduceSum:0' is int32: only floating and complex tensors",
            "gc.cast it to float32 first, where a derivative makes sense",
        ],
        True,
    ),
    Row(
        "dt_grad_cast",
        lambda m: gc.gradients(gc.sum(gc.cast(m.v, "int32")), [m.v]),
        errors.GradientError,
        [
            "'ReduceSum:0' is int32: only floating and complex tensors",
            "gc.cast it to float32 first, where a derivative makes sense",
        ],
        True,
    ),
    Row(
        "dt_dtype_int",
        lambda m: gc.zeros((3,), 7),
        errors.DTypeError,
        ["7 is not a dtype of graphc", 'a dtype is a name such as "float32"; the sizes of a shape'],
        True,
    ),
    Row(
        "dt_dtype_shape",
        lambda m: gc.zeros((3,), (3,)),
        errors.DTypeError,
        [
            "(3,) is not a dtype of graphc",
            'a dtype is a name such as "float32"; the sizes of a shape',
        ],
        True,
    ),
    Row(
        "run_no_feed",
        lambda m: run(m, m.y + 1),
        errors.FeedError,
        ["placeholder 'y' (f32[batch, 4]) is needed and not fed", 'feed it: {"y": value}'],
        True,
    ),
    Row(
        "run_shape",
        lambda m: run(m, m.y + 1, {m.y: np.ones((2, 5))}),
        errors.FeedError,
        [
            "feed 'y' must be f32[batch, 4], got shape (2, 5): expected",
            "feed a value of that shape, or change the placeholder's",
        ],
        True,
    ),
    Row(
        "run_rank",
        lambda m: run(m, m.y + 1, {m.y: np.ones((4,))}),
        errors.FeedError,
        [
            "feed 'y' must be f32[batch, 4], got shape (4,): expected rank",
            "feed a value of that shape, or change the placeholder's",
        ],
        True,
    ),
    Row(
        "run_complex",
        lambda m: run(m, m.y + 1, {m.y: np.ones((2, 4)) * 1j}),
        errors.FeedError,
        [
            "feed 'y' must be float32, got complex128",
            "feed value.astype('float32'), if that is what you mean",
        ],
        True,
    ),
    Row(
        "run_float_to_int",
        lambda m: run(m, m.k + 1, {m.k: np.ones((3,)) * 0.5}),
        errors.FeedError,
        [
            "feed 'k' must be int32, got float64",
            "feed value.astype('int32'), if that is what you mean",
        ],
        True,
    ),
    Row(
        "run_string",
        lambda m: run(m, m.y + 1, {m.y: "data"}),
        errors.FeedError,
        [
            "feed 'y' is not an array of float32: str 'data'",
            "pass a tensor, a variable, a number or an array of numbers",
        ],
        True,
    ),
    Row(
        "run_none",
        lambda m: run(m, m.y + 1, {m.y: None}),
        errors.FeedError,
        [
            "feed 'y' is not an array of float32: NoneType None",
            "pass a tensor, a variable, a number or an array of numbers",
        ],
        True,
    ),
    Row(
        "run_ragged",
        lambda m: run(m, m.y + 1, {m.y: [[1, 2], [3]]}),
        errors.FeedError,
        [
            "feed 'y' is not an array of float32: list [[1, 2], [3]]",
            "pass an array, or lists of numbers of one length",
        ],
        True,
    ),
    Row(
        "run_tensor_feed",
        lambda m: run(m, m.y + 1, {m.y: m.c}),
        errors.FeedError,
        ["feed 'y' is not an array of float32: Tensor <Tensor", "run it: session.run(tensor)"],
        True,
    ),
    Row(
        "run_unknown_name",
        lambda m: run(m, m.y + 1, {"z": np.ones((2, 4))}),
        errors.UnknownNameError,
        ["no node 'z' in graph 'graph'", "graph.nodes has the names 'Constant', 'y', 'y2',"],
        True,
    ),
    Row(
        "run_key_int",
        lambda m: run(m, m.y + 1, {0: np.ones((2, 4))}),
        errors.FeedError,
        ["0 is not a feed key", "use a tensor or its name"],
        True,
    ),
    Row(
        "run_feeds_list",
        lambda m: run(m, m.y + 1, [np.ones((2, 4))]),
        errors.FeedError,
        ["feeds must be a mapping, got list", "feeds={x: value}, by tensor or by name"],
        True,
    ),
    Row(
        "run_feeds_array",
        lambda m: run(m, m.y + 1, np.ones((2, 4))),
        errors.FeedError,
        ["feeds must be a mapping, got ndarray", "feeds={x: value}, by tensor or by name"],
        True,
    ),
    Row(
        "run_feeds_pairs",
        lambda m: run(m, m.y + 1, {m.y, 3}),
        errors.FeedError,
        ["feeds must be a mapping, got set", "feeds={x: value}, by tensor or by name"],
        True,
    ),
    Row(
        "run_kwargs",
        lambda m: gc.Session(m.graph).run(m.y + 1, y=np.ones((2, 4))),
        errors.ArgumentError,
        [
            "Session.run: it has no argument 'y'",
            "feeds are one dict: {x: value}, from placeholders or their",
        ],
        True,
    ),
    Row(
        "run_two_dims",
        lambda m: run(m, m.y + m.y2, {m.y: np.ones((2, 4)), m.y2: np.ones((3, 4))}),
        errors.FeedError,
        [
            "feed 'y2' must be f32[batch, 4], got shape (3, 4): expected",
            "feed a value of that shape, or change the placeholder's",
        ],
        True,
    ),
    Row(
        "run_fetch_int",
        lambda m: run(m, 3),
        errors.FetchError,
        ["3 cannot be fetched", "fetch a tensor, a variable, what gc.minimize or gc.group"],
        True,
    ),
    Row(
        "run_fetch_array",
        lambda m: run(m, np.ones(3)),
        errors.FetchError,
        [
            "array([1., 1., 1.]) cannot be fetched",
            "fetch a tensor, a variable, what gc.minimize or gc.group",
        ],
        True,
    ),
    Row(
        "run_fetch_str",
        lambda m: run(m, "absent"),
        errors.UnknownNameError,
        ["no tensor, node or variable 'absent' in graph 'graph'", "did you mean 'Cast'?"],
        True,
    ),
    Row(
        "run_fetch_layer",
        lambda m: run(m, nn.Dense(3)),
        errors.FetchError,
        [
            "<Dense 'dense', not called yet> cannot be fetched",
            "call it, and fetch what it returns",
        ],
        True,
    ),
    Row(
        "run_fetch_other",
        lambda m: gc.Session(gc.Graph()).run(m.c),
        errors.FetchError,
        [
            "fetch 'Constant:0' is not of graph 'graph'",
            "fetch tensors of the session's own graph; a body's tensors",
        ],
        True,
    ),
    Row(
        "run_two",
        lambda m: gc.Session(m.graph).run(m.c, m.v),
        errors.FeedError,
        ["feeds must be a mapping, got Variable", "feeds={x: value}, by tensor or by name"],
        True,
    ),
    Row(
        "run_int_overflow",
        lambda m: run(m, m.k + 1, {m.k: np.array([2**40] * 3)}),
        errors.FeedError,
        [
            "feed 'k' must be int32, got int64 with values that do not fit",
            "give the placeholder a wider dtype",
        ],
        True,
    ),
    Row(
        "run_torch_image_order",
        lambda m: run(m, m.images * 1.0, {m.images: np.ones((2, 3, 8, 8))}),
        errors.FeedError,
        [
            "feed 'images' must be f32[images_0, 8, 8, 3], got shape (2,",
            "feed a value of that shape, or change the placeholder's",
        ],
        True,
    ),
    Row(
        "session_get",
        lambda m: gc.Session(m.graph).get("absent"),
        errors.UnknownNameError,
        ["no variable 'absent' in graph 'graph'", "graph.variables has the names 'v', 'b'"],
        True,
    ),
    Row(
        "session_get_tensor",
        lambda m: gc.Session(m.graph).get(m.c),
        errors.UnknownNameError,
        [
            "no variable <Tensor Constant:0 f32[3, 4]> in graph 'graph'",
            "a tensor is computed: session.run(x) gives its value, a",
        ],
        True,
    ),
    Row(
        "session_set_absent",
        lambda m: setv(m, "absent", 1),
        errors.UnknownNameError,
        ["no variable 'absent' in graph 'graph'", "graph.variables has the names 'v', 'b'"],
        True,
    ),
    Row(
        "session_set_shape",
        lambda m: setv(m, "v", np.ones(3)),
        errors.ShapeError,
        ["variable 'v' has shape (4, 2), the value (3,)", "set a value of that shape"],
        True,
    ),
    Row(
        "session_set_str",
        lambda m: setv(m, "v", "ones"),
        errors.DTypeError,
        [
            "variable 'v' is not an array of float32: str 'ones'",
            "pass a tensor, a variable, a number or an array of numbers",
        ],
        True,
    ),
    Row(
        "session_set_tensor",
        lambda m: setv(m, m.c, 1.0),
        errors.UnknownNameError,
        [
            "no variable <Tensor Constant:0 f32[3, 4]> in graph 'graph'",
            "a tensor is computed: session.run(x) gives its value, a",
        ],
        True,
    ),
    Row(
        "add_later",
        add_later,
        errors.GraphFinalizedError,
        [
            "Constant: the graph has run, so nodes can no longer be added",
            "build the whole graph before the first run, or add nodes",
        ],
        True,
    ),
    Row(
        "mixed",
        other,
        errors.GraphError,
        [
            "tensor 'BroadcastTo:0' belongs to another graph",
            "build both in one graph, or feed its value",
        ],
        True,
    ),
    Row(
        "run_steps_n",
        lambda m: gc.Session(m.graph).run_steps(m.y + 1, [{m.y: np.ones((2, 4))}], 3),
        errors.FeedError,
        [
            "run_steps: the batches ended after 1 of 3 steps; nothing has",
            "ask for fewer steps, or pass an iterable with more batches",
        ],
        True,
    ),
    Row(
        "run_steps_axis",
        lambda m: gc.Session(m.graph).run_steps(m.y + 1, {m.y: np.ones((2, 4))}, 3),
        errors.FeedError,
        [
            "run_steps: feed 'y' must have a leading axis of 3, one for",
            "stack the steps' values, or pass an iterable of feeds in",
        ],
        True,
    ),
    Row(
        "run_steps_zero",
        lambda m: gc.Session(m.graph).run_steps(m.y + 1, {m.y: np.ones((2, 4))}, 0),
        errors.AttributeValueError,
        [
            "run_steps: n must be an int of at least 1, got 0",
            "session.run_steps(fetches, feeds, 100)",
        ],
        True,
    ),
    Row(
        "py_if",
        lambda m: 1 if m.c.sum() > 0 else 2,
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[]> has no truth value while the graph",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_while",
        lambda m: [0 for _ in range(1) if not m.c],
        errors.GraphError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no truth value while the",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_for",
        loop,
        errors.GraphError,
        [
            "<Tensor y:0 f32[batch, 4]> cannot be iterated over while the",
            "gc.scan and gc.map_fn iterate over the first axis when the",
        ],
        True,
    ),
    Row(
        "py_len",
        lambda m: len(m.y),
        errors.GraphError,
        [
            "len() of <Tensor y:0 f32[batch, 4]>: its first axis has the",
            "use x.shape[0]: it works in shapes and in arithmetic with",
        ],
        True,
    ),
    Row(
        "py_iter0",
        lambda m: list(m.c.sum()),
        errors.GraphError,
        [
            "<Tensor ReduceSum:0 f32[]> cannot be iterated over while the",
            "a tensor with a first axis of known size gives its slices",
        ],
        True,
    ),
    Row(
        "py_float",
        lambda m: float(m.c.sum()),
        errors.GraphError,
        [
            "<Tensor ReduceSum:0 f32[]> has no value while the graph is",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "py_int",
        lambda m: int(m.c.sum()),
        errors.GraphError,
        [
            "<Tensor ReduceSum:0 f32[]> has no value while the graph is",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "py_dict_eq",
        lambda m: [m.c, m.v].index(m.v),
        errors.ShapeError,
        [
            "Equal: shapes (3, 4) and (4, 2) do not broadcast together: 3",
            "aligned from the right, sizes must be equal or 1",
        ],
        True,
    ),
    Row(
        "py_math",
        lambda m: math.sqrt(m.c.sum()),
        errors.GraphError,
        [
            "<Tensor ReduceSum:0 f32[]> has no value while the graph is",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "np_array",
        lambda m: np.array(m.c),
        errors.GraphError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no value while the graph is",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "np_asarray",
        lambda m: np.asarray(m.v),
        errors.GraphError,
        [
            "<Variable v f32[4, 2]> has no value while the graph is built",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "np_random",
        lambda m: np.random.permutation(m.c),
        errors.GraphError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no value while the graph is",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "np_assign",
        lambda m: np.zeros((3, 4)).__setitem__(0, m.c[0]),
        errors.GraphError,
        [
            "<Tensor Reshape:0 f32[4]> has no value while the graph is",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "jnp_exp",
        lambda m: jnp.exp(m.c),
        errors.GraphError,
        [
            "a function of JAX is called with <Tensor Constant:0 f32[3,",
            "most functions of jax.numpy have the same name in gc;",
        ],
        True,
    ),
    Row(
        "py_max",
        lambda m: max(m.c, m.c),
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[3, 4]> has no truth value while the",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_sorted",
        lambda m: sorted([m.c.sum(), m.c.mean()]),
        errors.GraphError,
        [
            "<Tensor Less:0 bool[]> has no truth value while the graph is",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_in",
        lambda m: 1 in m.c,
        errors.GraphError,
        [
            "<Tensor Equal_1:0 bool[4]> has no truth value while the graph",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_in_list",
        lambda m: m.c in [m.v, m.c],
        errors.ShapeError,
        [
            "Equal: shapes (4, 2) and (3, 4) do not broadcast together: 4",
            "aligned from the right, sizes must be equal or 1",
        ],
        True,
    ),
    Row(
        "py_and",
        lambda m: m.c > 0 and m.c < 1,
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[3, 4]> has no truth value while the",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_chain",
        lambda m: 0 < m.c < 1,
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[3, 4]> has no truth value while the",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_not",
        lambda m: not (m.c > 0),
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[3, 4]> has no truth value while the",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_deepcopy",
        lambda m: copy.deepcopy(m.c),
        errors.CopyError,
        [
            "Tensor Constant:0 cannot be pickled or copied",
            "send the graph, which can be pickled and copied, and find it",
        ],
        False,
    ),
    Row(
        "py_pickle",
        lambda m: pickle.dumps(gc.Session(m.graph)),
        errors.CopyError,
        ["Session cannot be pickled or copied", "save it with gc.save; or send session.graph and"],
        False,
    ),
    Row(
        "opt_str",
        lambda m: gc.minimize(m.v.sum(), "adam"),
        errors.AttributeValueError,
        ["minimize: 'adam' is not an optax transformation", "pass one, such as optax.adam(1e-3)"],
        True,
    ),
    Row(
        "opt_float",
        lambda m: gc.minimize(m.v.sum(), 0.1),
        errors.AttributeValueError,
        ["minimize: 0.1 is not an optax transformation", "pass one, such as optax.adam(1e-3)"],
        True,
    ),
    Row(
        "opt_no_var",
        lambda m: gc.minimize(m.c.sum(), optax.sgd(0.1)),
        errors.GradientError,
        [
            "minimize: the loss 'ReduceSum:0' depends on no trainable",
            "calculate it from variables by differentiable operators",
        ],
        True,
    ),
    Row(
        "opt_int_loss",
        lambda m: gc.minimize(gc.sum(gc.cast(m.v, "int32")), optax.sgd(0.1)),
        errors.DTypeError,
        [
            "minimize: the loss must be floating, got i32[]",
            'gc.cast(x, "float32") where integers become numbers',
        ],
        True,
    ),
    Row(
        "opt_loss_number",
        lambda m: gc.minimize(3.0, optax.sgd(0.1)),
        errors.GraphError,
        [
            "minimize: the loss must be a tensor, got 3.0",
            "compute the loss with functions of gc, such as",
        ],
        True,
    ),
    Row(
        "opt_vars_strings",
        lambda m: gc.minimize(m.v.sum(), optax.sgd(0.1), variables=["v"]),
        errors.GradientError,
        [
            "x must be a tensor or a variable, got 'v'",
            "a variable is found by its name: graph.variable(name)",
        ],
        True,
    ),
    Row(
        "opt_vars_tensor",
        lambda m: gc.minimize(m.v.sum(), optax.sgd(0.1), variables=[m.c]),
        errors.GradientError,
        [
            "no gradient path from 'Constant:0' to 'ReduceSum:0'",
            "the y must be computed from the x by differentiable operators",
        ],
        True,
    ),
    Row(
        "opt_vars_one",
        lambda m: gc.minimize(m.v.sum(), optax.sgd(0.1), variables=m.v),
        errors.GradientError,
        [
            "no gradient path from 'train/Unstack:0' to 'ReduceSum:0'",
            "the y must be computed from the x by differentiable operators",
        ],
        True,
    ),
    Row(
        "opt_vars_empty",
        lambda m: gc.minimize(m.v.sum(), optax.sgd(0.1), variables=[]),
        errors.GradientError,
        [
            "minimize: no variables are given",
            "a layer has variables once it is called; without variables=",
        ],
        True,
    ),
    Row(
        "opt_lr_inject",
        lr_inject,
        errors.JaxImportError,
        [
            "minimize: this optax transformation cannot be used: it makes",
            "calculate the tensor before, and let the transformation refer",
        ],
        True,
    ),
    Row(
        "opt_argmax",
        lambda m: gc.minimize(gc.sum(gc.cast(gc.argmax(m.v, 1), "float32")), optax.sgd(0.1)),
        errors.GradientError,
        [
            "minimize: the loss 'ReduceSum:0' depends on no trainable",
            "calculate it from variables by differentiable operators",
        ],
        True,
    ),
    Row(
        "opt_unconnected",
        lambda m: gc.minimize(gc.sum(m.v), optax.sgd(0.1), variables=[m.v, m.b]),
        errors.GradientError,
        [
            "no gradient path from 'b' to 'ReduceSum:0'",
            "the y must be computed from the x by differentiable operators",
        ],
        True,
    ),
    Row(
        "grad_unconnected",
        lambda m: gc.gradients(m.c.sum(), [m.v]),
        errors.GradientError,
        [
            "no gradient path from 'v' to 'ReduceSum:0'",
            "the y must be computed from the x by differentiable operators",
        ],
        True,
    ),
    Row(
        "grad_str",
        lambda m: gc.gradients(m.v.sum(), ["v"]),
        errors.GradientError,
        [
            "x must be a tensor or a variable, got 'v'",
            "a variable is found by its name: graph.variable(name)",
        ],
        True,
    ),
    Row(
        "grad_number",
        lambda m: gc.gradients(3.0, [m.v]),
        errors.GradientError,
        [
            "no gradient path from 'v' to 'Constant_5:0'",
            "the y must be computed from the x by differentiable operators",
        ],
        True,
    ),
    Row(
        "grad_while",
        lambda m: gc.gradients(
            gc.while_loop(lambda a: a < 10.0, lambda a: a * 2.0, m.v.sum()), [m.v]
        ),
        errors.GradientError,
        [
            "no gradient through 'While': its maximum number of iterations",
            "pass max_trip_count=, or apply gc.stop_gradient to the inputs",
        ],
        True,
    ),
    Row(
        "apply_grad",
        lambda m: gc.train.apply_gradients(gc.gradients(m.v.sum(), [m.v]), optax.sgd(0.1)),
        errors.GraphError,
        [
            "apply_gradients: expected pairs (gradient, variable), got",
            "apply_gradients(zip(gc.gradients(loss, variables),",
        ],
        True,
    ),
    Row(
        "opt_accumulate0",
        lambda m: gc.minimize(m.v.sum(), optax.sgd(0.1), accumulate=0),
        errors.AttributeValueError,
        [
            "minimize: accumulate must be an int of at least 1, got 0",
            "pass the number of micro-batches into which a batch is split",
        ],
        True,
    ),
    Row(
        "cf_cond_shape",
        bad_cond,
        errors.ShapeError,
        [
            "Switch: sizes of result 0 of false_branch and true_branch",
            "all branches must give results of one shape: gc.pad or",
        ],
        True,
    ),
    Row(
        "cf_cond_dtype",
        lambda m: gc.cond(m.c.sum() > 0, lambda: m.c, lambda: gc.cast(m.c, "int32")),
        errors.DTypeError,
        [
            "Switch: result 0 is i32[3, 4] from false_branch and f32[3, 4]",
            "all branches must give results of the same types: gc.cast or",
        ],
        True,
    ),
    Row(
        "cf_cond_struct",
        lambda m: gc.cond(m.c.sum() > 0, lambda: (m.c, m.c), lambda: m.c),
        errors.GraphcError,
        [
            "cond: false_branch returns x, true_branch returns",
            "return the same nest of tensors from all branches",
        ],
        True,
    ),
    Row(
        "cf_cond_none",
        lambda m: gc.cond(m.c.sum() > 0, lambda: None, lambda: m.c),
        errors.GraphcError,
        [
            "cond: false_branch returns x, true_branch returns",
            "return the same nest of tensors from all branches",
        ],
        True,
    ),
    Row(
        "cf_while_shape",
        lambda m: gc.while_loop(lambda a: a.sum() < 10, lambda a: gc.concatenate([a, a]), m.c),
        errors.ShapeError,
        [
            "While: sizes of carry 0 before and after the body differ, 3",
            "a carry keeps its shape: make it as large as it gets and",
        ],
        True,
    ),
    Row(
        "cf_while_dtype",
        lambda m: gc.while_loop(lambda a: a < 10, lambda a: a * 1.5, 1),
        errors.DTypeError,
        [
            "While: carry 0 is i32[] before the body and f32[] after it",
            "the body must return carries of the types that it takes",
        ],
        True,
    ),
    Row(
        "cf_while_cond",
        lambda m: gc.while_loop(lambda a: a, lambda a: a * 1.5, 1.0),
        errors.DTypeError,
        ["While: the condition must return one bool, got f32[]", "compare: lambda i: i < 10"],
        True,
    ),
    Row(
        "cf_while_condvec",
        lambda m: gc.while_loop(lambda a: a > 0, lambda a: a, m.c),
        errors.ShapeError,
        [
            "While: the condition must return one bool, got bool[3, 4]",
            "reduce it with gc.any(...) or gc.all(...)",
        ],
        True,
    ),
    Row(
        "cf_while_none",
        lambda m: gc.while_loop(lambda a: a < 3, lambda a: None, 1.0),
        errors.GraphcError,
        [
            "while_loop: the carry is x before the body and",
            "return a carry of the same nest as init",
        ],
        True,
    ),
    Row(
        "cf_scan_one",
        lambda m: gc.scan(lambda a, x: a + x, gc.zeros((4,)), m.c),
        errors.AttributeValueError,
        [
            "scan: the body must return (carry, y), got Tensor",
            "if there is no y, return carry, None",
        ],
        True,
    ),
    Row(
        "cf_scan_carry",
        lambda m: gc.scan(lambda a, x: (gc.stack([a, a]), x), gc.zeros((4,)), m.c),
        errors.ShapeError,
        [
            "Scan: carry 0 is f32[4] before the body and f32[2, 4] after it",
            "the body must return carries of the types that it takes",
        ],
        True,
    ),
    Row(
        "cf_scan_carry_dtype",
        lambda m: gc.scan(lambda a, x: (a + x, x), gc.zeros((4,), "int32"), m.c),
        errors.DTypeError,
        [
            "Scan: carry 0 is i32[4] before the body and f32[4] after it",
            "the body must return carries of the types that it takes",
        ],
        True,
    ),
    Row(
        "cf_scan_lengths",
        lambda m: gc.scan(lambda a, x: (a, x[0]), gc.zeros((4,)), (m.c, m.v)),
        errors.ShapeError,
        [
            "Scan: lengths of xs differ, 4 and 3",
            "every x of xs is cut along its first axis, in as many",
        ],
        True,
    ),
    Row(
        "cf_scan_noxs",
        lambda m: gc.scan(lambda a, x: (a, a), gc.zeros((4,))),
        errors.AttributeValueError,
        ["scan: without xs, give length=", "gc.scan(f, init, length=10) calls f with None for x"],
        True,
    ),
    Row(
        "cf_scan_scalar",
        lambda m: gc.scan(lambda a, x: (a, a), gc.zeros((4,)), 3.0),
        errors.ShapeError,
        [
            "scan: xs need a leading axis to scan over, got a scalar",
            "gc.expand_dims(x, 0) makes one slice of it; constants need",
        ],
        True,
    ),
    Row(
        "cf_map_scalar",
        lambda m: gc.map_fn(lambda x: x, 3.0),
        errors.ShapeError,
        [
            "scan: xs need a leading axis to scan over, got a scalar",
            "gc.expand_dims(x, 0) makes one slice of it; constants need",
        ],
        True,
    ),
    Row(
        "cf_map_swapped",
        lambda m: gc.map_fn(m.c, lambda x: x),
        errors.AttributeValueError,
        ["map_fn: f must be a function, got <Tensor", "pass the function, not what it returns"],
        True,
    ),
    Row(
        "cf_switch_float",
        lambda m: gc.switch(m.c.sum(), [lambda: 1, lambda: 2]),
        errors.DTypeError,
        [
            "switch: the index must be an integer scalar, got f32[]",
            "gc.cond takes a bool; gc.cast(x, 'int32') makes a number an",
        ],
        True,
    ),
    Row(
        "cf_switch_none",
        lambda m: gc.switch(m.i[0], []),
        errors.AttributeValueError,
        ["switch: there are no branches", "gc.switch(index, [lambda: a, lambda: b])"],
        True,
    ),
    Row(
        "cf_switch_shapes",
        lambda m: gc.switch(m.i[0], [lambda: m.c, lambda: m.v]),
        errors.ShapeError,
        [
            "Switch: sizes of result 0 of branch0 and branch1 differ, 3",
            "all branches must give results of one shape: gc.pad or",
        ],
        True,
    ),
    Row(
        "cf_fori_float",
        lambda m: gc.fori_loop(0, 2.5, lambda i, a: a, 1.0),
        errors.DTypeError,
        [
            "fori_loop: a bound must be an integer scalar, got f32[]",
            'gc.cast(n, "int32") makes a number of iterations',
        ],
        True,
    ),
    Row(
        "cf_leak",
        lambda m: leak(m),
        errors.GraphError,
        [
            "tensor 'x0' belongs to another graph",
            "a body's tensors can be used inside that body only; return",
        ],
        True,
    ),
    Row(
        "dev_name",
        lambda m: m.within(lambda: gc.device("tpuu")),
        errors.DeviceError,
        [
            "'tpuu' is not a device name",
            'write "/gpu:0" or "/job:worker/replica:0/task:1/device:GPU:0"',
        ],
        True,
    ),
    Row(
        "dev_cuda",
        lambda m: m.within(lambda: gc.device("cuda:0")),
        errors.DeviceError,
        [
            "'cuda:0' is not a device name",
            'write "/gpu:0" or "/job:worker/replica:0/task:1/device:GPU:0"',
        ],
        True,
    ),
    Row(
        "dev_int",
        lambda m: m.within(lambda: gc.device(0)),
        errors.DeviceError,
        ["0 is not a device name", 'pass "/gpu:0", a function of a gc.devices.DeviceRequest, or'],
        True,
    ),
    Row(
        "dev_many",
        lambda m: gc.Session(m.graph, strategy=gc.devices.DataParallel(999)),
        errors.DeviceError,
        [
            "999 devices requested",
            "request no more than are available; or split the CPU into",
        ],
        True,
    ),
    Row(
        "dev_zero",
        lambda m: gc.devices.DataParallel(0),
        errors.AttributeValueError,
        [
            "DataParallel: needs at least one device, got 0",
            "pass a number of 1 or more, or a list of devices",
        ],
        True,
    ),
    Row(
        "ph_name_int",
        lambda m: gc.placeholder((3,), name=3),
        errors.AttributeValueError,
        [
            "placeholder: 3 is not a name",
            'use letters, digits and "_", such as "kernel"; "/" separates',
        ],
        True,
    ),
    Row(
        "ph_no_graph",
        nograph,
        errors.GraphError,
        ["no graph is being built here", "build inside `with graph:`"],
        True,
    ),
    Row(
        "op_no_graph",
        nograph_op,
        errors.GraphError,
        ["no graph is being built here", "build inside `with graph:`"],
        True,
    ),
    Row(
        "var_none",
        lambda m: gc.variable(None, name="w"),
        errors.DTypeError,
        ["None is not numeric", "pass a tensor, a variable, a number or an array of numbers"],
        True,
    ),
    Row(
        "var_shape_first",
        lambda m: gc.variable("w", shape=(3, 4)),
        errors.AttributeValueError,
        ["unknown initializer 'w'", "name= is the name of a variable; gc.nn.initializers has the"],
        True,
    ),
    Row(
        "var_class_init",
        lambda m: gc.variable(nn.initializers.GlorotUniform, shape=(3, 4), name="w"),
        errors.AttributeValueError,
        ["variable 'w': GlorotUniform is a class", "create an instance: GlorotUniform(...)"],
        True,
    ),
    Row(
        "var_unknown_shape",
        lambda m: gc.variable(nn.initializers.Zeros(), shape=(None, 4), name="w"),
        errors.ShapeError,
        ["variable 'w': every size must be known, got (None, 4)", "write ints"],
        True,
    ),
    Row(
        "layer_units_str",
        lambda m: nn.Dense("relu"),
        errors.AttributeValueError,
        [
            "Dense: units must be an int of 1 or more, got 'relu'",
            "units is the first argument, a number: Dense(64)",
        ],
        True,
    ),
    Row(
        "layer_units_neg",
        lambda m: nn.Dense(-3)(m.c),
        errors.AttributeValueError,
        [
            "Dense: units must be an int of 1 or more, got -3",
            "units is the first argument, a number: Dense(64)",
        ],
        True,
    ),
    Row(
        "layer_units_float",
        lambda m: nn.Dense(3.5)(m.c),
        errors.AttributeValueError,
        [
            "Dense: units must be an int of 1 or more, got 3.5",
            "units is the first argument, a number: Dense(64)",
        ],
        True,
    ),
    Row(
        "layer_pytorch_args",
        lambda m: nn.Dense(4, 3)(m.c),
        errors.AttributeValueError,
        ["unknown activation 3", "pass a function such as gc.nn.relu, or its name"],
        True,
    ),
    Row(
        "layer_act_typo",
        lambda m: nn.Dense(4, activation="rleu")(m.c),
        errors.AttributeValueError,
        ["unknown activation 'rleu'", "did you mean 'relu'?"],
        True,
    ),
    Row(
        "layer_no_training",
        lambda m: nn.BatchNorm()(m.c),
        errors.AttributeValueError,
        [
            "BatchNorm 'batch_norm': training must be True, False or a",
            "call it with training=True, and once more with training=False",
        ],
        True,
    ),
    Row(
        "layer_dropout_training",
        lambda m: nn.Dropout(0.5)(m.c),
        errors.AttributeValueError,
        [
            "Dropout 'dropout': training must be True, False or a scalar",
            "call it with training=True, and once more with training=False",
        ],
        True,
    ),
    Row(
        "layer_training_str",
        lambda m: nn.Dropout(0.5)(m.c, training="yes"),
        errors.AttributeValueError,
        [
            "Dropout 'dropout': training must be True, False or a scalar",
            "call it with training=True, and once more with training=False",
        ],
        True,
    ),
    Row(
        "seq_not_list",
        lambda m: nn.Sequential(nn.Dense(3), nn.Dense(4)),
        errors.AttributeValueError,
        [
            "Sequential: takes one list of layers",
            "Sequential([first, second])",
        ],
        True,
    ),
    Row(
        "seq_class",
        lambda m: nn.Sequential([nn.Dense, nn.Dense])(m.c),
        errors.AttributeValueError,
        ["Sequential: layer 0 is <class", "make one: Dense(...)"],
        True,
    ),
    Row(
        "seq_str",
        lambda m: nn.Sequential([nn.Dense(3), "relu"])(m.c),
        errors.AttributeValueError,
        [
            "Sequential: layer 1 is 'relu', which is neither a layer nor a",
            "write the function, gc.nn.relu, or activation='relu' of the",
        ],
        True,
    ),
    Row(
        "layer_class_called",
        lambda m: nn.Dense(m.c),
        errors.AttributeValueError,
        [
            "Dense: units must be an int of 1 or more, got <Tensor",
            "make the layer, then call it: layer = Dense(64), y =",
        ],
        True,
    ),
    Row(
        "layer_class_called2",
        lambda m: nn.Flatten(m.c),
        errors.AttributeValueError,
        [
            "Flatten: <Tensor Constant:0 f32[3, 4]> is not a name",
            "make the layer, then call it",
        ],
        True,
    ),
    Row(
        "layer_list",
        lambda m: nn.Dense(3)([m.c, m.c]),
        errors.GraphError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no value while the graph is",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "bi_units",
        lambda m: nn.Bidirectional(4),
        errors.AttributeValueError,
        [
            "Bidirectional: the forward layer must be an RNN with",
            "gc.nn.Bidirectional(gc.nn.LSTM(64))",
        ],
        True,
    ),
    Row(
        "rnn_units",
        lambda m: nn.RNN(4),
        errors.AttributeValueError,
        ["RNN: the cell must be a Cell, got 4", "gc.nn.RNN(gc.nn.LSTMCell(64)), or gc.nn.LSTM(64)"],
        True,
    ),
    Row(
        "stacked_cells",
        lambda m: nn.StackedRNN([nn.LSTMCell(4), nn.LSTMCell(4)]),
        errors.AttributeValueError,
        [
            "StackedRNN: takes recurrent layers, one or more, got",
            "gc.nn.StackedRNN([gc.nn.LSTM(64), gc.nn.LSTM(64)]);",
        ],
        True,
    ),
    Row(
        "conv_bad_args",
        lambda m: nn.Conv2D(3, 8, 3, 1, 1, 1, 1, 1, 1)(m.img),
        errors.AttributeValueError,
        ["unknown activation 1", "pass a function such as gc.nn.relu, or its name"],
        True,
    ),
    Row(
        "rand_str",
        lambda m: gc.random.normal("3"),
        errors.AttributeValueError,
        [
            "RandomNormal: a size must be an int or a named size, got '3'",
            "sizes are static: take them from x.shape",
        ],
        True,
    ),
    Row(
        "ctrl_dep_str",
        lambda m: m.within(lambda: gc.control_dependencies(["a"])),
        errors.FetchError,
        [
            "'a' is neither a tensor nor a node",
            "pass what gc.* functions, v.assign or gc.minimize returned",
        ],
        True,
    ),
    Row(
        "group_number",
        lambda m: gc.group(3),
        errors.FetchError,
        [
            "3 is neither a tensor nor a node",
            "pass what gc.* functions, v.assign or gc.minimize returned",
        ],
        True,
    ),
    Row(
        "print_missing",
        lambda m: gc.print("a {} {}", m.c),
        errors.AttributeValueError,
        [
            "print: 'a {} {}' does not fit 1 values: Replacement index 1",
            "write one {} for each value, and {{ and }} for braces",
        ],
        True,
    ),
    Row(
        "from_jax_tensor",
        lambda m: gc.from_jax(jnp.exp(1.0)),
        errors.AttributeValueError,
        [
            "from_jax: Array(2.7182817, dtype=float32, weak_type=True) is",
            "pass the function itself: gc.from_jax(jax.nn.silu)",
        ],
        True,
    ),
    Row(
        "to_jax",
        lambda m: gc.to_jax(m.c),
        errors.ArgumentError,
        ["to_jax: missing a required argument: 'fetches'", "to_jax(graph, fetches)"],
        True,
    ),
    Row(
        "compile_no_feeds",
        lambda m: gc.compile(m.graph, m.y + 1),
        errors.FeedError,
        ["placeholder 'y' (f32[batch, 4]) is needed and not fed", 'feed it: {"y": value}'],
        True,
    ),
    Row(
        "compile_str",
        lambda m: gc.compile(m.graph, m.y + 1, {"y": "float32"}),
        errors.FeedError,
        ["feed 'y:0': 'float32' is not a shape", "give a tuple of ints: feeds={x: (128, 784)}"],
        True,
    ),
    Row(
        "compile_keras",
        lambda m: gc.compile(optimizer="adam"),
        errors.ArgumentError,
        ["compile: it has no argument 'optimizer'", "did you mean 'options'?"],
        True,
    ),
    Row(
        "trace_no_spec",
        lambda m: gc.trace(lambda x: x + 1, (3, 4)),
        errors.AttributeValueError,
        ["(3, 4) is not a spec", 'pass gc.TensorSpec((None, 784), "float32"), or an array of'],
        True,
    ),
    Row(
        "freeze",
        lambda m: gc.freeze(m.graph, m.y, m.y + 1),
        errors.AttributeValueError,
        [
            "freeze: the first argument must be a session, got Graph",
            "gc.freeze(gc.Session(graph), inputs, outputs) freezes the",
        ],
        True,
    ),
    Row(
        "train_adam",
        lambda m: gc.train.AdamOptimizer(0.1),
        errors.UnknownAttributeError,
        [
            "'graphc.train' has no attribute 'AdamOptimizer'",
            "write gc.minimize(loss, optax.adam(rate))",
        ],
        True,
    ),
    Row(
        "train_saver",
        lambda m: gc.train.Saver(),
        errors.UnknownAttributeError,
        ["no attribute 'Saver'", "write gc.train.Checkpointer(folder)"],
        True,
    ),
    Row(
        "train_typo",
        lambda m: gc.train.fti,
        errors.UnknownAttributeError,
        ["no attribute 'fti'", "did you mean 'fit'?"],
        True,
    ),
    Row(
        "data_dataset",
        lambda m: gc.data.Dataset,
        errors.UnknownAttributeError,
        ["'graphc.data' has no attribute 'Dataset'", "write gc.data.Batches(arrays, batch)"],
        True,
    ),
    Row(
        "data_loader",
        lambda m: gc.data.DataLoader,
        errors.UnknownAttributeError,
        ["no attribute 'DataLoader'", "write gc.data.Batches(arrays, batch)"],
        True,
    ),
    Row(
        "devices_mirrored",
        lambda m: gc.devices.MirroredStrategy(),
        errors.UnknownAttributeError,
        [
            "'graphc.devices' has no attribute 'MirroredStrategy'",
            "write gc.devices.DataParallel(n)",
        ],
        True,
    ),
    Row(
        "devices_list",
        lambda m: gc.devices.list_physical_devices(),
        errors.UnknownAttributeError,
        ["no attribute 'list_physical_devices'", "write gc.devices.available()"],
        True,
    ),
    Row(
        "random_randn",
        lambda m: gc.random.randn(3, 4),
        errors.UnknownAttributeError,
        ["'graphc.random' has no attribute 'randn'", "write gc.random.normal(shape)"],
        True,
    ),
    Row(
        "random_key_",
        lambda m: gc.random.PRNGKey(0),
        errors.UnknownAttributeError,
        ["no attribute 'PRNGKey'", "write gc.random.random_key(seed)"],
        True,
    ),
    Row(
        "random_seed",
        lambda m: gc.random.seed(0),
        errors.UnknownAttributeError,
        ["no attribute 'seed'", "write gc.Graph(seed=...)"],
        True,
    ),
    Row(
        "random_typo",
        lambda m: gc.random.nromal((3,)),
        errors.UnknownAttributeError,
        ["no attribute 'nromal'", "did you mean 'normal'?"],
        True,
    ),
    Row(
        "linalg_inverse",
        lambda m: gc.linalg.inverse(m.c),
        errors.UnknownAttributeError,
        ["'graphc.linalg' has no attribute 'inverse'", "write gc.linalg.inv(a)"],
        True,
    ),
    Row(
        "linalg_typo",
        lambda m: gc.linalg.sovle,
        errors.UnknownAttributeError,
        ["no attribute 'sovle'", "did you mean 'solve'?"],
        True,
    ),
    Row(
        "fft_typo",
        lambda m: gc.fft.ftt,
        errors.UnknownAttributeError,
        ["'graphc.fft' has no attribute 'ftt'", "did you mean 'fft'?"],
        True,
    ),
    Row(
        "init_xavier",
        lambda m: nn.initializers.XavierUniform(),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn.initializers' has no attribute 'XavierUniform'",
            "write gc.nn.initializers.GlorotUniform()",
        ],
        True,
    ),
    Row(
        "init_random_normal",
        lambda m: nn.initializers.RandomNormal(),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn.initializers' has no attribute 'RandomNormal'",
            "write gc.nn.initializers.Normal(stddev)",
        ],
        True,
    ),
    Row(
        "session_fit",
        lambda m: gc.Session(m.graph).fit(),
        errors.UnknownAttributeError,
        ["Session has no attribute 'fit'", "write gc.train.fit(session, job)"],
        True,
    ),
    Row(
        "session_eval",
        lambda m: gc.Session(m.graph).eval(m.c),
        errors.UnknownAttributeError,
        ["Session has no attribute 'eval'", "write session.run(tensor, feeds)"],
        True,
    ),
    Row(
        "session_partial",
        lambda m: gc.Session(m.graph).partial_run,
        errors.UnknownAttributeError,
        ["no attribute 'partial_run'", "write session.run(fetches, feeds)"],
        True,
    ),
    Row(
        "session_typo",
        lambda m: gc.Session(m.graph).rnu,
        errors.UnknownAttributeError,
        ["no attribute 'rnu'", "did you mean 'run'?"],
        True,
    ),
    Row(
        "graph_as_default",
        lambda m: m.graph.as_default(),
        errors.UnknownAttributeError,
        ["Graph has no attribute 'as_default'", "write `with graph:`"],
        True,
    ),
    Row(
        "graph_get_operations",
        lambda m: m.graph.get_operations(),
        errors.UnknownAttributeError,
        ["no attribute 'get_operations'", "write graph.nodes"],
        True,
    ),
    Row(
        "graph_get_tensor",
        lambda m: m.graph.get_tensor_by_name("y:0"),
        errors.UnknownAttributeError,
        ["no attribute 'get_tensor_by_name'", "fetches and feeds may be names"],
        True,
    ),
    Row(
        "layer_parameters",
        lambda m: nn.Dense(3).parameters(),
        errors.UnknownAttributeError,
        ["Dense has no attribute 'parameters'", "write layer.trainable_variables"],
        True,
    ),
    Row(
        "layer_fit",
        lambda m: nn.Sequential([nn.Dense(3)]).fit(),
        errors.UnknownAttributeError,
        ["Sequential has no attribute 'fit'", "write gc.train.fit(session, job)"],
        True,
    ),
    Row(
        "layer_weight",
        lambda m: nn.Dense(3).weight,
        errors.UnknownAttributeError,
        ["no attribute 'weight'", 'session.get("<layer>/kernel")'],
        True,
    ),
    Row(
        "layer_state_dict",
        lambda m: nn.Dense(3).state_dict(),
        errors.UnknownAttributeError,
        ["no attribute 'state_dict'", "write session.values()"],
        True,
    ),
    Row(
        "layer_cuda",
        lambda m: nn.Dense(3).cuda(),
        errors.UnknownAttributeError,
        ["no attribute 'cuda'", 'with gc.device("/gpu:0"):'],
        True,
    ),
    Row(
        "layer_eval",
        lambda m: nn.Dense(3).eval(),
        errors.UnknownAttributeError,
        ["no attribute 'eval'", "write layer(x, training=False)"],
        True,
    ),
    Row(
        "layer_typo",
        lambda m: nn.Dense(3).variabels,
        errors.UnknownAttributeError,
        ["no attribute 'variabels'", "did you mean 'variables'?"],
        True,
    ),
    Row(
        "layer_without_init",
        lambda m: Bare()(m.c),
        errors.UnknownAttributeError,
        ["Bare is not initialised as a layer", "call super().__init__()"],
        True,
    ),
    Row(
        "layer_forward",
        lambda m: Forward()(m.c),
        errors.GraphError,
        ["Forward does not define its calculation", "__call__(self, x)"],
        True,
    ),
    Row(
        "layer_call",
        lambda m: CallM()(m.c),
        errors.GraphError,
        ["CallM does not define its calculation", "methods named call or forward are not called"],
        True,
    ),
    Row(
        "session_config",
        lambda m: gc.Session(m.graph, config=None),
        errors.ArgumentError,
        [
            "Session: it has no argument 'config'",
            "it takes (graph, *, strategy=None",
            "leave it out: options=gc.CompileOptions(...)",
        ],
        True,
    ),
    Row(
        "session_target",
        lambda m: gc.Session(),
        errors.ArgumentError,
        ["Session: missing a required argument: 'graph'", "Session(graph)"],
        True,
    ),
    Row(
        "options_keyword",
        lambda m: gc.CompileOptions(jit=True),
        errors.ArgumentError,
        [
            "CompileOptions: it has no argument 'jit'",
            "it takes (pipeline='O2'",
            "leave it out: XLA compiles every run",
        ],
        True,
    ),
    Row(
        "options_typo",
        lambda m: gc.CompileOptions(precison="bf16"),
        errors.ArgumentError,
        ["no argument 'precison'", "did you mean 'precision'?"],
        True,
    ),
    Row(
        "random_normal_size",
        lambda m: gc.random.normal(size=(3,)),
        errors.ArgumentError,
        ["normal: it has no argument 'size'", "it is called shape= here"],
        True,
    ),
    Row(
        "random_uniform_low",
        lambda m: gc.random.uniform((3,), low=0.0),
        errors.ArgumentError,
        [
            "uniform: it has no argument 'low'",
            "it takes (shape, minval=0.0",
            "it is called minval= here",
        ],
        True,
    ),
    Row(
        "set_item",
        lambda m: change(m.c),
        errors.GraphError,
        ["a tensor never changes", "x.at[index].set(value)"],
        True,
    ),
    Row(
        "del_item",
        lambda m: drop(m.c),
        errors.GraphError,
        ["a tensor never changes", "gc.delete(x, places, axis)"],
        True,
    ),
    Row(
        "format",
        lambda m: f"{m.c:.3f}",
        errors.GraphError,
        ["has no value to format as '.3f'", "format what session.run returns"],
        True,
    ),
    Row(
        "len_scalar",
        lambda m: len(gc.sum(m.c)),
        errors.DTypeError,
        ["is a scalar and has no length", "gc.size(x)"],
        True,
    ),
    Row(
        "int_size",
        lambda m: int(m.y.shape[0]),
        errors.ArgumentError,
        ["the size batch is a number only when values are fed", "n = gc.size(x, axis)"],
        True,
    ),
    Row(
        "range_size",
        lambda m: range(m.y.shape[0]),
        errors.ArgumentError,
        [
            "the size batch is a number only when values are fed",
            "use it in shapes and in arithmetic with tensors, gc.cond(n",
        ],
        True,
    ),
    Row(
        "compare_size",
        lambda m: m.y.shape[0] > 3,
        errors.ArgumentError,
        ["the size batch is a number only when values are fed", "gc.cond(n > 2, ...)"],
        True,
    ),
    Row(
        "zeros_size",
        lambda m: np.zeros((m.y.shape[0],)),
        errors.ArgumentError,
        [
            "the size batch is a number only when values are fed",
            "use it in shapes and in arithmetic with tensors, gc.cond(n",
        ],
        True,
    ),
    Row(
        "while_body_args",
        lambda m: gc.while_loop(lambda x: x < 3, lambda i, x: x, 0),
        errors.ArgumentError,
        [
            "while_loop: body is called with 1 argument, but takes (i, x)",
            "write lambda carry: ..., for a carry in the form of init,",
        ],
        True,
    ),
    Row(
        "while_cond_args",
        lambda m: gc.while_loop(lambda: True, lambda x: x, 0),
        errors.ArgumentError,
        [
            "while_loop: cond is called with 1 argument, but takes ()",
            "write lambda carry: ..., for a carry in the form of init,",
        ],
        True,
    ),
    Row(
        "fori_args",
        lambda m: gc.fori_loop(0, 3, lambda c: c, 0),
        errors.ArgumentError,
        [
            "fori_loop: body is called with 2 arguments, but takes (c)",
            "write lambda i, carry: carry, with the number i of the",
        ],
        True,
    ),
    Row(
        "scan_args",
        lambda m: gc.scan(lambda x: x, 0, m.c),
        errors.ArgumentError,
        [
            "scan: f is called with 2 arguments, but takes (x)",
            "write lambda carry, x: (carry, y), for a slice x of xs",
        ],
        True,
    ),
    Row(
        "map_args",
        lambda m: gc.map_fn(lambda: 0, m.c),
        errors.ArgumentError,
        ["map_fn: f is called with 1 argument, but takes ()", "write lambda a: ..."],
        True,
    ),
    Row(
        "cond_tensor",
        lambda m: gc.cond(gc.sum(m.c) > 0, m.c, -m.c),
        errors.AttributeValueError,
        ["cond: true_fn must be a function, got <Tensor", "gc.where chooses between tensors"],
        True,
    ),
    Row(
        "cond_args",
        lambda m: gc.cond(gc.sum(m.c) > 0, lambda x: x, lambda x: -x),
        errors.ArgumentError,
        ["cond: true_fn is called with 0 arguments, but takes (x)", "write lambda: ..."],
        True,
    ),
    Row(
        "switch_tensor",
        lambda m: gc.switch(0, [m.c, m.c]),
        errors.AttributeValueError,
        ["switch: branch 0 must be a function, got <Tensor", "lambda: tensor"],
        True,
    ),
    Row(
        "minimize_layer",
        lambda m: gc.minimize(gc.sum(m.v), optax.sgd(0.1), variables=nn.Dense(3)),
        errors.AttributeValueError,
        [
            "minimize: variables must be a list of variables, got <Dense",
            "layer.trainable_variables",
        ],
        True,
    ),
    Row(
        "scope_number",
        lambda m: gc.name_scope(3).__enter__(),
        errors.AttributeValueError,
        ["3 is not a name scope", 'such as "hidden"'],
        True,
    ),
    Row(
        "from_jax_if",
        lambda m: gc.from_jax(lambda x: x if x.sum() > 0 else -x)(m.c),
        errors.JaxImportError,
        ["the JAX function needs the value of its argument 'Constant' in Python", "use lax.cond"],
        True,
    ),
    Row(
        "own_run_none",
        lambda m: gc.Session(m.graph).run(None),
        errors.FetchError,
        ["the fetch is None", "session.run([train, loss])"],
        True,
    ),
    Row(
        "session_tensor",
        lambda m: gc.Session(m.c),
        errors.GraphError,
        ["the first argument must be a graph, got Tensor", "gc.Session(graph)"],
        True,
    ),
    Row(
        "session_strategy",
        lambda m: gc.Session(m.graph, strategy="mirrored"),
        errors.AttributeValueError,
        [
            "strategy must be an object of gc.devices or gc.cluster, got str",
            "gc.devices.DataParallel(2)",
        ],
        True,
    ),
    Row(
        "session_options",
        lambda m: gc.Session(m.graph, options={"precision": "bf16"}),
        errors.AttributeValueError,
        ["options must be a gc.CompileOptions, got dict", 'gc.CompileOptions(precision="bf16")'],
        True,
    ),
    Row(
        "options_value",
        lambda m: gc.CompileOptions(precision="half"),
        errors.AttributeValueError,
        ["precision must be 'bf16', 'f16' or None, got 'half'", 'precision="bf16"'],
        True,
    ),
    Row(
        "closed",
        lambda m: closed(m.graph).run(m.c),
        errors.StateError,
        ["the session is closed", "open another: gc.Session(graph)"],
        True,
    ),
    Row(
        "load_missing",
        lambda m: gc.load(m.tmp / "model.gcx"),
        errors.ArtifactError,
        ["no file", "check the path"],
        True,
    ),
    Row(
        "tensor_of_a_value",
        lambda m: gc.Tensor([1, 2]),
        errors.GraphError,
        ["a tensor is made by a function, not of [1, 2]", "gc.constant(value)"],
        True,
    ),
    Row(
        "sizes_without_a_name",
        lambda m: gc.placeholder((None, 3)) + gc.placeholder((None, 4)),
        errors.ShapeError,
        [
            "shapes (?, 3) and (?, 4) do not broadcast together",
            "Placeholder:0",
            "float32[?, 3]",
            "aligned from the right, sizes must be equal or 1",
        ],
        True,
    ),
    Row(
        "product_of_a_size_without_a_name",
        lambda m: gc.reshape(gc.placeholder((None, 3)), (7,)),
        errors.ShapeError,
        [
            "3*? elements do not fit the shape (7,)",
            "the sizes must multiply to the same number; -1 is computed",
        ],
        True,
    ),
]


def check_row(row, world, file):
    """Checks the error of a row: phrases, the line in `file`, and a hint that is no bare list."""
    with pytest.raises(row.error) as caught, world.graph:
        row.make(world)
    message = str(caught.value)
    for phrase in row.phrases:
        assert phrase in message.replace("\n", " ")
    assert "\n  hint: " in message
    assert "hint: known names" not in message
    if row.placed:
        assert f"{file}:" in message


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_mistake(row, tmp_path):
    check_row(row, World(tmp_path), "test_mistakes.py")


def test_there_are_many_mistakes():
    assert len(ROWS) >= 120
    assert len({row.name for row in ROWS}) == len(ROWS)
