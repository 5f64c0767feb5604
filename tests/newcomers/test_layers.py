"""Layers and their options as newcomers write them."""

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError, GraphError, ShapeError
from tests import near

RNG = np.random.default_rng(0)


def assert_near(got, want):
    """Float32 results of a few operations."""
    near.assert_near(np.asarray(got), np.asarray(want), 1e-5, 1e-6)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def run(make, *arrays, seed=0):
    """What `make` gives for tensors of these arrays."""
    with gc.Graph(seed=seed) as graph:
        result = make(*map(gc.constant, arrays))
    return gc.Session(graph).run(result)


# -- initializers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("zeros", nn.initializers.Zeros()),
        ("ones", nn.initializers.Ones()),
        ("glorot_uniform", nn.initializers.GlorotUniform()),
        ("glorot_normal", nn.initializers.GlorotNormal()),
        ("xavier_uniform", nn.initializers.GlorotUniform()),
        ("he_uniform", nn.initializers.HeUniform()),
        ("he_normal", nn.initializers.HeNormal()),
        ("kaiming_normal", nn.initializers.HeNormal()),
        ("lecun_uniform", nn.initializers.LecunUniform()),
        ("lecun_normal", nn.initializers.LecunNormal()),
        ("orthogonal", nn.initializers.Orthogonal()),
        ("identity", nn.initializers.Identity()),
        ("truncated_normal", nn.initializers.TruncatedNormal()),
        ("random_normal", nn.initializers.Normal()),
        ("random_uniform", nn.initializers.Uniform()),
        ("GlorotUniform", nn.initializers.GlorotUniform()),
        (0.0, nn.initializers.Constant(0.0)),
        (np.float32(0.5), nn.initializers.Constant(0.5)),
    ],
)
def test_initializers_have_names(name, made):
    with gc.Graph():
        layer = nn.Dense(4, kernel_initializer=name)
        layer(gc.placeholder((None, 3)))
        assert layer.variables[0].initial == made


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv2D(4, 2, kernel_initializer="he_normal", groups=2), (1, 5, 5, 2)),
        (lambda: nn.Conv2DTranspose(4, 2, bias_initializer="ones"), (1, 5, 5, 2)),
        (lambda: nn.DepthwiseConv2D(2, kernel_initializer="lecun_uniform"), (1, 5, 5, 2)),
        (lambda: nn.SeparableConv2D(3, 2, kernel_initializer="glorot_normal"), (1, 5, 5, 2)),
        (lambda: nn.Embedding(5, 2, "random_normal"), None),
        (lambda: nn.LSTM(3, recurrent_initializer="identity"), (1, 4, 3)),
        (lambda: nn.GRU(3, kernel_initializer="he_uniform"), (1, 4, 3)),
        (lambda: nn.SimpleRNN(3, recurrent_initializer="identity"), (1, 4, 3)),
        (lambda: nn.MultiHeadAttention(4, 2, kernel_initializer="he_uniform"), (1, 4, 4)),
    ],
)
def test_every_layer_takes_names_of_initializers(make, shape):
    x = np.array([1, 2]) if shape is None else normal(*shape)
    assert np.isfinite(run(lambda x: make()(x), x)).all()
    names = {"kernel_initializer", "bias_initializer", "initializer"}
    assert all(not isinstance(getattr(make(), name, None), str) for name in names)


def test_an_array_is_an_initial_value():
    kernel = normal(3, 2)
    x = normal(4, 3)
    assert_near(run(nn.Dense(2, kernel_initializer=kernel), x), x @ kernel)


def test_variables_take_names_of_initializers():
    with gc.Graph() as graph:
        v = gc.variable("he_normal", shape=(3, 2), name="v")
        assert v.initial == nn.initializers.HeNormal()
    assert gc.Session(graph).get("v").shape == (3, 2)
    with gc.Graph(), pytest.raises(AttributeValueError, match="unknown initializer 'hi_normal'"):
        gc.variable("hi_normal", shape=(3, 2))


@pytest.mark.parametrize(
    ("initializer", "match"),
    [
        ("glorot_unifrm", r"(?s)Dense: unknown initializer 'glorot_unifrm'.*glorot_uniform"),
        ("constant", r"(?s)unknown initializer 'constant'.*the number itself"),
        (nn.initializers.HeNormal, r"(?s)HeNormal is a class.*HeNormal\(\.\.\.\)"),
        (None, r"must be a function, a name, a number or an array, got None"),
    ],
)
def test_wrong_initializers_are_refused_where_the_layer_is_made(initializer, match):
    with pytest.raises(AttributeValueError, match=match):
        nn.Dense(4, kernel_initializer=initializer)


# -- regularizers ---------------------------------------------------------------------------


def test_penalties_are_those_of_the_formula():
    with gc.Graph() as graph:
        x = gc.placeholder((None, 6, 6, 2), name="x")
        conv = nn.Conv2D(
            3,
            2,
            kernel_regularizer=nn.L1(0.5),
            bias_initializer="ones",
            bias_regularizer=lambda b: gc.sum(b) * 7,
        )
        model = nn.Sequential(
            [conv, nn.Flatten(), nn.Dense(2, kernel_regularizer="l2"), nn.Dense(2)]
        )
        model(x)
        model(x)
        total = nn.penalty(model, name="total")
        again = nn.penalty([conv, model, conv])
        assert total.name == "total:0"
        kernels = [conv.variables[0], model.layers[2].variables[0]]
        assert len(model.regularized) == 3
    session = gc.Session(graph)
    a, b = (np.asarray(session.get(v.name)) for v in kernels)
    wanted = 0.5 * np.abs(a).sum() + 0.01 * np.square(b).sum() + 21
    got, twice = session.run([total, again])
    assert_near(got, wanted)
    assert_near(twice, wanted)


