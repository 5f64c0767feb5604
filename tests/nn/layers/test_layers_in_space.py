"""Convolution, pooling and norm layers over one, two and three spatial axes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError, GraphcError, ShapeError
from graphc.nn.layers import initializers
from tests.near import assert_near

F64 = "float64"
SPACE = {1: (9,), 2: (6, 7), 3: (4, 5, 6)}
RNG = np.random.default_rng(0)


def described(layer: nn.Layer) -> dict[str, tuple[int, ...]]:
    return {v.name: v.type.shape for v in layer.variables}


def dimension_numbers(rank: int) -> tuple[str, str, str]:
    letters = "XYZ"[:rank]
    return (f"N{letters}C", f"{letters}IO", f"N{letters}C")


def conv(x: Any, w: Any, strides: Any, padding: str, groups: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, w, strides, padding, dimension_numbers=dimension_numbers(x.ndim - 2),
        feature_group_count=groups,
    )  # fmt: skip


def values_of(layers: list[Any], x: np.ndarray) -> tuple[list[Any], list[dict[str, np.ndarray]]]:
    """The results of the layers for `x`, and their variables, none of which is zero."""
    with gc.Graph() as graph:
        shape = ("batch", *x.shape[1:])
        fetches = [layer(gc.placeholder(shape, F64, name="x")) for layer in layers]
    session = gc.Session(graph)
    rng = np.random.default_rng(1)
    values = {name: rng.normal(size=v.shape) for name, v in session.values().items()}
    session.set_all(values)
    feeds = {node.name: x for node in graph.nodes if node.op.name == "Placeholder"}
    own = [{v.name.rpartition("/")[2]: values[v.name] for v in layer.variables} for layer in layers]
    return session.run(fetches, feeds), own


@pytest.mark.parametrize("rank", SPACE)
def test_convolutions(rank: int) -> None:
    x = RNG.normal(size=(2, *SPACE[rank], 4))
    plain, up = getattr(nn, f"Conv{rank}D"), getattr(nn, f"Conv{rank}DTranspose")
    layers = [
        plain(6, 3, 2, "valid", groups=2, activation=nn.tanh, dtype=F64),
        plain(3, (2, 3, 1)[:rank], padding="same", use_bias=False, dtype=F64),
        up(6, 3, 2, "same", dtype=F64),
        up(6, 3, 2, "valid", groups=2, use_bias=False, dtype=F64),
    ]
    (grouped, same, larger, valid), parameters = values_of(layers, x)
    assert described(layers[0]) == {
        f"conv{rank}d/kernel": (*(3,) * rank, 2, 6),
        f"conv{rank}d/bias": (6,),
    }
    assert described(layers[3]) == {f"conv{rank}d_transpose_1/kernel": (*(3,) * rank, 3, 4)}
    steps = (2,) * rank
    with jax.enable_x64(True):
        p = parameters[0]
        want = jnp.tanh(conv(x, p["kernel"], steps, "VALID", groups=2) + p["bias"])
        assert_near(grouped, want, rtol=1e-9)
        want = conv(x, parameters[1]["kernel"], (1,) * rank, "SAME")
        assert_near(same, want, rtol=1e-9, atol=1e-12)
        p = parameters[2]
        want = lax.conv_transpose(
            x, p["kernel"], steps, "SAME", dimension_numbers=dimension_numbers(rank),
            transpose_kernel=True,
        )  # fmt: skip
        assert_near(larger, want + p["bias"], rtol=1e-9)
        halves = [
            lax.conv_transpose(
                x[..., i : i + 2], parameters[3]["kernel"][..., i : i + 2], steps, "VALID",
                dimension_numbers=dimension_numbers(rank), transpose_kernel=True,
            )
            for i in (0, 2)
        ]  # fmt: skip
        assert_near(valid, jnp.concatenate(halves, -1), rtol=1e-9)


def test_depthwise_and_separable() -> None:
    x = RNG.normal(size=(2, 6, 7, 4))
    depthwise = nn.DepthwiseConv2D(3, multiplier=2, dtype=F64, padding="same")
    separable = nn.SeparableConv2D(5, 3, activation="relu", name="sep", dtype=F64, padding="same")
    (first, second), _ = values_of([depthwise, separable], x)
    assert described(depthwise) == {
        "depthwise_conv2d/kernel": (3, 3, 1, 8),
        "depthwise_conv2d/bias": (8,),
    }
    assert described(separable) == {
        "sep/depthwise/kernel": (3, 3, 1, 4),
        "sep/pointwise/kernel": (4, 5),
        "sep/pointwise/bias": (5,),
    }
    rng = np.random.default_rng(1)
    kernel, bias, deep, wide, shift = (
        rng.normal(size=v.type.shape) for v in (*depthwise.variables, *separable.variables)
    )
    with jax.enable_x64(True):
        want = conv(x, kernel, (1, 1), "SAME", groups=4) + bias
        assert_near(first, want, rtol=1e-9)
        want = jax.nn.relu(conv(x, deep, (1, 1), "SAME", groups=4) @ wide + shift)
        assert_near(second, want, rtol=1e-9, atol=1e-12)
    sequence = nn.DepthwiseConv1D(3, dtype=F64, padding="same")
    (third,), (p,) = values_of([sequence], x[:, 0])
    with jax.enable_x64(True):
        want = conv(x[:, 0], p["kernel"], (1,), "SAME", groups=4) + p["bias"]
    assert_near(third, want, rtol=1e-9)


@pytest.mark.parametrize("rank", SPACE)
def test_pooling(rank: int) -> None:
    x = RNG.normal(size=(2, *SPACE[rank], 3))
    largest, mean = getattr(nn, f"MaxPool{rank}D"), getattr(nn, f"AveragePool{rank}D")
    layers = [largest(), mean(2, strides=1), nn.GlobalMaxPool(), nn.GlobalAveragePool()]
    got, _ = values_of(layers, x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2,) * rank, range(1, rank + 1))
    inside = tuple(range(-rank, 0))
    every_other = (slice(None), *[slice(None, None, 2)] * rank)
    np.testing.assert_array_equal(got[0], windows.max(inside)[every_other])
    assert_near(got[1], windows.mean(inside), rtol=1e-12, atol=1e-15)
    space = tuple(range(1, rank + 1))
    np.testing.assert_array_equal(got[2], x.max(space))
    assert_near(got[3], x.mean(space), rtol=1e-12)


def test_norms() -> None:
    x = RNG.normal(3.0, 2.0, size=(2, 5, 6))
    layers = [nn.GroupNorm(3, 0.1, dtype=F64), nn.InstanceNorm(0.1, dtype=F64)]
    layers += [nn.RMSNorm(0.1, dtype=F64)]
    got, (group, instance, rms) = values_of(layers, x)
    assert described(layers[0]) == {"group_norm/scale": (6,), "group_norm/offset": (6,)}
    assert described(layers[1]) == {"instance_norm/scale": (6,), "instance_norm/offset": (6,)}
    assert described(layers[2]) == {"rms_norm/scale": (6,)}

    def normed(x: Any, axes: Any) -> Any:
        return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 0.1)

    want = normed(x.reshape(2, 5, 3, 2), (1, 3)).reshape(x.shape)
    assert_near(got[0], want * group["scale"] + group["offset"], rtol=1e-9)
    want = normed(x, 1)
    assert_near(got[1], want * instance["scale"] + instance["offset"], rtol=1e-9)
    want = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1)
    assert_near(got[2], want * rms["scale"], rtol=1e-9)


def test_the_kernels_initializer_counts_groups() -> None:
    with gc.Graph():
        x = gc.placeholder((None, 8, 8, 4))
        for layer, groups in [
            (
                nn.Conv2D(
                    8, 3, groups=2, kernel_initializer=initializers.HeNormal(), padding="same"
                ),
                2,
            ),
            (nn.DepthwiseConv2D(3, kernel_initializer=initializers.HeNormal(), padding="same"), 4),
            (
                nn.Conv2DTranspose(
                    4, 3, groups=2, kernel_initializer=initializers.HeNormal(), padding="same"
                ),
                2,
            ),
        ]:
            layer(x)
            assert layer.variables[0].initial == initializers.HeNormal(groups=groups)


def test_sequential_takes_them_all() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 8, 8, 3), name="x")
        model = nn.Sequential(
            [
                nn.SeparableConv2D(4, 3, padding="same"), nn.GroupNorm(2), nn.relu, nn.MaxPool2D(),
                nn.Conv2DTranspose(6, 3, 2, padding="same"), nn.InstanceNorm(), nn.AveragePool2D(),
                nn.DepthwiseConv2D(3, padding="same"), nn.BatchNorm(), nn.Dropout(0.1), nn.Dense(8),
                lambda x: gc.reshape(x, (x.shape[0], 16, 8)),
                nn.SinusoidalEncoding(), nn.TransformerBlock(8, 2, dropout=0.1), nn.RMSNorm(),
                nn.Conv1D(4, 3, padding="same"),
                nn.StackedRNN([nn.Bidirectional(nn.GRU(2)), nn.LSTM(3)], 0.1),
                nn.GlobalAveragePool(), nn.LayerNorm(), nn.Dense(5),
            ],
            name="model",
        )  # fmt: skip
        y = model(x, training=True)
    assert str(y.type) == "f32[x_0, 5]"
    assert set(model.variables) == set(graph.variables.values())
    assert len(graph.collection("updates")) == 2


SUMMARY = """\
layer                     output            parameters
------------------------------------------------------
outer/model (Sequential)  f32[batch, 2]            116
  conv1d (Conv1D)         f32[batch, 8, 4]          24
  batch_norm (BatchNorm)  f32[batch, 8, 4]          16
  shared (Dense)          f32[batch, 8, 4]          20
  shared (Dense)          f32[batch, 8, 4]    as above
  lstm (LSTM)             f32[batch, 2]             56
    cell (LSTMCell)                                 56
