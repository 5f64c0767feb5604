"""The models of the zoo for sequences."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import optax
from jax import lax
from jax import numpy as jnp

from benchmarks.zoo_layers import (
    Init,
    Model,
    attention,
    cross_entropy,
    dense,
    layer_norm,
    lstm_cell,
    mlp,
    training,
    transformer_block,
)


def gpt(tiny: bool) -> Model:
    """A decoder of 6 blocks."""
    init = Init()
    vocab, width, heads, blocks, time = (20, 16, 2, 2, 8) if tiny else (1000, 128, 4, 6, 64)
    params = {
        "tokens": init.normal(vocab, width, scale=0.02),
        "position": init.normal(time, width, scale=0.02),
        "blocks": [init.block(width) for _ in range(blocks)],
        "norm": init.norm(width),
    }

    def loss(p: Any, text: jax.Array) -> jax.Array:
        x = p["tokens"][text[:, :-1]] + p["position"]
        for block in p["blocks"]:
            x = transformer_block(block, x, heads, causal=True)
        return cross_entropy(layer_norm(p["norm"], x) @ p["tokens"].T, text[:, 1:])

    return training(loss, params, init.below(vocab, 2 if tiny else 4, time + 1))


def forward(rows: int, tiny: bool) -> Model:
    """A forward pass of 12 blocks over few rows. Its parameters are arguments, not donated."""
    init, (width, heads, blocks) = Init(), (16, 2, 2) if tiny else (512, 8, 12)
    params = [init.block(width) for _ in range(blocks)]

    def step(x: jax.Array, last: jax.Array, params: Any) -> tuple[jax.Array, jax.Array]:
        y = x
        for block in params:
            y = transformer_block(block, y, heads, causal=True)
        return x + 1e-3 * (y - last), y

    x = init.normal(1, rows, width)
    return Model(step, (x, jnp.zeros_like(x), params), ())


def mixture(tiny: bool) -> Model:
    """Three layers of attention and a mixture of 4 experts. Each token uses 2 of them."""
    init, (vocab, width, time) = Init(), (20, 16, 8) if tiny else (500, 64, 32)

    def block() -> Any:
        return init.block(width) | {
            "router": init.normal(width, 4, scale=0.1),
            "in": init.normal(4, width, 2 * width, scale=width**-0.5),
            "back": init.normal(4, 2 * width, width, scale=width**-0.5),
        }

    params = {"tokens": init.normal(vocab, width), "blocks": [block() for _ in range(3)]}

    def experts(p: Any, x: jax.Array) -> jax.Array:
        chosen, index = lax.top_k(x @ p["router"], 2)
        weights = jax.nn.softmax(chosen)
        gates = (jax.nn.one_hot(index, 4) * weights[..., None]).sum(-2)
        hidden = jax.nn.gelu(jnp.einsum("btd,edh->bteh", x, p["in"]))
        return jnp.einsum("bteh,ehd,bte->btd", hidden, p["back"], gates)

    def loss(p: Any, text: jax.Array) -> jax.Array:
        x = p["tokens"][text[:, :-1]]
        for b in p["blocks"]:
            x = x + attention(b, layer_norm(b["norm1"], x), 4, causal=True)
            x = x + experts(b, layer_norm(b["norm2"], x))
        return cross_entropy(x @ p["tokens"].T, text[:, 1:])

    return training(loss, params, init.below(vocab, 2 if tiny else 4, time + 1))


def text_cnn(tiny: bool) -> Model:
    """Convolutions of widths 3, 4 and 5 over embedded words."""
    init, (vocab, width, time, batch) = Init(), (20, 8, 10, 2) if tiny else (5000, 64, 64, 32)
    params = {
        "tokens": init.normal(vocab, width),
        "convs": [init.normal(n, width, width, scale=0.1) for n in (3, 4, 5)],
        "head": init.dense(3 * width, 2),
    }

    def loss(p: Any, text: jax.Array, y: jax.Array) -> jax.Array:
        x = p["tokens"][text]
        dims = ("NWC", "WIO", "NWC")
        found = [
            lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=dims)
            for w in p["convs"]
        ]
        pooled = jnp.concatenate([jax.nn.relu(f).max(1) for f in found], -1)
        return cross_entropy(dense(p["head"], pooled), y)

    return training(loss, params, init.below(vocab, batch, time), init.below(2, batch))


def lstm_scan(tiny: bool) -> Model:
    """An LSTM in `lax.scan`."""
    init, (width, time, batch) = Init(), (8, 5, 2) if tiny else (128, 50, 16)
    params = {"cell": init.dense(2 * width, 4 * width), "head": init.dense(width, 1)}

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        def body(carry: Any, x_t: jax.Array) -> Any:
            carry = lstm_cell(p["cell"], carry, x_t)
            return carry, carry[0]

        zeros = jnp.zeros((batch, width))
        _, hidden = lax.scan(body, (zeros, zeros), x)
        return ((dense(p["head"], hidden)[..., 0] - y) ** 2).mean()

    return training(loss, params, init.normal(time, batch, width), init.normal(time, batch))


def lstm_unrolled(tiny: bool) -> Model:
    """A two-layer LSTM over 20 steps in a Python loop."""
    init, (width, time, batch) = Init(), (8, 3, 2) if tiny else (64, 20, 16)
    params = {
        "cells": [init.dense(2 * width, 4 * width) for _ in range(2)],
        "head": init.dense(width, 1),
    }

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        carries = [(jnp.zeros((batch, width)),) * 2] * 2
        for t in range(time):
            h = x[:, t]
            for number, cell in enumerate(p["cells"]):
                carries[number] = lstm_cell(cell, carries[number], h)
                h = carries[number][0]
        return ((dense(p["head"], h)[..., 0] - y) ** 2).mean()

    return training(loss, params, init.normal(batch, time, width), init.normal(batch))


def scan_remat(tiny: bool) -> Model:
    """Layers in `lax.scan` with `jax.checkpoint`: a tiny step."""
    init, (width, count, batch) = Init(), (4, 3, 2) if tiny else (32, 6, 8)
    params = {
        "layers": {
            "w": init.normal(count, width, width, scale=0.1),
            "b": jnp.zeros((count, width)),
        },
        "head": init.dense(width, 1),
    }

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        @jax.checkpoint
        def body(x: jax.Array, layer: Any) -> Any:
            return x + jax.nn.gelu(dense(layer, x)), None

        x, _ = lax.scan(body, x, p["layers"])
        return ((dense(p["head"], x)[:, 0] - y) ** 2).mean()

    return training(loss, params, init.normal(batch, width), init.normal(batch))


def seq2seq(tiny: bool) -> Model:
    """A GRU encoder and a GRU decoder with attention, both in `lax.scan`."""
    init, (vocab, width, time, batch) = Init(), (20, 8, 4, 2) if tiny else (500, 64, 16, 16)
    params = {
        "tokens": init.normal(vocab, width),
        "encoder": init.mlp(2 * width, 2 * width) + init.mlp(2 * width, width),
        "decoder": init.mlp(3 * width, 2 * width) + init.mlp(3 * width, width),
        "head": init.dense(2 * width, vocab),
    }

    def gru(p: Any, h: jax.Array, x: jax.Array) -> jax.Array:
        r, z = jnp.split(jax.nn.sigmoid(dense(p[0], jnp.concatenate([x, h], -1))), 2, -1)
        return z * h + (1 - z) * jnp.tanh(dense(p[1], jnp.concatenate([x, r * h], -1)))

    def encode(p: Any, h: jax.Array, x: jax.Array) -> Any:
        h = gru(p, h, x)
        return h, h

    def decode(p: Any, memory: jax.Array, h: jax.Array, x: jax.Array) -> Any:
        weights = jax.nn.softmax(jnp.einsum("bd,tbd->tb", h, memory), 0)
        seen = jnp.einsum("tb,tbd->bd", weights, memory)
        h = gru(p, h, jnp.concatenate([x, seen], -1))
        return h, jnp.concatenate([h, seen], -1)

    def loss(p: Any, source: jax.Array, target: jax.Array) -> jax.Array:
        start = jnp.zeros((batch, width))
        h, memory = lax.scan(partial(encode, p["encoder"]), start, p["tokens"][source])
        _, ys = lax.scan(partial(decode, p["decoder"], memory), h, p["tokens"][target[:-1]])
        return cross_entropy(dense(p["head"], ys), target[1:])

    texts = init.below(vocab, time, batch), init.below(vocab, time + 1, batch)
    return training(loss, params, *texts)


def deep_dense(tiny: bool) -> Model:
    """24 dense layers with adamw and clipped gradients."""
    init, (width, count, batch) = Init(), (8, 4, 2) if tiny else (128, 24, 32)
    params = {
        "layers": [
            {"dense": init.dense(width, width), "norm": init.norm(width)} for _ in range(count)
        ],
        "head": init.mlp(width, 10),
    }

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        for layer in p["layers"]:
            x = x + jax.nn.gelu(dense(layer["dense"], layer_norm(layer["norm"], x)))
        return cross_entropy(mlp(p["head"], x), y)

    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return training(loss, params, init.normal(batch, width), init.below(10, batch), tx=tx)


SEQUENCES = {
    "GPT": gpt,
    "forward pass of 1 row": partial(forward, 1),
    "forward pass of 128 rows": partial(forward, 128),
    "mixture of experts": mixture,
    "text CNN": text_cnn,
    "LSTM in lax.scan": lstm_scan,
    "LSTM, unrolled": lstm_unrolled,
    "scan and remat": scan_remat,
    "seq2seq with attention": seq2seq,
    "24 dense layers": deep_dense,
}
