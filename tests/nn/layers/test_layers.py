"""Layers: their variables, sharing, scopes, and errors that name the user's line."""

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.build import (
    control_dependencies,
    device,
    initial_value,
    name_scope,
    placeholder,
    trainable_variables,
    variable,
)
from graphc.errors import AttributeValueError, DTypeError, GraphcError, GraphError, ShapeError
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.nn.layers import initializers
from tests.near import assert_near
from tests.nn.evaluate import evaluate

IMAGES = (None, 8, 8, 4)


def described(layer: nn.Layer) -> dict[str, str]:
    return {v.name: str(v.type) + ("" if v.trainable else " fixed") for v in layer.variables}


@pytest.mark.parametrize(
    ("layer", "shape", "result", "variables"),
    [
        (
            nn.Dense(5, name="hidden"), (None, 3), "f32[x_0, 5]",
            {"hidden/kernel": "f32[3, 5]", "hidden/bias": "f32[5]"},
        ),
        (nn.Dense(5, use_bias=False), (2, 7, 3), "f32[2, 7, 5]", {"dense/kernel": "f32[3, 5]"}),
        (nn.Dense(5, use_bias=False), (3,), "f32[5]", {"dense/kernel": "f32[3, 5]"}),
        (
            nn.Dense(5, activation="relu", dtype="float64"), (None, 3), "f64[x_0, 5]",
            {"dense/kernel": "f64[3, 5]", "dense/bias": "f64[5]"},
        ),
        (
            nn.Conv2D(6, 3, padding="same"), IMAGES, "f32[x_0, 8, 8, 6]",
            {"conv2d/kernel": "f32[3, 3, 4, 6]", "conv2d/bias": "f32[6]"},
        ),
        (
            nn.Conv2D(6, (3, 1), strides=2, padding="valid", groups=2, use_bias=False), IMAGES,
            "f32[x_0, 3, 4, 6]", {"conv2d/kernel": "f32[3, 1, 2, 6]"},
        ),
        (
            nn.Conv2D(4, 3, dilation=2, padding=((0, 0), (1, 1)), activation=nn.tanh,
                      use_bias=False),
            IMAGES, "f32[x_0, 4, 6, 4]", {"conv2d/kernel": "f32[3, 3, 4, 4]"},
        ),
        (
            nn.LayerNorm(), (None, 3), "f32[x_0, 3]",
            {"layer_norm/scale": "f32[3]", "layer_norm/offset": "f32[3]"},
        ),
        (nn.Flatten(), IMAGES, "f32[x_0, 256]", {}),
        (nn.Flatten(), (5,), "f32[5, 1]", {}),
        (nn.MaxPool2D(), IMAGES, "f32[x_0, 4, 4, 4]", {}),
        (nn.MaxPool2D(3, strides=1, padding="same"), IMAGES, "f32[x_0, 8, 8, 4]", {}),
        (nn.AveragePool2D((2, 4)), IMAGES, "f32[x_0, 4, 2, 4]", {}),
    ],
    ids=lambda value: value.name if isinstance(value, nn.Layer) else None,
)  # fmt: skip
def test_shapes_and_variables(layer, shape, result: str, variables: dict[str, str]) -> None:
    assert layer.variables == [] and not layer.built
    with Graph() as graph:
        y = layer(placeholder(shape, name="x"))
    assert str(y.type) == result
    assert described(layer) == variables
    assert layer.built
    assert list(graph.variables.values()) == layer.variables == layer.trainable_variables


def test_embedding() -> None:
    layer = nn.Embedding(10, 4, name="words")
    with Graph():
        y = layer(placeholder((None, 6), "int32", name="x"))
    assert str(y.type) == "f32[x_0, 6, 4]"
    assert described(layer) == {"words/table": "f32[10, 4]"}