def test_penalties_of_separable_convolutions_embeddings_and_narrow_weights():
    with gc.Graph() as graph:
        separable = nn.SeparableConv2D(3, 2, kernel_regularizer="l2")
        separable(gc.zeros((1, 4, 4, 2)))
        rows = nn.Embedding(5, 2, "ones", regularizer=nn.L2(1.0), dtype="bfloat16")
        rows(gc.constant([1]))
        assert len(separable.regularized) == 2
        result = nn.penalty(rows)
        nothing = nn.penalty(_called(nn.Dense(2)))
    got, none = gc.Session(graph).run([result, nothing])
    assert got.dtype == np.float32 and got == 10 and none == 0


def _called(layer):
    layer(gc.zeros((1, 3)))
    return layer


def test_the_loss_has_a_penalty_only_where_it_is_written():
    with gc.Graph() as graph:
        layer = _called(nn.Dense(2, kernel_regularizer=nn.L2(0.5)))
        kernel = layer.variables[0]
        (gradient,) = gc.gradients(nn.penalty(layer), [kernel])
        (nothing,) = gc.gradients(gc.sum(layer(gc.zeros((1, 3)))), [kernel])
    session = gc.Session(graph)
    assert_near(session.run(gradient), session.get(kernel.name))
    assert not np.asarray(session.run(nothing)).any()


def test_wrong_regularizers():
    with pytest.raises(AttributeValueError, match=r"(?s)Dense: unknown regularizer 'l3'.*'l[12]'"):
        nn.Dense(4, kernel_regularizer="l3")
    with pytest.raises(AttributeValueError, match=r"unknown regularizer 0\.1"):
        nn.Conv2D(4, 2, kernel_regularizer=0.1)
    for rate in (-1, "x", float("nan"), True):
        with pytest.raises(AttributeValueError, match="L2: the rate must be a number of 0 or more"):
            nn.L2(rate)
    with gc.Graph():
        with pytest.raises(GraphError, match="has not been called"):
            nn.penalty(nn.Dense(3))
        with pytest.raises(AttributeValueError, match="takes layers, got 3"):
            nn.penalty([3])
        with pytest.raises(ShapeError, match="'dense/kernel' must give a scalar"):
            nn.penalty(_called(nn.Dense(4, kernel_regularizer=gc.square)))


# -- strides and windows for all axes -------------------------------------------------------


@pytest.mark.parametrize(
    ("tf", "own"),
    [
        (lambda x, w: nn.conv2d(x, w, strides=[1, 2, 1, 1], padding="SAME"),
         lambda x, w: nn.conv2d(x, w, strides=(2, 1), padding="same")),
        (lambda x, w: nn.conv2d(x, w, dilation=(1, 2, 2, 1),
                                padding=[[0, 0], [1, 0], [0, 2], [0, 0]]),
         lambda x, w: nn.conv2d(x, w, dilation=2, padding=((1, 0), (0, 2)))),
        (lambda x, w: nn.max_pool(x, [1, 2, 3, 1], [1, 2, 2, 1], "VALID"),
         lambda x, w: nn.max_pool(x, (2, 3), 2)),
        (lambda x, w: nn.avg_pool(x, (1, 2, 2, 1)), lambda x, w: nn.avg_pool(x, 2)),
        (lambda x, w: nn.MaxPool2D((1, 3, 3, 1), (1, 2, 2, 1))(x),
         lambda x, w: nn.MaxPool2D(3, 2)(x)),
        (lambda x, w: nn.Conv2D(3, 2, (1, 2, 2, 1), kernel_initializer=0.5)(x),
         lambda x, w: nn.Conv2D(3, 2, 2, kernel_initializer=0.5)(x)),
        (lambda x, w: nn.conv2d_transpose(x, gc.transpose(w, (0, 1, 3, 2)), strides=(1, 2, 2, 1)),
         lambda x, w: nn.conv2d_transpose(x, gc.transpose(w, (0, 1, 3, 2)), strides=2)),
    ],
)  # fmt: skip
def test_strides_and_windows_may_be_given_for_all_axes(tf, own):
    x, w = normal(2, 6, 7, 2), normal(2, 2, 2, 3)
    assert_near(run(tf, x, w), run(own, x, w))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: nn.max_pool(x, (1, 1, 2, 2)),
        lambda x: nn.max_pool(x, 2, (2, 2, 2, 1)),
        lambda x: nn.conv2d(x, gc.zeros((1, 1, 2, 3)), strides=(1, 1, 2, 2)),
        lambda x: nn.Conv2D(3, 2, strides=(1, 1, 2, 2)),
        lambda x: nn.AveragePool2D((1, 1, 2, 2)),
    ],
)
def test_batch_and_channels_have_no_strides(make):
    with pytest.raises(AttributeValueError, match=r"(?s)must be 1 along batch and channels.*last"):
        run(make, normal(2, 6, 7, 2))
