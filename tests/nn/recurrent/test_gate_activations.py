"""LSTM, GRU and ConvLSTM with other activations, compared with NumPy and with the defaults."""

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError
from tests.near import assert_near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4)).astype("float32")


def run(layer, x=X):
    """The layer's outputs, and its variables by their last name."""
    with gc.Graph(seed=1) as graph:
        y = layer(gc.constant(x))
    session = gc.Session(graph)
    values = {name.rpartition("/")[2]: value for name, value in session.values().items()}
    return np.asarray(session.run(y)), values


def hard(x):
    """`hard_sigmoid`."""
    return np.clip(x / 6 + 0.5, 0, 1)


def softsign(x):
    return x / (1 + np.abs(x))


def test_lstm_against_numpy():
    got, v = run(nn.LSTM(5, activation="softsign", recurrent_activation="hard_sigmoid"))
    h = c = np.zeros((2, 5), "float32")
    wanted = []
    for t in range(3):
        z = X[:, t] @ v["kernel"] + h @ v["recurrent_kernel"] + v["bias"]
        i, f, g, o = np.split(z, 4, -1)
        c = hard(f) * c + hard(i) * softsign(g)
        h = hard(o) * softsign(c)
        wanted.append(h)
    assert_near(got, np.stack(wanted, 1), 1e-5, 1e-6)


def test_gru_against_numpy():
    got, v = run(nn.GRU(5, activation="relu", recurrent_activation="hard_sigmoid"))
    h = np.zeros((2, 5), "float32")
    wanted = []
    for t in range(3):
        x = np.split(X[:, t] @ v["kernel"] + v["bias"], 3, -1)
        own = np.split(h @ v["recurrent_kernel"], 3, -1)
        r, z = hard(x[0] + own[0]), hard(x[1] + own[1])
        n = np.maximum(x[2] + r * (own[2] + v["recurrent_bias"]), 0)
        h = (1 - z) * n + z * h
        wanted.append(h)
    assert_near(got, np.stack(wanted, 1), 1e-5, 1e-6)


@pytest.mark.parametrize("activation", [None, "linear"])
def test_no_activation(activation):
    """Cell state and output are linear in the candidate: with gates of 1, they are sums."""
    one = nn.LSTM(
        1,
        activation=activation,
        recurrent_activation=lambda x: gc.ones_like(x),
        kernel_initializer="ones",
        recurrent_initializer="zeros",
        bias_initializer="zeros",
    )
    got, _ = run(one, np.array([[[1.0], [2.0], [3.0]]], "float32"))
    assert got[0, :, 0].tolist() == [1.0, 3.0, 6.0]


def test_conv_lstm_of_one_place_is_an_lstm():
    """With a kernel of 1 on images of one pixel, the layer computes the same as an LSTM."""
    options = {"activation": "softsign", "recurrent_activation": "hard_sigmoid"}
    plain, _ = run(nn.LSTM(5, kernel_initializer=0.1, recurrent_initializer=0.2, **options))
    conv = nn.ConvLSTM1D(5, 1, kernel_initializer=0.1, recurrent_initializer=0.2, **options)
    got, _ = run(conv, X[:, :, None, :])
    assert_near(got[:, :, 0], plain, 1e-5, 1e-6)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_defaults_are_tanh_and_sigmoid(kind):
    plain, _ = run(kind(5))
    named, _ = run(kind(5, activation="tanh", recurrent_activation="sigmoid"))
    assert (plain == named).all()


def test_an_activation_in_the_place_of_an_option():
    with pytest.raises(AttributeValueError, match="reverse must be True or False, got 'relu'"):
        nn.LSTM(5, "relu")


def test_conv_lstm_regularizers():
    layer = nn.ConvLSTM2D(
        2, 3, kernel_regularizer="l2", recurrent_regularizer="l2", bias_regularizer=nn.L1(1.0)
    )
    with gc.Graph(seed=0) as graph:
        layer(gc.ones((1, 2, 4, 4, 1)))
        penalty = nn.penalty(layer)
    session = gc.Session(graph)
    v = session.values()
    kernels = [value for name, value in v.items() if name.endswith("kernel")]
    assert len(kernels) == 2
    wanted = 0.01 * sum((k**2).sum() for k in kernels) + np.abs(v["conv_lstm2d/cell/bias"]).sum()
    assert_near(np.asarray(session.run(penalty)), wanted, 1e-5, 1e-6)