def test_batch_norm_variables_and_updates() -> None:
    layer = nn.BatchNorm(name="bn")
    with Graph() as graph:
        x = placeholder(IMAGES, name="x")
        served = layer(x, training=False)
        assert graph.collection("updates") == []
        y = layer(x, training=True)
        assert trainable_variables() == layer.trainable_variables
    assert str(y.type) == str(served.type) == "f32[x_0, 8, 8, 4]"
    assert described(layer) == {
        "bn/scale": "f32[4]",
        "bn/offset": "f32[4]",
        "bn/mean": "f32[4] fixed",
        "bn/variance": "f32[4] fixed",
    }
    updates = graph.collection("updates")
    assert [t.node.op.name for t in updates] == ["Assign", "Assign"]
    assert [t.node.attrs["variable"] for t in updates] == ["bn/mean", "bn/variance"]
    assert [v.name for v in layer.trainable_variables] == ["bn/scale", "bn/offset"]


def test_calling_twice_shares_the_variables() -> None:
    layer = nn.Dense(3, name="shared")
    with Graph() as graph:
        a = layer(placeholder((None, 4), name="a"))
        before = layer.variables
        with name_scope("elsewhere"):
            b = layer(placeholder((7, 4), name="b"))
    assert layer.variables == before
    assert set(graph.variables) == {"shared/kernel", "shared/bias"}
    assert a is not b
    assert a.name.startswith("shared/") and b.name.startswith("shared/")


def test_names_scopes_and_devices() -> None:
    with Graph() as graph:
        x = placeholder((2, 4))
        first, second = nn.Dense(4), nn.Dense(4)
        assert (first.name, repr(first)) == ("dense", "<Dense 'dense', not called yet>")
        second(x)
        first(x)  # the layer that is called first gets the first name
        with name_scope("encoder"), device("/gpu:0"):
            third = nn.Dense(4)
            third(x)
            fourth = nn.Dense(4, name="out")
            fourth(x)
            fifth = nn.Dense(4, name="out")
            fifth(x)
    names = [layer.name for layer in (second, first, third, fourth, fifth)]
    assert names == ["dense", "dense_1", "encoder/dense", "encoder/out", "encoder/out_1"]
    assert str(fifth) == "Dense 'encoder/out_1'"
    assert graph.variable("encoder/out_1/kernel").device == "/device:GPU:0"
    assert str(graph.variable("dense/kernel").source).startswith("test_layers.py:")
    assert all(str(node.source).startswith("test_layers.py:") for node in graph.nodes)


def test_outside_with_the_operands_graph_is_built_on() -> None:
    with Graph() as graph:
        x = placeholder((2, 4))
    layer = nn.Dense(3)
    assert layer(x).graph is graph
    assert layer.variables[0].graph is graph


def test_control_dependencies_reach_into_a_layer() -> None:
    with Graph():
        x = placeholder((2, 4))
        assigned = variable(0.0).assign(1.0)
        with control_dependencies([assigned]):
            y = nn.Dense(3)(x)
    assert y.node.control_inputs == (assigned.node.name,)


def test_dropout_is_the_identity_outside_training() -> None:
    with Graph() as graph:
        x = placeholder((2, 4))
        assert nn.Dropout(0.5)(x, training=False) is x
        assert nn.Dropout(0.0)(x, training=True) is x
        assert len(graph) == 1
        dropped = nn.Dropout(0.5)(x, training=True)
    assert dropped.node.op.name == "Dropout"
    assert dropped.type == x.type


def test_sequential_nests_names_and_passes_training_on() -> None:
    shared = nn.Dense(4, name="shared")
    model = nn.Sequential(
        [
            nn.Conv2D(6, 3, name="conv", padding="same"),
            nn.BatchNorm(),
            nn.relu,
            nn.Flatten(),
            shared_head := nn.Sequential([nn.Dense(4), nn.Dropout(0.1), shared, shared]),
        ],
        name="model",
    )
    with Graph() as graph:
        x = placeholder(IMAGES, name="x")
        y = model(x, training=True)
        nodes = len(graph)
        model(x, training=False)
    assert str(y.type) == "f32[x_0, 4]"
    assert [v.name for v in model.variables] == [
        *("model/conv/kernel", "model/conv/bias"),
        *(f"model/batch_norm/{name}" for name in ("scale", "offset", "mean", "variance")),
        *("model/sequential/dense/kernel", "model/sequential/dense/bias"),
        *("model/sequential/shared/kernel", "model/sequential/shared/bias"),
    ]
    assert model.variables == list(graph.variables.values())
    assert shared_head.variables == model.variables[-4:]
    assert [v.name for v in model.trainable_variables if "norm" in v.name] == [
        "model/batch_norm/scale",
        "model/batch_norm/offset",
    ]
    assert len(graph.collection("updates")) == 2
    ops = [node.op.name for node in graph.nodes[:nodes]]
    served = [node.op.name for node in graph.nodes[nodes:]]
    assert "Dropout" in ops and "Dropout" not in served


