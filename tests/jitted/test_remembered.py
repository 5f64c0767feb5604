"""Calls of a jitted function that are found again without a search for their program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.extend
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import StateError
from graphc.jitted import direct, remembered
from graphc.jitted.function import JittedFunction
from tests.jitted.test_packed import TX, donating, init, step
from tests.jitted.test_surroundings import assert_same
from tests.near import assert_near


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one item for each search for a program, and for each `DirectCall`."""
    found: list[str] = []

    def watch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watched(self: Any, *args: Any) -> Any:
            found.append(name)
            return original(self, *args)

        monkeypatch.setattr(owner, name, watched)

    watch(JittedFunction, "_program")
    watch(direct.DirectCall, "__init__")
    return found


SHAPES = [{"a": jnp.ones(n), "b": jnp.arange(2.0)} for n in range(1, 9)]
MIXED = [
    jnp.ones(2),
    np.ones(2, np.float32),
    jnp.ones(2, jnp.int32),
    jnp.broadcast_to(jnp.asarray(2.0), 2),  # weakly typed
    1.0,
    1,
    True,
    np.float32(1),
]
KEYS = [jax.random.key(0), jnp.zeros(()), np.zeros(()), jax.random.split(jax.random.key(1), 2)]


@pytest.mark.parametrize(
    ("function", "forms", "more"),
    [
        (lambda x: x["a"] * x["b"].sum(), [(x,) for x in SHAPES], {}),
        (lambda x, n: x * n, [(jnp.ones(3), n) for n in range(8)], {"static_argnums": 1}),
        (lambda x: x * np.float16(2), [(x,) for x in MIXED], {}),
        (lambda x: (x, 1), [(x,) for x in KEYS], {}),
        (
            lambda x: x + 1,
            [(jax.device_put(jnp.ones(3), jax.devices()[n]),) for n in range(4)],
            {},
        ),
    ],
    ids=["shapes", "statics", "kinds", "keys", "devices"],
)
def test_many_forms_in_turn(
    searches: list[str], function: Any, forms: list[Any], more: dict[str, Any]
) -> None:
    jitted, by_jax = gc.jit(function, **more), jax.jit(function, **more)
    for args in forms:
        jitted(*args)
    searches.clear()
    for _ in range(2):
        for args in forms:
            got, want = jitted(*args), by_jax(*args)
            assert_same(got, want)
            first = jax.tree.leaves(want)[0]
            assert jax.tree.leaves(got)[0].devices() == first.devices()
    assert searches == []


def test_settings_in_turn(searches: list[str]) -> None:
    jitted, x = gc.jit(lambda v: (v + 1, jnp.arange(3), 2.0)), jnp.arange(3.0)
    contexts: list[Callable[[], Any]] = [
        lambda: jax.enable_x64(True),
        lambda: jax.enable_x64(False),
        lambda: jax.default_device(jax.devices()[1]),
        lambda: jax.default_device(jax.devices()[2]),
        lambda: jax.default_matmul_precision("float32"),
        lambda: jax.numpy_dtype_promotion("strict"),
    ]
    by_jax = jax.jit(lambda v: (v + 1, jnp.arange(3), 2.0))
    for number in range(3):
        for context in contexts:
            with context():
                got, want = jitted(x), by_jax(x)
                assert_same(got, want)
                assert got[0].devices() == want[0].devices()
        if number == 0:
            searches.clear()
    assert searches == []


@pytest.mark.slow
def test_donated_trees_of_many_batches(searches: list[str]) -> None:
    batches = [np.ones((n, 8), np.float32) for n in range(1, 7)]
    jitted = donating()
    params = init()
    opt_state = TX.init(params)
    want, by_jax = (init(), TX.init(init())), jax.jit(step)
    for number in range(3):
        for batch in batches:
            params, opt_state, _ = jitted(params, opt_state, batch)
            want = by_jax(*want, batch)[:2]
        if number == 0:
            params, opt_state, _ = jitted(params, opt_state, batches[0])
            want = by_jax(*want, batches[0])[:2]
            searches.clear()
    assert searches == []
    assert_near(params["scale"], want[0]["scale"], 1e-4)
    small, wide = gc.jit(lambda x, y: x + y.sum(), donate_argnums=0), jnp.ones(3)
    for number in range(1, 8):
        small(jnp.ones(3), jnp.ones(number))
    small(wide, jnp.ones(2))
    with pytest.raises(StateError, match="donated to an earlier call"):
        small(wide, jnp.ones(5))


def test_what_is_remembered_has_a_limit(
    searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "_MOST", 3)
    jitted = gc.jit(lambda x: x.sum())
    for number in (1, 2, 3, 4, 2, 3, 4, 1):
        assert float(jitted(jnp.ones(number))) == number
    assert searches.count("_program") == 5  # the first of four was forgotten
    assert len(jitted._remembered._entries) == 3
    assert jitted.executable is jitted.compile(jnp.ones(1))
    jitted.clear_cache()
    assert len(jitted._remembered._entries) == 0
    assert float(jitted(jnp.ones(2))) == 2
    assert "1 programs" in repr(jitted)


def test_the_last_call_is_that_of_the_last_form() -> None:
    jitted = gc.jit(lambda x: x * 2)
    executables = []
    for number in range(1, 8):
        jitted(jnp.ones(number))
        executables.append(jitted.executable)
    for number in (3, 1, 7):
        jitted(jnp.ones(number))
        assert jitted.executable is executables[number - 1]


def test_threads_with_other_forms() -> None:
    jitted, wrong = gc.jit(lambda x, n: x.sum() * n, static_argnums=1), []

    def work(start: int) -> None:
        for number in range(start, start + 40):
            size = number % 9 + 1
            if float(jitted(jnp.ones(size), number % 2 + 1)) != size * (number % 2 + 1):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- calls that are left to JAX ------------------------------------------------------------------