------------------------------------------------------
116 parameters, 108 of them trainable"""


def test_summary() -> None:
    shared = nn.Dense(4, name="shared")
    model = nn.Sequential(
        [
            nn.Conv1D(4, 3, use_bias=False, padding="same"), nn.BatchNorm(), nn.relu,
            shared, shared,
            nn.LSTM(2, return_sequences=False),
        ],
        name="model",
    )  # fmt: skip
    with gc.Graph(), gc.name_scope("outer"):
        x = gc.placeholder(("batch", 8, 2))
        with pytest.raises(
            GraphcError, match=r"(?s)Sequential 'model' has not been called.*on a placeholder"
        ):
            model.summary()
        model(x, training=True)
    assert model.summary() == SUMMARY
    assert str(model.output_type) == "f32[batch, 2]"
    assert model.inner_layers[2:4] == [shared, shared]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.Conv1D(4, (3, 3)), AttributeValueError, "Conv1D: kernel_size must be"),
        (lambda x: nn.Conv3D(0, 3), AttributeValueError, "Conv3D: filters must be"),
        (lambda x: nn.Conv1D(4, 3)(x), ShapeError, r"\[batch, width, features\] \(rank 3\), got"),
        (lambda x: nn.Conv3D(4, 3)(x), ShapeError, r"depth, height, width, features\] \(rank 5"),
        (
            lambda x: nn.Conv2DTranspose(4, 3, groups=3), AttributeValueError,
            "Conv2DTranspose: groups must divide filters, got 3 and 4",
        ),
        (
            lambda x: nn.Conv2DTranspose(6, 3, groups=3)(x), ShapeError,
            "3 groups do not divide 4 features",
        ),
        (
            lambda x: nn.Conv2DTranspose(6, 3, padding="some")(x), AttributeValueError,
            "'conv2d_transpose': padding must be",
        ),
        (lambda x: nn.DepthwiseConv2D(3, multiplier=0), AttributeValueError, "multiplier must"),
        (lambda x: nn.DepthwiseConv1D(3)(x), ShapeError, r"'depthwise_conv1d': .* \(rank 3\)"),
        (lambda x: nn.SeparableConv2D(0, 3), AttributeValueError, "filters must be"),
        (lambda x: nn.MaxPool1D()(x), ShapeError, r"'max_pool1d': the input must be \[batch, wi"),
        (lambda x: nn.AveragePool3D((2, 2)), AttributeValueError, "AveragePool3D: window must"),
        (lambda x: nn.GlobalMaxPool()(x[0, 0]), ShapeError, r"rank 3 or more\), got rank 2"),
        (lambda x: nn.GroupNorm(0), AttributeValueError, "GroupNorm: groups must be"),
        (lambda x: nn.GroupNorm(3)(x), ShapeError, "3 groups do not divide 4 features"),
        (lambda x: nn.InstanceNorm()(x[0, 0]), ShapeError, r"rank 3 or more\), got rank 2"),
        (lambda x: nn.RMSNorm(0.0), AttributeValueError, "RMSNorm: epsilon must lie in"),
        (lambda x: nn.RMSNorm()(x[0, 0, 0]), ShapeError, r"rank 2 or more\), got rank 1"),
    ],
)  # fmt: skip
def test_errors_leave_no_variables(call, error: type[GraphcError], match: str) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2, 8, 8, 4), name="x")
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_layers_in_space.py:" in str(info.value)
    assert not graph.variables
