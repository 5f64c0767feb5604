"""Three ways to find the first lookup of each row agree."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from graphc.ops.arrays import unique_rows


@pytest.mark.parametrize("count", [0, 1, 7, 300])
@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_all_ways_find_the_same(count: int, rows: int) -> None:
    named = np.random.default_rng(count).integers(0, rows + 1, count).astype(np.int32)
    want = np.array([np.flatnonzero(named == row)[0] for row in named], np.int32)
    given = jnp.asarray(named), jnp.arange(count, dtype=jnp.int32)
    for found in (
        unique_rows._first_by_comparison(*given),
        unique_rows._first_by_sort(*given),
        unique_rows._first_by_table(*given, count=rows),
    ):
        assert found.dtype == jnp.int32 and np.array_equal(found, want)


@pytest.mark.parametrize("count", [0, 1, 256, 257])
def test_stored_rows_keep_their_order(count: int) -> None:
    rows = np.random.default_rng(count).integers(0, 50, count).astype(np.int32)
    found = unique_rows._stored(jnp.asarray(rows), jnp.arange(count, dtype=jnp.int32))
    assert np.array_equal(found, rows)


@pytest.mark.parametrize(("lookups", "sorts"), [(8192, False), (8193, True)])
def test_few_lookups_are_not_sorted_on_gpus(lookups: int, sorts: bool) -> None:
    def first(rows: jax.Array) -> jax.Array:
        numbers = jnp.arange(lookups, dtype=jnp.int32)
        return unique_rows._first(rows, numbers, unique_rows._first_by_sort)

    rows = jax.ShapeDtypeStruct((lookups,), jnp.int32)
    for platform, wanted in (("cuda", sorts), ("cpu", True)):
        text = jax.jit(first).trace(rows).lower(lowering_platforms=(platform,)).as_text()
        assert ("stablehlo.sort" in text) is wanted
