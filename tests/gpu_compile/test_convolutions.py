"""Convolutions and batch norms on GPUs, compared with hand-written JAX: no transposes of
activations, narrow operands, as few kernels, one exchange of moments."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import jax
import optax
import pytest
from jax import lax
from jax import numpy as jnp

import graphc as gc
from graphc.runtime.hlo.hlo_cost import HloCost
from tests.gpu_compile.by_hand import LABELS, by_hand, shape

RATE = 0.1
PRECISIONS = pytest.mark.parametrize("precision", [None, "bf16", "f16"])
DTYPES = {None: jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}


def compiled(
    graph: gc.Graph, fetches: Any, feeds: Any, precision: str | None, count: int = 1
) -> tuple[str, HloCost]:
    step = gc.compile(
        graph,
        fetches,
        feeds,
        machine=gc.devices.Machine("h100", count),
        strategy=gc.devices.DataParallel(count) if count > 1 else None,
        options=gc.CompileOptions(precision=precision, cache=None),
    )
    return step.hlo(), step.hlo_cost()


def library_dtypes(text: str) -> Counter[str]:
    """The dtypes of the results of cuDNN and cuBLAS calls."""
    calls = re.findall(r"= \(?(\w+)\[[^=]*custom-call\(.*\"__cu(?:dnn|blas)", text)
    return Counter(calls)


def sgd(loss_of: Any) -> Any:
    def step(params: Any, *feeds: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, *feeds)
        return jax.tree.map(lambda p, g: p - RATE * g, params, gradients), loss

    return step


def mean_square(y: Any) -> Any:
    return jnp.mean(jnp.square(y.astype(jnp.float32)))


PLAIN: dict[str, Any] = {
    "strides": 1,
    "padding": "SAME",
    "dilation": 1,
    "groups": 1,
    "size": 3,
    "channels": 32,
}
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"strides": 2},
    "valid": {"padding": "VALID"},
    "dilated": {"dilation": 2},
    "grouped": {"groups": 4},
    "depthwise": {"groups": 32},
    "5x5": {"size": 5},
    "odd channels": {"channels": 3},
}


def behind_a_pointwise_one(
    layer: Any, sizes: tuple[int, ...], precision: str | None
) -> tuple[str, HloCost]:
    """The training step of a layer that follows a pointwise convolution: the gradient of its input
    is needed."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(sizes, name="x")
        h = layer(gc.nn.Conv2D(sizes[-1], 1, use_bias=False, name="first")(x))
        loss = gc.reduce_mean(gc.square(gc.cast(h, "float32")))
        train = gc.minimize(loss, optax.sgd(RATE), name="train")
    return compiled(graph, [train, loss], {x: x.shape}, precision)


