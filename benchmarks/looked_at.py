"""Training steps by `gc.jit` whose donated state is looked at or changed between them, compared
with `jax.jit`. Layers become a loop, so the state is a packed tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import optax
from jax import numpy as jnp

import graphc as gc
from benchmarks.timing import compare

Row = tuple[str, str, str]
TX = optax.inject_hyperparams(optax.adam)(learning_rate=1e-4)
LAYERS = 16


def rows() -> Iterator[Row]:
    """All rows."""
    for width in (64, 512):
        x = jnp.linspace(-1, 1, 4 * width).reshape(4, width)
        for what, between in _BETWEEN.items():
            ours, theirs = (_loop(jit, width, x, between) for jit in (gc.jit, jax.jit))
            timed = compare(ours, theirs, calls=20)
            both = f"{1e3 * timed.ours:.2f} / {1e3 * timed.theirs:.2f} ms"
            yield f"{LAYERS} layers of {width}: {what} ({both})", f"{timed.ratio:.2f}x", ""


def _loop(jit: Any, width: int, x: jax.Array, between: Callable[[Any, Any], Any]) -> Any:
    """A function that makes one step, and then what comes between two steps."""
    params = [
        {
            "scale": jnp.ones(width),
            "up": jnp.eye(width) / 2,
            "bias": jnp.zeros(width),
            "down": jnp.eye(width) / 9,
        }
        for _ in range(LAYERS)
    ]
    state = {"params": params, "slots": TX.init(params), "steps": jnp.zeros((), "int32")}
    step, act = jit(_step, donate_argnums=0), jit(_act)

    def run() -> None:
        nonlocal state
        state, loss = step(state, x)
        jax.block_until_ready((loss, between(state, lambda params: act(params, x))))

    for _ in range(60):  # all programs are compiled then
        run()
    assert jit is jax.jit or isinstance(state, gc.PackedTree)
    return run


def _act(params: Any, x: jax.Array) -> jax.Array:
    for layer in params:
        normal = layer["scale"] * (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-3)
        x = x + jax.nn.gelu(normal @ layer["up"] + layer["bias"]) @ layer["down"]
    return x


def _step(state: Any, x: jax.Array) -> tuple[Any, jax.Array]:
    loss, slopes = jax.value_and_grad(lambda p: (_act(p, x) ** 2).mean())(state["params"])
    updates, slots = TX.update(slopes, state["slots"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "slots": slots, "steps": state["steps"] + 1}, loss


def _with_rate(state: Any, act: Any) -> None:
    state["slots"].hyperparams["learning_rate"] = jnp.float32(1e-4)


_BETWEEN: dict[str, Callable[[Any, Any], Any]] = {
    "a step": lambda state, act: None,
    "a step, and its number": lambda state, act: int(state["steps"]),
    "a step, and a call with the parameters": lambda state, act: act(state["params"]),
    "a step, and another learning rate": _with_rate,
}
