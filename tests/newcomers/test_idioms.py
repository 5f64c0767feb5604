"""Idioms from NumPy, TensorFlow 1, Keras and PyTorch that work in graphc."""

import warnings

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from tests.newcomers.running import assert_near, run

A = np.arange(12, dtype=np.float32).reshape(3, 4) / 7 - 0.5


@pytest.mark.parametrize(
    "method",
    [
        lambda x: x.T,
        lambda x: x.mT,
        lambda x: x.real,
        lambda x: x.imag,
        lambda x: x.reshape(2, 6),
        lambda x: x.reshape((4, -1)),
        lambda x: x.reshape(-1),
        lambda x: x.transpose(),
        lambda x: x.transpose(1, 0),
        lambda x: x.transpose((1, 0)),
        lambda x: x.astype("int32"),
        lambda x: x.swapaxes(0, 1),
        lambda x: x.reshape(3, 1, 4).squeeze(),
        lambda x: x.reshape(3, 1, 4).squeeze(1),
        lambda x: x.ravel(),
        lambda x: x.flatten(),
        lambda x: x.repeat(2, 0),
        lambda x: x.take(np.array([5, 0])),
        lambda x: x.take(np.array([2, 0]), 1),
        lambda x: x.sum(),
        lambda x: x.sum(0),
        lambda x: x.sum(axis=(0, 1), keepdims=True),
        lambda x: x.mean(axis=1),
        lambda x: x.prod(axis=0),
        lambda x: x.max(),
        lambda x: x.min(axis=1, keepdims=True),
        lambda x: (x > 0).any(axis=0),
        lambda x: (x > 0).all(axis=0),
        lambda x: x.std(axis=0, ddof=1),
        lambda x: x.var(axis=0),
        lambda x: x.argmax(),
        lambda x: x.argmax(axis=1),
        lambda x: x.argmin(axis=0, keepdims=True),
        lambda x: x.cumsum(axis=1),
        lambda x: x.cumprod(axis=0),
        lambda x: x.clip(-0.2, 0.3),
        lambda x: x.clip(max=0.3),
        lambda x: x.round(1),
        lambda x: x.dot(np.ones(4, np.float32)),
        lambda x: x.conj(),
        lambda x: np.stack(list(x)) if isinstance(x, np.ndarray) else gc.stack(list(x)),
        lambda x: x + len(x),
        lambda x: x * x.size,
        lambda x: [row for row in x][-1],
    ],
)
def test_methods_are_those_of_numpy(method):
    assert_near(run(method, A), method(A))


@pytest.mark.parametrize(
    "function",
    [
        np.exp,
        np.tanh,
        lambda x: np.add(x, 2),
        lambda x: np.maximum(x, 0),
        lambda x: np.mean(x, axis=0),
        lambda x: np.sum(x, axis=1, keepdims=True),
        lambda x: np.concatenate([x, x], axis=1),
        lambda x: np.where(x > 0, x, 0),
        lambda x: np.transpose(x),
        lambda x: np.reshape(x, (4, 3)),
        lambda x: np.max(x),
        lambda x: np.linalg.norm(x),
        lambda x: A + x,
        lambda x: A - x,
        lambda x: A @ x.T,
        lambda x: np.float32(2) * x,
        lambda x: (A > 0) & (x > 0.2),
        lambda x: x == A,
        lambda x: x + np.ndim(x) + np.size(x) + np.shape(x)[0],
    ],
)
def test_functions_of_numpy_take_tensors(function):
    assert_near(run(function, A), function(A))


def test_numpy_does_not_write_a_tensor_into_an_array():
    with gc.Graph():
        x = gc.constant(A)
        with pytest.raises(gc.errors.GraphError, match="cannot write a tensor of a graph into an"):
            np.add(A, x, out=np.zeros_like(A))
        with pytest.raises(gc.errors.GraphError, match=r"numpy\.add\.reduce does not take"):
            np.add.reduce(x)
        with pytest.raises(gc.errors.GraphError, match=r"numpy\.busday_offset does not take"):
            np.busday_offset(x, 1)


def test_a_size_is_a_number():
    with gc.Graph() as graph:
        x = gc.placeholder((None, 4), name="x")
        n = x.shape[0]
        fetches = [
            x.sum(axis=0) / n,
            x + n,
            n * x,
            1 / n,
            n / 2,
            n**2,
            n % 2,
            2 - n + x,
            gc.maximum(x, n),
            np.float32(3) * n * x,
        ]
    got = gc.Session(graph).run(fetches, {"x": A})
    expected = [A.mean(axis=0), A + 3, 3 * A, 1 / 3, 1.5, 9, 1, A - 1, np.full_like(A, 3), 9 * A]
    for result, wanted in zip(got, expected, strict=True):
        assert_near(np.asarray(result), np.asarray(wanted, np.float32))


def test_dropout_is_switched_by_a_placeholder():
    x = np.ones((40, 50), np.float32)
    with gc.Graph(seed=3) as graph:
        ones = gc.constant(x)
        training = gc.placeholder((), "bool", name="training")
        rate = gc.placeholder((), name="rate")
        by_layer = gc.nn.Dropout(0.5)(ones, training)
        by_rate = gc.nn.dropout(ones, rate)
        gradient = gc.gradients(by_rate.sum(), [ones])[0]
    session = gc.Session(graph)
    assert (np.asarray(session.run(by_layer, {"training": False})) == 1).all()
    dropped = np.asarray(session.run(by_layer, {"training": True}))
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert 0.4 < (dropped == 0).mean() < 0.6
    assert (np.asarray(session.run(by_rate, {"rate": 0})) == 1).all()
    assert (np.asarray(session.run(by_rate, {"rate": 1})) == 0).all()
    quarter = np.asarray(session.run(by_rate, {"rate": 0.75}))
    assert set(np.unique(quarter)) == {0.0, 4.0}
    assert 0.7 < (quarter == 0).mean() < 0.8
    assert (np.asarray(session.run(gradient, {"rate": 1})) == 0).all()
    assert set(np.unique(session.run(gradient, {"rate": 0.75}))) == {0.0, 4.0}


