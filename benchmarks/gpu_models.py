"""Models to compile for GPUs, in graphc and in hand-written JAX: ViT-B, DLRM, a stacked LSTM.

In the hand-written programs, parameters are float32 and cast to `DTYPE` where they are used. Norms,
softmax and loss are float32. Layers are unrolled, and the LSTM's time steps run in a `scan`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp

import graphc as gc
from benchmarks.steps import training
from benchmarks.transformer import layer_norm

Params = dict[str, Any]
DTYPE = jnp.bfloat16


class Model(NamedTuple):
    """A training step in both forms.

    Attributes:
        feeds: shape and dtype by name, in the order of the hand-written step's arguments.
        params: shapes and dtypes of the parameters of the hand-written step.
        step: the hand-written step: `(params, state, *feeds)` to `(params, state, loss)`.
        optimizer: the optimizer of both forms.
        ids: integer feeds are below this number.
    """

    graph: gc.Graph
    fetches: list[Any]
    feeds: dict[str, jax.ShapeDtypeStruct]
    params: Params
    step: Callable[..., Any]
    optimizer: optax.GradientTransformation
    ids: int


def initial(model: Model) -> dict[str, np.ndarray]:
    """Random values of the parameters, by the name of the graph's variable. They are the same in
    each call."""
    rng = np.random.default_rng(0)
    paths = jax.tree.leaves_with_path(model.params)
    values = {
        _variable(path): np.float32(0.02) * rng.standard_normal(leaf.shape, np.float32)
        for path, leaf in paths
    }
    return {name: value + 1 if name.endswith("scale") else value for name, value in values.items()}


def nested(model: Model, values: dict[str, np.ndarray]) -> Params:
    """These values in the form of the hand-written parameters."""
    return jax.tree.map_with_path(lambda path, _: values[_variable(path)], model.params)


def _variable(path: tuple[Any, ...]) -> str:
    """The graph's variable for a hand-written parameter: ("blocks", 0, "kernel") is
    "block0/kernel"."""
    name = "/".join(str(getattr(key, "key", getattr(key, "idx", None))) for key in path)
    name = re.sub(r"^(block|table|layer)s/", r"\1", name)
    name = re.sub(r"^(bottom|top)/", r"\1", name)
    name = re.sub(r"^(table\d*)$", r"\1/table", name)
    name = re.sub(r"^(layer\d+)/", r"\1/cell/", name)
    return name.replace("/recurrent", "/recurrent_kernel")


def batch(model: Model) -> dict[str, jax.Array]:
    """Random feeds on the device. Integers are ids of rows, classes or bytes."""
    rng = np.random.default_rng(1)
    return {
        name: jnp.asarray(
            rng.integers(0, model.ids, feed.shape, np.int32)
            if feed.dtype == np.int32
            else rng.random(feed.shape, np.float32)
        )
        for name, feed in model.feeds.items()
    }


def _array(*shape: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _dense(x: jax.Array, p: Params) -> jax.Array:
    return x @ p["kernel"].astype(x.dtype) + p["bias"].astype(x.dtype)


def _dense_params(inputs: int, outputs: int) -> Params:
    return {"kernel": _array(inputs, outputs), "bias": _array(outputs)}


def _classify(logits: jax.Array, labels: jax.Array) -> jax.Array:
    logits = logits.astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


# -- ViT-B/16: Dosovitskiy et al. 2021, with the mean over patches instead of a class token --------


def vit(batch: int, blocks: int = 12, width: int = 768, heads: int = 12, size: int = 224) -> Model:
    """ViT for images float32 [batch, size, size, 3] in 1,000 classes."""
    tokens, tx = (size // 16) ** 2, optax.adam(1e-3)
    graph, fetches = _vit_graph(blocks, width, heads, size, tx)
    feeds = {"x": _array(batch, size, size, 3), "y": _array(batch, dtype=np.int32)}
    params = _vit_params(blocks, width, tokens)
    return Model(graph, fetches, feeds, params, training(_vit_by_hand(heads), tx), tx, 1000)


def _vit_graph(
    blocks: int, width: int, heads: int, size: int, tx: optax.GradientTransformation
) -> tuple[gc.Graph, list[Any]]:
    tokens = (size // 16) ** 2
    graph = gc.Graph(seed=0, name="vit")
    with graph:
        x = gc.placeholder(("batch", size, size, 3), name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        patches = gc.nn.Conv2D(width, 16, strides=16, padding="VALID", name="patches")(x)
        positions = gc.variable(
            gc.nn.initializers.Normal(0.02), shape=(tokens, width), name="positions"
        )
        h = gc.reshape(patches, (x.shape[0], tokens, width)) + positions
        for i in range(blocks):
            with gc.name_scope(f"block{i}"):
                h = _vit_block(h, width, heads)
        h = gc.reduce_mean(gc.nn.LayerNorm(name="norm")(h), axis=1)
        logits = gc.nn.Dense(1000, name="head")(h)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, tx, name="train")
    return graph, [train, loss]


def _vit_params(blocks: int, width: int, tokens: int) -> Params:
    block = {
        "norm1": {"scale": _array(width), "offset": _array(width)},
        "norm2": {"scale": _array(width), "offset": _array(width)},
        "qkv": _dense_params(width, 3 * width),
        "out": _dense_params(width, width),
        "up": _dense_params(width, 4 * width),
        "down": _dense_params(4 * width, width),
    }
    return {
        "patches": {"kernel": _array(16, 16, 3, width), "bias": _array(width)},
        "positions": _array(tokens, width),
        "blocks": [block] * blocks,
        "norm": block["norm1"],
        "head": _dense_params(width, 1000),
    }


def _vit_by_hand(heads: int) -> Callable[..., jax.Array]:
    """The loss in JAX as a function of parameters, images and labels."""

    def by_hand(h: jax.Array, p: Params) -> jax.Array:
        qkv = _dense(layer_norm(h, **p["norm1"]), p["qkv"])
        parts = [t.reshape(*t.shape[:2], heads, -1) for t in jnp.split(qkv, 3, axis=-1)]
        mixed = jax.nn.dot_product_attention(*parts, implementation="cudnn")
        h = h + _dense(mixed.reshape(h.shape), p["out"])
        hidden = jax.nn.gelu(_dense(layer_norm(h, **p["norm2"]), p["up"]))
        return h + _dense(hidden, p["down"])

    def loss_of(p: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        h = jax.lax.conv_general_dilated(
            x.astype(DTYPE),
            p["patches"]["kernel"].astype(DTYPE),
            (16, 16),
            "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        h = h + p["patches"]["bias"].astype(DTYPE)
        h = h.reshape(len(x), *p["positions"].shape) + p["positions"].astype(DTYPE)
        for block in p["blocks"]:
            h = by_hand(h, block)
        return _classify(_dense(layer_norm(h, **p["norm"]).mean(1), p["head"]), y)

    return loss_of


def _vit_block(h: gc.Tensor, width: int, heads: int) -> gc.Tensor:
    """A block whose attention is written out."""
    split = (h.shape[0], h.shape[1], heads, width // heads)
    qkv = gc.nn.Dense(3 * width, name="qkv")(gc.nn.LayerNorm(name="norm1")(h))
    q, k, v = (gc.transpose(gc.reshape(t, split), (0, 2, 1, 3)) for t in gc.split(qkv, 3, axis=-1))
    weights = gc.nn.softmax(gc.matmul(q, k, transpose_b=True) / math.sqrt(width // heads))
    mixed = gc.reshape(gc.transpose(gc.matmul(weights, v), (0, 2, 1, 3)), h.shape)
    h = h + gc.nn.Dense(width, name="out")(mixed)
    hidden = gc.nn.gelu(gc.nn.Dense(4 * width, name="up")(gc.nn.LayerNorm(name="norm2")(h)))
    return h + gc.nn.Dense(width, name="down")(hidden)


# -- DLRM: Naumov et al. 2019 ----------------------------------------------------------------------


def dlrm(batch: int, tables: int = 8, rows: int = 1_000_000, width: int = 64) -> Model:
    """An example is 13 numbers and one row of each table. The optimizer is adagrad."""
    tx = optax.adagrad(0.01)
    bottom, top = (512, 256, width), (512, 256, 1)
    graph, fetches = _dlrm_graph(tables, rows, bottom, top, tx)

    def sizes(first: int, units: tuple[int, ...]) -> list[Params]:
        pairs = zip((first, *units), units, strict=False)
        return [_dense_params(inputs, outputs) for inputs, outputs in pairs]

    params = {
        "bottom": sizes(13, bottom),
        "tables": [_array(rows, width)] * tables,
        "top": sizes(width + (tables + 1) ** 2, top),
    }
    feeds = {
        "x": _array(batch, 13),
        "ids": _array(batch, tables, dtype=np.int32),
        "y": _array(batch),
    }
    return Model(graph, fetches, feeds, params, training(_dlrm_by_hand, tx), tx, rows)


def _dlrm_graph(
    tables: int,
    rows: int,
    bottom: tuple[int, ...],
    top: tuple[int, ...],
    tx: optax.GradientTransformation,
) -> tuple[gc.Graph, list[Any]]:
    width = bottom[-1]
    graph = gc.Graph(seed=0, name="dlrm")
    with graph:
        x = gc.placeholder(("batch", 13), name="x")
        ids = gc.placeholder(("batch", tables), "int32", name="ids")
        y = gc.placeholder(("batch",), name="y")
        dense = x
        for i, units in enumerate(bottom):
            dense = gc.nn.Dense(units, activation=gc.nn.relu, name=f"bottom{i}")(dense)
        found = [gc.nn.Embedding(rows, width, name=f"table{i}")(ids[:, i]) for i in range(tables)]
        features = gc.stack([dense, *found], axis=1)
        products = gc.matmul(features, features, transpose_b=True)
        pairs = gc.reshape(products, (x.shape[0], (tables + 1) ** 2))
        h = gc.concatenate([dense, pairs], axis=1)
        for i, units in enumerate(top):
            activation = gc.nn.relu if units > 1 else None
            h = gc.nn.Dense(units, activation=activation, name=f"top{i}")(h)
        losses = gc.nn.sigmoid_cross_entropy(logits=gc.squeeze(h, 1), labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, tx, name="train")
    return graph, [train, loss]


def _dlrm_by_hand(p: Params, x: jax.Array, ids: jax.Array, y: jax.Array) -> jax.Array:
    h = x.astype(DTYPE)
    for layer in p["bottom"]:
        h = jax.nn.relu(_dense(h, layer))
    found = [table[ids[:, i]].astype(DTYPE) for i, table in enumerate(p["tables"])]
    features = jnp.stack([h, *found], axis=1)
    pairs = (features @ features.swapaxes(1, 2)).reshape(len(x), -1)
    h = jnp.concatenate([h, pairs], axis=1)
    for i, layer in enumerate(p["top"]):
        h = _dense(h, layer) if i == len(p["top"]) - 1 else jax.nn.relu(_dense(h, layer))
    return optax.sigmoid_binary_cross_entropy(h[:, 0].astype(jnp.float32), y).mean()


# -- a stacked LSTM over text ----------------------------------------------------------------------


def lstm(batch: int, layers: int = 2, units: int = 1024, length: int = 128) -> Model:
    """Predicts the next byte after each of `length` bytes."""
    tx = optax.adam(1e-3)
    graph = gc.Graph(seed=0, name="lstm")
    with graph:
        text = gc.placeholder(("batch", length + 1), "int32", name="text")
        h = gc.nn.Embedding(256, units, name="table")(text[:, :-1])
        for i in range(layers):
            h = gc.nn.LSTM(units, name=f"layer{i}")(h)
        logits = gc.nn.Dense(256, name="head")(h)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=text[:, 1:])
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, tx, name="train")

    cell = {
        "kernel": _array(units, 4 * units),
        "recurrent": _array(units, 4 * units),
        "bias": _array(4 * units),
    }
    params = {
        "table": _array(256, units),
        "layers": [cell] * layers,
        "head": _dense_params(units, 256),
    }

    def layer(h: jax.Array, p: Params) -> jax.Array:
        recurrent = p["recurrent"].astype(h.dtype)

        def step(state: Any, projected: jax.Array) -> Any:
            hidden, c = state
            gates = (projected + hidden @ recurrent).astype(jnp.float32)
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = (jax.nn.sigmoid(o) * jnp.tanh(c)).astype(h.dtype)
            return (hidden, c), hidden

        projected = _dense(h, {"kernel": p["kernel"], "bias": p["bias"]})
        zeros = jnp.zeros((len(h), units))
        _, found = jax.lax.scan(step, (zeros.astype(h.dtype), zeros), projected.swapaxes(0, 1))
        return found.swapaxes(0, 1)

    def loss_of(p: Params, text: jax.Array) -> jax.Array:
        h = p["table"][text[:, :-1]].astype(DTYPE)
        for cell in p["layers"]:
            h = layer(h, cell)
        return _classify(_dense(h, p["head"]), text[:, 1:])

    feeds = {"text": _array(batch, length + 1, dtype=np.int32)}
    return Model(graph, [train, loss], feeds, params, training(loss_of, tx), tx, 256)
