"""`gc.jit` returns the results of `jax.jit`: values, dtypes, weak types, structures, keys."""

from __future__ import annotations

import dataclasses
import functools
import threading
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from jax import lax
from jax import numpy as jnp

import graphc as gc
from graphc.errors import (
    ArgumentError,
    AttributeValueError,
    GraphError,
    JaxImportError,
    StateError,
)
from graphc.jitted.arguments import kind_of_leaf
from graphc.runtime.core.counters import COUNTERS
from tests.near import assert_near

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WEIGHTS = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)


class Pair(NamedTuple):
    a: Any
    b: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["power"])
@dataclasses.dataclass
class Model:
    w: Any
    power: int


def held_in_a_loop(x: Any) -> Any:
    big = jnp.asarray(WEIGHTS)
    return lax.scan(lambda c, _: (jnp.tanh(c @ big), c.sum()), x, None, length=3)


def keyed(key: Any, x: Any) -> Any:
    new, own = jax.random.split(key)
    return new, x + jax.random.normal(own, x.shape)


# name: (function, arguments)
CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "number": (lambda x, rate: (x * rate, rate, rate + 1), (X, 0.1)),
    "weak": (lambda x, n: (x * n, n / 2), (jnp.ones(3, jnp.bfloat16), 3)),
    "numpy": (lambda x, y: x @ y, (X, np.ones((3, 2), np.int32))),
    "float64": (lambda x: x * 2, (np.ones(3),)),
    "half": (lambda x: x.sum(), (np.ones((2, 3), np.float16),)),
    "typed key": (keyed, (jax.random.key(3), X)),
    "raw key": (keyed, (jax.random.PRNGKey(3), X)),
    "nest": (lambda s: Pair(s.b, {"z": s.a, "none": None}), (Pair(X, [X, X]),)),
    "dataclass": (lambda m: Model(m.w**m.power, m.power), (Model(X, 3),)),
    "nothing": (lambda: jnp.arange(3), ()),
    "constants": (lambda x: (1, 2.5, x, True, np.int8(3)), (X,)),
    "held": (lambda x: x @ jnp.asarray(WEIGHTS), (np.ones((2, 64), np.float32),)),
    "held in a loop": (held_in_a_loop, (np.ones((2, 64), np.float32),)),
    "swapped": (lambda x, y: (y, x), (X, X + 1)),
    "bools": (lambda x: x > 1, (X,)),
    "complex": (lambda x: jnp.fft.fft(x), (X,)),
    "indices": (lambda x: jnp.argsort(-x), (X,)),
    "twice": (lambda x: (x * 2,) * 2, (X,)),
    "unused": (lambda x, y: x, (X, X)),
    "empty": (lambda x: x.sum(), (np.zeros((0, 3), np.float32),)),
    "loop": (lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c * 2 + 1, x), (X,)),
    "gradient": (jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2)), (X,)),
}


