"""Primitives of other packages, derivatives that cannot be built, and typed keys."""

import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import ad

import graphc as gc
from graphc.errors import GradientError, JaxImportError
from tests.near import assert_near

X = np.array([0.5, -1.0, 2.0], "float32")


def primitive(name, function):
    """A primitive with one operand that a JAX function evaluates."""
    made = Primitive(name)
    made.def_impl(function)
    made.def_abstract_eval(lambda x, **params: x)
    return made


doubled = primitive("doubled_for_tests", lambda x, *, by: x * by)
# Not the function's derivative, on purpose: the package's rule counts.
ad.defjvp(doubled, lambda t, x, *, by: 10.0 * t)
opaque = Primitive("opaque_for_tests")
opaque.def_abstract_eval(lambda x: x)


def imported(fn, value):
    with gc.Graph() as graph:
        x = gc.placeholder(value.shape, value.dtype, name="x")
        y = gc.from_jax(fn)(x)
    return graph, x, y


def near(got, want):
    assert_near(np.asarray(got), np.asarray(want), 1e-5, 1e-6)


def test_a_primitive_becomes_the_function_that_evaluates_it():
    graph, x, y = imported(lambda x: jnp.sin(doubled.bind(x, by=3.0)), X)
    assert "Primitive" not in [node.op.name for node in graph.nodes]
    near(gc.Session(graph).run(y, {x: X}), np.sin(3 * X))


def test_its_gradient_is_the_one_of_its_package():
    graph, x, y = imported(lambda x: jnp.sin(doubled.bind(x, by=3.0)), X)
    with graph.extend():
        (dx,) = gc.gradients(gc.sum(y), [x])
    near(gc.Session(graph).run(dx, {x: X}), 10 * np.cos(3 * X))


def test_its_second_and_third_derivatives_too():
    graph, x, y = imported(lambda x: jnp.sin(doubled.bind(x, by=3.0)), X)
    with graph.extend():
        (first,) = gc.gradients(gc.sum(y), [x])
        (second,) = gc.gradients(gc.sum(first), [x])
        (third,) = gc.gradients(gc.sum(second), [x])
    got = gc.Session(graph).run([second, third], {x: X})
    near(got[0], -100 * np.sin(3 * X))
    near(got[1], -1000 * np.cos(3 * X))


def test_a_primitive_in_a_loop_is_found():
    def fn(x):
        return jax.lax.fori_loop(0, 3, lambda i, c: doubled.bind(c, by=2.0), x)

    graph, x, y = imported(fn, X)
    near(gc.Session(graph).run(y, {x: X}), 8 * X)


def test_a_primitive_that_nothing_evaluates_is_refused():
    with pytest.raises(JaxImportError, match="'opaque_for_tests': there is no graphc operator"):
        imported(lambda x: opaque.bind(x), X)


@jax.custom_vjp
def broken(x):
    return x * 2


def _no_derivative(residuals, dy):
    raise TypeError("nobody wrote this derivative\nand more")


broken.defvjp(lambda x: (x * 2, None), _no_derivative)


def test_a_derivative_that_cannot_be_built_is_refused_when_it_is_requested():
    graph, x, y = imported(broken, X)
    near(gc.Session(graph).run(y, {x: X}), 2 * X)
    with (
        graph.extend(),
        pytest.raises(GradientError, match="TypeError: nobody wrote this derivative") as caught,
    ):
        gc.gradients(y, [x])
    assert "test_foreign.py" in str(caught.value)


def test_a_derivative_is_built_once_when_it_is_requested():
    built = []

    @jax.custom_vjp
    def counted(x):
        return x * 2

    def backward(residuals, dy):
        built.append(dy)
        return (3.0 * dy,)

    counted.defvjp(lambda x: (x * 2, None), backward)
    graph, x, y = imported(lambda x: jnp.sin(counted(x)), X)
    gc.Session(graph).run(y, {x: X})
    assert not built
    with graph.extend():
        slopes = [gc.gradients(gc.sum(y), x), gc.gradients(gc.sum(y * y), x)]
    assert len(built) == 1
    got = gc.Session(graph).run(slopes, {x: X})
    near(got[0], 3 * np.cos(2 * X))
    near(got[1], 6 * np.sin(2 * X) * np.cos(2 * X))