def shown(x: Any) -> Any:
    jax.debug.callback(lambda v: None, x[0])
    return x + 1


RBG = jax.random.key(0, impl="rbg")


@pytest.mark.parametrize(
    ("function", "x", "other"),
    [
        (shown, jnp.ones(3), None),
        (shown, np.ones(3, np.float32), None),
        (lambda x: None, jnp.ones(3), None),
        (lambda x: x, RBG, jax.random.key(0)),
    ],
    ids=["callback", "numpy", "none", "rbg"],
)
def test_what_is_left_to_jax_is_remembered(
    searches: list[str], function: Any, x: Any, other: Any
) -> None:
    jitted = gc.jit(function)
    jitted(x)
    assert len(jitted.notes) == 1
    searches.clear()
    for _ in range(3):
        assert_same(jitted(x), jax.jit(function)(x))
    assert searches == []
    if other is not None:  # the same shape, but graphc runs it
        assert_same(jitted(other), other)
        assert jitted.executable is not None
        assert_same(jitted(x), x)
    assert len(jitted.notes) == 1
    with pytest.raises(gc.errors.GraphError, match=r"runs by jax\.jit"):
        jitted.compile(x)


def test_settings_that_leave_calls_to_jax(searches: list[str]) -> None:
    jitted, x = gc.jit(lambda v: v + 1), jnp.arange(3.0)
    for number in range(3):
        with jax.debug_infs(True):
            assert_same(jitted(x), x + 1)
        assert jitted(x).tolist() == [1, 2, 3]
        if number == 0:
            searches.clear()
    assert searches == []
    assert jitted.notes == ["jax_debug_infs is set"]


def test_traced_values_after_a_call_that_was_left_to_jax() -> None:
    jitted, x = gc.jit(shown), jnp.arange(3.0)
    jitted(x)
    assert jax.grad(lambda v: jitted(v).sum())(x).tolist() == [1, 1, 1]
    assert len(jitted.notes) == 2
    assert jax.vmap(jitted)(jnp.ones((2, 3))).tolist() == [[2, 2, 2]] * 2


def test_arrays_over_a_mesh_are_not_remembered_by_their_forms() -> None:
    jitted, x = gc.jit(lambda v: v + 1), jnp.arange(4.0)
    one, two = (jax.device_put(x, jax.devices()[n]) for n in (0, 1))
    mesh = jax.make_mesh((2,), ("a",), (jax.sharding.AxisType.Auto,))
    spread = jax.device_put(x, jax.NamedSharding(mesh, jax.P("a")))
    for _ in range(2):
        assert jitted(spread).sharding == spread.sharding
        assert jitted(one).devices() == one.devices()
        assert jitted(two).devices() == two.devices()
    assert len(jitted.notes) == 1


def noisy(state: Any, x: Any) -> Any:
    """A step whose state has a typed key, which it replaces."""
    key, use = jax.random.split(state["key"])
    return {"key": key, "w": state["w"] + jax.random.normal(use, x.shape)}, x.sum()


def test_typed_keys_in_donated_state_take_the_fast_path(
    searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jitted, by_jax = gc.jit(noisy, donate_argnums=0), jax.jit(noisy)
    x = jnp.ones(3)

    def state(key: Any) -> Any:
        return {"key": key, "w": jnp.zeros(3)}

    first = state(jax.random.key(3))
    got, _ = jitted(first, x)
    assert searches == ["_program", "__init__"]
    monkeypatch.setattr(jax.random, "key_data", None)  # the words are taken without a computation
    for _ in range(2):
        got, _ = jitted(got, x)
    assert len(searches) == 2
    want = state(jax.random.key(3))
    for _ in range(3):
        want, _ = by_jax(want, x)
    assert got["key"].dtype == want["key"].dtype
    assert str(got["key"]) == str(want["key"])
    assert_near(np.asarray(got["w"]), np.asarray(want["w"]), 1e-5, 1e-6)
    assert first["key"].is_deleted()
    with pytest.raises(StateError, match="donated"):
        jitted(first, x)


def test_what_is_no_such_key_takes_another_program() -> None:
    jitted = gc.jit(lambda key: jax.random.bits(key, (2,)), donate_argnums=())
    key = jax.random.key(5)
    want = jax.random.bits(key, (2,)).tolist()
    for _ in range(2):
        assert jitted(key).tolist() == want
    assert jitted(jax.random.key_data(key)).tolist() == want  # a raw key
    rbg = jax.random.key(5, impl="rbg")
    assert jitted(rbg).tolist() == jax.random.bits(rbg, (2,)).tolist()  # JAX draws it
    assert jax.jit(jitted)(key).tolist() == want  # a tracer
    assert jitted(key).tolist() == want
    key.delete()
    with pytest.raises(StateError, match="deleted"):
        jitted(key)


def test_keys_of_another_generator_with_as_many_words_are_told_apart() -> None:
    fry = jax.random.key(5)
    words = jnp.zeros(2, jnp.uint32)
    other = jax.extend.random.define_prng_impl(
        key_shape=(2,),
        seed=lambda seed: words,
        split=lambda key, shape: jnp.zeros((*shape, 2), jnp.uint32),
        random_bits=lambda key, width, shape: jnp.full(shape, 7, jnp.uint32),
        fold_in=lambda key, data: words,
        name="sevens",
        tag="sev",
    )
    jitted = gc.jit(lambda key: jax.random.bits(key, (2,)))
    want = jax.random.bits(fry, (2,)).tolist()
    for _ in range(2):
        assert jitted(fry).tolist() == want
        assert jitted(jax.random.key(5, impl=other)).tolist() == [7, 7]
