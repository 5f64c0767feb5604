"""Loops over groups of the images of a batch, which keep intermediate results small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp


def turns_of(batch: int, images: int) -> int:
    """The least number of iterations with equal numbers of images, at most `images` (0: all)."""
    if not images:
        return 1
    return next(n for n in range(1, batch + 1) if batch % n == 0 and batch // n <= images)


def in_turns(
    f: Callable[[jax.Array], jax.Array], x: jax.Array, images: int, before: jax.Array
) -> jax.Array:
    """`f(x)`, computed for at most `images` images at a time.

    Args:
        before: a scalar that fills the result before the loop. For zeros, XLA would share one array
            among several loops, keep it alive from the first to the last, and copy it for each.
    """
    turns = turns_of(x.shape[0], images)
    if turns == 1:
        return f(x)

    def turn(i: Any, y: jax.Array) -> Any:
        return lax.dynamic_update_index_in_dim(y, f(_some(x, i, turns)), i, axis=1)

    of_turn = jax.eval_shape(lambda x: f(_some(x, 0, turns)), x)
    count, *rest = of_turn.shape
    start = jnp.broadcast_to(before, (count, turns, *rest))
    y: jax.Array = lax.fori_loop(0, turns, turn, start)
    return y.reshape(count * turns, *rest)


def summed_in_turns(
    f: Callable[..., jax.Array], operands: Sequence[jax.Array], images: int
) -> jax.Array:
    """`f(*operands)`, a sum over images, computed for at most `images` images at a time."""
    turns = turns_of(operands[0].shape[0], images)
    if turns == 1:
        return f(*operands)

    def term(i: Any) -> jax.Array:
        return f(*[_some(operand, i, turns) for operand in operands])

    one = jax.eval_shape(term, 0)
    start = jnp.zeros(one.shape, one.dtype)
    total: jax.Array = lax.fori_loop(0, turns, lambda i, total: total + term(i), start)
    return total


def _some(x: jax.Array, turn: Any, turns: int) -> jax.Array:
    """The images of one iteration. They come from every part of the batch, so that devices that
    each hold one part of it work in every iteration."""
    apart = x.reshape(x.shape[0] // turns, turns, *x.shape[1:])
    some: jax.Array = lax.dynamic_index_in_dim(apart, turn, axis=1, keepdims=False)
    return some
