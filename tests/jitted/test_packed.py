"""Donated pytrees whose arrays are stacked for a loop, and how they can be used."""

from __future__ import annotations

import dataclasses
import signal
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import StateError
from graphc.jitted.packed import packing_of
from graphc.runtime.core.counters import COUNTERS
from tests.near import assert_near
from tests.runtime.counting import handled

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
TX = optax.adam(1e-2)


def init(layers: int = 12) -> Any:
    rng = np.random.default_rng(0)
    return {
        "layers": [
            {"w": jnp.asarray(rng.normal(size=(8, 8)) / 3, jnp.float32), "b": jnp.zeros(8)}
            for _ in range(layers)
        ],
        "scale": jnp.ones(()),
    }


def predict(params: Any, x: Any) -> Any:
    for layer in params["layers"]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x * params["scale"]


def step(params: Any, opt_state: Any, x: Any) -> Any:
    loss, slopes = jax.value_and_grad(lambda p: jnp.mean((predict(p, x) - 1) ** 2))(params)
    updates, opt_state = TX.update(slopes, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, {"loss": loss}


def train(function: Any, n: int = 4, x: Any = X) -> Any:
    params = init()
    opt_state = TX.init(params)
    for _ in range(n):
        params, opt_state, metrics = function(params, opt_state, x)
    return params, opt_state, metrics


def donating(**more: Any) -> Any:
    return gc.jit(step, donate_argnums=(0, 1), **more)


def assert_trees_near(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        assert_near(np.asarray(a), np.asarray(b), 1e-4, 1e-5)


def test_a_training_step_equals_jax() -> None:
    jitted = donating()
    got, want = train(jitted), train(jax.jit(step))
    assert [type(tree).__name__ for tree in got] == ["PackedTree", "PackedTree", "dict"]
    assert_trees_near(gc.unpack(got), want)
    kinds = {buffer.kind for buffer in jitted.executable.interface.buffers}
    assert kinds == {"own", "stacked"}
    assert jitted.memory()["aliased"] > 0


def test_a_packed_tree_behaves_like_the_tree() -> None:
    params, opt_state, _ = train(donating())
    want, want_state, _ = train(jax.jit(step))
    assert sorted(params) == ["layers", "scale"]
    assert len(params) == 2
    assert "scale" in params
    assert_near(
        np.asarray(params["layers"][3]["w"]), np.asarray(want["layers"][3]["w"]), 1e-4, 1e-5
    )
    assert [*params.keys()] == [*want.keys()]
    assert int(opt_state[0].count) == 4
    assert_trees_near(opt_state[0].mu, want_state[0].mu)
    first, rest = opt_state
    assert rest == optax.EmptyState()
    assert "PackedTree of 25 arrays" in repr(params)


def test_functions_of_jax_take_a_packed_tree() -> None:
    params, *_ = train(donating())
    want, *_ = train(jax.jit(step))
    assert_near(np.asarray(jax.jit(predict)(params, X)), np.asarray(predict(want, X)), 1e-4, 1e-5)
    slopes = jax.grad(lambda p: jnp.sum(predict(p, X)))(params)
    assert_trees_near(slopes, jax.grad(lambda p: jnp.sum(predict(p, X)))(want))
    halves = jax.tree.map(lambda leaf: leaf / 2, params)
    assert type(halves) is dict
    assert_trees_near(halves, jax.tree.map(lambda leaf: leaf / 2, want))
    assert_trees_near(
        jax.tree.map(jnp.add, gc.unpack(params), halves), jax.tree.map(jnp.add, want, halves)
    )
    other = gc.jit(predict)
    assert_near(np.asarray(other(params, X)), np.asarray(predict(want, X)), 1e-4, 1e-5)
    assert_near(np.asarray(other(want, X)), np.asarray(predict(want, X)), 1e-4, 1e-5)


def test_a_mismatch_of_structures_tells_how_to_unpack() -> None:
    packed, *_ = train(donating())
    plain = init()
    for trees in ((packed, plain), (plain, packed)):
        with pytest.raises(ValueError, match=r"graphc\.unpack\(tree\) returns an ordinary tree"):
            jax.tree.map(jnp.add, *trees)


def test_a_packed_tree_is_consumed() -> None:
    jitted = donating()
    params, opt_state, _ = train(jitted)
    kept = np.asarray(params["scale"])
    new = jitted(params, opt_state, X)
    for use in (lambda: params["scale"], lambda: jax.tree.leaves(params), lambda: len(params)):
        with pytest.raises(StateError, match="donated to a later call of the jitted function"):
            use()
    with pytest.raises(ValueError, match="donated to a later call"):  # as in JAX
        jitted(params, opt_state, X)
    assert np.asarray(new[0]["scale"]) != kept


def test_a_tree_that_was_changed_outside_is_taken() -> None:
    jitted = donating()
    params, opt_state, _ = train(jitted)
    params = jax.tree.map(lambda leaf: leaf * 0.5, params)
    got = jitted(params, opt_state, X)
    want_params, want_state, _ = train(jax.jit(step))
    want = jax.jit(step)(jax.tree.map(lambda leaf: leaf * 0.5, want_params), want_state, X)
    assert_trees_near(gc.unpack(got), want)
    # And back to the packed form, without another program.
    got = jitted(got[0], got[1], X)
    assert_trees_near(gc.unpack(got), jax.jit(step)(want[0], want[1], X))
    assert "1 programs" in repr(jitted)


def test_another_batch_size_takes_the_same_buffers() -> None:
    jitted = donating()
    params, opt_state, _ = train(jitted)
    before = packing_of(params).state.layout.buffers
    params, opt_state, _ = jitted(params, opt_state, X[:3])
    assert packing_of(params).state.layout.buffers == before
    params, opt_state, _ = jitted(params, opt_state, X)
    want = train(jax.jit(step))
    want = jax.jit(step)(want[0], want[1], X[:3])
    want = jax.jit(step)(want[0], want[1], X)
    assert_trees_near(gc.unpack(params), want[0])
    assert "2 programs" in repr(jitted)


def test_separate_buffers_give_ordinary_trees() -> None:
    jitted = donating(options=gc.CompileOptions(state_buffers="separate"))
    got = train(jitted)
    assert [type(tree) for tree in got] == [dict, tuple, dict]
    assert_trees_near(got, train(jax.jit(step)))


def test_few_layers_give_ordinary_trees() -> None:
    jitted = gc.jit(step, donate_argnums=(0, 1))
    params = init(2)
    opt_state = TX.init(params)
    for _ in range(3):
        params, opt_state, _ = jitted(params, opt_state, X)
    assert type(params) is dict
    assert type(opt_state) is tuple


def test_one_argument_is_the_whole_result() -> None:
    def descended(params: Any) -> Any:
        slopes = jax.grad(lambda p: jnp.mean((predict(p, X) - 1) ** 2))(params)
        return jax.tree.map(lambda p, slope: p - 0.1 * slope, params, slopes)

    jitted = gc.jit(descended, donate_argnums=0)
    params, want = init(), init()
    for _ in range(3):
        params, want = jitted(params), jax.jit(descended)(want)
    assert isinstance(params, gc.PackedTree)
    assert_trees_near(gc.unpack(params), want)


def test_a_state_object_is_one_argument() -> None:
    def of_state(state: Any, x: Any) -> Any:
        params, opt_state, metrics = step(state["params"], state["opt"], x)
        return {**state, "params": params, "opt": opt_state, "step": state["step"] + 1}, metrics

    jitted = gc.jit(of_state, donate_argnums=0)
    params = init()
    state = {"params": params, "opt": TX.init(params), "step": 0, "key": jax.random.key(1)}
    for _ in range(3):
        state, metrics = jitted(state, X)
    assert isinstance(state, gc.PackedTree)  # although its step is weakly typed
    assert int(state["step"]) == 3
    assert state["step"].weak_type
    assert state["key"].dtype == jax.random.key(1).dtype
    want = train(jax.jit(step), 3)
    assert_trees_near(state["params"], want[0])
    assert_near(np.asarray(metrics["loss"]), np.asarray(want[2]["loss"]), 1e-4, 1e-6)


def test_steps_compile_and_trace_once() -> None:
    jitted = donating()
    train(jitted, 1)
    before = COUNTERS.compiles, COUNTERS.traces, COUNTERS.captures
    train(jitted, 5)
    assert (COUNTERS.compiles, COUNTERS.traces, COUNTERS.captures) == before


@pytest.mark.parametrize("devices", [2, 4])
def test_data_parallelism(devices: int) -> None:
    jitted = donating(strategy=gc.devices.DataParallel(devices))
    got, want = train(jitted), train(jax.jit(step))
    assert_trees_near(gc.unpack(got), want)
    assert len(got[2]["loss"].devices()) == devices


def test_the_batch_of_a_strategy() -> None:
    def scored(w: Any, x: Any, key: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ w)), jax.random.normal(key)

    strategy = gc.devices.DataParallel(2)
    w, key = np.ones((8, 2), np.float32), jax.random.PRNGKey(0)
    with pytest.raises(gc.errors.AttributeValueError, match="not clear which hold the batch"):
        gc.jit(scored, strategy=strategy)(w, X, key)
    got = gc.jit(scored, strategy=strategy, batch_argnums=1)(w, X, key)
    assert_trees_near(got, jax.jit(scored)(w, X, key))
    with pytest.raises(gc.errors.AttributeValueError, match="no argument holds a batch"):
        gc.jit(scored, strategy=strategy, batch_argnums=2)(w, X, key)


def test_trees_of_two_states_in_one_call() -> None:
    jitted, by_jax = donating(), jax.jit(step)
    first, second = train(jitted, 2), train(jitted, 3)
    want_first, want_second = train(by_jax, 2), train(by_jax, 3)
    got = jitted(first[0], second[1], X)
    assert_trees_near(gc.unpack(got), by_jax(want_first[0], want_second[1], X))
    for gone in (first[0], second[1]):
        with pytest.raises(StateError, match="consumed by a call that took it together with"):
            jax.tree.leaves(gone)
    # The other trees of these states were not donated.
    assert_trees_near(gc.unpack(first[1]), want_first[1])
    got = jitted(second[0], first[1], X)
    assert_trees_near(gc.unpack(got), by_jax(want_second[0], want_first[1], X))


def test_a_function_of_some_trees_of_a_state_consumes_only_these() -> None:
    def decayed(params: Any, x: Any) -> Any:
        slopes = jax.grad(lambda p: jnp.mean(predict(p, x) ** 2))(params)
        return jax.tree.map(lambda p, slope: p - 0.1 * slope, params, slopes)

    jitted, other = donating(), gc.jit(decayed, donate_argnums=0)
    params, opt_state, _ = train(jitted, 2)
    want = train(jax.jit(step), 2)
    params = other(params, X)
    assert isinstance(params, gc.PackedTree)
    got = jitted(params, opt_state, X)
    assert_trees_near(gc.unpack(got), jax.jit(step)(jax.jit(decayed)(want[0], X), want[1], X))


class Stopped(Exception):
    pass


def test_interrupts_show_no_old_leaves() -> None:
    def stop(*_: Any) -> None:
        raise Stopped

    jitted = donating()
    params, opt_state, _ = train(jitted, 1)
    rng = np.random.default_rng(0)
    steps = 1
    with handled(signal.SIGALRM, stop):
        for _ in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-3))
                while True:
                    params, opt_state, _ = jitted(params, opt_state, X)
                    steps += 1
            except Stopped:
                signal.setitimer(signal.ITIMER_REAL, 0)
                try:
                    count = int(opt_state[0].count)  # looks into the tree, which unpacks the leaves
                except StateError:  # interrupted after the call, before its results had names
                    params, opt_state, _ = train(jitted, 1)
                    count = steps = 1
                assert count in (steps, steps + 1)
                steps = count
    want = train(jax.jit(step), steps)
    assert int(want[1][0].count) == steps
    assert_near(np.asarray(params["scale"]), np.asarray(want[0]["scale"]), 1e-2)