def test_a_users_layer() -> None:
    class Scale(nn.Layer):
        def __init__(self, inner: nn.Layer) -> None:
            super().__init__()
            self.parts = {"inner": [inner]}

        def __call__(self, x: Tensor) -> Tensor:
            with self.scope(x):
                return self.parts["inner"][0](x) * self.variable("factor", 2.0, ())

    layer = Scale(nn.Dense(3))
    with Graph():
        layer(placeholder((2, 4)))
    assert [v.name for v in layer.variables] == [
        "scale/factor", "scale/dense/kernel", "scale/dense/bias",
    ]  # fmt: skip


def test_first_called_in_a_body_the_variables_are_the_whole_graphs() -> None:
    cell, norm = nn.Dense(3, name="cell"), nn.BatchNorm()

    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        following = cell(norm(carry, training=True))
        return following, following

    with Graph() as graph:
        last, steps = gc.scan(step, gc.zeros((2, 3)), gc.zeros((4,)))
    assert (str(last.type), str(steps.type)) == ("f32[2, 3]", "f32[4, 2, 3]")
    assert [v.name for v in (*norm.variables, *cell.variables)] == list(graph.variables)
    assert all(v.graph is graph for v in graph.variables.values())
    assert graph.collection("updates") == []  # the body assigns whenever it runs


def test_initializers_are_used_and_know_the_groups() -> None:
    layer = nn.Conv2D(
        8, 3, groups=4, kernel_initializer=initializers.HeNormal(),
        bias_initializer=initializers.Constant(0.5), padding="same",
    )  # fmt: skip
    with Graph():
        layer(placeholder(IMAGES))
    kernel, bias = layer.variables
    assert kernel.initial == initializers.HeNormal(groups=4)
    assert initial_value(bias, 0).tolist() == [0.5] * 8


# -- values -----------------------------------------------------------------------------------


def test_dense_conv_and_embedding_values() -> None:
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(5, 3))
    images = rng.normal(size=(2, 4, 4, 2))
    with Graph() as graph:
        x, z = placeholder((None, 3), "float64"), placeholder((None, 4, 4, 2), "float64")
        n = placeholder((None,), "int32")
        dense = nn.Dense(2, activation=nn.tanh, bias_initializer=initializers.Ones(),
                         dtype="float64")  # fmt: skip
        conv = nn.Conv2D(3, 1, bias_initializer=initializers.Ones(), dtype="float64")
        table = nn.Embedding(6, 2)
        fetches = [dense(x), conv(z), table(n)]
    state: dict[str, np.ndarray] = {}
    indices = np.array([5, 0, 5], np.int32)
    y, c, e = evaluate(graph, fetches, {x: xs, z: images, n: indices}, state)
    assert_near(y, np.tanh(xs @ state["dense/kernel"] + 1), rtol=1e-12)
    assert_near(c, images @ state["conv2d/kernel"][0, 0] + 1, rtol=1e-12)
    np.testing.assert_array_equal(e, state["embedding/table"][indices])


