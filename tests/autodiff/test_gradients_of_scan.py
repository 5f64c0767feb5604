"""Gradients through loops, and inside their bodies."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import GradientError
from tests.near import assert_near


@pytest.fixture
def graph():
    with gc.Graph(seed=3) as g:
        yield g


def test_three_derivatives_of_a_loop_in_a_loop(graph) -> None:
    xs = np.linspace(0, 1, 4).astype(np.float32)

    def program(scan, cos, sin, total, w, xs):
        def inner(c, x):
            return c * cos(w * x), None

        def outer(c, x):
            c, _ = scan(inner, c, xs)
            return sin(c * w) + x, c

        c, ys = scan(outer, w, xs)
        return c * total(ys)

    def plain(w):
        return program(jax.lax.scan, jnp.cos, jnp.sin, jnp.sum, w, xs)

    w, fed = gc.variable(np.float32(0.7), name="w"), gc.placeholder((None,), name="xs")
    y = program(gc.scan, gc.cos, gc.sin, gc.reduce_sum, w, fed)
    d = gc.gradients(y, w)
    got = gc.Session(graph).run([y, d, gc.gradients(d, w)], {fed: xs})
    functions = (plain, jax.grad(plain), jax.grad(jax.grad(plain)))
    assert_near(got, [f(np.float32(0.7)) for f in functions], rtol=1e-5)


def test_one_loop_differentiated_in_several_ways(graph) -> None:
    w, u = gc.placeholder((), name="w"), gc.placeholder((), name="u")
    c, ys = gc.scan(lambda c, _: (gc.sin(c * u), c * c), w, length=3)
    fetches = [gc.gradients(c, w), *gc.gradients(gc.reduce_sum(ys), [w, u]), gc.gradients(c, u)]

    def plain(w, u):
        c, ys = jax.lax.scan(lambda c, _: (jnp.sin(c * u), c * c), w, None, length=3)
        return c, ys.sum()

    (dcw, dcu), (dyw, dyu) = jax.jacobian(plain, (0, 1))(0.5, 1.1)
    got = gc.Session(graph).run(fetches, {w: 0.5, u: 1.1})
    assert_near(got, [dcw, dyw, dyu, dcu], rtol=1e-5)


@pytest.mark.parametrize("nested", [False, True])
def test_the_backward_pass_uses_what_the_forward_pass_drew(graph, nested: bool) -> None:
    w = gc.placeholder((), name="w")

    def step(c, _):
        return c * gc.random.normal(()), None

    def outer(c, _):
        return gc.scan(step, c, length=2)[0], None

    y, _ = gc.scan(outer if nested else step, w, length=2)
    value, slope = gc.Session(graph).run([y, gc.gradients(y, w)], {w: 1.5})
    assert_near(slope, value / 1.5, rtol=1e-5)


@pytest.mark.parametrize(("nested", "product"), [(False, 6), (True, 120)])
def test_the_backward_pass_uses_what_was_read_and_assigns_nothing(
    graph, nested: bool, product: int
) -> None:
    v, w = gc.variable(np.float32(1), name="v"), gc.placeholder((), name="w")

    def step(c, _):
        v.assign_add(1)
        return c * v.read(), None

    def outer(c, _):
        return gc.scan(step, c, length=2)[0], None

    y, _ = gc.scan(outer if nested else step, w, length=2)
    got = gc.Session(graph).run([y, gc.gradients(y, w), v], {w: 1.0})
    assert got == [product, product, 5 if nested else 3]


def test_not_with_respect_to_a_variable_that_the_body_assigns(graph) -> None:
    v, w = gc.variable(np.float32(2), name="v"), gc.variable(np.float32(3), name="w")

    def body(c, _):
        c = c * v.read() * w
        v.assign_add(1)
        return c, None

    y, _ = gc.scan(body, v.read(), length=2)
    with pytest.raises(GradientError, match=r"respect to 'v'.*assigns it") as caught:
        gc.gradients(y, [w, v])
    assert "test_gradients_of_scan.py" in str(caught.value)
    assert gc.Session(graph).run(gc.gradients(y, w)) == 2 * 2 * 3 * 2 * 3


def test_a_statistic_that_the_body_assigns_does_not_affect_gradients(graph) -> None:
    seen, w = gc.variable(np.float32(0), name="seen"), gc.variable(np.float32(3), name="w")

    def body(c, x):
        seen.assign_add(x)
        return c * w, None

    y, _ = gc.scan(body, 1.0, np.ones(2, np.float32))
    assert gc.Session(graph).run([gc.gradients(y, w), seen]) == [6, 2]


def test_a_variable_read_both_in_and_outside_the_body(graph) -> None:
    v = gc.variable(np.float32(3), name="v")
    outside = v.read()
    y, _ = gc.scan(lambda c, _: (c + outside * v.read(), None), v.read(), length=2)
    assert gc.Session(graph).run([y, gc.gradients(y, v)]) == [21, 13]


def test_inside_a_body(graph) -> None:
    w = gc.variable(np.float32(2), name="w")

    def body(c, _):
        dc, dw = gc.gradients(c * w * w, [c, w])
        return c + dc, dw

    c, ys = gc.scan(body, 1.0, length=2)
    c, ys = gc.Session(graph).run([c, ys])
    assert c == 9
    np.testing.assert_array_equal(ys, [4, 20])
