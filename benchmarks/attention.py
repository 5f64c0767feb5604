"""Attention over long sequences, written in the usual way: memory and time with and without
`fuse-attention`, compared with plain JAX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

import graphc as gc
from benchmarks.timing import compare
from benchmarks.transformer import Attention, jax_attention

RATE = 1e-3


class Size(NamedTuple):
    """The length of the single sequence, and the width of the layer."""

    length: int
    width: int = 128
    heads: int = 4


class Side(NamedTuple):
    """One way to run a program: a function that runs it several times (once by default) and returns
    the last loss, and the bytes of its temporaries."""

    run: Callable[..., jax.Array]
    temporaries: int


def weights(width: int) -> list[np.ndarray]:
    """The weights of queries, keys, values and the result, each [width, width]."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((width, width)).astype(np.float32) / width for _ in range(4)]


def text(size: Size) -> jax.Array:
    """An input [1, length, width] on the device."""
    rng = np.random.default_rng(1)
    return jnp.asarray(rng.standard_normal((1, size.length, size.width)).astype(np.float32))


def in_graphc(size: Size, train: bool, **options: Any) -> Side:
    """Causal self-attention in graphc: forward, or a step of gradient descent."""
    length = size.length
    with gc.Graph() as graph:
        x = gc.placeholder((1, length, size.width), name="x")
        kernels = [gc.variable(w, name=f"w{i}") for i, w in enumerate(weights(size.width))]
        heads = (1, length, size.heads, size.width // size.heads)
        q, k, v = (gc.transpose(gc.reshape(x @ w, heads), (0, 2, 1, 3)) for w in kernels[:3])
        logits = gc.matmul(q, k, transpose_b=True) / math.sqrt(heads[-1])
        position = gc.arange(length)
        logits = gc.where(gc.expand_dims(position, 1) >= position, logits, -1e9)
        mixed = gc.transpose(gc.matmul(gc.nn.softmax(logits), v), (0, 2, 1, 3))
        y = gc.reshape(mixed, x.shape) @ kernels[3]
        loss = gc.reduce_mean(gc.square(y - x), name="loss")
        fetches: list[Any] = [loss]
        if train:
            slopes = gc.gradients(loss, kernels)
            steps = [w.assign_sub(RATE * g) for w, g in zip(kernels, slopes, strict=True)]
            fetches = [gc.group(*steps), loss]
    step = gc.compile(
        graph,
        fetches=fetches,
        feeds={x: x.shape},
        options=gc.CompileOptions(cache=None, **options),
    )
    holder, feed = {"state": step.init()}, text(size)

    def run(times: int = 1) -> jax.Array:
        for _ in range(times):
            fetched, holder["state"] = step(holder["state"], {x: feed})
        return fetched[-1].block_until_ready()

    return Side(run, step.memory()["temporaries"])


def in_jax(
    size: Size, train: bool, dtype: Any = jnp.float32, attention: Attention = jax_attention
) -> Side:
    """The same in hand-written JAX, in `dtype` with float32 kernels."""
    heads = (1, size.length, size.heads, size.width // size.heads)

    def loss_of(kernels: list[jax.Array], x: jax.Array) -> jax.Array:
        narrow = [w.astype(dtype) for w in kernels]
        mixed = attention(*((x.astype(dtype) @ w).reshape(heads) for w in narrow[:3]))
        y = mixed.reshape(x.shape) @ narrow[3]
        return jnp.square(y.astype(jnp.float32) - x).mean()

    def step(kernels: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        loss, slopes = jax.value_and_grad(loss_of)(kernels, x)
        return [w - RATE * g for w, g in zip(kernels, slopes, strict=True)], loss

    holder, feed = {"kernels": [jnp.asarray(w) for w in weights(size.width)]}, text(size)
    if not train:
        forward = jax.jit(loss_of).lower(holder["kernels"], feed).compile()

        def losses(times: int = 1) -> jax.Array:
            for _ in range(times):
                loss = forward(holder["kernels"], feed)
            return loss.block_until_ready()

        return Side(losses, _temporaries(forward))
    compiled = jax.jit(step, donate_argnums=0).lower(holder["kernels"], feed).compile()

    def run(times: int = 1) -> jax.Array:
        for _ in range(times):
            holder["kernels"], loss = compiled(holder["kernels"], feed)
        return loss.block_until_ready()

    return Side(run, _temporaries(compiled))


def _temporaries(compiled: Any) -> int:
    return int(compiled.memory_analysis().temp_size_in_bytes)


def rows(length: int = 4096, rounds: int = 3) -> list[tuple[str, str, str]]:
    """Rows: temporaries and time, relative to plain JAX and to graphc without the pass."""
    found = []
    for train in (False, True):
        ours = in_graphc(Size(length), train)
        what = f"attention over {length} tokens, {'training step' if train else 'forward'}"
        for name, other in (
            ("plain JAX", in_jax(Size(length), train)),
            ("graphc without the pass", in_graphc(Size(length), train, fuse_attention=False)),
        ):
            ratio = ours.temporaries / other.temporaries
            sizes = f"{ours.temporaries / 1e6:.0f} MB against {other.temporaries / 1e6:.0f} MB"
            goal = "at most 0.25x" if name == "plain JAX" else ""
            found.append((f"{what}, temporaries to {name}", f"{ratio:.3f}x ({sizes})", goal))
            timed = compare(ours.run, other.run, calls=1, rounds=rounds)
            times = f"{timed.ours:.2f} s against {timed.theirs:.2f} s"
            found.append((f"{what}, time to {name}", f"{timed.ratio:.2f}x ({times})", ""))
    return [*found, *_short()]


def _short(length: int = 256) -> list[tuple[str, str, str]]:
    """Rows for a length below the threshold: the same program with and without the pass."""
    size = Size(length)
    ours, without = in_graphc(size, True), in_graphc(size, True, fuse_attention=False)
    ratio = compare(ours.run, without.run, calls=10, rounds=20).ratio
    label = f"attention over {length} tokens, training step, time to graphc without the pass"
    return [(label, f"{ratio:.2f}x", "at most 1.05x")]