def test_a_packed_tree_twice_and_one_that_is_gone() -> None:
    def both(first: Any, second: Any, x: Any) -> Any:
        slopes = jax.grad(lambda p, q: jnp.mean((predict(p, x) - predict(q, x)) ** 2), (0, 1))
        a, b = slopes(first, second)
        return jax.tree.map(jnp.subtract, first, a), jax.tree.map(jnp.subtract, second, b)

    jitted = gc.jit(both, donate_argnums=(0, 1))
    first, second = jitted(init(), jax.tree.map(lambda p: p / 2, init()), X)
    want = jax.jit(both)(init(), jax.tree.map(lambda p: p / 2, init()), X)
    with pytest.raises(StateError, match="one packed tree was passed as two donated arguments"):
        jitted(first, first, X)
    assert_trees_near(gc.unpack((first, second)), want)
    copied = jax.tree.map(jnp.copy, first)
    assert_trees_near(gc.unpack(jitted(first, copied, X)), jax.jit(both)(want[0], want[0], X))
    for _ in range(2):  # `first` is consumed, but `second`, which shared its state, is not
        with pytest.raises(StateError, match="was consumed"):
            jitted(first, second, X)
    assert_trees_near(gc.unpack(second), want[1])


def test_arguments_that_are_one_array_stay_arrays() -> None:
    def of_arrays(*given: Any) -> Any:
        *layers, x = given
        tree = {"layers": [{"w": w, "b": jnp.zeros(8)} for w in layers], "scale": 1.0}
        slopes = jax.grad(lambda t: jnp.mean((predict(t, x) - 1) ** 2))(tree)
        return tuple(w - layer["w"] for w, layer in zip(layers, slopes["layers"], strict=True))

    jitted, by_jax = gc.jit(of_arrays, donate_argnums=tuple(range(12))), jax.jit(of_arrays)
    got = tuple(layer["w"] for layer in init()["layers"])
    want = got = jitted(*map(jnp.copy, got), X)
    for _ in range(2):
        want = by_jax(*want, X)
        got = jitted(*map(jnp.copy, got), X)
        assert all(isinstance(w, jax.Array) for w in got)
        assert_trees_near(got, want)
    assert jitted.memory()["aliased"] > 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TrainState:
    """A state whose field names could collide with attributes of a packed tree."""

    state: Any
    names: Any
    form: Any
    buffers: Any
    forget: Any
    consume: Any
    unpacked: Any


