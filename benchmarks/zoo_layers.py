"""Shared parts of the models of the zoo: initial values, layers, and the training step of a loss.

All of it is usual code in plain JAX and optax. Nothing is adapted to graphc.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

from benchmarks import steps

Tree = Any
# The gradient of a bias without effect (before a softmax) consists of rounding errors. A smaller
# epsilon would turn them into full steps.
ADAM = optax.adam(1e-3, eps=1e-4)
DIMS = ("NHWC", "HWIO", "NHWC")


class Model(NamedTuple):
    """A step, its arguments, and the arguments that it donates. Its first two results are the
    arguments of the next one."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    donate_argnums: tuple[int, ...]


class Init:
    """Random initial values and batches."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def normal(self, *shape: int, scale: float = 1.0) -> jax.Array:
        return jnp.asarray(self._rng.standard_normal(shape, np.float32) * np.float32(scale))

    def below(self, limit: int, *shape: int) -> jax.Array:
        return jnp.asarray(self._rng.integers(0, limit, shape, np.int32))

    def dense(self, n_in: int, n_out: int) -> Tree:
        return {"w": self.normal(n_in, n_out, scale=n_in**-0.5), "b": jnp.zeros(n_out)}

    def mlp(self, *widths: int) -> list[Tree]:
        return [self.dense(a, b) for a, b in pairwise(widths)]

    def conv(self, size: int, n_in: int, n_out: int) -> jax.Array:
        return self.normal(size, size, n_in, n_out, scale=(size * size * n_in) ** -0.5)

    def norm(self, width: int) -> Tree:
        return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}

    def block(self, width: int) -> Tree:
        """The parameters of one block of a transformer."""
        return {
            "norm1": self.norm(width),
            "qkv": self.dense(width, 3 * width),
            "out": self.dense(width, width),
            "norm2": self.norm(width),
            "up": self.dense(width, 4 * width),
            "down": self.dense(4 * width, width),
        }


def training(loss: Callable[..., jax.Array], params: Tree, *batch: Any, tx: Any = None) -> Model:
    """The step `(params, state, *batch) -> (params, state, loss)`, which donates the first two."""
    optimizer = ADAM if tx is None else tx
    step = steps.training(loss, optimizer)
    return Model(step, (params, optimizer.init(params), *batch), (0, 1))


def dense(p: Tree, x: jax.Array) -> jax.Array:
    return x @ p["w"] + p["b"]


def mlp(layers: list[Tree], x: jax.Array, act: Callable[..., jax.Array] = jax.nn.relu) -> jax.Array:
    for layer in layers[:-1]:
        x = act(dense(layer, x))
    return dense(layers[-1], x)


def conv(w: jax.Array, x: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=DIMS, feature_group_count=groups
    )


def batch_norm(p: Tree, x: jax.Array) -> jax.Array:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]


def layer_norm(p: Tree, x: jax.Array) -> jax.Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]


def attention(p: Tree, x: jax.Array, heads: int, causal: bool) -> jax.Array:
    batch, time, width = x.shape
    q, k, v = jnp.split(dense(p["qkv"], x), 3, axis=-1)
    q, k, v = (t.reshape(batch, time, heads, width // heads) for t in (q, k, v))
    logits = jnp.einsum("bthd,bshd->bhts", q, k) / (width // heads) ** 0.5
    if causal:
        logits = jnp.where(jnp.tril(jnp.ones((time, time), bool)), logits, -1e9)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(logits), v)
    return dense(p["out"], mixed.reshape(batch, time, width))


def transformer_block(p: Tree, x: jax.Array, heads: int, causal: bool) -> jax.Array:
    x = x + attention(p, layer_norm(p["norm1"], x), heads, causal)
    return x + dense(p["down"], jax.nn.gelu(dense(p["up"], layer_norm(p["norm2"], x))))


def lstm_cell(p: Tree, carry: Any, x: jax.Array) -> Any:
    h, c = carry
    i, f, g, o = jnp.split(dense(p, jnp.concatenate([x, h], -1)), 4, axis=-1)
    c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
