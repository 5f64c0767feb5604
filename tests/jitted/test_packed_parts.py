"""Packed trees whose parts are read alone, changed in place, or expected to have a class."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.jitted import program
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


# -- changes in place ------------------------------------------------------------------------


def test_arrays_of_the_same_types_go_into_the_state(monkeypatch: Any) -> None:
    jitted = gc.jit(advanced, donate_argnums=0)
    state = jitted(new(), X)
    monkeypatch.setattr(program, "State", None)  # makes a state of all leaves again
    for _ in range(2):
        state.opt_state.hyperparams["learning_rate"] = jnp.float32(0)
        mine = state.params["layers"][0]["w"] = jnp.eye(8)
        state = jitted(state, X)
        assert np.array_equal(state.params["layers"][0]["w"], np.eye(8))
    assert np.array_equal(mine, np.eye(8))  # the user's array was not donated
    with pytest.raises(TypeError, match="not callable"):
        state.steps = 0  # weakly typed
        jitted(state, X)


def test_leaves_that_another_function_has_updated_in_place() -> None:
    half = jax.jit(lambda leaf: leaf / 2, donate_argnums=0)

    def change(state: Any) -> None:
        state.opt_state.hyperparams["learning_rate"] = half(
            state.opt_state.hyperparams["learning_rate"]
        )
        scale = state.params["scale"]
        state.params["scale"] = half(scale)
        for layer in state.params["layers"][2:5]:
            layer["b"] = half(layer["b"] + 1)

    got = trained(lambda **options: gc.jit(advanced, **options), new(), change)
    assert_trees_near(got, trained(lambda **options: jax.jit(advanced, **options), new(), change))


def test_a_change_that_is_undone_after_a_call_that_failed() -> None:
    jitted = gc.jit(advanced, donate_argnums=0)
    state, want = jitted(new(), X), jax.jit(advanced)(new(), X)
    before = state.params["scale"]
    state.params["scale"] = before * 7
    with pytest.raises(TypeError):
        jitted(state, X[:, :3])
    state.params["scale"] = before
    assert_trees_near(gc.unpack(jitted(state, X)), jax.jit(advanced)(want, X))


def test_a_part_that_was_replaced_in_the_tree_has_no_effect() -> None:
    jitted = gc.jit(advanced, donate_argnums=0)
    state, want = jitted(new(), X), jax.jit(advanced)(new(), X)
    for each in (state, want):
        old = each.params
        each.params = dict(old)
        old["scale"] = jnp.float32(100)
    assert_trees_near(gc.unpack(jitted(state, X)), jax.jit(advanced)(want, X))


def test_threads_change_one_tree() -> None:
    jitted = gc.jit(advanced, donate_argnums=0)
    for _ in range(5):
        state, begin = jitted(new(), X), threading.Barrier(6)

        def change(layer: int, state: Any = state, begin: Any = begin) -> None:
            begin.wait()
            state.params["layers"][layer]["b"] = jnp.full(8, float(layer))

        threads = [threading.Thread(target=change, args=(layer,)) for layer in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for layer in range(6):
            assert float(gc.unpack(state).params["layers"][layer]["b"][0]) == layer


def test_a_packed_tree_in_a_packed_tree_is_unpacked_too() -> None:
    def renewed(trees: Any, x: Any) -> Any:
        return {**trees, "state": advanced(trees["state"], x)}

    inner = gc.jit(advanced, donate_argnums=0)(new(), X)
    outer = gc.jit(renewed, donate_argnums=0)({"state": new(), "more": jnp.zeros(())}, X)
    assert isinstance(outer, gc.PackedTree)
    outer["inner"] = inner
    assert type(gc.unpack(outer)["inner"]) is Training


# -- classes ---------------------------------------------------------------------------------


def packed(made: Any) -> Any:
    """A packed tree of a class of two parts: layers, and an array of two elements."""

    def step(state: Any, x: Any) -> Any:
        slopes = jax.grad(lambda p: predict(p, x).sum())(state.params)
        return made(jax.tree.map(jnp.subtract, state.params, slopes), state.more + 1)

    state = gc.jit(step, donate_argnums=0)(made(init(), jnp.zeros(2)), X)
    assert isinstance(state, gc.PackedTree)
    return state


def registered(kind: Any) -> Any:
    jax.tree_util.register_pytree_node(
        kind, lambda s: ((s.params, s.more), None), lambda _, parts: kind(*parts)
    )
    return kind


def test_what_a_class_computes_from_its_leaves_is_computed_from_arrays() -> None:
    @registered
    @dataclasses.dataclass
    class Computed:
        params: Any
        more: Any
        shape: Any = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.shape = getattr(self.more, "shape", ())
            self.is_array = isinstance(self.more, jax.Array)
            self.cache: dict[Any, Any] = {1: "a", "b": 2}

    state = packed(Computed)
    assert state.shape == (2,) and state.is_array
    state.cache["new"] = 3
    jax.tree.leaves(state)
    assert state.cache == {1: "a", "b": 2, "new": 3}
    assert packed(Computed).cache == {1: "a", "b": 2}


def test_properties_that_hide_a_field() -> None:
    class Named(NamedTuple):
        params: Any
        more: Any

    class Doubled(Named):
        @property
        def more(self) -> Any:  # type: ignore[override]
            return self[1] * 2

    state = packed(Doubled)
    assert float(state.more[0]) == 2 and float(state[1][0]) == 1


def test_classes_with_their_own_way_to_attributes() -> None:
    @registered
    @dataclasses.dataclass
    class Scaled:
        params: Any
        more: Any

        def __getattribute__(self, name: str) -> Any:
            value = object.__getattribute__(self, name)
            return value * 10 if name == "more" and isinstance(value, jax.Array) else value

    state = packed(Scaled)
    assert np.array_equal(state.more, gc.unpack(state).more)


def test_classes_whose_structure_depends_on_their_leaves() -> None:
    class Shaped:
        def __init__(self, params: Any, more: Any) -> None:
            self.params, self.more = params, more

    jax.tree_util.register_pytree_node(
        Shaped,
        lambda s: ((s.params, s.more), s.more.shape),
        lambda _, parts: Shaped(*parts),
    )

    def step(trees: Any, x: Any) -> Any:
        shaped = trees["shaped"]
        slopes = jax.grad(lambda p: predict(p, x).sum())(shaped.params)
        params = jax.tree.map(jnp.subtract, shaped.params, slopes)
        return {"shaped": Shaped(params, shaped.more), "count": trees["count"] + 1}

    trees = {"shaped": Shaped(init(), jnp.zeros(2)), "count": jnp.zeros(())}
    trees = gc.jit(step, donate_argnums=0)(trees, X)
    assert isinstance(trees, gc.PackedTree)
    assert float(trees["count"]) == 1 and trees["shaped"].more.shape == (2,)


def test_special_methods_are_those_of_the_class() -> None:
    @registered
    class Scaled:
        def __init__(self, params: Any, more: Any) -> None:
            self.params, self.more = params, more

        def __mul__(self, other: float) -> Any:
            return jax.tree.map(lambda leaf: leaf * other, self)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.more = self.more + 1

        def __str__(self) -> str:
            return "scaled"

    state = packed(Scaled)
    assert bool(state) and str(state) == "scaled" and "PackedTree" in repr(state)
    assert float((state * 3).more[0]) == 3
    with state as tree:
        pass
    assert float(tree.more[0]) == float(state.more[0]) == 2
    assert set(vars(state)) == {"params", "more"} and "params" in dir(state)
    assert weakref.ref(state)() is state
    with pytest.raises(TypeError):
        len(state)


def test_packed_containers_are_matched_and_compared() -> None:
    given = {"params": init(), "opt_state": TX.init(init()), "steps": jnp.zeros((), "int32")}
    state = gc.jit(as_dict, donate_argnums=0)(given, X)
    match state:
        case {"steps": steps, **rest}:
            assert int(steps) == 1 and set(rest) == {"params", "opt_state"}
        case _:
            pytest.fail("it is a mapping")
    assert state == gc.unpack(state)
    with pytest.raises(TypeError, match="unhashable"):
        hash(state)

    def step(trees: Any, x: Any) -> Any:
        new = advanced(Training(*trees), x)
        return new.params, new.opt_state, new.steps

    trees = gc.jit(step, donate_argnums=0)((init(), TX.init(init()), jnp.zeros((), "int32")), X)
    match trees:
        case [_, *_, steps]:
            assert int(steps) == 1
        case _:
            pytest.fail("it is a sequence")
    more = (1,)
    assert (trees + more)[-1] == 1
    assert trees[1] is not None
    with pytest.raises(TypeError):
        trees[1.0]
