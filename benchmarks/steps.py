"""Training steps by hand, and steps that run again and again from where the last one ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax

import graphc as gc

Means = Callable[[jax.Array, Any], tuple[jax.Array, Any]]


def training(
    loss_of: Callable[..., jax.Array],
    optimizer: optax.GradientTransformation,
    means: Means | None = None,
) -> Callable[..., Any]:
    """The usual step of JAX and optax: `(params, slots, *batch) -> (params, slots, loss)`.

    Args:
        means: gives the means of loss and gradients over the devices.
    """

    def step(params: Any, slots: Any, *batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, *batch)
        if means is not None:
            loss, gradients = means(loss, gradients)
        updates, slots = optimizer.update(gradients, slots, params)
        return optax.apply_updates(params, updates), slots, loss

    return step


def advancing(step: gc.Executable, feeds: Mapping[Any, Any]) -> Callable[[], jax.Array]:
    """A function that runs one more step of graphc, and returns its last fetch, the loss."""
    state = step.init()

    def run() -> jax.Array:
        nonlocal state
        fetched, state = step(state, feeds)
        return fetched[-1]

    return run


def advancing_by_hand(
    step: Callable[..., Any], params: Any, slots: Any, *batch: Any
) -> Callable[[], jax.Array]:
    """The same for a step of `training`, which may donate its first two arguments."""

    def run() -> jax.Array:
        nonlocal params, slots
        params, slots, loss = step(params, slots, *batch)
        return loss

    return run
