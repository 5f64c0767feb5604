"""`gc.jit` equals `jax.jit` in every context: JAX's settings, devices and traced values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import StateError
from graphc.jitted.arguments import kind_of_leaf

X = jnp.arange(3.0)
KEY = jax.random.key(0)


def assert_same(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert kind_of_leaf(a.aval) == kind_of_leaf(b.aval)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize(
    ("context", "function", "x"),
    [
        (lambda: jax.threefry_partitionable(False), lambda k: jax.random.normal(k, (5,)), KEY),
        (lambda: jax.threefry_partitionable(False), lambda k: jax.random.split(k, 5), KEY),
        (lambda: jax.default_prng_impl("rbg"), lambda k: jax.random.split(k), KEY),
        (lambda: jax.disable_jit(), lambda v: v + (1 if v[0] == 0 else 2), X),
        (lambda: jax.debug_infs(True), lambda v: v + 1, X),
        (lambda: jax.enable_x64(True), lambda v: (v, jnp.arange(3), 2.0), X),
    ],
    ids=["partitionable", "split", "rbg", "disable_jit", "debug_infs", "x64"],
)
def test_settings_between_calls(
    context: Callable[[], AbstractContextManager[Any]], function: Any, x: Any
) -> None:
    def first(v: Any) -> Any:  # a function that can be traced
        return function(v) if _can_branch(v) else v + 1

    jitted, by_jax = gc.jit(first), jax.jit(first)
    assert_same(jitted(x), by_jax(x))
    with context():
        assert_same(jitted(x), by_jax(x))
    assert_same(jitted(x), by_jax(x))


def _can_branch(value: Any) -> bool:
    return value.dtype == KEY.dtype or not isinstance(value, jax.core.Tracer)


def test_strict_promotion_is_heard_in_a_later_call() -> None:
    jitted = gc.jit(lambda v: v + jnp.arange(3))
    jitted(X)
    with jax.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="promotion path"):
        jitted(X)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")
def test_weak_types_in_64_bit_mode() -> None:
    weak = jnp.asarray(2.0)
    with jax.enable_x64(True):
        wide = jnp.arange(3.0)
        assert_same(gc.jit(lambda v: v + 1)(weak), jax.jit(lambda v: v + 1)(weak))
    # Also 64-bit arrays in 32-bit mode, for which JAX has special rules.
    jitted = gc.jit(lambda v: (v, v * 2.0, v.sum()))
    assert_same(jitted(wide), jax.jit(lambda v: (v, v * 2.0, v.sum()))(wide))
    assert "of 64 bits" in jitted.notes[0]


BIG = np.float64(1e300), np.array([2**40 + 5, 1]), np.uint64(2**40 + 5), 1e300, np.int64(2**40)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("value", BIG, ids=str)
def test_host_values_are_cast_as_jax_casts_them(value: Any) -> None:
    assert_same(gc.jit(lambda v: v * 1)(value), jax.jit(lambda v: v * 1)(value))
    jitted = gc.jit(lambda v: v * 1, donate_argnums=0)
    for _ in range(2):
        assert_same(jitted(value), jax.jit(lambda v: v * 1)(value))


@pytest.mark.parametrize("size", [3, 64 * 64])
def test_functions_that_hold_a_value_being_traced(size: int) -> None:
    x, w = jnp.linspace(0, 1, size), jnp.linspace(1, 2, size)

    def outer(jit: Any, w: Any) -> Any:
        return jit(lambda v: (v * w).sum())(x)

    def no_argument(jit: Any, w: Any) -> Any:
        return jit(lambda: w.sum())()

    for function in (outer, no_argument):
        for transform in (jax.grad, jax.jit, lambda f: jax.vmap(f, in_axes=None, axis_size=2)):
            got, want = (transform(partial(function, jit))(w) for jit in (gc.jit, jax.jit))
            assert_same(got, want)


def test_arrays_committed_to_different_devices() -> None:
    one, two = (jax.device_put(X, jax.devices()[i]) for i in (1, 2))
    jitted = gc.jit(lambda a, b: a + b)
    assert jitted(one, one).devices() == one.devices()
    for _ in range(2):
        with pytest.raises(ValueError, match="incompatible devices"):
            jitted(one, two)
    assert jitted(two, two).devices() == two.devices()
    assert jitted(X, X).devices() == X.devices()


@pytest.mark.parametrize("key", [None, "commits"])
def test_results_are_committed_if_arguments_are(key: str | None, tmp_path: Path) -> None:
    """Also to the default device, and by programs from the cache."""
    first, second = jax.devices()[:2]
    ours: dict[str, Any] = {"options": gc.CompileOptions(cache=tmp_path), "cache_key": key}
    for jit, options in ((jax.jit, {}), (gc.jit, ours), (gc.jit, ours)):
        jitted = jit(lambda x: x + 1, **options)
        loose = jitted(X)
        here, there = (jitted(jax.device_put(X, device)) for device in (first, second))
        again = jitted(jitted(here)), jitted(loose), jitted(X)
        found = [x.committed for x in (loose, here, there, *again)]
        assert found == [False, True, True, True, False, False]
        with jax.default_device(second):
            assert jitted(here).devices() == {first} and jitted(X).devices() == {second}
        with pytest.raises(ValueError, match="incompatible devices"):
            here + there


def test_packed_results_are_committed_if_arguments_are() -> None:
    def step(layers: list[Any], x: Any) -> tuple[list[Any], Any]:
        for w, b in layers:
            x = jnp.tanh(x @ w * 0.5 + b) + jnp.sin(x) * 0.1
        return [(w * 0.9 + x.mean() * 0.01, b + 0.1) for w, b in layers], x

    x = jnp.ones((4, 8))
    for given, want in ((x, False), (jax.device_put(x, jax.devices()[0]), True)):
        layers: Any = [(jnp.eye(8), jnp.zeros(8)) for _ in range(60)]
        jitted = gc.jit(step, donate_argnums=0)
        for _ in range(3):
            layers, y = jitted(layers, given)
            assert y.committed == want
        assert isinstance(layers, gc.PackedTree)
        assert {leaf.committed for leaf in jax.tree.leaves(layers)} == {want}


def test_later_calls_look_at_devices() -> None:
    jitted, x = gc.jit(lambda x: x * 2), jnp.arange(8.0)
    first, second = jax.devices()[:2]
    there = jax.device_put(x, second)
    for _ in range(3):
        assert jitted(there).devices() == {second}
    for _ in range(3):
        assert jitted(x).devices() == {first}  # not committed: it runs on the default device
    assert jitted(there).devices() == {second}


def test_later_calls_look_at_arguments() -> None:
    jitted, x = gc.jit(lambda x: x * np.float16(2)), jnp.arange(3.0)
    for _ in range(3):
        jitted(x)
    assert jax.grad(lambda x: jitted(x).sum())(x).tolist() == [2, 2, 2]
    assert jitted(np.arange(3, dtype=np.float32)).tolist() == [0, 2, 4]
    weak = jnp.broadcast_to(jnp.asarray(2.0), 3)
    assert (weak.weak_type, jitted(weak).dtype) == (True, jnp.float16)
    mesh = jax.make_mesh((1,), ("a",), (jax.sharding.AxisType.Auto,))
    spread = jax.NamedSharding(mesh, jax.P("a"))
    assert jitted(jax.device_put(x, spread)).sharding == spread


def test_large_programs_look_at_devices_too() -> None:
    jitted = gc.jit(lambda a: a + 1)
    host = np.ones((4096, 4096), np.float32)
    for device in (jax.devices()[0], jax.devices()[1], jax.devices()[0]):
        assert jitted(jax.device_put(host, device)).devices() == {device}


def test_a_mesh_of_one_device() -> None:
    mesh = jax.make_mesh((1,), ("a",))
    x = jax.device_put(jnp.arange(8.0), jax.NamedSharding(mesh, jax.P("a")))
    jitted = gc.jit(lambda v: v + 1)
    assert jitted(x).sharding == jax.jit(lambda v: v + 1)(x).sharding
    assert jitted.notes == ["arrays among the arguments are laid out over a mesh: pass strategy="]


def test_a_mesh_that_is_set() -> None:
    jitted = gc.jit(lambda v: v + 1)
    jitted(np.arange(4.0))
    with jax.set_mesh(jax.make_mesh((2,), ("a",))):
        got, want = jitted(np.arange(4.0)), jax.jit(lambda v: v + 1)(np.arange(4.0))
    assert got.sharding == want.sharding


def test_packed_trees_stay_on_their_device() -> None:
    from tests.jitted.test_packed import TX, X, donating, init

    jitted = donating()
    for device in jax.devices()[:3]:
        params = jax.device_put(init(), device)
        opt_state = jax.device_put(TX.init(init()), device)
        for x in (X, X, X[:3], X, X):  # the batch is a NumPy array
            params, opt_state, metrics = jitted(params, opt_state, x)
            assert metrics["loss"].devices() == {device}
            assert all(leaf.devices() == {device} for leaf in jax.tree.leaves(params))
    assert repr(jitted).endswith("6 programs>")


@pytest.mark.parametrize("size", [64, 4096])
def test_a_held_array_that_was_deleted(size: int) -> None:
    w = jnp.ones((size, 64))
    jitted = gc.jit(lambda v: v @ w)
    jitted(jnp.ones((2, size)))
    w.delete()
    with pytest.raises(StateError, match="an array that the function holds was deleted"):
        jitted(jnp.ones((2, size)))


def test_odd_keys_of_a_donated_dict() -> None:
    keys = [
        "a.b",
        "a/b",
        "",
        "a b",
        "é",
        "a_b",
        "0",
        "\n",
        "x" * 2000,
        "a:0",
        "__x",
        "a/",
        "/",
        "//",
    ]

    def plus(tree: Any, /, **more: Any) -> Any:
        return {key: leaf + 1 for key, leaf in tree.items()}, more

    jitted = gc.jit(plus, donate_argnums=0, donate_argnames="__x")
    tree, more = {key: X + i for i, key in enumerate(keys)}, {"__x": X + 0}
    want = plus(tree, **more)
    assert_same(jitted(tree, **more), want)


def test_attributes_of_the_function_hide_no_methods() -> None:
    def double(x: Any) -> Any:
        """Twice."""
        return 2 * x

    double.compile = double.notes = double.save = 3  # type: ignore[attr-defined]
    double.own = 4  # type: ignore[attr-defined]
    jitted = gc.jit(double)
    assert callable(jitted.compile)
    assert callable(jitted.save)
    assert (jitted.notes, jitted.own, jitted.__doc__) == ([], 4, "Twice.")


def test_calls_in_turns_are_found_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = gc.jit(lambda x, n: x * n, static_argnums=1)
    calls = [(X, 2), (jnp.ones(4), 2), (np.ones(3, np.float32), 2), (X, 3)]
    want = [jitted(*call) for call in calls]
    monkeypatch.setattr(jitted, "_program", None)
    for _ in range(2):
        assert_same([jitted(*call) for call in calls], want)
    assert jitted.executable.interface.feeds[0].type.shape == (3,)


def test_a_batch_that_is_no_argument() -> None:
    strategy = gc.devices.DataParallel(2)
    with pytest.raises(gc.errors.AttributeValueError, match="batch_argnums has 5"):
        gc.jit(lambda v: v, strategy=strategy, batch_argnums=5)
    last = gc.jit(lambda w, v: (w * v).sum(), strategy=strategy, batch_argnums=iter([-1]))
    for size in (7, 8):
        assert float(last(2.0, np.arange(float(size)))) == size * (size - 1)