def test_batch_norm_is_switched_by_a_placeholder():
    """One graph with a placeholder replaces two calls with a bool."""

    def model(training):
        with gc.Graph() as graph:
            x = gc.placeholder((None, 4), name="x")
            switch = gc.placeholder((), "bool", name="training") if training is None else training
            layer = gc.nn.BatchNorm(momentum=0.5)
            y = layer(x, switch)
            served = layer(x, False)
            train = gc.minimize(gc.sum(gc.square(y - 1)), optax.sgd(0.1))
        return gc.Session(graph), y, served, train

    session, y, _, train = model(None)
    fixed, trained, served, step = model(True)
    for _ in range(3):
        got, _ = session.run([y, train], {"x": A, "training": True})
        expected, _ = fixed.run([trained, step], {"x": A})
        assert_near(np.asarray(got), np.asarray(expected))
    got = session.run(y, {"x": A, "training": False})
    assert_near(np.asarray(got), np.asarray(fixed.run(served, {"x": A})))
    before = session.values()
    session.run(train, {"x": A, "training": False})
    after = session.values()
    for name in ("batch_norm/mean", "batch_norm/variance"):
        assert (before[name] == after[name]).all()


def test_attention_is_switched_by_a_placeholder():
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    with gc.Graph(seed=1) as graph:
        training = gc.placeholder((), "bool", name="training")
        layer = gc.nn.MultiHeadAttention(8, 2, dropout=0.5)
        y, served = layer(gc.constant(x), training=training), layer(gc.constant(x), training=False)
    session = gc.Session(graph)
    off, plain = session.run([y, served], {"training": False})
    assert_near(np.asarray(off), np.asarray(plain))
    on = np.asarray(session.run(y, {"training": True}))
    assert np.abs(on - np.asarray(plain)).max() > 1e-3


@pytest.mark.parametrize("make", ["placeholder", "variable"])
@pytest.mark.parametrize("optimizer", [optax.sgd, optax.adam, optax.adamw])
def test_the_learning_rate_may_be_a_tensor(make, optimizer):
    start = np.array([1.0, -2.0, 0.5], np.float32)
    with gc.Graph() as graph:
        v = gc.variable(start, name="v")
        rate = (
            gc.placeholder((), name="rate")
            if make == "placeholder"
            else gc.variable(0.0, name="rate", trainable=False)
        )
        train = gc.minimize(gc.sum(gc.square(v)), optimizer(rate), variables=[v])
    session = gc.Session(graph)
    params, state, taken = start, None, [0.1, 0.02, 0.3]
    tx = optax.inject_hyperparams(optimizer)(learning_rate=0.0)
    state = tx.init(params)
    for lr in taken:
        if make == "placeholder":
            session.run(train, {"rate": lr})
        else:
            session.set("rate", lr)
            session.run(train)
        state.hyperparams["learning_rate"] = np.float32(lr)
        updates, state = tx.update(2 * params, state, params)
        params = optax.apply_updates(params, updates)
    assert_near(np.asarray(session.get("v")), np.asarray(params))


def test_optimizers_that_cannot_refer_to_a_tensor():
    """The initial state would depend on the tensor, or each step would make a tensor."""
    with gc.Graph():
        v = gc.variable([1.0], name="v")
        rate = gc.placeholder((), name="rate")
        begins = optax.GradientTransformation(
            lambda params: {"rate": rate + jax.tree.leaves(params)[0]},
            lambda updates, state, params=None: (updates, state),
        )
        with pytest.raises(gc.errors.JaxImportError, match="its state begins with a value of"):
            gc.minimize(gc.sum(v), begins)
        with pytest.raises(gc.errors.JaxImportError, match=r"it makes the tensor .* whenever it"):
            gc.minimize(gc.sum(v), optax.inject_hyperparams(optax.sgd)(learning_rate=rate))


def test_feeds_that_nothing_needs():
    def graph():
        with gc.Graph() as made:
            gc.placeholder((), name="a") * 2
            gc.identity(gc.placeholder((), name="b"), name="twice_b")
            gc.identity(made.tensor("a:0"), name="same_a")
        return made

    session = gc.Session(graph())
    with pytest.warns(gc.errors.FeedWarning, match="'b' is fed, and nothing fetched depends"):
        assert session.run("same_a", {"b": 1, "a": 2}) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.run("same_a", {"b": 5, "a": 3}) == 3  # one warning for each set of feeds
        assert gc.Session(graph(), unused_feeds="ignore").run("same_a", {"b": 5, "a": 4}) == 4
    strict = gc.Session(graph(), unused_feeds="error")
    with pytest.raises(gc.errors.FeedError, match="'b' is fed, and nothing fetched depends"):
        strict.run("same_a", {"a": 1, "b": 2})
    assert strict.run("same_a", {"a": 1}) == 1
    with pytest.warns(gc.errors.FeedWarning):
        got = session.run_steps("same_a", {"a": np.arange(3.0), "b": np.arange(3.0)}, 3)
    assert got.tolist() == [0, 1, 2]
    with pytest.raises(gc.errors.AttributeValueError, match="unused_feeds must be"):
        gc.Session(graph(), unused_feeds="never")
