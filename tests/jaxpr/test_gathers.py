"""Gathers and scatters of JAX with indices out of range: results and gradients are JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import Array, lax
from jax import numpy as jnp

import graphc as gc
from tests.near import assert_near

TABLE = jnp.arange(1.0, 16.0, dtype=jnp.float32).reshape(5, 3)


def both(i: Array) -> Array:
    return jnp.stack([i, i + 1])


def extreme(scatter: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """Its gradient in JAX promises indices to be in range that are not."""
    rows = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    window = lax.ScatterDimensionNumbers((0, 1), (), (0, 1))

    def function(x: Array, i: Array) -> Array:
        y = scatter(x, both(i)[:, None], x[:2] * 0.5, rows, mode="drop")
        return scatter(y, jnp.stack([i, i]), y[:2, :1] + 1.0, window, mode="drop")

    return function


FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "index": lambda x, i: x[i],
    "indices": lambda x, i: x[both(i)],
    "pairs": lambda x, i: x[both(i), both(i)],
    "take": lambda x, i: jnp.take(x, both(i), 0),
    "along axis": lambda x, i: jnp.take_along_axis(x, jnp.broadcast_to(i, (1, 3)), 0),
    "each row's": lambda x, i: jax.vmap(lambda row, j: row[j])(x, jnp.full(5, i)),
    "clip": lambda x, i: x.at[both(i)].get(mode="clip"),
    "fill": lambda x, i: x.at[both(i)].get(mode="fill", fill_value=3.0),
    "promised": lambda x, i: x.at[both(i)].get(mode="promise_in_bounds"),
    "add": lambda x, i: x.at[both(i)].add(1.0),
    "add to pairs": lambda x, i: x.at[both(i), both(i)].add(1.0),
    "add, promised": lambda x, i: x.at[both(i)].add(1.0, mode="promise_in_bounds"),
    "set": lambda x, i: x.at[i].set(7.0),
    "largest": extreme(lax.scatter_max),
    "smallest": extreme(lax.scatter_min),
}


def test_narrow_indices_in_a_large_batch() -> None:
    """The places in the batch do not fit into the dtype of the indices."""

    def function(x: Array, i: Array) -> Array:
        numbers = lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,))
        ys = [lax.scatter(x, i, x[:, 0] * 2, numbers), lax.scatter_max(x, i, x[:, 1], numbers)]
        numbers = lax.ScatterDimensionNumbers((), (0,), (0,), (1,), (0,))
        return jnp.stack([*ys, lax.scatter_mul(x.T, i, x[:, 1], numbers).T])

    x = jnp.arange(900.0).reshape(300, 3)
    for dtype in ("int8", "uint8", "int32"):
        i = (jnp.arange(300) % 3).astype(dtype)[:, None]
        jitted = gc.jit(function)
        assert np.array_equal(jitted(x, i), jax.jit(function)(x, i)), dtype
        assert jitted.notes == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_indices_out_of_range(name: str) -> None:
    function = FUNCTIONS[name]

    def with_gradient(x: Array, i: Array) -> Any:
        return jax.value_and_grad(lambda x: (function(x, i) ** 2).sum())(x)

    wanted, got = jax.jit(with_gradient), gc.jit(with_gradient)
    for dtype in ("int32", "int8", "uint8"):
        for i in (-9, -6, -5, -1, 0, 2, 4, 5, 7):
            if i >= 0 or dtype != "uint8":
                index = jnp.asarray(i, dtype)
                for mine, theirs in zip(got(TABLE, index), wanted(TABLE, index), strict=True):
                    assert_near(np.asarray(mine), np.asarray(theirs), rtol=1e-6)
