"""Each model of the zoo gives the same results with `gc.jit` and `jax.jit`."""

from __future__ import annotations

import jax
import pytest

import graphc as gc
from benchmarks.zoo_models import MODELS
from tests.near import assert_near


@pytest.mark.one_jax
@pytest.mark.parametrize("name", MODELS)
def test_two_steps_are_those_of_jax(name: str) -> None:
    step, args, donate = MODELS[name](tiny=True)
    ours = gc.jit(step, donate_argnums=donate, options=gc.CompileOptions(cache=None))
    theirs = jax.jit(step)
    given = jax.tree.map(lambda x: x.copy(), args)
    for _ in range(2):
        result, expected = ours(*given), theirs(*args)
        assert ours.notes == []
        for found, wanted in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
            assert_near(found, wanted, rtol=1e-3, atol=1e-6)
        given, args = (*result[:2], *given[2:]), (*expected[:2], *args[2:])
