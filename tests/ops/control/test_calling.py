"""`function`: one body with several callers."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import DTypeError, GradientError, GraphError, ShapeError
from tests.near import assert_near


@pytest.fixture
def graph():
    with gc.Graph(seed=3) as g:
        yield g


def calls_of(graph):
    return [node for node in graph.nodes if node.op.name == "Call"]


# -- one body -------------------------------------------------------------------------------


def test_traced_once_for_operands_of_one_type(graph) -> None:
    traced = []

    @gc.function
    def f(x, scale=1.0):
        """Scaled."""
        traced.append(x.type)
        return {"y": gc.tanh(x) * scale}

    x, y = gc.placeholder((3,), name="x"), gc.placeholder((2,), name="y")
    first, second, third = f(x), f(f(x)["y"]), f(y)
    assert len(traced) == 2 and f.__name__ == "f" and f.__doc__ == "Scaled."
    calls = calls_of(graph)
    assert len(calls) == 4 and len({call.regions[0] for call in calls}) == 2
    got = gc.Session(graph).run([first, second, third], {x: [1, 2, 3], y: [4, 5]})
    assert_near(got[1]["y"], np.tanh(np.tanh([1, 2, 3])), rtol=1e-5)
    assert_near(got[2]["y"], np.tanh([4, 5]), rtol=1e-6)


def deep_network(graph, depth=6):
    """One layer, called with different weights each time; a loss and its gradients."""
    x = gc.placeholder((None, 4), name="x")

    @gc.function
    def layer(h, w):
        return gc.tanh(gc.matmul(h, w)) + h

    rng = np.random.default_rng(0)
    weights = [
        gc.variable(rng.normal(size=(4, 4)).astype(np.float32), name=f"w{i}") for i in range(depth)
    ]
    h = x
    for w in weights:
        h = layer(h, w)
    loss = gc.mean(gc.square(h))
    return x, loss, gc.gradients(loss, weights)


@pytest.mark.parametrize("pipeline", ["O2", "O1", "O0"])
def test_the_module_holds_each_body_once(graph, pipeline: str) -> None:
    x, loss, gradients = deep_network(graph)
    assert len({call.regions[0] for call in calls_of(graph)}) == 2  # forward and backward
    options = gc.CompileOptions(pipeline=pipeline)
    step = gc.compile(graph, [loss, gradients], {x: (3, 4)}, options=options)
    text = step.stablehlo()
    assert text.count("stablehlo.tanh") == 1
    if pipeline == "none":
        assert (text.count("call @layer("), text.count("call @layer_grad(")) == (6, 6)


def test_a_network_of_calls_is_the_network_written_out(graph) -> None:
    x, loss, gradients = deep_network(graph)
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(6)]
    fed = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)

    def plain(weights):
        h = fed
        for w in weights:
            h = jnp.tanh(h @ w) + h
        return jnp.mean(h * h)

    value, wanted = jax.value_and_grad(plain)(weights)
    got_value, got = gc.Session(graph).run([loss, gradients], {x: fed})
    assert_near(got_value, value, rtol=1e-5)
    for a, b in zip(got, wanted, strict=True):
        assert_near(a, b, rtol=1e-4, atol=1e-6)


# -- values from outside --------------------------------------------------------------------


def test_outer_tensors_and_variables(graph) -> None:
    v, x = gc.variable(np.float32(2), name="v"), gc.placeholder((), name="x")
    outer = x * 10

    @gc.function
    def f(y):
        return outer + y * v

    before = f(x)
    assigned = v.assign_add(1)
    after = f(x)
    gradients = gc.gradients([before, after], [x, v])
    got = gc.Session(graph).run([before, assigned, after, gradients], {x: 3})
    assert got == [36, 3, 39, [10 + 2 + 10 + 3, 6]]
    assert len({call.regions[0] for call in calls_of(graph)[:2]}) == 1


def test_a_body_that_uses_a_bodys_tensors_is_traced_anew_outside(graph) -> None:
    traced = []
    inside = []

    @gc.function
    def f(x):
        traced.append(x)
        return x + inside[-1]

    def step(c, x):
        inside.append(x)
        return f(c), None

    total, _ = gc.scan(step, 0.0, np.arange(3, dtype=np.float32))
    inside.append(gc.constant(1.0))
    y = f(gc.constant(5.0))
    assert len(traced) == 2
    assert gc.Session(graph).run([total, y]) == [3, 6]


def test_a_variable_that_the_body_assigns(graph) -> None:
    count = gc.variable(np.int32(0), name="count")

    @gc.function
    def counted(x):
        count.assign_add(1)
        return x * gc.cast(count.read(), "float32")

    y = counted(counted(gc.constant(1.0)))
    session = gc.Session(graph)
    assert session.run([y, count]) == [2, 2]
    assert session.run([y, count]) == [12, 4]


def test_each_call_draws_from_streams_of_its_own(graph) -> None:
    @gc.function
    def noise(x):
        return x + gc.random.normal((4,))

    @gc.function
    def twice(x):
        return noise(x), noise(x)

    x = gc.zeros((4,))
    fetches = [noise(x), noise(x), twice(x), twice(x)]
    _, looped = gc.scan(lambda c, _: (c, noise(x)), 0.0, length=2)

    def drawn(session):
        a, b, c, d = session.run(fetches)
        return [np.asarray(y).tobytes() for y in (a, b, *c, *d, *session.run(looped))]

    session = gc.Session(graph)
    first = drawn(session)
    assert len(set(first)) == 8
    assert not set(first) & set(drawn(session))
    assert drawn(gc.Session(graph)) == first


def test_calls_that_draw_and_assign_share_one_function(graph) -> None:
    """Each call becomes pure separately. Calls that are equal afterwards are still lowered once."""
    count, x = gc.variable(np.int32(0), name="count"), gc.placeholder((3,), name="x")

    @gc.function
    def noisy(x):
        count.assign_add(1)
        return gc.tanh(x) + gc.random.normal((3,))

    options = gc.CompileOptions(pipeline="O0")
    text = gc.compile(graph, [noisy(noisy(x)), count], {x: (3,)}, options=options).stablehlo()
    assert (text.count("func.func private @noisy"), text.count("call @noisy(")) == (1, 2)


def test_the_backward_body_uses_what_the_forward_one_drew_and_assigns_nothing(graph) -> None:
    v, x = gc.variable(np.float32(1), name="v"), gc.placeholder((), name="x")

    @gc.function
    def f(x):
        v.assign_add(1)
        return x * gc.random.normal(()) * v.read()

    y = f(f(x))
    value, slope, after = gc.Session(graph).run([y, gc.gradients(y, x), v], {x: 1.5})
    assert_near(slope, value / 1.5, rtol=1e-5)
    assert after == 3


def test_not_with_respect_to_a_variable_that_the_body_assigns(graph) -> None:
    v = gc.variable(np.float32(1), name="v")

    @gc.function
    def f(x):
        return v.assign(v.read() * x)

    with pytest.raises(GradientError, match=r"respect to 'v'.*assigns it"):
        gc.gradients(f(gc.constant(2.0)), v)


# -- gradients and nesting ------------------------------------------------------------------


def test_three_derivatives_of_functions_in_functions_loops_and_branches(graph) -> None:
    xs = np.linspace(-1, 1, 4).astype(np.float32)

    def program(function, cond, scan, sin, w, xs):
        @function
        def inner(c, x):
            return sin(c * w) + x * c

        @function
        def outer(c, x):
            return cond(x > 0, lambda: inner(inner(c, x), x), lambda: c * c)

        c, ys = scan(lambda c, x: (outer(c, x), c), w, xs)
        return inner(c, c) * ys[1]

    def plain(w):
        return program(jax.jit, jax.lax.cond, jax.lax.scan, jnp.sin, w, xs)

    w = gc.variable(np.float32(0.7), name="w")
    y = program(gc.function, gc.cond, gc.scan, gc.sin, w.read(), gc.constant(xs))
    d = gc.gradients(y, w)
    got = gc.Session(graph).run([y, d, gc.gradients(d, w)])
    functions = (plain, jax.grad(plain), jax.grad(jax.grad(plain)))
    assert_near(got, [f(np.float32(0.7)) for f in functions], rtol=1e-4)


def test_a_function_that_is_called_in_a_branch_before_outside(graph) -> None:
    p, x = gc.placeholder((), "bool", name="p"), gc.placeholder((), name="x")
    w = gc.variable(np.float32(3), name="w")

    @gc.function
    def f(x):
        return x * w

    y = gc.cond(p, lambda: f(x), lambda: x) + f(x)
    fetches = [y, *gc.gradients(y, [x, w])]
    session = gc.Session(graph)
    assert session.run(fetches, {p: True, x: 2}) == [12, 6, 4]
    assert session.run(fetches, {p: False, x: 2}) == [8, 4, 2]


def test_on_two_devices_as_on_one() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 3), "float64", name="x")
        w = gc.variable(np.random.default_rng(0).normal(size=(3, 3)), name="w")

        @gc.function
        def block(h):
            y = gc.tanh(gc.matmul(h, w))
            return y - gc.mean(y, 0)

        y = block(block(x))
        loss = gc.mean(gc.square(y))
        fetches = [y, loss, w.assign_sub(0.1 * gc.gradients(loss, w))]
    alone, both = gc.Session(graph), gc.Session(graph, strategy=DataParallel(2))
    for i in range(3):
        batch = np.random.default_rng(i).normal(size=(4, 3))
        wanted, got = alone.run(fetches, {x: batch}), both.run(fetches, {x: batch})
        for a, b in zip(wanted, got, strict=True):
            assert_near(np.asarray(b), np.asarray(a), rtol=1e-7, atol=1e-12)


def test_functions_that_cannot_be_hashed(graph) -> None:
    @dataclass
    class Scaled:
        by: float

        def __call__(self, x):
            return x * self.by

    made = [gc.function(Scaled(by)) for by in (2.0, 3.0)]
    x = gc.placeholder((), name="x")
    ys = [f(f(x)) for f in made]
    assert len({call.regions[0] for call in calls_of(graph)}) == 2
    assert gc.Session(graph).run(ys, {x: 1.0}) == [4.0, 9.0]


# -- errors ---------------------------------------------------------------------------------


def test_operands_that_are_no_tensors(graph) -> None:
    f = gc.function(lambda x: x)
    with pytest.raises(DTypeError, match="'text' is not numeric") as caught:
        f("text")
    assert "test_calling.py" in str(caught.value)


def test_a_fault_in_the_body_names_its_line_and_leaves_the_function_usable(graph) -> None:
    @gc.function
    def f(x):
        return gc.matmul(x, np.ones((3, 2), np.float32))

    with pytest.raises(ShapeError, match=r"inner dimensions differ, 4 and 3") as caught:
        f(gc.zeros((2, 4)))
    assert "test_calling.py" in str(caught.value)
    assert f(gc.zeros((2, 3))).shape == (2, 2)


def test_a_function_that_calls_itself(graph) -> None:
    @gc.function
    def f(x):
        return f(x - 1)

    with pytest.raises(GraphError, match="f calls itself") as caught:
        f(gc.constant(1.0))
    assert "test_calling.py" in str(caught.value)
