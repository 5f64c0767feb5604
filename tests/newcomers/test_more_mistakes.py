"""More mistakes of newcomers from TensorFlow 1, Keras, PyTorch and NumPy.

The rows have the form of those in tests/newcomers/test_mistakes.py.
"""

import numpy as np
import optax
import pytest

import graphc as gc
from graphc import errors, nn
from tests.newcomers.test_mistakes import Row, World, check_row

F = np.float32


class WiderWorld(World):
    """A graph under construction, with some tensors and variables."""

    def __init__(self, folder):
        super().__init__(folder)
        with self.graph:
            self.x = gc.placeholder(("batch", 4), name="x")
            self.seq = gc.ones((2, 5, 3))


ROWS = [
    Row(
        "graph_name_as_seed",
        lambda m: gc.Graph("model"),
        errors.AttributeValueError,
        ["Graph: seed must be an int, got 'model'", "gc.Graph(name='model')"],
        True,
    ),
    Row(
        "graph_name_int",
        lambda m: gc.Graph(name=3),
        errors.AttributeValueError,
        ["Graph: name must be a str, got 3"],
        True,
    ),
    Row(
        "rnd_sizes",
        lambda m: gc.random.normal(3, 4),
        errors.ArgumentError,
        [
            "normal: the shape is one argument, a tuple, got 3 and then 4",
            "normal((3, 4)), or normal((3,), mean=4)",
        ],
        True,
    ),
    Row(
        "rnd_three",
        lambda m: gc.random.uniform(3, 4, 5),
        errors.ArgumentError,
        [
            "uniform: the shape is one argument, a tuple, got 3 and then 4",
            "uniform((3, 4, 5)), or uniform((3,), minval=4, maxval=5)",
        ],
        True,
    ),
    Row(
        "rnd_named",
        lambda m: gc.random.uniform(m.x.shape[0], m.x.shape[1]),
        errors.ArgumentError,
        [
            "uniform: the shape is one argument, a tuple, got batch and then 4",
            "uniform((batch, 4)), or uniform((batch,), minval=4)",
        ],
        True,
    ),
    Row(
        "rnd_numpy",
        lambda m: gc.random.normal(0, 1, (3, 4)),
        errors.ArgumentError,
        ["normal: the shape is the first argument, got 0", "normal((3, 4), 0, 1)"],
        True,
    ),
    Row(
        "rnd_numpy_float",
        lambda m: gc.random.normal(0.0, 1.0, (3, 4)),
        errors.ArgumentError,
        ["normal: the shape is the first argument, got 0.0", "normal((3, 4), 0.0, 1.0)"],
        True,
    ),
    Row(
        "rnd_randint",
        lambda m: gc.random.randint(0, 10, (3,)),
        errors.ArgumentError,
        ["randint: the shape is the first argument, got 0", "randint((3,), 0, 10)"],
        True,
    ),
    Row(
        "rnd_randint_numpy",
        lambda m: gc.random.randint(1, 5, 10),
        errors.ArgumentError,
        [
            "randint: the shape is one argument, a tuple, got 1 and then 5",
            "randint((1, 5, 10)), or randint((1,), minval=5, maxval=10)",
        ],
        True,
    ),
    Row(
        "rnd_exponential",
        lambda m: gc.random.exponential(2, 3),
        errors.ArgumentError,
        [
            "exponential: the shape is one argument, a tuple, got 2 and then 3",
            "exponential((2, 3)), or exponential((2,), scale=3)",
        ],
        True,
    ),
    Row(
        "rnd_rademacher",
        lambda m: gc.random.rademacher(3, 4),
        errors.ArgumentError,
        ["rademacher: the shape is one argument, a tuple, got 3 and then 4", "rademacher((3, 4))"],
        True,
    ),
    Row(
        "rnd_bernoulli",
        lambda m: gc.random.bernoulli((3, 4)),
        errors.AttributeValueError,
        [
            "bernoulli: p must be a probability, got (3, 4)",
            "the shape is the second argument: bernoulli(0.5, (3, 4))",
        ],
        True,
    ),
    Row(
        "rnd_bernoulli_ints",
        lambda m: gc.random.bernoulli(3, 4),
        errors.AttributeValueError,
        [
            "bernoulli: p must be a probability, got 3",
            "the shape is the second argument: bernoulli(0.5, 3)",
        ],
        True,
    ),
    Row(
        "rnd_bernoulli_many",
        lambda m: gc.random.bernoulli(0.5, 3, 4),
        errors.ArgumentError,
        ["bernoulli: too many positional arguments", "shape is one argument: bernoulli(p, (3, 4))"],
        True,
    ),
    Row(
        "ones_sizes",
        lambda m: gc.ones(3, 4),
        errors.ArgumentError,
        ["ones: the shape is one argument, a tuple, got 3 and then 4", "ones((3, 4))"],
        True,
    ),
    Row(
        "iota_sizes",
        lambda m: gc.iota(3, 4),
        errors.ArgumentError,
        [
            "iota: the shape is one argument, a tuple, got 3 and then 4",
            "iota((3, 4)), or iota((3,), axis=4)",
        ],
        True,
    ),
    Row(
        "full_sizes",
        lambda m: gc.full(3, 4, 7),
        errors.DTypeError,
        [
            "7 is not a dtype of graphc",
            'a dtype is a name such as "float32"; the sizes of a shape are one',
        ],
        True,
    ),
    Row(
        "zeros_like_sizes",
        lambda m: gc.zeros_like(m.c, 3),
        errors.DTypeError,
        [
            "3 is not a dtype of graphc",
            'a dtype is a name such as "float32"; the sizes of a shape are one',
        ],
        True,
    ),
    Row(
        "constant_sizes",
        lambda m: gc.constant(3, 4),
        errors.DTypeError,
        [
            "4 is not a dtype of graphc",
            'a dtype is a name such as "float32"; the sizes of a shape are one',
        ],
        True,
    ),
    Row(
        "range_tensor",
        lambda m: list(range(m.i[1])),
        errors.ArgumentError,
        [
            "<Tensor Reshape:0 i32[]> is used where Python needs an int, but it",
            "gc.fori_loop(0, n, body, init) repeats n times, gc.take(xs, i) takes",
        ],
        True,
    ),
    Row(
        "index_list",
        lambda m: [1, 2, 3][m.i[1]],
        errors.ArgumentError,
        [
            "<Tensor Reshape:0 i32[]> is used where Python needs an int, but it",
            "gc.fori_loop(0, n, body, init) repeats n times, gc.take(xs, i) takes",
        ],
        True,
    ),
    Row(
        "gradients_dict",
        lambda m: gc.gradients(m.v.sum(), {"v": m.v}),
        errors.GradientError,
        [
            "x must be a tensor or a variable, got {'v': <Variable v f32[4, 2]>}",
            "a list: gradients(y, list(parameters.values())), in the order of the",
        ],
        True,
    ),
    Row(
        "gradients_layer",
        lambda m: gc.gradients(m.v.sum(), nn.Dense(3)),
        errors.GradientError,
        [
            "x must be a tensor or a variable, got <Dense 'dense', not called yet>",
            "layer.trainable_variables are those of a layer",
        ],
        True,
    ),
    Row(
        "minimize_dict",
        lambda m: gc.minimize((m.v**2).sum(), optax.sgd(0.1), variables={"v": m.v}),
        errors.AttributeValueError,
        [
            "minimize: variables must be a list of variables, got {'v': <Variable",
            "layer.trainable_variables are those of a layer, list(d.values()) of a",
        ],
        True,
    ),
    Row(
        "carry_grows",
        lambda m: gc.scan(lambda a, x: (gc.concatenate([a, a]), x), gc.ones((1,)), m.c),
        errors.ShapeError,
        [
            "Scan: sizes of carry 0 before and after the body differ, 1 and 2",
            "a carry keeps its shape: make it as large as it gets and write",
        ],
        True,
    ),
    Row(
        "carry_of_open_size_grows",
        lambda m: gc.while_loop(
            lambda c: c[0] < 3,
            lambda c: (c[0] + 1, gc.concatenate([c[1], c[1]], 0)),
            (0, gc.placeholder((None, 3), name="open")),
        ),
        errors.ShapeError,
        ["While: sizes of carry 1 before and after the body differ, open_0 and 2*open_0"],
        True,
    ),
    Row(
        "conv_of_sequence",
        lambda m: nn.Conv2D(4, 3)(gc.ones((2, 5, 8, 8, 3))),
        errors.ShapeError,
        [
            "Conv2D 'conv2d': the input must be [batch, height, width, features]",
            "gc.nn.TimeDistributed(layer)(x) calls it for each step of [batch,",
        ],
        True,
    ),
    Row(
        "conv1d_of_image",
        lambda m: nn.Conv1D(4, 3)(m.img),
        errors.ShapeError,
        [
            "Conv1D 'conv1d': the input must be [batch, width, features] (rank 3),",
            "gc.nn.TimeDistributed(layer)(x) calls it for each step of [batch,",
        ],
        True,
    ),
    Row(
        "averages_decay",
        lambda m: gc.train.moving_averages(0.99),
        errors.AttributeValueError,
        [
            "moving_averages: variables must be a list of variables, got 0.99",
            "pass a decay by its name: moving_averages(decay=0.99)",
        ],
        True,
    ),
    Row(
        "lstm_activation",
        lambda m: nn.LSTM(4, "relu"),
        errors.AttributeValueError,
        [
            "LSTM: reverse must be True or False, got 'relu'",
            "the size of the input is known from the first call; options are given",
        ],
        True,
    ),
    Row(
        "layer_norm_size",
        lambda m: nn.LayerNorm(64),
        errors.AttributeValueError,
        [
            "LayerNorm: epsilon must lie in (0, 1), got 64",
            "sizes are known from the first call: layer = gc.nn.LayerNorm(), y =",
        ],
        True,
    ),
    Row(
        "rms_norm_size",
        lambda m: nn.RMSNorm(64),
        errors.AttributeValueError,
        [
            "RMSNorm: epsilon must lie in (0, 1), got 64",
            "sizes are known from the first call: layer = gc.nn.LayerNorm(), y =",
        ],
        True,
    ),
    Row(
        "batch_norm_size",
        lambda m: nn.BatchNorm(64),
        errors.AttributeValueError,
        [
            "BatchNorm: momentum must lie in [0, 1], got 64",
            "sizes are known from the first call: norm = gc.nn.BatchNorm(), y =",
        ],
        True,
    ),
    Row(
        "sequential_two",
        lambda m: nn.Sequential(nn.Dense(3), nn.relu),
        errors.AttributeValueError,
        [
            "Sequential: takes one list of layers",
            "Sequential([first, second])",
        ],
        True,
    ),
    Row(
        "sequential_one",
        lambda m: nn.Sequential(nn.Dense(3)),
        errors.AttributeValueError,
        ["Sequential: takes one list of layers", "Sequential([first, second])"],
        True,
    ),
    Row(
        "save_tensor",
        lambda m: gc.save(gc.Session(m.graph), m.tmp / "m.gcx", signatures={"predict": m.c}),
        errors.AttributeValueError,
        [
            "save: signatures must map names to gc.Signature, got 'predict':",
            'signatures={"predict": gc.Signature({"x": x}, {"y": y})}',
        ],
        True,
    ),
    Row(
        "kl_div",
        lambda m: nn.KLDivLoss(),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'KLDivLoss'",
            "write gc.nn.kl_divergence(labels=..., log_predictions=...)",
        ],
        True,
    ),
    Row(
        "foldl",
        lambda m: gc.foldl(lambda a, x: a + x, m.c),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'foldl'", "write gc.scan(f, init, xs)"],
        True,
    ),
    Row(
        "shape_function",
        lambda m: gc.shape(m.c),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'shape'", "write x.shape"],
        True,
    ),
    Row(
        "multinomial",
        lambda m: gc.multinomial(m.c, 3),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'multinomial'", "write gc.random.categorical(logits)"],
        True,
    ),
    Row(
        "index_add",
        lambda m: m.c.index_add(0, m.i, m.c),
        errors.UnknownAttributeError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no attribute 'index_add'",
            "write x.at[index].add(values)",
        ],
        True,
    ),
    Row(
        "empty",
        lambda m: gc.empty((3, 4)),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'empty'", "write gc.zeros(shape)"],
        True,
    ),
    Row(
        "assign_kw",
        lambda m: m.v.assign(m.v, use_locking=True),
        errors.ArgumentError,
        [
            "Variable.assign: it has no argument 'use_locking'",
            "leave it out: assignments of a run happen in program order",
        ],
        True,
    ),
    Row(
        "tensor_grad",
        lambda m: setattr(m.v, "grad", None),
        errors.UnknownAttributeError,
        [
            "<Variable v f32[4, 2]>: its 'grad' cannot be set",
            "nothing is needed: gradients are nodes, and do not accumulate",
        ],
        True,
    ),
    Row(
        "tensor_shape",
        lambda m: setattr(m.c, "shape", (12,)),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]>: its 'shape' cannot be set", "write gc.reshape(x, shape)"],
        True,
    ),
    Row(
        "tensor_anything",
        lambda m: setattr(m.c, "label", "x"),
        errors.UnknownAttributeError,
        [
            "<Tensor Constant:0 f32[3, 4]>: its 'label' cannot be set",
            "a tensor never changes; a dict can map tensors to what you add",
        ],
        True,
    ),
    Row(
        "requires_grad",
        lambda m: setattr(m.v, "requires_grad", False),
        errors.UnknownAttributeError,
        [
            "<Variable v f32[4, 2]>: its 'requires_grad' cannot be set",
            "write gc.minimize(loss, optimizer, variables=[...]), or",
        ],
        True,
    ),
    Row(
        "layer_kernel",
        lambda m: setattr(nn.Dense(3), "kernel", np.ones(3)),
        errors.UnknownAttributeError,
        [
            "<Dense 'dense', not called yet>: its 'kernel' cannot be set",
            'write session.set("<layer>/kernel", value), or kernel_initializer= of',
        ],
        True,
    ),
    Row(
        "layer_name",
        lambda m: setattr(nn.Dense(3), "name", "out"),
        errors.UnknownAttributeError,
        [
            "<Dense 'dense', not called yet>: its 'name' cannot be set",
            "a name is given at the start, by name= of the function or layer;",
        ],
        True,
    ),
    Row(
        "unigram_samples",
        lambda m: nn.UnigramSampler(5, 6),
        errors.AttributeValueError,
        [
            "UnigramSampler: cannot draw 6 different classes of 5",
            "draw fewer, or pass unique=False",
        ],
        True,
    ),
    Row(
        "tf_run_feed_list",
        lambda m: gc.Session(m.graph).run(m.c, [np.ones((3, 4))]),
        errors.FeedError,
        ["feeds must be a mapping, got list", "feeds={x: value}, by tensor or by name"],
        True,
    ),
    Row(
        "tf_run_two_args",
        lambda m: gc.Session(m.graph).run(m.c, m.x, np.ones((3, 4))),
        errors.ArgumentError,
        [
            "Session.run: too many positional arguments",
            "fetches is one argument: Session.run([a, b, ...])",
        ],
        True,
    ),
    Row(
        "tf_feed_placeholder_shape",
        lambda m: gc.Session(m.graph).run(m.x, {m.x: np.ones(4, F)}),
        errors.FeedError,
        [
            "feed 'x' must be f32[batch, 4], got shape (4,): expected rank 2, got",
            "feed a value of that shape, or change the placeholder's",
        ],
        True,
    ),
    Row(
        "tf_summary",
        lambda m: gc.summary.scalar("a", m.c),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'summary'",
            "write gc.train.SummaryWriter(folder)",
        ],
        True,
    ),
    Row(
        "tf_train_module",
        lambda m: gc.train.AdamOptimizer(0.1).minimize(m.c.sum()),
        errors.UnknownAttributeError,
        [
            "module 'graphc.train' has no attribute 'AdamOptimizer'",
            "write gc.minimize(loss, optax.adam(rate))",
        ],
        True,
    ),
    Row(
        "tf_layers_call",
        lambda m: nn.dense(m.c, 4),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'dense'", "write gc.nn.Dense"],
        True,
    ),
    Row(
        "tf_argmax_dim",
        lambda m: gc.argmax(m.c, dimension=1),
        errors.ArgumentError,
        ["argmax: it has no argument 'dimension'", "it is called axis= here"],
        True,
    ),
    Row(
        "tf_expand",
        lambda m: gc.expand_dims(m.c, dim=0),
        errors.ArgumentError,
        ["expand_dims: it has no argument 'dim'", "it is called axis= here"],
        True,
    ),
    Row(
        "tf_concat_order",
        lambda m: gc.concat(1, [m.c, m.c]),
        errors.AttributeValueError,
        [
            "Concatenate: takes a list of tensors, one or more, got 1",
            "a list is the first argument: gc.concatenate([a, b], axis)",
        ],
        True,
    ),
    Row(
        "tf_split_order",
        lambda m: gc.split(0, 3, m.c),
        errors.AttributeValueError,
        [
            "Split: axis must be an int, got <Tensor Constant:0 f32[3, 4]>",
            "the tensor is the first argument, its axis comes later",
        ],
        True,
    ),
    Row(
        "tf_one_hot_on_value",
        lambda m: gc.one_hot(m.i, 3, on_value=2.0, off_value=1.0),
        errors.ArgumentError,
        [
            "one_hot: it has no argument 'on_value'",
            'leave it out: gc.where(gc.one_hot(i, n, "bool"), on, off)',
        ],
        True,
    ),
    Row(
        "tf_cast_dtype_tf",
        lambda m: gc.cast(m.c, "tf.int32"),
        errors.DTypeError,
        ["'tf.int32' is not a dtype of graphc", "did you mean 'int32'?"],
        True,
    ),
    Row(
        "tf_assign_fn",
        lambda m: gc.assign(m.v.read(), m.v + 1),
        errors.AttributeValueError,
        ["is not a variable", "a variable comes first: gc.assign(v, value)"],
        True,
    ),
    Row(
        "tf_get_collection",
        lambda m: m.graph.get_collection("x"),
        errors.UnknownAttributeError,
        ["Graph has no attribute 'get_collection'", "write graph.collection(name)"],
        True,
    ),
    Row(
        "tf_while_list",
        lambda m: gc.while_loop(lambda i, a: i < 3, lambda i, a: [i + 1, a * 2], [0, 1.0]),
        errors.ArgumentError,
        [
            "while_loop: cond is called with 1 argument, but takes (i, a)",
            "write lambda carry: ..., for a carry in the form of init, such as (i,",
        ],
        True,
    ),
    Row(
        "tf_cond_values",
        lambda m: gc.cond(m.c.sum() > 0, m.c, m.c),
        errors.AttributeValueError,
        [
            "cond: true_fn must be a function, got <Tensor Constant:0 f32[3, 4]>",
            "write `lambda: tensor`; gc.where chooses between tensors",
        ],
        True,
    ),
    Row(
        "tf_case_pairs",
        lambda m: gc.case([(m.c.sum() > 0, lambda: m.c)], default=m.c),
        errors.AttributeValueError,
        [
            "case: default must be a function, got <Tensor Constant:0 f32[3, 4]>",
            "write `lambda: tensor`; gc.where chooses between tensors",
        ],
        True,
    ),
    Row(
        "tf_eval_session",
        lambda m: m.c.eval(session=gc.Session(m.graph)),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'eval'", "write session.run(x)"],
        True,
    ),
    Row(
        "tf_dropout_keep",
        lambda m: nn.dropout(m.c, keep_prob=0.5),
        errors.ArgumentError,
        [
            "dropout: it has no argument 'keep_prob'",
            "rate= is the probability of zero: rate = 1 - keep_prob",
        ],
        True,
    ),
    Row(
        "tf_dropout_keep_pos",
        lambda m: nn.Dropout(1.0)(m.c, training=True),
        errors.AttributeValueError,
        [
            "Dropout: rate must lie in [0, 1), got 1.0",
            "it is the probability of a zero; keep_prob of TensorFlow is 1 - rate",
        ],
        True,
    ),
    Row(
        "tf_conv_strides_list",
        lambda m: nn.conv2d(m.img, gc.ones((3, 3, 3, 4)), [1, 2, 2, 1], "SAME"),
        errors.ArgumentError,
        [
            "conv2d: too many positional arguments",
            "give these by name: strides=, padding=, dilation=, groups=",
        ],
        True,
    ),
    Row(
        "tf_lstm_state_tuple",
        lambda m: nn.LSTMCell(4, state_is_tuple=True),
        errors.ArgumentError,
        [
            "LSTMCell: it has no argument 'state_is_tuple'",
            "leave it out: the state is a tuple (h, c)",
        ],
        True,
    ),
    Row(
        "tf_gradients_none",
        lambda m: gc.gradients(m.c.sum(), [m.v]),
        errors.GradientError,
        [
            "no gradient path from 'v' to 'ReduceSum:0'",
            "the y must be computed from the x by differentiable operators (not",
        ],
        True,
    ),
    Row(
        "tf_minimize_gs",
        lambda m: gc.minimize((m.v**2).sum(), optax.sgd(0.1), global_step=m.i),
        errors.ArgumentError,
        [
            "minimize: it has no argument 'global_step'",
            "leave it out: a variable that counts: step.assign_add(1), in",
        ],
        True,
    ),
    Row(
        "tf_var_shape_init",
        lambda m: gc.variable("w", (3, 4), gc.nn.initializers.Zeros()),
        errors.ArgumentError,
        [
            "variable: too many positional arguments",
            "give these by name: shape=, dtype=, trainable=, collections=",
        ],
        True,
    ),
    Row(
        "tf_var_initializer",
        lambda m: gc.variable(nn.initializers.Normal, shape=(3, 4)),
        errors.AttributeValueError,
        ["variable 'variable': Normal is a class", "create an instance: Normal(...)"],
        True,
    ),
    Row(
        "tf_nested_get",
        lambda m: gc.Session(m.graph).run("nothing:0"),
        errors.UnknownNameError,
        [
            "no tensor, node or variable 'nothing:0' in graph 'graph'",
            "the graph has the names 'Constant',",
        ],
        True,
    ),
    Row(
        "keras_compile",
        lambda m: nn.Sequential([nn.Dense(3)]).compile("adam", "mse"),
        errors.UnknownAttributeError,
        [
            "Sequential has no attribute 'compile'",
            "write gc.minimize(loss, optax.adam(rate)), then session.run",
        ],
        True,
    ),
    Row(
        "keras_input",
        lambda m: nn.Input(shape=(3,)),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'Input'", "write gc.placeholder(shape, dtype)"],
        True,
    ),
    Row(
        "keras_model",
        lambda m: gc.Model(inputs=m.x, outputs=m.c),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'Model'",
            "write gc.nn.Layer, or any function of tensors",
        ],
        True,
    ),
    Row(
        "keras_dense_input_dim",
        lambda m: nn.Dense(3, input_dim=4),
        errors.ArgumentError,
        [
            "Dense: it has no argument 'input_dim'",
            "leave it out: the size of the input is known from the first call",
        ],
        True,
    ),
    Row(
        "keras_call_list",
        lambda m: nn.Add()([m.c, m.c]),
        errors.UnknownAttributeError,
        ["module 'graphc.nn' has no attribute 'Add'", "write x + y"],
        True,
    ),
    Row(
        "keras_concat",
        lambda m: nn.Concatenate()([m.c, m.c]),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'Concatenate'",
            "write gc.concatenate(tensors, axis)",
        ],
        True,
    ),
    Row(
        "keras_activation",
        lambda m: nn.Activation("relu")(m.c),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'Activation'",
            "write gc.nn.relu(x): an activation is a function",
        ],
        True,
    ),
    Row(
        "keras_embedding_mask",
        lambda m: nn.Embedding(3, 4, mask_zero=True),
        errors.ArgumentError,
        [
            "Embedding: it has no argument 'mask_zero'",
            "leave it out: lengths= of a recurrent layer, or a mask",
        ],
        True,
    ),
    Row(
        "keras_lstm_two_inputs",
        lambda m: nn.LSTM(4)(m.seq, training=True),
        errors.ArgumentError,
        [
            "LSTM: it has no argument 'training'",
            "leave it out: the layer does the same in training",
        ],
        True,
    ),
    Row(
        "keras_bn_axis",
        lambda m: nn.BatchNorm(axis=-1),
        errors.ArgumentError,
        [
            "BatchNorm: it has no argument 'axis'",
            "leave it out: it works on the last axis, the features",
        ],
        True,
    ),
    Row(
        "keras_bn_center",
        lambda m: nn.BatchNorm(center=False),
        errors.ArgumentError,
        [
            "BatchNorm: it has no argument 'center'",
            "leave it out: gc.minimize(loss, optimizer, variables=[...]) trains",
        ],
        True,
    ),
    Row(
        "keras_ln_eps",
        lambda m: nn.LayerNorm((4,))(m.c),
        errors.AttributeValueError,
        [
            "LayerNorm: epsilon must lie in (0, 1), got (4,)",
            "sizes are known from the first call: layer = gc.nn.LayerNorm(), y =",
        ],
        True,
    ),
    Row(
        "keras_conv_padding_causal",
        lambda m: nn.Conv1D(4, 3, padding="causal")(m.seq),
        errors.AttributeValueError,
        [
            'Conv1D \'conv1d\': padding must be "same", "valid", an int of at least',
            "causal: gc.pad(x, ((0, 0), (size - 1, 0), (0, 0))), then",
        ],
        True,
    ),
    Row(
        "keras_get_layer",
        lambda m: nn.Sequential([nn.Dense(3)]).get_layer("dense"),
        errors.UnknownAttributeError,
        [
            "Sequential has no attribute 'get_layer'",
            "write layer.inner_layers, or model[i] of a Sequential",
        ],
        True,
    ),
    Row(
        "keras_summary",
        lambda m: nn.Sequential([nn.Dense(3)]).summary(),
        errors.GraphError,
        [
            "summary: Sequential 'sequential' has not been called, so it has no",
            "call it on a placeholder first",
        ],
        True,
    ),
    Row(
        "keras_callbacks",
        lambda m: gc.train.fit(gc.Session(m.graph), None, batch_size=3),
        errors.ArgumentError,
        ["fit: it has no argument 'batch_size'"],
        True,
    ),
    Row(
        "keras_pop",
        lambda m: nn.Sequential([nn.Dense(3)]).pop(),
        errors.UnknownAttributeError,
        ["Sequential has no attribute 'pop'", "write gc.nn.Sequential(model.layers[:-1])"],
        True,
    ),
    Row(
        "keras_loss_order",
        lambda m: nn.sparse_softmax_cross_entropy(m.y, m.c),
        errors.ArgumentError,
        [
            "sparse_softmax_cross_entropy: too many positional arguments",
            "sparse_softmax_cross_entropy(logits=..., labels=...)",
        ],
        True,
    ),
    Row(
        "keras_from_logits",
        lambda m: nn.sigmoid_cross_entropy(logits=m.c, labels=m.c, from_logits=True),
        errors.ArgumentError,
        [
            "sigmoid_cross_entropy: it has no argument 'from_logits'",
            "leave it out: the losses take logits, before softmax or sigmoid",
        ],
        True,
    ),
    Row(
        "torch_linear",
        lambda m: nn.Dense(4, 3)(m.c),
        errors.AttributeValueError,
        [
            "unknown activation 3",
            "pass a function such as gc.nn.relu, or its name; do not pass sizes of the input",
        ],
        True,
    ),
    Row(
        "torch_linear3",
        lambda m: nn.Dense(3, bias=False)(m.c),
        errors.ArgumentError,
        ["Dense: it has no argument 'bias'", "it is called use_bias= here"],
        True,
    ),
    Row(
        "torch_conv_kernel",
        lambda m: nn.Conv2D(3, 8, kernel_size=3)(m.img),
        errors.ArgumentError,
        ["Conv2D: multiple values for argument 'kernel_size'", "Conv2D(filters, kernel_size)"],
        True,
    ),
    Row(
        "torch_embedding_pad",
        lambda m: nn.Embedding(3, 4, padding_idx=0),
        errors.ArgumentError,
        [
            "Embedding: it has no argument 'padding_idx'",
            "leave it out: multiply the rows by a mask",
        ],
        True,
    ),
    Row(
        "torch_seq",
        lambda m: nn.Sequential(nn.Dense(3), nn.relu, nn.Dense(2))(m.c),
        errors.ArgumentError,
        [
            "Sequential: too many positional arguments",
            "layers is one argument: Sequential([a, b, ...])",
        ],
        True,
    ),
    Row(
        "torch_forward",
        lambda m: nn.Dense(3).forward(m.c),
        errors.UnknownAttributeError,
        ["Dense has no attribute 'forward'", "write layer(x)"],
        True,
    ),
    Row(
        "torch_optim_params",
        lambda m: optax.adam(nn.Dense(3).parameters(), lr=0.1),
        errors.UnknownAttributeError,
        ["Dense has no attribute 'parameters'", "write layer.trainable_variables"],
        True,
    ),
    Row(
        "torch_minimize_opt_cls",
        lambda m: gc.minimize((m.v**2).sum(), optax.adam),
        errors.AttributeValueError,
        ["minimize: <function adam", "pass one, such as optax.adam(1e-3)"],
        True,
    ),
    Row(
        "torch_minimize_str",
        lambda m: gc.minimize((m.v**2).sum(), "adam"),
        errors.AttributeValueError,
        ["minimize: 'adam' is not an optax transformation", "pass one, such as optax.adam(1e-3)"],
        True,
    ),
    Row(
        "torch_max_dim",
        lambda m: gc.max(m.c, dim=1),
        errors.ArgumentError,
        ["reduce_max: it has no argument 'dim'", "it is called axis= here"],
        True,
    ),
    Row(
        "torch_dim_call",
        lambda m: m.c.dim(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'dim'", "write x.ndim"],
        True,
    ),
    Row(
        "torch_mean_dim",
        lambda m: m.c.mean(dim=1),
        errors.ArgumentError,
        ["Tensor.mean: it has no argument 'dim'", "it is called axis= here"],
        True,
    ),
    Row(
        "torch_view",
        lambda m: m.c.view(-1),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'view'", "write x.reshape(shape)"],
        True,
    ),
    Row(
        "torch_stack_dim",
        lambda m: gc.stack([m.c, m.c], dim=0),
        errors.ArgumentError,
        ["stack: it has no argument 'dim'", "it is called axis= here"],
        True,
    ),
    Row(
        "torch_gather",
        lambda m: gc.gather(m.c, 1, m.i),
        errors.AttributeValueError,
        [
            "Take: axis must be an int, got <Tensor Constant_1:0 i32[3]>",
            "the tensor is the first argument, its axis comes later",
        ],
        True,
    ),
    Row(
        "torch_clamp",
        lambda m: gc.clamp(m.c, 0, 1),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'clamp'", "write gc.clip"],
        True,
    ),
    Row(
        "torch_clamp_m",
        lambda m: m.c.clamp(0, 1),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'clamp'", "write x.clip(low, high)"],
        True,
    ),
    Row(
        "torch_norm",
        lambda m: m.c.norm(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'norm'", "write gc.linalg.norm(x)"],
        True,
    ),
    Row(
        "torch_eq",
        lambda m: m.c.eq(1),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'eq'", "write x == y"],
        True,
    ),
    Row(
        "torch_add",
        lambda m: m.c.add(1),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'add'", "write x + y"],
        True,
    ),
    Row(
        "torch_arange",
        lambda m: gc.arange(0, 10, 2, device="cpu"),
        errors.ArgumentError,
        [
            "arange: it has no argument 'device'",
            "leave it out: `with gc.device(name):` around the call",
        ],
        True,
    ),
    Row(
        "torch_randn",
        lambda m: gc.randn(3, 4),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'randn'", "write gc.random.normal(shape)"],
        True,
    ),
    Row(
        "torch_manual",
        lambda m: gc.random.manual_seed(0),
        errors.UnknownAttributeError,
        [
            "module 'graphc.random' has no attribute 'manual_seed'",
            "write gc.Graph(seed=...) or seed= of the function that draws",
        ],
        True,
    ),
    Row(
        "torch_save",
        lambda m: gc.save(gc.Session(m.graph).values(), m.tmp / "x.pt", signatures={}),
        errors.AttributeValueError,
        [
            "save: the first argument must be a session, got dict",
            "gc.save(gc.Session(graph), path, signatures=...) saves the initial",
        ],
        True,
    ),
    Row(
        "torch_load_state",
        lambda m: gc.Session(m.graph).load_state_dict({}),
        errors.UnknownAttributeError,
        ["Session has no attribute 'load_state_dict'", "write session.set_all(values)"],
        True,
    ),
    Row(
        "torch_cuda_avail",
        lambda m: gc.cuda.is_available(),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'cuda'", "write gc.devices.available()"],
        True,
    ),
    Row(
        "torch_gru_layers",
        lambda m: nn.GRU(4, num_layers=2),
        errors.ArgumentError,
        ["GRU: it has no argument 'num_layers'", "leave it out: gc.nn.StackedRNN([layer, layer])"],
        True,
    ),
    Row(
        "torch_lstm_sizes",
        lambda m: nn.LSTM(3, 4)(m.seq),
        errors.AttributeValueError,
        [
            "LSTM: reverse must be True or False, got 4",
            "the size of the input is known from the first call; options are given",
        ],
        True,
    ),
    Row(
        "torch_dataloader",
        lambda m: gc.data.DataLoader([1], batch_size=2),
        errors.UnknownAttributeError,
        [
            "module 'graphc.data' has no attribute 'DataLoader'",
            "write gc.data.Batches(arrays, batch), or any iterable of feeds",
        ],
        True,
    ),
    Row(
        "torch_batches_kw",
        lambda m: gc.data.Batches({"x": np.ones((8, 2))}, batch_size=4),
        errors.ArgumentError,
        ["Batches: it has no argument 'batch_size'", "it is called size= here"],
        True,
    ),
    Row(
        "torch_crossentropy",
        lambda m: nn.cross_entropy(m.c, m.i),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'cross_entropy'",
            "write gc.nn.sparse_softmax_cross_entropy(labels=..., logits=...)",
        ],
        True,
    ),
    Row(
        "np_array",
        lambda m: gc.array([1, 2, 3]),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'array'", "write gc.constant(value)"],
        True,
    ),
    Row(
        "np_dot3",
        lambda m: gc.dot(m.c, m.c),
        errors.ShapeError,
        [
            "DotGeneral: contracted dimensions differ, 4 and 3",
            "axes that are multiplied must have one size; a.T reverses the axes of",
        ],
        True,
    ),
    Row(
        "np_reshape",
        lambda m: gc.reshape(m.c, 4, 3),
        errors.ArgumentError,
        ["reshape: too many positional arguments", "shape is one argument: reshape(x, (4, 3))"],
        True,
    ),
    Row(
        "np_where1",
        lambda m: gc.where(m.c > 0),
        errors.ArgumentError,
        ["where: missing a required argument: 'x'", "where(condition, x, y)"],
        True,
    ),
    Row(
        "np_nonzero",
        lambda m: gc.nonzero(m.c),
        errors.ArgumentError,
        ["nonzero: missing a required argument: 'size'", "nonzero(x, size)"],
        True,
    ),
    Row(
        "np_unique",
        lambda m: gc.unique(m.i),
        errors.ArgumentError,
        ["unique: missing a required argument: 'size'", "unique(x, size)"],
        True,
    ),
    Row(
        "np_linspace",
        lambda m: gc.linspace(0, 1, 5.0),
        errors.AttributeValueError,
        [
            "linspace: a size must be an int or a named size, got 5.0",
            "sizes are static: take them from x.shape",
        ],
        True,
    ),
    Row(
        "np_random_rand",
        lambda m: gc.random.rand(3, 4),
        errors.UnknownAttributeError,
        ["module 'graphc.random' has no attribute 'rand'", "write gc.random.uniform(shape)"],
        True,
    ),
    Row(
        "np_random_choice",
        lambda m: gc.random.choice([1, 2, 3], size=2),
        errors.ArgumentError,
        ["choice: it has no argument 'size'", "it is called shape= here"],
        True,
    ),
    Row(
        "np_copy",
        lambda m: m.c.copy(),
        errors.UnknownAttributeError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no attribute 'copy'",
            "write x: a tensor never changes",
        ],
        True,
    ),
    Row(
        "np_fill",
        lambda m: m.c.fill(0),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'fill'", "write gc.full_like(x, value)"],
        True,
    ),
    Row(
        "np_sort_inplace",
        lambda m: m.c.sort(),
        errors.UnknownAttributeError,
        ["<Tensor Constant:0 f32[3, 4]> has no attribute 'sort'", "write gc.sort(x)"],
        True,
    ),
    Row(
        "np_if",
        lambda m: 1 if m.c.sum() > 0 else 2,
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[]> has no truth value while the graph is built",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "np_print",
        lambda m: f"{m.c:.3f}",
        errors.GraphError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no value to format as '.3f' while",
            "format what session.run returns, or use gc.print in the graph",
        ],
        True,
    ),
    Row(
        "np_setlist",
        lambda m: np.array([m.c, m.c]),
        errors.GraphError,
        [
            "<Tensor Constant:0 f32[3, 4]> has no value while the graph is built",
            "run it: session.run(tensor)",
        ],
        True,
    ),
    Row(
        "np_vstack_tensor",
        lambda m: gc.vstack(m.c, m.c),
        errors.ArgumentError,
        ["vstack: too many positional arguments", "tensors is one argument: vstack([a, b, ...])"],
        True,
    ),
    Row(
        "np_slice_tensor",
        lambda m: m.c[: m.i[1]],
        errors.ShapeError,
        [
            "getitem: a bound of a slice must be an int or a named size, got",
            "sizes are static: for indices that are known only at run time",
        ],
        True,
    ),
    Row(
        "py_max",
        lambda m: max(m.c.sum(), 0),
        errors.GraphError,
        [
            "<Tensor Less:0 bool[]> has no truth value while the graph is built",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_sorted",
        lambda m: sorted([m.c.sum(), m.c.mean()]),
        errors.GraphError,
        [
            "<Tensor Less:0 bool[]> has no truth value while the graph is built",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_in",
        lambda m: m.c in [m.x, m.c],
        errors.GraphError,
        [
            "bool[3, 4]> has no truth value while the graph is",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_and",
        lambda m: (m.c > 0) and (m.c < 2),
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[3, 4]> has no truth value while the graph is",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_not",
        lambda m: not (m.c > 0),
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[3, 4]> has no truth value while the graph is",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_chain",
        lambda m: 0 < m.c < 2,
        errors.GraphError,
        [
            "<Tensor Greater:0 bool[3, 4]> has no truth value while the graph is",
            "gc.cond(condition, f, g) chooses when the graph runs,",
        ],
        True,
    ),
    Row(
        "py_int",
        lambda m: int(m.x.shape[0]),
        errors.ArgumentError,
        [
            "the size batch is a number only when values are fed",
            "use it in shapes and in arithmetic with tensors, gc.cond(n > 2, ...)",
        ],
        True,
    ),
    Row(
        "py_range_batch",
        lambda m: [i for i in range(m.x.shape[0])],
        errors.ArgumentError,
        [
            "the size batch is a number only when values are fed",
            "use it in shapes and in arithmetic with tensors, gc.cond(n > 2, ...)",
        ],
        True,
    ),
    Row(
        "sess_run_dict_names",
        lambda m: gc.Session(m.graph).run({"c": m.c}, feeds={"nope": 1}),
        errors.UnknownNameError,
        [
            "no node 'nope' in graph 'graph'",
            "graph.nodes has the names 'Constant',",
        ],
        True,
    ),
    Row(
        "sess_set_bad",
        lambda m: gc.Session(m.graph).set("v", np.ones(3)),
        errors.ShapeError,
        ["variable 'v' has shape (4, 2), the value (3,)", "set a value of that shape"],
        False,
    ),
    Row(
        "sess_setall_list",
        lambda m: gc.Session(m.graph).set_all([np.ones((4, 2))]),
        errors.AttributeValueError,
        [
            "set_all: takes a dict of values, got list",
            "session.set_all(dict(zip(names, values))); session.values() is such a",
        ],
        True,
    ),
    Row(
        "fit_no_job",
        lambda m: gc.train.fit(gc.Session(m.graph)),
        errors.ArgumentError,
        ["fit: missing a required argument: 'job'", "fit(session, job)"],
        True,
    ),
    Row(
        "fit_wrong",
        lambda m: gc.train.fit(gc.Session(m.graph), m.c),
        errors.AttributeValueError,
        [
            "fit: takes a job, got Tensor",
            'gc.train.Job(graph, train, batches, steps=1000, metrics={"loss":',
        ],
        True,
    ),
    Row(
        "batches_arr",
        lambda m: gc.data.Batches(np.ones((8, 2)), 4),
        errors.AttributeValueError,
        [
            "Batches: takes arrays by the names of their feeds, got ndarray",
            'gc.data.Batches({"x": x, "t": t}, 32)',
        ],
        True,
    ),
    Row(
        "batches_len",
        lambda m: gc.data.Batches({"x": np.ones((8, 2)), "y": np.ones(7)}, 4),
        errors.FeedError,
        ["the arrays must have one length", "the first axis of each array counts the examples"],
        True,
    ),
    Row(
        "from_jax_no",
        lambda m: gc.from_jax(np.exp)(m.c),
        errors.JaxImportError,
        [
            "the JAX function needs the value of its argument 'Constant' in Python",
            "use lax.cond, jnp.where or jnp functions; or make the argument static",
        ],
        True,
    ),
    Row(
        "mha_qkv",
        lambda m: nn.MultiHeadAttention(4, 2)(m.seq, m.seq, m.seq),
        errors.DTypeError,
        [
            "MultiHeadAttention 'multi_head_attention': the mask must be bool, got",
            "keys and values both come from source: attention(x, source, mask=mask)",
        ],
        True,
    ),
    Row(
        "mha_heads_first",
        lambda m: nn.MultiHeadAttention(2, 3)(m.seq),
        errors.AttributeValueError,
        ["MultiHeadAttention: heads must divide units, got 3 and 2", "or give head_size="],
        True,
    ),
    Row(
        "attention_fn",
        lambda m: nn.attention(m.seq, m.seq, m.seq),
        errors.ShapeError,
        [
            "Attention: query must be [batch, time, heads, depth], got 3 axes",
            "x[:, :, None, :] is one head; MultiHeadAttention takes [batch,",
        ],
        True,
    ),
    Row(
        "metrics",
        lambda m: gc.metrics.accuracy(m.y, m.y),
        errors.UnknownAttributeError,
        [
            "module 'graphc.metrics' has no attribute 'accuracy'",
            "write gc.metrics.Accuracy(labels=numbers, predictions=logits)",
        ],
        True,
    ),
    Row(
        "gc_accuracy",
        lambda m: nn.accuracy(m.c, m.i),
        errors.UnknownAttributeError,
        [
            "module 'graphc.nn' has no attribute 'accuracy'",
            "write gc.metrics.Accuracy(labels=numbers, predictions=logits)",
        ],
        True,
    ),
    Row(
        "layers_shared_scope",
        lambda m: gc.variable_scope("a", reuse=True),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'variable_scope'", "write gc.name_scope(name)"],
        True,
    ),
    Row(
        "name_scope_reuse",
        lambda m: gc.name_scope("a", reuse=True),
        errors.ArgumentError,
        [
            "name_scope: it has no argument 'reuse'",
            "leave it out: a layer that is called again shares its variables",
        ],
        True,
    ),
    Row(
        "device_str",
        lambda m: gc.device("gpu").__enter__(),
        errors.DeviceError,
        [
            "'gpu' is not a device name",
            'write "/gpu:0" or "/job:worker/replica:0/task:1/device:GPU:0"',
        ],
        True,
    ),
    Row(
        "device_gpu0",
        lambda m: gc.device("cuda:0").__enter__(),
        errors.DeviceError,
        [
            "'cuda:0' is not a device name",
            'write "/gpu:0" or "/job:worker/replica:0/task:1/device:GPU:0"',
        ],
        True,
    ),
    Row(
        "distributed",
        lambda m: gc.distribute.MirroredStrategy(),
        errors.UnknownAttributeError,
        ["module 'graphc' has no attribute 'distribute'", "write gc.devices.DataParallel(n)"],
        True,
    ),
    Row(
        "penalty_none",
        lambda m: nn.penalty(nn.Dense(3, kernel_regularizer=0.01)),
        errors.AttributeValueError,
        ["Dense: unknown regularizer 0.01", "pass a function of a tensor such as gc.nn.L2(1e-4)"],
        True,
    ),
    Row(
        "reg_str",
        lambda m: nn.Dense(3, kernel_regularizer="l3"),
        errors.AttributeValueError,
        ["Dense: unknown regularizer 'l3'", "did you mean 'l2'?"],
        True,
    ),
    Row(
        "clip",
        lambda m: gc.clip_by_global_norm([m.c], 1.0),
        errors.UnknownAttributeError,
        [
            "module 'graphc' has no attribute 'clip_by_global_norm'",
            "write optax.clip_by_global_norm(limit), before the optimizer in",
        ],
        True,
    ),
    Row(
        "placeholder_dtype",
        lambda m: gc.placeholder("float32"),
        errors.AttributeValueError,
        ["'float32' is a dtype, where the shape is expected", "the shape comes first"],
        True,
    ),
    Row(
        "embedding_range",
        lambda m: nn.Embedding(10, 4)([11]),
        errors.ShapeError,
        ["index 11 is out of range for size 10", "indices run from -10 to 9"],
        True,
    ),
    Row(
        "take_range",
        lambda m: gc.take(m.c, 5),
        errors.ShapeError,
        ["Take: index 5 is out of range for size 3", "indices run from -3 to 2"],
        True,
    ),
    Row(
        "step_run",
        lambda m: gc.minimize(m.v.sum(), optax.adam(0.1)).run(),
        errors.UnknownAttributeError,
        ["Node has no attribute 'run'", "write session.run(node, feeds)"],
        True,
    ),
    Row(
        "job_arguments",
        lambda m: gc.train.Job(m.graph, m.c),
        errors.ArgumentError,
        ["Job: missing a required argument: 'batches'", "Job(graph, train, batches)"],
        True,
    ),
    Row(
        "pad_mode",
        lambda m: gc.pad(m.c, (1, 1), "zeros"),
        errors.AttributeValueError,
        ["Pad: mode must be", "constant_values= is the number that fills"],
        True,
    ),
    Row(
        "eye_shape",
        lambda m: gc.eye((3, 3)),
        errors.AttributeValueError,
        ["a size must be an int or a named size, got (3, 3)", "it is one size"],
        True,
    ),
    Row(
        "activation_case",
        lambda m: nn.Dense(3, activation="ReLU"),
        errors.AttributeValueError,
        ["unknown activation 'ReLU'", "did you mean 'relu'?"],
        True,
    ),
    Row(
        "flatten_called_late",
        lambda m: nn.Flatten(m.c),
        errors.AttributeValueError,
        ["is not a name", "make the layer, then call it"],
        True,
    ),
    Row(
        "reshape_sizes",
        lambda m: nn.Reshape(2, 2),
        errors.AttributeValueError,
        ["Reshape: 2 is not a name", "is one argument, such as Reshape((2, 3))"],
        True,
    ),
    Row(
        "transpose_flag",
        lambda m: gc.matmul(m.c, m.c, transpose_b="yes"),
        errors.AttributeValueError,
        ["transpose_b must be of kind bool, got 'yes'", "True or False"],
        True,
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_mistake(row, tmp_path):
    check_row(row, WiderWorld(tmp_path), "test_more_mistakes.py")


def test_there_are_many_mistakes():
    assert len(ROWS) >= 120
    assert len({row.name for row in ROWS}) == len(ROWS)
