"""Packed trees whose parts are read alone, changed in place, or expected to have a class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.runtime.buffers import packing
from graphc.runtime.state.state import State
from tests.jitted.test_packed import X, assert_trees_near, init, predict
from tests.near import assert_near

TX = optax.inject_hyperparams(optax.adam)(learning_rate=1e-2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Training:
    params: Any
    opt_state: Any
    steps: Any
    name: str = dataclasses.field(default="run", metadata={"static": True})

    @property
    def rate(self) -> Any:
        return self.opt_state.hyperparams["learning_rate"] * 2

    def __call__(self, x: Any) -> Any:
        return predict(self.params, x)


def new() -> Training:
    params = init()
    return Training(params, TX.init(params), jnp.zeros((), "int32"))


def advanced(state: Training, x: Any) -> Training:
    slopes = jax.grad(lambda p: jnp.mean((predict(p, x) - 1) ** 2))(state.params)
    updates, opt_state = TX.update(slopes, state.opt_state, state.params)
    return Training(optax.apply_updates(state.params, updates), opt_state, state.steps + 1)


def as_dict(state: dict[str, Any], x: Any) -> dict[str, Any]:
    new = advanced(Training(state["params"], state["opt_state"], state["steps"]), x)
    found = {"params": new.params, "opt_state": new.opt_state, "steps": new.steps}
    return {**found, **{key: value for key, value in state.items() if key not in found}}


def trained(function: Any, state: Any, change: Callable[[Any], Any]) -> Any:
    """The state after two steps, a change in place, and two more steps."""
    jitted = function(donate_argnums=0)
    for _ in range(2):
        state = jitted(state, X)
    change(state)
    for _ in range(2):
        state = jitted(state, X)
    return gc.unpack(state)


def no_rate(state: Any) -> None:
    state.opt_state.hyperparams["learning_rate"] = jnp.float32(0)


def another_layer(state: Any) -> None:
    state.params["layers"][3] = {"w": jnp.eye(8), "b": jnp.ones(8)}


def another_count(state: Any) -> None:
    state.steps = jnp.int32(100)


def half_and_whole(state: Any) -> None:
    """A part that was read and changed, then the whole tree."""
    state.params["scale"] = state.params["scale"] / 2
    assert float(jax.tree.map(jnp.sum, state).params["scale"]) == float(state.params["scale"])
    dataclasses.replace(state, steps=0)
    state.opt_state.hyperparams["learning_rate"] *= 2


@pytest.mark.parametrize("change", [no_rate, another_layer, another_count, half_and_whole])
def test_changes_in_place_count_in_the_next_call(change: Any) -> None:
    got = trained(lambda **options: gc.jit(advanced, **options), new(), change)
    assert_trees_near(got, trained(lambda **options: jax.jit(advanced, **options), new(), change))


def an_item(state: Any) -> None:
    state["steps"] = state["steps"] * 7


def a_key(state: Any) -> None:
    state["extra"] = jnp.ones(3)


def no_key(state: Any) -> None:
    del state["name"]


def updated(state: Any) -> None:
    state.update(steps=jnp.int32(9))
    state["params"]["layers"].reverse()


@pytest.mark.parametrize("change", [an_item, a_key, no_key, updated])
def test_changes_of_dicts_count_in_the_next_call(change: Any) -> None:
    def start() -> Any:
        state = new()
        more = {"steps": state.steps, "name": jnp.zeros(2)}
        return {"params": state.params, "opt_state": state.opt_state, **more}

    got = trained(lambda **options: gc.jit(as_dict, **options), start(), change)
    assert_trees_near(got, trained(lambda **options: jax.jit(as_dict, **options), start(), change))


@pytest.fixture
def reads(monkeypatch: Any) -> list[str]:
    """The names of the variables that are read."""
    names: list[str] = []
    original = State.several

    def recorded(state: State, wanted: Any) -> Any:
        names.extend(wanted)
        return original(state, wanted)

    monkeypatch.setattr(State, "several", recorded)
    return names


def test_a_field_is_read_without_the_others(reads: list[str]) -> None:
    state = gc.jit(advanced, donate_argnums=0)(new(), X)
    assert reads == []
    assert int(state.steps) == 1 and state.name == "run" and reads == ["state/steps"]
    assert state.params is state.params
    assert len(reads) == 1 + 25 and all("params" in name for name in reads[1:])
    assert_near(np.asarray(state.rate), 0.02, rtol=1e-6)  # computed: needs the whole
    assert len(set(reads)) == len(reads)


def test_an_item_is_read_without_the_others(reads: list[str]) -> None:
    def step(trees: Any, x: Any) -> Any:
        state = advanced(Training(*trees), x)
        return state.params, state.opt_state, state.steps

    state = new()
    jitted = gc.jit(step, donate_argnums=0)
    trees = jitted((state.params, state.opt_state, state.steps), X)
    assert int(trees[-1]) == 1 and len(reads) == 1
    assert len(trees[0]["layers"]) == 12 and len(reads) == 26
    with pytest.raises(IndexError):
        trees[3]


def test_a_packed_dataclass_is_one() -> None:
    state = gc.jit(advanced, donate_argnums=0)(new(), X)
    want = jax.jit(advanced)(new(), X)
    assert isinstance(state, gc.PackedTree) and isinstance(state, Training)
    assert not isinstance(state, dict)
    again = dataclasses.replace(state, steps=0)
    assert type(again) is Training and again.steps == 0 and again.params is state.params
    assert [field.name for field in dataclasses.fields(state)] == [
        "params", "opt_state", "steps", "name",
    ]  # fmt: skip
    assert_near(np.asarray(state(X)), np.asarray(want(X)), 1e-5)


def test_a_packed_dict_is_one_and_has_no_more() -> None:
    def step(params: Any, x: Any) -> Any:
        return jax.tree.map(jnp.subtract, params, jax.grad(lambda p: predict(p, x).sum())(params))

    params = gc.jit(step, donate_argnums=0)(init(), X)
    assert isinstance(params, dict) and not callable(params)
    assert list(reversed(params)) == ["scale", "layers"]
    with pytest.raises(KeyError, match="other"):
        params["other"]
    with pytest.raises(TypeError):
        params[["layers"]]


def test_leaves_have_the_paths_that_they_have_in_the_tree() -> None:
    state = gc.jit(advanced, donate_argnums=0)(new(), X)
    rows = jax.tree_util.tree_leaves_with_path(state)
    assert [path for path, _ in rows] == [
        path for path, _ in jax.tree_util.tree_leaves_with_path(gc.unpack(state))
    ]


def test_classes_that_refuse_places_are_read_whole(reads: list[str]) -> None:
    class Strict:
        def __init__(self, params: Any, more: Any) -> None:
            assert hasattr(more, "shape"), "an array, please"
            self.params, self.more = params, more

    jax.tree_util.register_pytree_node(
        Strict, lambda s: ((s.params, s.more), None), lambda _, parts: Strict(*parts)
    )

    def step(state: Strict, x: Any) -> Strict:
        slopes = jax.grad(lambda p: predict(p, x).sum())(state.params)
        return Strict(jax.tree.map(jnp.subtract, state.params, slopes), state.more + 1)

    state = gc.jit(step, donate_argnums=0)(Strict(init(), jnp.zeros(2)), X)
    assert float(state.more[0]) == 1
    assert len(reads) == 26
    want = jax.jit(step)(Strict(init(), jnp.zeros(2)), X)
    assert_trees_near(state.params, want.params)


def test_members_taken_together_are_those_taken_alone() -> None:
    state = gc.jit(advanced, donate_argnums=0)(new(), X)
    inside = state._packing.state
    packing._all_taker.cache_clear()
    for _ in range(packing.ONE_BY_ONE + 2):
        names = list(inside.layout.types)[::-1]
        for name, value in zip(names, inside.several(names), strict=True):
            assert np.array_equal(value, inside[name])
    info = packing._all_taker.cache_info()
    assert info.hits > info.misses > 0
