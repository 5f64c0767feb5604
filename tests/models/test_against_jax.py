"""Whole models compared with hand-written JAX and optax, on one device and on four.

All in float64 for ten steps: rounding cannot hide a wrong gradient, layout or optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from jax import lax
from jax import numpy as jnp

import graphc as gc
from tests.compiling import optimised
from tests.near import assert_near

STEPS, ROWS, F64 = 10, 8, "float64"


class Model(NamedTuple):
    """A training step built with graphc, and its loss as users write it in JAX."""

    graph: gc.Graph
    train: gc.Node
    loss: gc.Tensor
    feeds: dict[str, np.ndarray]
    reference: Callable[[dict[str, jax.Array], dict[str, Any]], jax.Array]
    tx: optax.GradientTransformation


def dense(params, name, x):
    return x @ params[f"{name}/kernel"] + params[f"{name}/bias"]


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


# -- a residual network with batch norm, weight decay in the loss, momentum and a schedule --------


def residual_block(h, filters, strides, name):
    def conv(kernel, strides, part, x):
        return gc.nn.Conv2D(
            filters, kernel, strides, use_bias=False, name=part, dtype=F64, padding="same"
        )(x)

    with gc.name_scope(name):
        y = conv(3, strides, "conv1", h)
        y = gc.nn.relu(gc.nn.BatchNorm(name="norm1", dtype=F64)(y, training=True))
        y = gc.nn.BatchNorm(name="norm2", dtype=F64)(conv(3, 1, "conv2", y), training=True)
        if strides != 1:
            h = conv(1, strides, "shortcut", h)
        return gc.nn.relu(y + h)


def residual_network() -> Model:
    rng = np.random.default_rng(0)
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None, 6, 6, 4), F64, name="x")
        y = gc.placeholder((None,), "int32", name="y")
        h = residual_block(residual_block(x, 4, 1, "block1"), 6, 2, "block2")
        logits = gc.nn.Dense(5, name="out", dtype=F64)(gc.reduce_mean(h, axis=(1, 2)))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        kernels = [v for v in gc.trainable_variables() if v.name.endswith("kernel")]
        loss = gc.reduce_mean(losses) + 1e-2 * sum(gc.nn.l2_loss(v) for v in kernels)
        schedule = optax.cosine_decay_schedule(0.1, STEPS)
        tx = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(schedule, momentum=0.9))
        train = gc.minimize(loss, tx, name="train")

    def norm(params, name, x):
        x = (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
        return x * params[f"{name}/scale"] + params[f"{name}/offset"]

    def conv(params, name, x, strides=1):
        dims = ("NHWC", "HWIO", "NHWC")
        kernel = params[f"{name}/kernel"]
        return lax.conv_general_dilated(x, kernel, (strides,) * 2, "SAME", dimension_numbers=dims)

    def block(params, name, x, strides):
        y = conv(params, f"{name}/conv1", x, strides)
        y = jax.nn.relu(norm(params, f"{name}/norm1", y))
        y = norm(params, f"{name}/norm2", conv(params, f"{name}/conv2", y))
        if strides != 1:
            x = conv(params, f"{name}/shortcut", x, strides)
        return jax.nn.relu(y + x)

    def reference(params, feeds):
        h = block(params, "block2", block(params, "block1", feeds["x"], 1), 2)
        losses = cross_entropy(dense(params, "out", h.mean((1, 2))), feeds["y"])
        squares = sum(jnp.sum(v**2) for name, v in params.items() if name.endswith("kernel"))
        return losses.mean() + 1e-2 * 0.5 * squares

    feeds = {"x": rng.normal(size=(ROWS, 6, 6, 4)), "y": rng.integers(0, 5, ROWS)}
    return Model(graph, train, loss, feeds, reference, tx)


# -- a transformer: causal mask, tied embedding, loss over the unmasked, adamw with warm-up -------

WORDS, WIDTH, HEADS, LENGTH = 11, 8, 2, 5


def attention(x):
    def heads(t):
        t = gc.reshape(t, (t.shape[0], LENGTH, HEADS, WIDTH // HEADS))
        return gc.transpose(t, (0, 2, 1, 3))

    causal = np.tril(np.ones((LENGTH, LENGTH), bool))
    projected = gc.nn.Dense(3 * WIDTH, name="qkv", dtype=F64)(x)
    q, k, v = map(heads, gc.split(projected, 3, axis=-1))
    scores = gc.matmul(q, gc.swapaxes(k, -1, -2)) / (WIDTH // HEADS) ** 0.5
    mixed = gc.matmul(gc.softmax(gc.where(causal, scores, -1e9)), v)
    mixed = gc.reshape(gc.transpose(mixed, (0, 2, 1, 3)), (x.shape[0], LENGTH, WIDTH))
    return gc.nn.Dense(WIDTH, name="mix", dtype=F64)(mixed)


def transformer() -> Model:
    rng = np.random.default_rng(1)
    graph = gc.Graph(seed=2)
    with graph:
        words = gc.placeholder((None, LENGTH), "int32", name="words")
        following = gc.placeholder((None, LENGTH), "int32", name="following")
        mask = gc.placeholder((None, LENGTH), F64, name="mask")
        embedding = gc.nn.Embedding(WORDS, WIDTH, name="words_table", dtype=F64)
        normal = gc.nn.initializers.Normal(stddev=0.1)
        places = gc.variable(normal, shape=(LENGTH, WIDTH), dtype=F64, name="places")
        h = embedding(words) + places
        h = h + attention(gc.nn.LayerNorm(name="norm1", dtype=F64)(h))
        y = gc.nn.LayerNorm(name="norm2", dtype=F64)(h)
        y = gc.nn.Dense(16, activation=gc.nn.gelu, name="wide", dtype=F64)(y)
        h = h + gc.nn.Dense(WIDTH, name="narrow", dtype=F64)(y)
        logits = gc.matmul(h, gc.transpose(embedding.variables[0]))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=following)
        loss = gc.reduce_sum(losses * mask) / gc.reduce_sum(mask)
        schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 3, 20)
        tx = optax.adamw(schedule, eps=1e-6, weight_decay=0.01)
        train = gc.minimize(loss, tx, name="train")

    def norm(params, name, x):
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * params[f"{name}/scale"] + params[f"{name}/offset"]

    def attend(params, x):
        def heads(t):
            return t.reshape(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

        q, k, v = map(heads, jnp.split(dense(params, "qkv", x), 3, axis=-1))
        scores = q @ k.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
        mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3)
        return dense(params, "mix", mixed.reshape(-1, LENGTH, WIDTH))

    def reference(params, feeds):
        table = params["words_table/table"]
        h = table[feeds["words"]] + params["places"]
        h = h + attend(params, norm(params, "norm1", h))
        y = jax.nn.gelu(dense(params, "wide", norm(params, "norm2", h)))
        logits = (h + dense(params, "narrow", y)) @ table.T
        losses = cross_entropy(logits, feeds["following"])
        return jnp.sum(losses * feeds["mask"]) / jnp.sum(feeds["mask"])

    shape = (ROWS, LENGTH)
    feeds = {
        "words": rng.integers(0, WORDS, shape),
        "following": rng.integers(0, WORDS, shape),
        "mask": (rng.random(shape) < 0.7).astype(F64),
    }
    return Model(graph, train, loss, feeds, reference, tx)


# -- a recurrent network over feeds with time first, and a summed loss ----------------------------


def recurrent_network() -> Model:
    rng = np.random.default_rng(2)
    graph = gc.Graph(seed=3)
    with graph:
        words = gc.placeholder((LENGTH, None), "int32", name="words", batch_axis=1)
        following = gc.placeholder((LENGTH, None), "int32", name="following", batch_axis=1)
        cell = gc.nn.Dense(6, activation=gc.tanh, name="cell", dtype=F64)

        def step(state, x):
            state = cell(gc.concatenate([state, x], axis=-1))
            return state, state

        start = gc.zeros((words.shape[1], 6), F64)
        inputs = gc.nn.Embedding(WORDS, 4, name="words_table", dtype=F64)(words)
        _, states = gc.scan(step, start, inputs)
        logits = gc.nn.Dense(WORDS, name="out", dtype=F64)(states)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=following)
        loss = gc.reduce_sum(losses)
        tx = optax.rmsprop(1e-2, momentum=0.5)
        train = gc.minimize(loss, tx, name="train")

    def reference(params, feeds):
        def step(state, x):
            state = jnp.tanh(dense(params, "cell", jnp.concatenate([state, x], axis=-1)))
            return state, state

        inputs = params["words_table/table"][feeds["words"]]
        _, states = lax.scan(step, jnp.zeros((ROWS, 6)), inputs)
        return cross_entropy(dense(params, "out", states), feeds["following"]).sum()

    shape = (LENGTH, ROWS)
    feeds = {name: rng.integers(0, WORDS, shape) for name in ("words", "following")}
    return Model(graph, train, loss, feeds, reference, tx)


# -- a critic with a gradient penalty: derivatives of derivatives ---------------------------------


def critic() -> Model:
    rng = np.random.default_rng(3)
    graph = gc.Graph(seed=4)
    with graph:
        real = gc.placeholder((None, 4), F64, name="real")
        fake = gc.placeholder((None, 4), F64, name="fake")
        score = gc.nn.Sequential(
            [
                gc.nn.Dense(8, gc.tanh, name="hidden", dtype=F64),
                gc.nn.Dense(1, name="out", dtype=F64),
            ]
        )
        (slopes,) = gc.gradients(gc.reduce_sum(score(real)), [real])
        lengths = gc.sqrt(gc.reduce_sum(gc.square(slopes), axis=1))
        penalty = gc.reduce_mean(gc.square(lengths - 1.0))
        hardest = gc.reduce_max(score(fake))
        loss = gc.reduce_mean(score(fake)) - gc.reduce_mean(score(real)) + penalty + 0.1 * hardest
        tx = optax.adam(1e-2, b1=0.5)
        train = gc.minimize(loss, tx, name="train")

    def reference(params, feeds):
        def score(x):
            return dense(params, "sequential/out", jnp.tanh(dense(params, "sequential/hidden", x)))

        slopes = jax.grad(lambda x: score(x).sum())(feeds["real"])
        penalty = jnp.mean((jnp.sqrt(jnp.sum(slopes**2, axis=1)) - 1.0) ** 2)
        worth = score(feeds["fake"])
        return worth.mean() - score(feeds["real"]).mean() + penalty + 0.1 * worth.max()

    feeds = {name: rng.normal(size=(ROWS, 4)) for name in ("real", "fake")}
    return Model(graph, train, loss, feeds, reference, tx)


# -- the comparison -------------------------------------------------------------------------------


def trained_by_jax(model: Model, params: dict[str, np.ndarray]) -> tuple[list[float], Any]:
    """The losses of `STEPS` steps of plain JAX and optax from `params`, and the last params."""

    @jax.jit
    def step(params, state):
        loss, gradients = jax.value_and_grad(model.reference)(params, model.feeds)
        updates, state = model.tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    losses = []
    with jax.enable_x64(True):
        state = jax.jit(model.tx.init)(params)
        for _ in range(STEPS):
            params, state, loss = step(params, state)
            losses.append(float(loss))
    return losses, jax.tree.map(np.asarray, params)


@pytest.mark.slow
@pytest.mark.parametrize("make", [residual_network, transformer, recurrent_network, critic])
@optimised()
def test_a_model_trains_as_in_jax_on_one_device_and_on_four(make):
    model = make()
    trainable = [name for name, v in model.graph.variables.items() if v.trainable]
    first = gc.Session(model.graph)
    losses, params = trained_by_jax(model, {name: np.array(first.get(name)) for name in trainable})
    assert losses[-1] < losses[0]
    for session in first, gc.Session(model.graph, strategy=gc.devices.DataParallel(4)):
        run = [session.run([model.train, model.loss], model.feeds)[1] for _ in range(STEPS)]
        assert_near(np.asarray(run), losses, rtol=1e-10)
        for name in trainable:
            assert_near(session.get(name), params[name], rtol=1e-8, atol=1e-9, err_msg=name)
        assert session.executables[0].notes == []  # no value was gathered


@pytest.mark.slow
@optimised()
def test_two_optimizers_of_one_graph_update_their_own_variables():
    """A generator and its discriminator, alternately and in one run."""
    rng = np.random.default_rng(4)
    graph = gc.Graph(seed=5)
    with graph:
        noise = gc.placeholder((None, 3), F64, name="noise")
        real = gc.placeholder((None, 4), F64, name="real")
        generator = gc.nn.Dense(4, name="generator", dtype=F64)
        judge = gc.nn.Dense(1, name="judge", dtype=F64)
        fake = generator(noise)
        caught = gc.reduce_mean(gc.softplus(judge(fake))) + gc.reduce_mean(
            gc.softplus(-judge(real))
        )
        fooled = gc.reduce_mean(gc.softplus(-judge(fake)))
        sgd = optax.sgd(0.1)
        judging = gc.minimize(caught, sgd, variables=judge.variables, name="judging")
        making = gc.minimize(fooled, sgd, variables=generator.variables, name="making")
    feeds = {"noise": rng.normal(size=(ROWS, 3)), "real": rng.normal(size=(ROWS, 4))}

    def losses(params):
        fake = dense(params, "generator", feeds["noise"])
        worth = dense(params, "judge", fake)
        genuine = dense(params, "judge", feeds["real"])
        caught = jax.nn.softplus(worth).mean() + jax.nn.softplus(-genuine).mean()
        return caught, jax.nn.softplus(-worth).mean()

    def stepped(params, which, slopes_at):
        slopes = jax.grad(lambda p: losses(p)[which])(slopes_at)
        part = ("judge", "generator")[which]
        return {k: v - 0.1 * slopes[k] if k.startswith(part) else v for k, v in params.items()}

    start = {name: gc.Session(graph).get(name) for name in graph.variables}
    for together in (False, True):
        with jax.enable_x64(True):
            params = {name: jnp.asarray(value) for name, value in start.items()}
            for _ in range(3):
                halfway = stepped(params, 0, params)
                params = stepped(halfway, 1, params if together else halfway)
        for strategy in (None, gc.devices.DataParallel(4)):
            session = gc.Session(graph, strategy=strategy)
            for _ in range(3):
                if together:
                    session.run([judging, making], feeds)
                else:
                    session.run(judging, feeds)
                    session.run(making, {"noise": feeds["noise"]})
            for name, value in params.items():
                assert_near(session.get(name), value, rtol=1e-12, err_msg=name)
