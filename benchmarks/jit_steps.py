"""Training steps by `gc.jit` that donate nothing, compared with `jax.jit`: the same function with
small parameters as arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

import graphc as gc
from benchmarks import transformer
from benchmarks.timing import compare

Row = tuple[str, str, str]
Step = Callable[..., Any]


def rows() -> Iterator[Row]:
    """All rows."""
    for width, layers, batch in ((64, 40, 8), (64, 96, 8), (128, 24, 128)):
        rng = np.random.default_rng(0)
        kernels = rng.normal(size=(layers, width, width)).astype("f4") * width**-0.5
        params = [(jnp.asarray(w), jnp.zeros(width)) for w in kernels]
        what = f"{layers} dense layers of {width}, {batch} rows"
        yield from _compared(what, _sgd(_dense), params, jnp.ones((batch, width)))
    for blocks in (12, 24):
        size = transformer.Size(blocks, width=64, batch=4)
        params = jax.device_put(transformer.nested(transformer.initial(size), size))
        tokens = jnp.asarray(transformer.batches(size, 1)[0])
        what = f"{blocks} transformer blocks of {size.width}, {size.batch} x {size.sequence} tokens"
        yield from _compared(what, _sgd(transformer.jax_loss, size, False), params, tokens)


def _dense(params: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return (x**2).mean()


def _sgd(loss_of: Callable[..., jax.Array], *first: Any) -> Step:
    def step(params: Any, data: jax.Array) -> tuple[Any, jax.Array]:
        loss, slopes = jax.value_and_grad(lambda p: loss_of(*first, p, data))(params)
        return jax.tree.map(lambda p, slope: p - 1e-3 * slope, params, slopes), loss

    return step


def _compared(what: str, step: Step, params: Any, data: jax.Array) -> Iterator[Row]:
    """The times of a step and of the first call, both relative to `jax.jit`."""
    ours, theirs = gc.jit(step, options=gc.CompileOptions(cache=None)), jax.jit(step)
    first, by_jax = (_first(function, params, data) for function in (ours, theirs))
    timed = compare(
        lambda: jax.block_until_ready(ours(params, data)),
        lambda: jax.block_until_ready(theirs(params, data)),
        calls=5,
    )
    both = f"{1e3 * timed.ours:.2f} / {1e3 * timed.theirs:.2f} ms"
    yield f"{what}: step ({both})", f"{timed.ratio:.2f}x", "at most 1.1x"
    yield f"{what}: first call ({first:.2f} / {by_jax:.2f} s)", f"{first / by_jax:.2f}x", ""


def _first(function: Step, params: Any, data: jax.Array) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function(params, data))
    return time.perf_counter() - start