def assert_same(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert kind_of_leaf(a.aval) == kind_of_leaf(b.aval)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert_near(np.asarray(a), np.asarray(b), 1e-5, 1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_equals_jax(name: str) -> None:
    function, args = CALLS[name]
    jitted = gc.jit(function)
    want = jax.jit(function)(*args)
    for _ in range(3):  # the first call, the first direct call, another call
        assert_same(jitted(*args), want)
    assert jitted.notes == []
    assert "1 programs" in repr(jitted)


def test_64_bits_in_their_context() -> None:
    jitted = gc.jit(lambda x: x * 2)
    with jax.enable_x64(True):
        assert jitted(np.ones(3)).dtype == np.float64
    assert jitted(np.ones(3)).dtype == np.float32
    with jax.enable_x64(True):
        assert jitted(np.ones(3)).dtype == np.float64


@pytest.mark.parametrize("role", [{"static_argnums": 1}, {"static_argnames": "n"}])
def test_static_arguments(role: dict[str, Any]) -> None:
    jitted = gc.jit(lambda x, n=2: x**n, **role)
    for n in (3, 4, 3):
        assert_near(np.asarray(jitted(X, n)), X**n, 1e-6, 0)
        assert_near(np.asarray(jitted(X, n=n)), X**n, 1e-6, 0)
    with pytest.raises(AttributeValueError, match=r"'n' must be hashable, got list"):
        jitted(X, [3])


def test_values_of_static_arguments_have_types() -> None:
    jitted = gc.jit(lambda x, n: x + n, static_argnums=1)
    x = jnp.arange(3)
    assert [jitted(x, n).dtype for n in (1, 1.0, True)] == ["int32", "float32", "int32"]


def test_named_arguments() -> None:
    jitted = gc.jit(lambda x, *, b, a: x * a - b)
    assert_same(jitted(X, a=2.0, b=X), jax.jit(lambda x, *, b, a: x * a - b)(X, b=X, a=2.0))


def test_it_decorates_functions_and_methods() -> None:
    class Scaled:
        scale = 3.0

        @gc.jit(static_argnums=0)
        def of(self, x: Any) -> Any:
            return x * self.scale

    assert_near(np.asarray(Scaled().of(X)), X * 3, 1e-6, 0)

    @gc.jit
    def named(x: Any) -> Any:
        """Its text."""
        return x

    assert (named.__name__, named.__doc__) == ("named", "Its text.")


def test_a_deleted_array_beside_a_number_is_named() -> None:
    step = gc.jit(lambda p, factor, key: p * factor + jax.random.uniform(key), donate_argnums=0)
    key, old = jax.random.key(0), jnp.ones(3)
    for _ in range(3):  # later calls take the fast path
        p = old + 0
        step(p, 2.0, key)
    assert p.is_deleted()
    with pytest.raises(StateError, match=r"argument 'p' was deleted: .*an earlier call"):
        step(p, 2.0, key)


def test_a_deleted_array_is_named() -> None:
    jitted = gc.jit(lambda p, x: (p + x.sum(), p.sum()), donate_argnums=0)
    p = jnp.ones(3)
    q, _ = jitted(p, X)
    assert p.is_deleted()
    for _ in range(2):
        with pytest.raises(StateError, match=r"argument 'p' was deleted: .*an earlier call"):
            jitted(p, X)
    r, _ = jitted(q, X)
    with pytest.raises(StateError, match=r"argument 'p' was deleted"):
        jitted(q, X)
    assert_near(np.asarray(r), np.full(3, 31.0), 1e-6, 0)
    x = jnp.asarray(X)
    x.delete()
    with pytest.raises(StateError, match=r"argument 'x' was deleted"):
        jitted(r, x)
    assert not r.is_deleted()


def test_a_donated_argument_that_is_not_returned() -> None:
    jitted = gc.jit(lambda p, x: p.sum() + x, donate_argnums=0)
    assert float(jitted(jnp.ones(3), 1.0)) == 4.0


def test_a_donated_argument_that_is_returned_as_it_was() -> None:
    jitted = gc.jit(lambda p, x: (p, x + p[0]), donate_argnums=0)
    p = jnp.ones(3)
    for _ in range(3):
        p, y = jitted(p, 1.0)
    assert_near(np.asarray(p), np.ones(3), 0, 0)
    assert float(y) == 2.0


def test_other_arguments_make_other_programs() -> None:
    jitted = gc.jit(lambda x: x * 2)
    for value in (X, X.astype(np.int32), X[:1], jnp.asarray(X), X.tolist(), X):
        want = jax.tree.map(lambda leaf: np.asarray(leaf) * 2, value)
        if isinstance(value, list):
            with pytest.raises(TypeError):  # the function fails for a list
                jax.jit(lambda x: x + 1)(value)
            continue
        assert_near(np.asarray(jitted(value)), want, 0, 0)
    assert "3 programs" in repr(jitted)
    jitted.clear_cache()
    assert "0 programs" in repr(jitted)


# -- calls that are left to JAX ------------------------------------------------------------------


def test_inside_transformations_jax_runs_it() -> None:
    jitted = gc.jit(lambda x: jnp.sum(x**2))
    assert_near(np.asarray(jax.grad(jitted)(X)), 2 * X, 1e-6, 0)
    assert_near(np.asarray(jax.vmap(jitted)(X)), (X**2).sum(1), 1e-6, 0)
    assert float(jax.jit(jitted)(X)) == float(np.sum(X**2))
    assert jitted.notes == ["it was called inside jax.grad, jax.vmap or jax.jit"]
    with pytest.raises(GraphError, match=r"has no compiled program: it was called inside"):
        jitted.report()


def test_callbacks_run_by_jax(capsys: Any) -> None:
    def shown(x: Any) -> Any:
        jax.debug.print("first {}", x[0, 0])
        return x * 2

    jitted = gc.jit(shown)
    assert_near(np.asarray(jitted(X)), X * 2, 0, 0)
    jax.effects_barrier()
    assert "first 0.0" in capsys.readouterr().out
    assert jitted.notes == ["it has side effects: jax.debug.print, io_callback or references"]
    with pytest.raises(GraphError, match=r"runs by jax.jit: it has side effects"):
        jitted.compile(X)


def test_a_result_that_is_no_array_gives_the_error_of_jax() -> None:
    def described(x: Any) -> Any:
        return x, {"kind": "mean"}

    with pytest.raises(TypeError, match=r"function described at .*test_jit.py"):
        gc.jit(described)(X)


def test_what_cannot_be_imported_runs_by_jax() -> None:
    def draw(key: Any) -> Any:
        return jax.random.normal(key, (3,))

    jitted = gc.jit(draw)
    key = jax.random.key(0, impl="rbg")
    assert_near(np.asarray(jitted(key)), np.asarray(draw(key)), 1e-6, 1e-6)
    assert len(jitted.notes) == 1
    assert "another generator" in jitted.notes[0]


def test_a_function_without_arrays_runs_by_jax() -> None:
    jitted = gc.jit(lambda x: None)
    assert jitted(X) is None
    assert jitted.notes == ["the function returns no array"]


def test_arrays_on_several_devices_without_a_strategy() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("d",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    jitted = gc.jit(lambda x: x * 2)
    jitted(X)
    got = jitted(jax.device_put(X, spread))
    assert got.sharding == spread
    assert "pass strategy=" in jitted.notes[0]


def test_arrays_decide_the_device() -> None:
    jitted = gc.jit(lambda x: x * 2)
    first, second = jax.devices()[:2]
    x = jnp.asarray(X)
    for _ in range(2):
        assert jitted(x).devices() == {first}
        assert jitted(jax.device_put(x, second)).devices() == {second}
        with jax.default_device(second):
            assert jitted(X).devices() == {second}
    got = jitted(x)  # not committed: other devices may use it too
    assert (got + jax.device_put(x, second)).devices() == {second}


# -- mistakes ------------------------------------------------------------------------------------


def test_a_branch_on_a_value() -> None:
    with pytest.raises(JaxImportError, match="needs the value of its argument") as caught:
        gc.jit(lambda x: x if x.sum() > 0 else -x)(X)
    assert "lax.cond" in str(caught.value)
    assert "test_jit.py" in str(caught.value)


def test_arguments_that_are_no_arrays() -> None:
    with pytest.raises(ArgumentError, match=r"argument 'x/mode' is not an array: 'max'"):
        gc.jit(lambda x: x["a"])({"a": X, "mode": "max"})


@pytest.mark.parametrize("donated", [(), (0,)])
@pytest.mark.parametrize("others", [(), (1.0,), (X,)])
def test_arguments_that_are_no_arrays_after_some_that_were(
    others: tuple[Any, ...], donated: tuple[int, ...]
) -> None:
    """Also in later calls, which look for the form of the last one."""
    jitted = gc.jit(lambda x, *others: x + 1, donate_argnums=donated)
    for good in (X, jnp.asarray(X), 3):
        jitted(good, *others)
        for bad in (np.array(["a", "b"]), np.array([None]), X.view([("a", "f4")])):
            with pytest.raises(
                AttributeValueError, match=r"argument 'x': Dtype .* is not a valid JAX"
            ):
                jitted(bad, *others)
        for bad, message in (
            (2**70, r"argument 'x': Python int .* too large"),
            (np.ma.array(X), "argument 'x': numpy masked arrays are not supported"),
            (jax.ShapeDtypeStruct(X.shape, X.dtype), "ShapeDtypeStruct.*, which is not an array"),
        ):
            with pytest.raises(AttributeValueError, match=message):
                jitted(bad, *others)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"static_argnums": 5}, "static_argnums has 5, which is not an argument"),
        ({"donate_argnums": -3}, "donate_argnums has -3, which is not an argument"),
        ({"static_argnames": "z"}, "static_argnames has 'z', which is not an argument"),
        ({"static_argnums": "x"}, "static_argnums must be positions, got 'x'"),
        ({"donate_argnames": 0}, "donate_argnames must be names, got 0"),
        ({"static_argnums": 1, "donate_argnames": "n"}, "argument .* is static and donated"),
        ({"strategy": 4}, "strategy must be an object of gc.devices"),
        ({"options": {}}, "options must be a gc.CompileOptions"),
    ],
)
def test_arguments_of_jit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AttributeValueError, match=message):
        gc.jit(lambda x, n: x, **arguments)


