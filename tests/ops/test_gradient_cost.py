"""Compiled gradients need no more arithmetic and memory traffic than hand-written JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import lax
from jax import numpy as jnp

from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.ir.graph import Graph
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import FUNCTIONS as F
from tests.laws.harness import functional
from tests.near import assert_near


def convolution(x, w, b):
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.nn.relu(y + b)


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def batch_norm(x, scale, offset):
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + offset


def layer_norm(x, scale, offset):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + offset


def attention(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def with_labels(x, w, labels):
    return optax.softmax_cross_entropy_with_integer_labels(x @ w, labels).mean()


CASES = {
    "attention": (
        lambda q, k, v: F.reduce_mean(F.square(F.attention(q, k, v, causal=True))),
        lambda q, k, v: jnp.mean(jnp.square(attention(q, k, v))),
        [(2, 128, 2, 32), (2, 128, 2, 32), (2, 128, 2, 32)],
    ),
    "convolution": (
        lambda x, w, b: F.reduce_mean(
            F.square(F.max_pool(F.relu(F.conv2d(x, w, padding="same") + b), 2))
        ),
        lambda x, w, b: jnp.mean(jnp.square(max_pool(convolution(x, w, b)))),
        [(8, 8, 8, 4), (3, 3, 4, 8), (8,)],
    ),
    "sparse cross-entropy": (
        lambda x, w, labels: F.reduce_mean(F.sparse_softmax_cross_entropy(x @ w, labels)),
        with_labels,
        [(64, 16), (16, 10), (64,)],
    ),
    "batch norm": (
        lambda x, s, o: F.reduce_mean(F.square(F.tanh(F.batch_norm_training(x, s, o)[0]))),
        lambda x, s, o: jnp.mean(jnp.square(jnp.tanh(batch_norm(x, s, o)))),
        [(16, 9, 8), (8,), (8,)],
    ),
    "layer norm": (
        lambda x, s, o: F.reduce_mean(F.square(F.tanh(F.layer_norm(x, s, o)))),
        lambda x, s, o: jnp.mean(jnp.square(jnp.tanh(layer_norm(x, s, o)))),
        [(32, 64), (64,), (64,)],
    ),
}

# XLA counts a comparison and a selection for each logit, which replace a scatter.
COMPARISONS = {"sparse cross-entropy": 2 * 64 * 10}


def values(shapes: Sequence[tuple[int, ...]], name: str) -> list[Any]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if name == "sparse cross-entropy":
        arrays[-1] = rng.integers(0, 10, shapes[-1]).astype(np.int32)
    return arrays


def ours(build: Callable[..., Any], arrays: Sequence[Any], wrt: Sequence[int]) -> Any:
    graph = Graph()
    with graph:
        xs = [placeholder(a.shape, a.dtype) for a in arrays]
        loss = build(*xs)
        found = gradients(loss, [xs[i] for i in wrt])
    program = functional(graph, [loss, *found], xs)
    return jax.jit(to_function(program)).lower(*arrays).compile()


@pytest.mark.parametrize("name", CASES)
def test_no_more_than_by_hand(name: str) -> None:
    build, by_hand, shapes = CASES[name]
    arrays = values(shapes, name)
    wrt = [i for i, a in enumerate(arrays) if a.dtype == np.float32]
    compiled = ours(build, arrays, wrt)
    wanted = jax.jit(jax.value_and_grad(by_hand, argnums=tuple(wrt))).lower(*arrays).compile()
    loss, adjoints = wanted(*arrays)
    for a, b in zip(compiled(*arrays), [loss, *adjoints], strict=True):
        assert_near(a, b, rtol=1e-4, atol=1e-5)
    cost, limit = compiled.cost_analysis(), wanted.cost_analysis()
    assert cost["bytes accessed"] <= limit["bytes accessed"]
    assert cost["flops"] <= limit["flops"] + COMPARISONS.get(name, 0)
