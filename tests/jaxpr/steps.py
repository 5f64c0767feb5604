"""Whole training steps as users write them in JAX and optax: `step(state, batch, key)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

F64 = np.float64
KEY = np.array([5, 17], np.uint32)


class Step(NamedTuple):
    """`fn(*args)` returns the new state and the losses."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def train_step(loss: Callable[..., Any], tx: optax.GradientTransformation) -> Callable[..., Any]:
    def step(params: Any, opt_state: Any, *batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, *batch)
        updates, opt_state = tx.update(slopes, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return step


def step(name: str, loss: Any, params: Any, tx: Any, *batch: Any) -> Step:
    with jax.enable_x64(True):
        opt_state = jax.tree.map(np.asarray, tx.init(params))
    return Step(name, train_step(loss, tx), (params, opt_state, *batch))


# -- a convolutional network: pooling, batch norm in the loss, dropout, weight decay --------------


def conv(x: Any, w: Any, strides: int = 1, groups: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, w, (strides, strides), "SAME", feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip


def cnn_loss(params: Any, x: Any, y: Any, key: Any) -> Any:
    h = conv(x, params["first"])
    h = (h - h.mean((0, 1, 2))) * lax.rsqrt(h.var((0, 1, 2)) + 1e-5) * params["scale"]
    h = jax.nn.relu(conv(h, params["depthwise"], strides=2, groups=4))
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")
    h = lax.reduce_window(h, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    h = h.reshape(h.shape[0], -1)
    kept = jax.random.bernoulli(key, 0.8, h.shape)
    logits = jnp.where(kept, h / 0.8, 0) @ params["out"]
    one_hot = jax.nn.one_hot(y, 3, dtype=logits.dtype)
    return -jnp.mean(jnp.sum(one_hot * jax.nn.log_softmax(logits), axis=-1))


CNN = step(
    "cnn",
    cnn_loss,
    {
        "first": normal(0, 3, 3, 2, 4),
        "scale": np.ones(4),
        "depthwise": normal(1, 3, 3, 1, 4),
        "out": normal(2, 16, 3),
    },
    optax.chain(optax.add_decayed_weights(1e-3), optax.sgd(0.1, momentum=0.9, nesterov=True)),
    normal(3, 2, 8, 8, 2),
    np.array([0, 2], np.int32),
    KEY,
)

# -- an LSTM over a sequence ----------------------------------------------------------------------


def lstm_loss(params: Any, tokens: Any) -> Any:
    embedded = params["table"][tokens[:, :-1]]

    def cell(carry: Any, x: Any) -> Any:
        h, c = carry
        gates = jnp.concatenate([x, h], -1) @ params["kernel"] + params["bias"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((tokens.shape[0], 4), embedded.dtype)
    _, hs = lax.scan(cell, (zeros, zeros), embedded.swapaxes(0, 1))
    logits = jnp.einsum("tbh,vh->btv", hs, params["table"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


LSTM = step(
    "lstm",
    lstm_loss,
    {"table": normal(0, 7, 4), "kernel": normal(1, 8, 16), "bias": np.zeros(16)},
    optax.chain(optax.clip_by_global_norm(0.5), optax.rmsprop(1e-2)),
    np.random.default_rng(2).integers(0, 7, (3, 6)).astype(np.int32),
)

# -- a transformer: scan over rematerialized blocks, dropout, a schedule, masked decay ------------


def attention(x: Any, w: Any) -> Any:
    q, k, v = jnp.einsum("btd,dnhe->nbhte", x, w["qkv"])
    scores = jnp.einsum("bhqe,bhke->bhqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhke,hed->bqd", jax.nn.softmax(scores), v, w["out"])


def transformer_loss(params: Any, tokens: Any, key: Any) -> Any:
    x = jnp.take(params["table"], tokens, axis=0)

    @jax.checkpoint
    def block(carry: Any, w: Any) -> Any:
        x, key = carry
        key, own = jax.random.split(key)
        x = x + attention(jax.nn.standardize(x), w)
        h = jax.nn.gelu(jax.nn.standardize(x) @ w["up"], approximate=False)
        h = jnp.where(jax.random.bernoulli(own, 0.9, h.shape), h / 0.9, 0.0)
        return (x + h @ w["down"], key), jnp.square(h).mean()

    (x, _), sizes = lax.scan(block, (x, key), params["blocks"])
    logits = x @ params["table"].T
    labels = jnp.roll(tokens, -1, axis=1)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)
    return -picked.mean() + 1e-3 * sizes.sum()


TRANSFORMER = step(
    "transformer",
    transformer_loss,
    {
        "table": normal(0, 7, 4),
        "blocks": {
            "qkv": normal(1, 2, 4, 3, 2, 2),
            "out": normal(2, 2, 2, 2, 4),
            "up": normal(3, 2, 4, 8),
            "down": normal(4, 2, 8, 4),
        },
    },
    optax.adamw(
        optax.warmup_cosine_decay_schedule(0.0, 1e-2, 3, 10),
        mask=lambda params: jax.tree.map(lambda p: p.ndim > 2, params),
    ),
    np.random.default_rng(5).integers(0, 7, (2, 5)).astype(np.int32),
    KEY,
)

# -- a variational autoencoder --------------------------------------------------------------------


def vae_loss(params: Any, x: Any, key: Any) -> Any:
    mean, spread = jnp.split(jnp.tanh(x @ params["encode"]) @ params["latent"], 2, axis=-1)
    z = mean + jnp.exp(0.5 * spread) * jax.random.normal(key, mean.shape, mean.dtype)
    logits = jax.nn.softplus(z @ params["decode"]) @ params["out"]
    target = (x > 0).astype(x.dtype)
    likelihood = optax.sigmoid_binary_cross_entropy(logits, target).sum(-1)
    divergence = -0.5 * jnp.sum(1 + spread - mean**2 - jnp.exp(spread), axis=-1)
    return jnp.mean(likelihood + divergence)


VAE = step(
    "vae",
    vae_loss,
    {
        "encode": normal(0, 5, 4),
        "latent": normal(1, 4, 4),
        "decode": normal(2, 2, 4),
        "out": normal(3, 4, 5),
    },
    optax.adam(1e-2),
    normal(4, 3, 5),
    KEY,
)

# -- a mixture of experts, routed to the best two --------------------------------------------------


def experts_loss(params: Any, x: Any, y: Any) -> Any:
    weights, chosen = lax.top_k(x @ params["router"], 2)
    every = jnp.einsum("bd,edf->bef", x, params["experts"])
    picked = jnp.take_along_axis(every, chosen[..., None], axis=1)
    out = jnp.sum(jax.nn.softmax(weights)[..., None] * jax.nn.silu(picked), axis=1)
    load = jnp.zeros(3, out.dtype).at[chosen.reshape(-1)].add(1.0)
    return optax.huber_loss(out, y).mean() + 1e-2 * jnp.var(load) * jnp.std(jnp.sort(weights, 0))


EXPERTS = step(
    "experts",
    experts_loss,
    {"router": normal(0, 4, 3), "experts": normal(1, 3, 4, 4)},
    optax.lamb(1e-2),
    normal(2, 5, 4),
    normal(3, 5, 4),
)

# -- gradients per example, clipped, with noise ----------------------------------------------------


def private_step(params: Any, x: Any, y: Any, key: Any) -> Any:
    def loss(params: Any, x: Any, y: Any) -> Any:
        return jnp.square(jnp.tanh(x @ params["a"]) @ params["b"] - y)

    losses, slopes = jax.vmap(jax.value_and_grad(loss), (None, 0, 0))(params, x, y)
    norms = jax.vmap(optax.tree.norm)(slopes)
    scale = jnp.minimum(1.0, 0.5 / norms)
    keys = jax.random.split(key, len(params))

    def update(p: Any, g: Any, k: Any) -> Any:
        total = jnp.tensordot(scale, g, 1) + 0.1 * jax.random.normal(k, p.shape, p.dtype)
        return p - 0.1 * total / len(x)

    new = {n: update(params[n], slopes[n], k) for n, k in zip(sorted(params), keys, strict=True)}
    return new, losses.mean()


PRIVATE = Step(
    "private", private_step, ({"a": normal(0, 4, 3), "b": normal(1, 3)}, normal(2, 6, 4),
                              normal(3, 6), KEY),
)  # fmt: skip

# -- gradients summed over small batches, in half precision ----------------------------------------


def accumulated_step(params: Any, opt_state: Any, x: Any, y: Any) -> Any:
    tx = optax.adam(1e-2)

    def loss(params: Any, x: Any, y: Any) -> Any:
        half = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        hidden = jax.nn.relu(x.astype(jnp.float32) @ half["a"])
        return jnp.mean(jnp.square((hidden @ half["b"]).astype(y.dtype) - y))

    def add(carry: Any, batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(jnp.add, carry, (value, slopes)), None

    start = (jnp.zeros((), y.dtype), jax.tree.map(jnp.zeros_like, params))
    pieces = (x.reshape(3, -1, x.shape[-1]), y.reshape(3, -1, y.shape[-1]))
    (value, slopes), _ = lax.scan(add, start, pieces)
    slopes = jax.tree.map(lambda g: g / 3, slopes)
    updates, opt_state = tx.update(slopes, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, value / 3


_PARAMS = {"a": normal(0, 4, 3), "b": normal(1, 3, 2)}
ACCUMULATED = Step(
    "accumulated",
    accumulated_step,
    (
        _PARAMS,
        jax.tree.map(lambda z: np.asarray(z).astype(F64) if np.ndim(z) else np.asarray(z),
                     optax.adam(1e-2).init(_PARAMS)),
        normal(2, 6, 4),
        normal(3, 6, 2),
    ),
)  # fmt: skip

# -- a step through another step: second derivatives -----------------------------------------------


def meta_step(params: Any, x: Any, y: Any) -> Any:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.square(jnp.tanh(x @ w["a"]) @ w["b"] - y))

    def after_one(w: Any) -> Any:
        inner = jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, x[0], y[0]))
        return loss(inner, x[1], y[1])

    value, slopes = jax.value_and_grad(after_one)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes), value


META = Step("meta", meta_step, ({"a": normal(0, 4, 3), "b": normal(1, 3)}, normal(2, 2, 5, 4),
                                normal(3, 2, 5)))  # fmt: skip

# -- a custom derivative, averaged weights ---------------------------------------------------------


@jax.custom_vjp
def reversed_slope(x: Any) -> Any:
    return x


reversed_slope.defvjp(lambda x: (x, None), lambda _, dy: (-0.3 * dy,))


def adversarial_step(params: Any, average: Any, x: Any, y: Any, z: Any) -> Any:
    def loss(params: Any) -> Any:
        features = jax.nn.elu(x @ params["shared"])
        task = optax.sigmoid_binary_cross_entropy((features @ params["task"])[:, 0], y).mean()
        domain = reversed_slope(features) @ params["domain"]
        return task + optax.softmax_cross_entropy_with_integer_labels(domain, z).mean()

    value, slopes = jax.value_and_grad(loss)(params)
    slopes = jax.tree.map(lambda g: jnp.clip(g, -0.1, 0.1), slopes)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes)
    average = optax.incremental_update(params, average, 0.01)
    return params, average, value


_PARAMS = {"shared": normal(0, 4, 3), "task": normal(1, 3, 1), "domain": normal(2, 3, 2)}
ADVERSARIAL = Step(
    "adversarial",
    adversarial_step,
    (_PARAMS, _PARAMS, normal(3, 6, 4), (normal(4, 6) > 0).astype(F64),
     np.array([0, 1, 1, 0, 1, 0], np.int32)),
)  # fmt: skip

STEPS = (
    CNN, LSTM, TRANSFORMER, VAE, EXPERTS, PRIVATE, ACCUMULATED, META, ADVERSARIAL,
)  # fmt: skip