def test_jit_of_a_value() -> None:
    with pytest.raises(ArgumentError, match="is not a function"):
        gc.jit(X)


# -- threads, cache ------------------------------------------------------------------------------


def test_threads_compile_once() -> None:
    jitted = gc.jit(lambda x, n: jnp.tanh(x) * n)
    wrong: list[Any] = []

    def call(n: int) -> None:
        for _ in range(20):
            got = np.asarray(jitted(X, float(n)))
            if not np.allclose(got, np.tanh(X) * n, atol=1e-5):
                wrong.append((n, got))

    before = COUNTERS.compiles
    threads = [threading.Thread(target=call, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert COUNTERS.compiles - before == 1


def test_a_second_function_finds_the_program_in_the_cache() -> None:
    tx = optax.adam(0.1)

    def step(params: Any, opt_state: Any, x: Any) -> Any:
        loss, slopes = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"]) ** 2))(params)
        updates, opt_state = tx.update(slopes, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def run() -> Any:
        params = {"w": jnp.ones((3, 1))}
        return gc.jit(step, donate_argnums=(0, 1))(params, tx.init(params), X)

    first = run()
    before = COUNTERS.compiles, COUNTERS.passes
    assert_same(run(), first)
    assert (COUNTERS.compiles, COUNTERS.passes) == before


def test_large_arrays_that_a_function_holds_are_not_in_the_program() -> None:
    weights = jnp.asarray(WEIGHTS)
    jitted = gc.jit(lambda x: jnp.tanh(x @ weights))
    x = np.ones((2, 64), np.float32)
    assert_near(np.asarray(jitted(x)), np.tanh(x @ WEIGHTS), 1e-5, 1e-5)
    assert [value.name for value in jitted.executable.interface.feeds] == ["x", "held_0"]


def test_a_note_names_all_that_is_refused() -> None:
    def refused(x: Any) -> Any:
        where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return lax.with_sharding_constraint(x, where) + lax.rng_uniform(0.0, 1.0, x.shape)

    jitted = gc.jit(refused)
    assert jitted(X).shape == X.shape
    (note,) = jitted.notes
    assert "rng_uniform" in note
    assert "sharding_constraint" in note