def test_a_copied_graph_has_first_and_second_derivatives_and_no_others():
    graph, x, y = imported(lambda x: jax.nn.relu(x) ** 3 + broken(x), X)
    copied = pickle.loads(pickle.dumps(graph))
    with copied.extend():
        x = copied.node("x").outputs[0]
        y = copied.node(y.node.name).outputs[0]
        with pytest.raises(GradientError, match="nobody wrote this derivative"):
            gc.gradients(gc.sum(y), x)
    graph, x, y = imported(lambda x: jax.nn.silu(jnp.logaddexp(x, 1.0)), X)
    copied = pickle.loads(pickle.dumps(graph))
    with copied.extend():
        x, y = copied.node("x").outputs[0], copied.node(y.node.name).outputs[0]
        first = gc.gradients(gc.sum(y), x)
        second = gc.gradients(gc.sum(first), x)
        with pytest.raises(GradientError, match="above order 2 are not written to a file"):
            gc.gradients(gc.sum(second), x)

    def slope(x):
        return jax.grad(lambda x: jax.nn.silu(jnp.logaddexp(x, 1.0)))(x)

    got = gc.Session(copied).run([first, second], {x: X})
    near(got[0], jax.vmap(slope)(X))
    near(got[1], jax.vmap(jax.grad(slope))(X))


def test_typed_keys_are_values():
    key = jax.random.key(7)
    with gc.Graph() as graph:
        kept = gc.variable(key, name="key")
        fed = gc.placeholder((2,), "uint32", name="fed")
        draw = gc.from_jax(lambda k: jax.random.normal(k, (3,)))
        y = [draw(kept), draw(fed), draw(gc.constant(key))]
    want = jax.random.normal(key, (3,))
    for got in gc.Session(graph).run(y, {fed: key}):
        near(got, want)


def test_keys_are_picked_chosen_and_reversed():
    key = jax.random.key(7)

    def fn(words, order):
        keys = jax.random.split(jax.random.wrap_key_data(words), 4)
        moved = keys[order].at[order[0]].set(keys[0])[::-1]
        chosen = jax.lax.select_n(order[:2] % 3, moved[:2], keys[2:], keys[:2])
        branch = jax.vmap(
            lambda k, i: jax.lax.switch(i % 3, [lambda k: k, jax.random.clone, lambda k: k], k)
        )(keys, order)
        updated = jax.lax.dynamic_update_slice(keys, moved[:2], (order[1],))
        return [jax.random.key_data(k) for k in (moved, chosen, branch, updated, keys[order, None])]

    order = np.array([2, 0, 3, 1], "int32")
    with gc.Graph() as graph:
        words = gc.placeholder((2,), "uint32", name="words")
        taken = gc.placeholder((4,), "int32", name="order")
        results = gc.from_jax(fn)(words, taken)
    got = gc.Session(graph).run(results, {words: key, taken: order})
    for a, b in zip(got, fn(jax.random.key_data(key), order), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_function_without_a_proper_name_gets_a_scope():
    def fn(x):
        return x * 2

    fn.__name__ = "my function: 2"
    graph, x, y = imported(fn, X)
    assert y.name.startswith("my_function_2/")


def test_all_refused_primitives_are_named_at_once():
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def fn(x):
        noise = jax.lax.rng_uniform(0.0, 1.0, (3,))
        placed = jax.lax.with_sharding_constraint(x, here)

        def body(carry, x):
            return opaque.bind(carry), jax.lax.rng_uniform(0.0, x, ())

        carry, drawn = jax.lax.scan(body, placed, x)
        return jax.lax.cond(x[0] > 0, lambda: carry + drawn, lambda: noise)

    with pytest.raises(JaxImportError) as caught:
        imported(fn, X)
    text = str(caught.value)
    assert text.startswith("JAX primitive 'rng_uniform': these random numbers are not imported")
    for name in ("sharding_constraint", "opaque_for_tests"):
        assert re.search(rf"also JAX primitive '{name}': .*, at test_foreign.py:\d+", text), text
    assert text.count("'rng_uniform'") == 1
    with pytest.raises(JaxImportError, match="also JAX primitive 'opaque_for_tests'"):
        gc.from_jax(fn, gc.TensorSpec((3,), "float32"))