def test_batch_norm_values_and_moving_averages() -> None:
    rng = np.random.default_rng(1)
    xs = rng.normal(3.0, 2.0, size=(6, 5, 4))
    layer = nn.BatchNorm(momentum=0.75, epsilon=0.1, dtype="float64")
    with Graph() as graph:
        x = placeholder((None, 5, 4), "float64")
        y = layer(x, training=True)
    state: dict[str, np.ndarray] = {}
    (trained,) = evaluate(graph, [y], {x: xs}, state)
    mean, variance = xs.mean((0, 1)), xs.var((0, 1))
    assert_near(trained, (xs - mean) / np.sqrt(variance + 0.1), rtol=1e-9)
    assert_near(state["batch_norm/mean"], 0.25 * mean, rtol=1e-12)
    assert_near(state["batch_norm/variance"], 0.75 + 0.25 * variance, rtol=1e-12)
    state["batch_norm/scale"], state["batch_norm/offset"] = np.full(4, 2.0), np.full(4, 1.0)
    with Graph() as graph:
        x = placeholder((None, 5, 4), "float64")
        y = nn.BatchNorm(epsilon=0.1, dtype="float64")(x, training=False)
    (served,) = evaluate(graph, [y], {x: xs}, state)
    scale = 2 / np.sqrt(state["batch_norm/variance"] + 0.1)
    assert_near(served, (xs - state["batch_norm/mean"]) * scale + 1, rtol=1e-9)


def test_layer_norm_values() -> None:
    xs = np.random.default_rng(2).normal(3.0, 2.0, size=(3, 5, 4))
    with Graph() as graph:
        x = placeholder((None, 5, 4), "float64")
        y = nn.LayerNorm(epsilon=0.1, dtype="float64")(x)
    (got,) = evaluate(graph, [y], {x: xs})
    centred = xs - xs.mean(-1, keepdims=True)
    want = centred / np.sqrt(xs.var(-1, keepdims=True) + 0.1)
    assert_near(got, want, rtol=1e-9)


