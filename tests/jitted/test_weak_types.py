"""Weak types of leaves, in arguments and results of `gc.jit`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

import graphc as gc
from tests.jitted.test_jit import assert_same


def test_weakly_typed_leaves_are_updated_in_place() -> None:
    """The state of flax starts with `step=0`, whose type is weak."""

    def counted(state: Any) -> Any:
        return {"step": state["step"] + 1, "w": state["w"] * 2}

    jitted, by_jax = gc.jit(counted, donate_argnums=0), jax.jit(counted)
    state = {"step": 0, "w": jnp.ones(3)}
    want = {"step": 0, "w": jnp.ones(3)}
    for _ in range(3):
        before = state["w"]
        state, want = jitted(state), by_jax(want)
        assert before.is_deleted()
        assert_same(state, want)
    assert {b.members[0] for b in jitted.executable.interface.written} == {"state/step", "state/w"}
    assert jnp.ones((), jnp.bfloat16) * state["step"] == 3.0


def test_a_condition_on_numbers_of_a_state_is_updated_in_place() -> None:
    """JAX calls the result of a comparison of weakly typed numbers weak, but not `False`."""

    def counted(state: Any) -> Any:
        return {"done": state["step"] > 1, "step": state["step"] + 1, "w": state["w"] * 2}

    jitted, by_jax = gc.jit(counted, donate_argnums=0), jax.jit(counted)
    state = {"done": False, "step": 0, "w": jnp.ones(3)}
    want = {"done": False, "step": 0, "w": jnp.ones(3)}
    for _ in range(3):
        state, want = jitted(state), by_jax(want)
        assert jax.tree.map(np.asarray, state)["done"] == want["done"]
        assert_same(state["w"], want["w"])
    assert "1 programs" in repr(jitted)
    written = {b.members[0] for b in jitted.executable.interface.written}
    assert written == {"state/step", "state/w"}


def test_weak_and_strong_arrays_of_one_type_are_two_forms() -> None:
    jitted, by_jax = gc.jit(lambda s, x: s * x), jax.jit(lambda s, x: s * x)
    x = jnp.ones(2, jnp.bfloat16)
    weak, strong = jnp.asarray(2.0), jnp.float32(2.0)
    for scale in (strong, weak, strong, weak):
        assert_same(jitted(scale, x), by_jax(scale, x))
