"""The zoo: whole training steps, as usual code in plain JAX and optax.

Each model is a function of `tiny` (whether it is for a test). It returns a `Model`: the step, its
arguments, and the arguments that it donates. The models compile in seconds, and a step takes 0.2 to
100 ms.
"""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax import numpy as jnp

from benchmarks.zoo_images import IMAGES
from benchmarks.zoo_layers import Init, Model, cross_entropy, dense, mlp, training
from benchmarks.zoo_sequences import SEQUENCES


def mlp_classifier(tiny: bool) -> Model:
    """Two hidden layers."""
    init, (width, batch) = Init(), (8, 4) if tiny else (512, 128)

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return cross_entropy(mlp(p, x), y)

    batches = init.normal(batch, 784), init.below(10, batch)
    return training(loss, init.mlp(784, width, width, 10), *batches)


def vae(tiny: bool) -> Model:
    """A variational autoencoder of 784 pixels."""
    init, (width, batch) = Init(), (8, 4) if tiny else (256, 64)
    params = {"encoder": init.mlp(784, width, 32), "decoder": init.mlp(16, width, 784)}

    def loss(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        mean, log_variance = jnp.split(mlp(p["encoder"], x), 2, -1)
        z = mean + jnp.exp(log_variance / 2) * jax.random.normal(key, mean.shape)
        image = optax.sigmoid_binary_cross_entropy(mlp(p["decoder"], z), x).sum(-1)
        divergence = 0.5 * (jnp.exp(log_variance) + mean**2 - 1 - log_variance).sum(-1)
        return (image + divergence).mean()

    return training(loss, params, jax.nn.sigmoid(init.normal(batch, 784)), jax.random.key(0))


def gnn(tiny: bool) -> Model:
    """Three rounds of messages over the edges of a graph."""
    init, (nodes, edges, width) = Init(), (6, 10, 4) if tiny else (1000, 5000, 32)
    params = {
        "rounds": [init.mlp(2 * width, width) + init.mlp(2 * width, width) for _ in range(3)],
        "head": init.dense(width, 5),
    }

    def loss(p: Any, x: jax.Array, senders: jax.Array, receivers: jax.Array, y: Any) -> jax.Array:
        for message, update in p["rounds"]:
            pairs = jnp.concatenate([x[senders], x[receivers]], -1)
            sums = jax.ops.segment_sum(jax.nn.relu(dense(message, pairs)), receivers, nodes)
            x = jax.nn.relu(dense(update, jnp.concatenate([x, sums], -1)))
        return cross_entropy(dense(p["head"], x), y)

    ends = init.below(nodes, edges), init.below(nodes, edges)
    return training(loss, params, init.normal(nodes, width), *ends, init.below(5, nodes))


def dlrm(tiny: bool) -> Model:
    """Recommendation: 8 tables of embeddings, their pairwise products, and two MLPs."""
    init, (rows, batch) = Init(), (20, 4) if tiny else (200_000, 128)
    params = {
        "tables": [init.normal(rows, 16, scale=0.01) for _ in range(8)],
        "bottom": init.mlp(13, 64, 16),
        "top": init.mlp(16 + 36, 64, 1),
    }

    def loss(p: Any, x: jax.Array, ids: jax.Array, y: jax.Array) -> jax.Array:
        x = mlp(p["bottom"], x)
        looked_up = [table[ids[:, i]] for i, table in enumerate(p["tables"])]
        vectors = jnp.stack([x, *looked_up], 1)
        products = jnp.einsum("bid,bjd->bij", vectors, vectors)
        i, j = jnp.triu_indices(9, 1)
        logits = mlp(p["top"], jnp.concatenate([x, products[:, i, j]], -1))[:, 0]
        return optax.sigmoid_binary_cross_entropy(logits, y).mean()

    y = init.below(2, batch).astype(jnp.float32)
    batches = init.normal(batch, 13), init.below(rows, batch, 8), y
    return training(loss, params, *batches, tx=optax.adagrad(0.01))


def factorisation(tiny: bool) -> Model:
    """Matrix factorization with biases, on a batch of ratings."""
    init, (count, batch) = Init(), (20, 4) if tiny else (20_000, 1024)
    params = {
        side: {"vectors": init.normal(count, 32, scale=0.1), "bias": jnp.zeros(count)}
        for side in ("users", "items")
    }

    def loss(p: Any, users: jax.Array, items: jax.Array, rating: jax.Array) -> jax.Array:
        u, v = p["users"], p["items"]
        guess = (u["vectors"][users] * v["vectors"][items]).sum(-1)
        return ((guess + u["bias"][users] + v["bias"][items] - rating) ** 2).mean()

    batches = init.below(count, batch), init.below(count, batch), init.normal(batch)
    return training(loss, params, *batches, tx=optax.sgd(0.1))


def gan(tiny: bool) -> Model:
    """One step of the discriminator and one of the generator."""
    init, (width, batch) = Init(), (8, 4) if tiny else (256, 64)
    params = {"make": init.mlp(32, width, width, 784), "judge": init.mlp(784, width, width, 1)}
    tx = optax.adam(2e-4, b1=0.5)

    def step(params: Any, state: Any, real: jax.Array, key: jax.Array) -> Any:
        z = jax.random.normal(key, (batch, 32))

        def judged(judge: Any, make: Any) -> jax.Array:
            false, true = mlp(judge, jnp.tanh(mlp(make, z))), mlp(judge, real)
            return (jax.nn.softplus(false) + jax.nn.softplus(-true)).mean()

        def made(make: Any, judge: Any) -> jax.Array:
            return jax.nn.softplus(-mlp(judge, jnp.tanh(mlp(make, z)))).mean()

        bad, judge_slopes = jax.value_and_grad(judged)(params["judge"], params["make"])
        found, make_slopes = jax.value_and_grad(made)(params["make"], params["judge"])
        slopes = {"make": make_slopes, "judge": judge_slopes}
        updates, state = tx.update(slopes, state, params)
        return optax.apply_updates(params, updates), state, (bad, found)

    args = params, tx.init(params), init.normal(batch, 784), jax.random.key(0)
    return Model(step, args, (0, 1))


def flow(tiny: bool) -> Model:
    """A normalizing flow of 8 affine couplings."""
    init, (width, layers, batch) = Init(), (4, 2, 4) if tiny else (32, 8, 128)
    params = [init.mlp(width // 2, 64, width) for _ in range(layers)]

    def loss(p: Any, x: jax.Array) -> jax.Array:
        log_det = jnp.zeros(x.shape[0])
        for layer in p:
            a, b = jnp.split(x, 2, -1)
            scale, shift = jnp.split(mlp(layer, a, jnp.tanh), 2, -1)
            scale = jnp.tanh(scale)
            x = jnp.concatenate([b * jnp.exp(scale) + shift, a], -1)
            log_det += scale.sum(-1)
        return (0.5 * (x**2).sum(-1) - log_det).mean()

    return training(loss, params, init.normal(batch, width))


def maml(tiny: bool) -> Model:
    """MAML: the gradient through two inner steps, for a batch of tasks."""
    init, (width, tasks) = Init(), (4, 2) if tiny else (40, 16)

    def inner(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return ((mlp(p, x) - y) ** 2).mean()

    def of_task(p: Any, xs: jax.Array, ys: jax.Array) -> jax.Array:
        adapted = p
        for _ in range(2):
            slopes = jax.grad(inner)(adapted, xs[0], ys[0])
            adapted = jax.tree.map(lambda w, g: w - 0.01 * g, adapted, slopes)
        return inner(adapted, xs[1], ys[1])

    def loss(p: Any, xs: jax.Array, ys: jax.Array) -> jax.Array:
        return jax.vmap(of_task, (None, 0, 0))(p, xs, ys).mean()

    shape = tasks, 2, 10, 1
    return training(loss, init.mlp(1, width, width, 1), init.normal(*shape), init.normal(*shape))


MODELS = {
    "MLP": mlp_classifier,
    "VAE": vae,
    "GNN": gnn,
    "DLRM": dlrm,
    "matrix factorisation": factorisation,
    "GAN": gan,
    "normalising flow": flow,
    "MAML": maml,
    **SEQUENCES,
    **IMAGES,
}