def test_dropout_values() -> None:
    with Graph() as graph:
        x = placeholder((200, 100))
        y = nn.Dropout(0.25)(x, training=True)
    (got,) = evaluate(graph, [y], {x: np.ones((200, 100), np.float32)})
    assert set(np.unique(got)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((got == 0).mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / got.size)


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.Dense(0), AttributeValueError, r"Dense: units must be .* 1 or more, got 0"),
        (lambda x: nn.Dense(-3), AttributeValueError, r"got -3"),
        (lambda x: nn.Dense(2.0), AttributeValueError, r"got 2.0"),
        (lambda x: nn.Dense(True), AttributeValueError, r"got True"),
        (
            lambda x: nn.Dense(3, activation="rellu"),
            AttributeValueError,
            r"(?s)unknown activation 'rellu'.*did you mean 'relu'",
        ),
        (lambda x: nn.Dense(3, activation=3), AttributeValueError, r"unknown activation 3"),
        (lambda x: nn.Dense(3, name="a b"), AttributeValueError, r"Dense: 'a b' is not a name"),
        (lambda x: nn.Dense(3)(1.0), ShapeError, r"must have a last axis of features"),
        (
            lambda x: nn.Dense(3)(placeholder((2, None))),
            ShapeError,
            r"(?s)Dense 'dense': the number of features .* must be known, got \?",
        ),
        (lambda x: nn.Conv2D(0, 3), AttributeValueError, r"Conv2D: filters must be"),
        (lambda x: nn.Conv2D(4, 0), AttributeValueError, r"Conv2D: kernel_size must be .* got 0"),
        (lambda x: nn.Conv2D(4, (3, 3, 3)), AttributeValueError, r"kernel_size must be"),
        (lambda x: nn.Conv2D(4, 3, strides=0), AttributeValueError, r"strides must be"),
        (lambda x: nn.Conv2D(4, 3, groups=3), AttributeValueError, r"groups must divide filters"),
        (
            lambda x: nn.Conv2D(6, 3, groups=3, name="c")(placeholder(IMAGES)),
            ShapeError,
            r"Conv2D 'c': 3 groups do not divide 4 features",
        ),
        (
            lambda x: nn.Conv2D(4, 3)(x),
            ShapeError,
            r"(?s)Conv2D 'conv2d': the input must be \[batch, height, .* got rank 2.*x:0",
        ),
        (
            lambda x: nn.Conv2D(4, 3, padding="some")(placeholder(IMAGES)),
            AttributeValueError,
            r"'conv2d': padding must be",
        ),
        (lambda x: nn.MaxPool2D()(x), ShapeError, r"MaxPool2D 'max_pool2d': the input must be"),
        (lambda x: nn.MaxPool2D(0), AttributeValueError, r"MaxPool2D: window must be"),
        (lambda x: nn.BatchNorm()(x), AttributeValueError, r"(?s)'batch_norm': training must be"),
        (lambda x: nn.BatchNorm()(x, training=1), AttributeValueError, r"True or False, got 1"),
        (lambda x: nn.BatchNorm(momentum=1.5), AttributeValueError, r"lie in \[0, 1\], got 1.5"),
        (lambda x: nn.BatchNorm(epsilon=0.0), AttributeValueError, r"epsilon must lie in"),
        (
            lambda x: nn.BatchNorm()(placeholder((3,)), training=True),
            ShapeError,
            r"rank 2 or more\), got rank 1",
        ),
        (lambda x: nn.LayerNorm()(2.0), ShapeError, r"rank 1 or more\), got rank 0"),
        (lambda x: nn.Dropout(1.0), AttributeValueError, r"rate must lie in \[0, 1\), got 1.0"),
        (lambda x: nn.Dropout(-0.1), AttributeValueError, r"got -0.1"),
        (lambda x: nn.Dropout(0.5)(x), AttributeValueError, r"training must be .* it is missing"),
        (
            lambda x: nn.Sequential([nn.Dropout(0.5)])(x),
            AttributeValueError,
            r"Dropout 'sequential/dropout': training must be",
        ),
        (lambda x: nn.Sequential([nn.relu, 3]), AttributeValueError, r"layer 1 is 3, which is"),
        (lambda x: nn.Sequential([nn.Flatten]), AttributeValueError, r"(?s)make one: Flatten\("),
        (lambda x: nn.Embedding(0, 3), AttributeValueError, r"Embedding: count must be"),
        (
            lambda x: nn.Embedding(4, 3)(x),
            DTypeError,
            r"(?s)'embedding': indices must be integers, got float32.*gc.cast",
        ),
        (lambda x: nn.Dense(3, dtype="real"), DTypeError, r"'real' is not a dtype"),
    ],
)
def test_errors_name_the_users_line(call, error: type[GraphcError], match: str) -> None:
    with Graph() as graph:
        x = placeholder((2, 4), name="x")
        with pytest.raises(error, match=match) as info:
            call(x)
    if "dtype" not in match:  # the IR raises this; it does not know the user's line
        assert "test_layers.py:" in str(info.value)
    assert not graph.variables


def test_features_may_not_change() -> None:
    layer = nn.Dense(3, name="head")
    with Graph():
        layer(placeholder((2, 4)))
        with pytest.raises(
            ShapeError,
            match=r"(?s)Dense 'head': its kernel has the shape \(4, 3\) from the first call, and "
            r"would need \(5, 3\) now.*head/kernel.*test_layers.py:\d+.*number of features",
        ):
            layer(placeholder((2, 5)))
        assert len(layer.variables) == 2


def test_another_graph_is_refused_where_there_are_variables() -> None:
    layer, plain = nn.Dense(3), nn.Flatten()
    with Graph(name="first"):
        layer(plain(placeholder((2, 4))))
    with Graph():
        x = plain(placeholder((2, 4)))
        with pytest.raises(
            GraphError, match=r"(?s)Dense 'dense': its variables belong to .*'first'.*a new layer"
        ):
            layer(x)


def test_a_failed_first_call_leaves_the_layer_usable() -> None:
    layer = nn.Conv2D(4, 3, padding="same")
    with Graph(), pytest.raises(ShapeError):
        layer(placeholder((2, 4)))
    with Graph() as graph:
        layer(placeholder(IMAGES))
    assert list(graph.variables) == ["conv2d/kernel", "conv2d/bias"]