@pytest.mark.parametrize(
    ("name", "precision"),
    [*((name, p) for name in CONVOLUTIONS for p in (None, "bf16")), ("plain", "f16")],
)
def test_a_convolution_and_its_gradients(name: str, precision: str | None) -> None:
    given = PLAIN | CONVOLUTIONS[name]
    size, channels, dtype = given.pop("size"), given.pop("channels"), DTYPES[precision]
    n, side, outputs = 16, 28, 64
    text, ours = behind_a_pointwise_one(
        gc.nn.Conv2D(outputs, size, use_bias=False, name="second", **given),
        (n, side, side, channels),
        precision,
    )

    def loss_of(params: Any, x: Any) -> Any:
        first, second = (p.astype(dtype) for p in params)
        h = lax.conv_general_dilated(
            x.astype(dtype), first, (1, 1), "SAME", dimension_numbers=LABELS
        )
        h = lax.conv_general_dilated(
            h,
            second,
            (given["strides"],) * 2,
            given["padding"],
            rhs_dilation=(given["dilation"],) * 2,
            feature_group_count=given["groups"],
            dimension_numbers=LABELS,
        )
        return mean_square(h)

    kernels = [
        shape(1, 1, channels, channels),
        shape(size, size, channels // given["groups"], outputs),
    ]
    hand, theirs = by_hand(sgd(loss_of), kernels, [shape(n, side, side, channels)])
    check(ours, theirs, precision)
    assert library_dtypes(text) == library_dtypes(hand)
    assert set(library_dtypes(text)) == {{None: "f32", "bf16": "bf16", "f16": "f16"}[precision]}


def check(ours: HloCost, theirs: HloCost, precision: str | None) -> None:
    """Checks copies, bytes and kernels against hand-written JAX; a loss scale adds a few."""
    scaled = precision == "f16"
    kernels = 64 * 64 * 25 * 4  # in bytes; activations are larger
    assert ours.transposes <= theirs.transposes + kernels
    assert ours.bytes_accessed <= 1.01 * theirs.bytes_accessed + 4 * kernels * (1 + scaled)
    assert ours.kernels <= theirs.kernels + (30 if scaled else 2)
    assert ours.host_transfers == 0


@PRECISIONS
def test_a_transposed_convolution(precision: str | None) -> None:
    """JAX computes its gradients as convolutions with dilated inputs, and copies activations."""
    n, side, channels, dtype = 16, 28, 32, DTYPES[precision]
    text, ours = behind_a_pointwise_one(
        gc.nn.Conv2DTranspose(64, 3, strides=2, use_bias=False, name="second", padding="same"),
        (n, side, side, channels),
        precision,
    )

    def loss_of(params: Any, x: Any) -> Any:
        first, second = (p.astype(dtype) for p in params)
        h = lax.conv_general_dilated(
            x.astype(dtype), first, (1, 1), "SAME", dimension_numbers=LABELS
        )
        return mean_square(lax.conv_transpose(h, second, (2, 2), "SAME", dimension_numbers=LABELS))

    kernels = [shape(1, 1, channels, channels), shape(3, 3, channels, 64)]
    _, theirs = by_hand(sgd(loss_of), kernels, [shape(n, side, side, channels)])
    check(ours, theirs, precision)
    assert ours.transposes < 0.1 * theirs.transposes
    assert ours.custom_calls["__cudnn$convBackwardInput"] == 1  # the forward pass
    assert set(library_dtypes(text)) == {{None: "f32", "bf16": "bf16", "f16": "f16"}[precision]}


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_products_and_their_gradients_stay_narrow(precision: str) -> None:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((256, 512), name="x")
        h = gc.nn.Dense(512, activation=gc.nn.relu, name="first")(x)
        h = gc.nn.Dense(512, name="second")(h)
        loss = gc.reduce_mean(gc.square(h))
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    text, ours = compiled(graph, [train, loss], {x: x.shape}, precision)
    assert library_dtypes(text) == {precision: 5}
    assert ours.matrix_flops == {precision: 5 * 2 * 256 * 512 * 512}


# -- blocks with batch norms ---------------------------------------------------------------------


def norm(x: Any, scale: Any, offset: Any, average: Any) -> tuple[Any, Any]:
    """Hand-written batch norm in float32; also returns its new moving averages."""
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    variance = jnp.square(wide - mean).mean((0, 1, 2))
    y = (wide - mean) * lax.rsqrt(variance + 1e-5) * scale + offset
    new = [0.9 * old + 0.1 * now for old, now in zip(average, (mean, variance), strict=True)]
    return y.astype(x.dtype), new


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize("count", [1, 8])
def test_a_block_of_a_resnet(precision: str | None, count: int) -> None:
    """Three times convolution, batch norm and relu, and the sum with the input, in training."""
    n, side, channels, dtype = 32, 14, 128, DTYPES[precision]
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, side, side, channels), name="x")
        h = first = gc.nn.Conv2D(channels, 1, use_bias=False, name="first")(x)
        for i in range(3):
            h = gc.nn.Conv2D(
                channels, 3 if i == 1 else 1, use_bias=False, name=f"conv{i}", padding="same"
            )(h)
            h = gc.nn.BatchNorm(name=f"norm{i}")(h, training=True)
            h = gc.nn.relu(h + first if i == 2 else h)
        loss = gc.reduce_mean(gc.square(gc.cast(h, "float32")))
        train = gc.minimize(loss, optax.sgd(RATE), name="train")
    feeds = {x: (n * count, side, side, channels)}
    _, ours = compiled(graph, [train, loss], feeds, precision, count)

    def loss_of(params: Any, averages: Any, x: Any) -> Any:
        def conv(h: Any, kernel: Any) -> Any:
            kernel = kernel.astype(dtype)
            return lax.conv_general_dilated(h, kernel, (1, 1), "SAME", dimension_numbers=LABELS)

        new = []
        h = first = conv(x.astype(dtype), params["first"])
        for i, average in enumerate(averages):
            h, found = norm(conv(h, params["conv"][i]), *params["norm"][i], average)
            new.append(found)
            h = jax.nn.relu(h + first if i == 2 else h)
        return mean_square(h), new

    def step(state: Any, x: Any) -> Any:
        params, averages = state
        (loss, new), gradients = jax.value_and_grad(loss_of, has_aux=True)(params, averages, x)
        return (jax.tree.map(lambda p, g: p - RATE * g, params, gradients), new), loss

    params = {
        "first": shape(1, 1, channels, channels),
        "conv": [shape(*([3 if i == 1 else 1] * 2), channels, channels) for i in range(3)],
        "norm": [[shape(channels)] * 2] * 3,
    }
    averages = [[shape(channels)] * 2] * 3
    _, theirs = by_hand(step, (params, averages), [shape(n * count, side, side, channels)], count)
    assert ours.kernels <= theirs.kernels
    assert ours.bytes_accessed <= theirs.bytes_accessed
    assert ours.transposes <= theirs.transposes
    if count > 1:
        # Forward both moments, backward both sums, and the gradients with the loss by dtype.
        found = {name: kind.runs for name, kind in ours.collectives.items()}
        assert found == {"all-gather": 3, "all-reduce": 4}
        assert ours.collectives["all-gather"].bytes == 3 * 2 * 4 * channels
        assert sum(found.values()) < sum(kind.runs for kind in theirs.collectives.values())
    else:
        assert ours.collectives == {}


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_a_block_of_a_unet(precision: str | None) -> None:
    """Down with a stride, up with a transposed convolution, joined with the earlier value."""
    n, side, channels, dtype = 8, 32, 32, DTYPES[precision]
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((n, side, side, channels), name="x")
        a = gc.nn.relu(gc.nn.Conv2D(channels, 3, use_bias=False, name="a", padding="same")(x))
        b = gc.nn.relu(gc.nn.Conv2D(64, 3, strides=2, use_bias=False, name="b", padding="same")(a))
        c = gc.nn.Conv2DTranspose(channels, 2, strides=2, use_bias=False, name="c", padding="same")(
            b
        )
        h = gc.concatenate([a, gc.nn.relu(c)], axis=3)
        h = gc.nn.Conv2D(channels, 3, use_bias=False, name="d", padding="same")(h)
        loss = gc.reduce_mean(gc.square(gc.cast(h, "float32")))
        train = gc.minimize(loss, optax.sgd(RATE), name="train")
    text, ours = compiled(graph, [train, loss], {x: x.shape}, precision)

    def loss_of(params: Any, x: Any) -> Any:
        def conv(h: Any, name: str, stride: int = 1) -> Any:
            kernel = params[name].astype(dtype)
            strides = (stride, stride)
            return lax.conv_general_dilated(h, kernel, strides, "SAME", dimension_numbers=LABELS)

        a = jax.nn.relu(conv(x.astype(dtype), "a"))
        b = jax.nn.relu(conv(a, "b", 2))
        kernel = params["c"].astype(dtype)
        c = lax.conv_transpose(b, kernel, (2, 2), "SAME", dimension_numbers=LABELS)
        return mean_square(conv(jnp.concatenate([a, jax.nn.relu(c)], 3), "d"))

    params = {
        "a": shape(3, 3, channels, channels),
        "b": shape(3, 3, channels, 64),
        "c": shape(2, 2, 64, channels),
        "d": shape(3, 3, 2 * channels, channels),
    }
    _, theirs = by_hand(sgd(loss_of), params, [shape(n, side, side, channels)])
    check(ours, theirs, precision)
    assert set(library_dtypes(text)) == {{None: "f32", "bf16": "bf16"}[precision]}