def test_fields_of_the_tree_are_seen_whatever_their_names() -> None:
    def advanced(s: TrainState, x: Any) -> TrainState:
        params, opt_state, _ = step(s.state, s.names, x)
        return dataclasses.replace(s, state=params, names=opt_state, form=s.form + 1)

    jitted = gc.jit(advanced, donate_argnums=0)
    params = init()
    given = TrainState(
        params, TX.init(params), 0 * jnp.ones(()), *[jnp.full(2, n) for n in range(4)]
    )
    for _ in range(2):
        given = jitted(given, X)
    assert isinstance(given, gc.PackedTree) and isinstance(given, TrainState)
    want = train(jax.jit(step), 2)
    assert_trees_near(given.state, want[0])
    assert_trees_near(given.names, want[1])
    assert float(given.form) == 2.0
    seen = [given.buffers, given.forget, given.consume, given.unpacked]
    assert [int(leaf[0]) for leaf in seen] == [0, 1, 2, 3]


def test_an_interrupt_while_the_result_is_made_loses_nothing(monkeypatch: Any) -> None:
    jitted = donating()
    params, opt_state, _ = train(jitted, 2)

    def stopped(*_: Any) -> Any:
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("graphc.jitted.results.Result.__call__", stopped)
        jitted(params, opt_state, X)
    assert int(opt_state[0].count) == 3
    got = jitted(params, opt_state, X)
    assert_trees_near(gc.unpack(got), train(jax.jit(step), 4))
