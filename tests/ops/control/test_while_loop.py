"""Loops with a condition: gradients, state, draws, replicas, nesting and errors."""

import time

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.devices.strategy import DataParallel
from graphc.errors import GradientError, GraphError
from graphc.ir.compare import difference
from graphc.ir.parse import parse_program
from graphc.ir.serial import dump_program, load_program
from graphc.ir.text import print_program
from graphc.ops.catalogue import CATALOGUE
from tests.laws.harness import functional
from tests.near import assert_near

W = np.array([0.1, 0.2, 0.3])


@pytest.fixture
def graph():
    with gc.Graph(seed=3) as g:
        yield g


@pytest.fixture
def wide():
    with jax.enable_x64(True):
        yield


def growing(w, x, limit, most):
    """A loop with nested carries, one of them an integer, and outer tensors in both functions."""
    return gc.while_loop(
        lambda c: gc.reduce_sum(c["h"]) < limit,
        lambda c: {"h": c["h"] + gc.sin(c["h"] * w) * x + 1.0, "n": c["n"] + 1},
        {"h": w * x, "n": 0},
        max_trip_count=most,
    )


def unrolled(trips):
    def loss(w, x):
        h = w * x
        for _ in range(trips):
            h = h + jnp.sin(h * w) * x + 1.0
        return jnp.sum(h * h)

    return loss


# trip counts that the condition allows, and the maximum trip count
@pytest.mark.parametrize(
    ("limit", "most", "trips"),
    [(20.0, 10, 6), (20.0, 6, 6), (20.0, 3, 3), (-1.0, 10, 0), (20.0, 1, 1)],
)
def test_derivatives_equal_those_of_the_trips_made(graph, wide, limit, most, trips) -> None:
    w, x = gc.placeholder((3,), "float64", name="w"), gc.placeholder((), "float64", name="x")
    last = growing(w, x, limit, most)
    y = gc.reduce_sum(gc.square(last["h"]))
    first = gc.gradients(y, [w, x])
    second = gc.gradients(gc.reduce_sum(gc.sin(first[0])) * first[1], [w, x])
    got = gc.Session(graph).run([last["n"], y, *first, *second], {w: W, x: 0.7})

    plain = unrolled(trips)
    grad = jax.grad(plain, (0, 1))

    def mixed(w, x):
        dw, dx = grad(w, x)
        return jnp.sum(jnp.sin(dw)) * dx

    wanted = [plain(W, 0.7), *grad(W, 0.7), *jax.grad(mixed, (0, 1))(W, 0.7)]
    assert got[0] == trips
    for value, expected in zip(got[1:], wanted, strict=True):
        assert_near(value, expected, rtol=1e-10, atol=1e-12)


def test_a_third_derivative(graph, wide) -> None:
    x = gc.placeholder((), "float64", name="x")
    y = gc.while_loop(lambda c: c < 50.0, lambda c: c * x + gc.sin(c), x, max_trip_count=30)
    for _ in range(3):
        y = gc.gradients(y, x)

    trips, c = 0, 1.7
    while c < 50:
        trips, c = trips + 1, c * 1.7 + np.sin(c)

    def plain(x):
        c = x
        for _ in range(trips):
            c = c * x + jnp.sin(c)
        return c

    wanted = jax.grad(jax.grad(jax.grad(plain)))(1.7)
    assert_near(gc.Session(graph).run(y, {x: 1.7}), wanted, rtol=1e-10)


def test_places_without_a_trip_are_not_visited(graph) -> None:
    """Unused trips contain zeros, where the logarithm's derivative is infinite. For w = 1.2 there
    is one trip: y = 2w + log(2w^2)."""
    w = gc.placeholder((), name="w")
    y = gc.while_loop(lambda c: c < 3.0, lambda c: c + gc.log(c * w), w * 2.0, max_trip_count=50)
    got = gc.Session(graph).run([y, gc.gradients(y, w)], {w: 1.2})
    assert_near(got, [2.4 + np.log(2.88), 2 + 2 / 1.2], rtol=1e-6)


def test_the_backward_loop_costs_what_the_forward_one_did(graph) -> None:
    w, n = gc.placeholder((), name="w"), gc.placeholder((), "int32", name="n")
    y = gc.fori_loop(0, n, lambda i, c: c + gc.sin(c * w), w, max_trip_count=300_000)
    gradient, session = gc.gradients(y, w), gc.Session(graph)

    def seconds(trips) -> float:
        session.run(gradient, {w: 0.5, n: trips})
        times = []
        for _ in range(3):
            start = time.perf_counter()
            np.asarray(session.run(gradient, {w: 0.5, n: trips}))
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(3) * 4 < seconds(300_000)


def test_without_a_greatest_count_there_is_no_gradient(graph) -> None:
    w = gc.placeholder((), name="w")
    y = gc.while_loop(lambda c: c < 9.0, lambda c: c * 2.0, w)
    with pytest.raises(GradientError, match="maximum number of iterations is not known") as caught:
        gc.gradients(y, w)
    line = test_without_a_greatest_count_there_is_no_gradient.__code__.co_firstlineno + 2
    assert f"test_while_loop.py:{line}" in str(caught.value)
    assert "max_trip_count" in str(caught.value)


@pytest.mark.parametrize("most", [None, 4])
def test_variables_read_and_assigned(graph, most) -> None:
    total, step = gc.variable(1.0, name="total"), gc.variable(2.0, name="step")
    other = gc.variable(1.0, name="other")

    def body(c):
        total.assign(total + step * c)
        return c + 1.0

    last = gc.while_loop(lambda c: total + other < 20.0, body, 1.0, max_trip_count=most)
    after = total.read() + 0.5
    session = gc.Session(graph)
    got = session.run([last, after])
    # 1 + 2 + 4 + 6 = 13, + 8 = 21: four trips
    assert_near(got, [5.0, 21.5], rtol=1e-7)
    assert_near(session.run([last, after]), [1.0, 21.5], rtol=1e-7)


def test_two_variables_of_one_value_in_the_condition(graph) -> None:
    a, b = gc.variable(0.0, name="a"), gc.variable(0.0, name="b")
    start = gc.placeholder((), name="start")

    def body(c):
        a.assign(a + 1.0)
        return c + b * 10.0

    with gc.control_dependencies([a.assign(start), b.assign(start)]):
        last = gc.while_loop(lambda c: a - b < 3.0, body, 0.0)
    assert gc.Session(graph).run(last, {start: 2.0}) == 60.0


def test_gradient_of_a_variable_that_the_loop_reads(graph) -> None:
    v = gc.variable(np.float32(1.5), name="v")
    y = gc.while_loop(lambda c: c < 10.0 * v, lambda c: c * v, v.read(), max_trip_count=20)
    # c = v ** k: 1.5 ** 7 is the first value above 15
    assert_near(gc.Session(graph).run([y, gc.gradients(y, v)]), [1.5**7, 7 * 1.5**6], rtol=1e-5)


def test_a_condition_must_not_assign(graph) -> None:
    v = gc.variable(0.0, name="v")
    with pytest.raises(GraphError, match="While: the condition assigns a variable, draws"):
        gc.while_loop(lambda c: v.assign(v + 1.0) < 3.0, lambda c: c, 0.0)


def test_each_trip_draws_anew_and_the_backward_loop_uses_the_same(graph) -> None:
    w = gc.placeholder((), name="w")

    def body(c):
        i, total, drawn = c
        z = gc.random.normal(())
        drawn = gc.where(gc.equal(gc.arange(4), i), z, drawn)
        return i + 1, total + w * z, drawn

    _, total, drawn = gc.while_loop(
        lambda c: c[0] < 4, body, (0, w * 0.0, np.zeros(4, np.float32)), max_trip_count=9
    )
    session = gc.Session(graph)
    value, values, slope = session.run([total, drawn, gc.gradients(total, w)], {w: 2.0})
    assert len(set(values.tolist())) == 4
    assert_near([value, slope], [2 * values.sum(), values.sum()], rtol=1e-5)
    assert session.run(total, {w: 2.0}) != value


def test_a_loop_in_a_scan_draws_and_assigns_once(graph) -> None:
    w, v = gc.placeholder((), name="w"), gc.variable(0.0, name="v")

    def trip(c):
        v.assign(v + 1.0)
        return c[0] + 1, c[1] * w + gc.random.normal(()) * w + v

    def turn(c, _):
        _, c = gc.while_loop(lambda s: s[0] < 2, trip, (0, c), max_trip_count=5)
        return c, None

    y, _ = gc.scan(turn, w, length=2)
    h = 1e-2
    runs = []
    for at in (1.5, 1.5 - h, 1.5 + h):  # each session draws the same numbers
        session = gc.Session(graph)
        runs.append(session.run([y, gc.gradients(y, w), v.read()] if not runs else [y], {w: at}))
    (_, slope, count), (below,), (above,) = runs
    assert count == 4.0
    assert_near(slope, (above - below) / (2 * h), rtol=1e-2)


def test_loops_in_loops(graph, wide) -> None:
    w = gc.placeholder((), "float64", name="w")
    xs = np.linspace(0.5, 1.5, 3)

    def inner(c):
        return gc.while_loop(
            lambda t: t < 4.0, lambda t: t * 1.5 + gc.sin(t * w), c, max_trip_count=6
        )

    def middle(c, x):
        c, _ = gc.scan(lambda c, x: (inner(c * x * 0.5), c), c, xs)
        return c * 0.2 + x * w, c

    y, _ = gc.scan(middle, w, xs)
    y = gc.while_loop(
        lambda c: c < 9.0, lambda c: middle(c, 0.5)[0] + inner(c), y, max_trip_count=3
    )
    d = gc.gradients(y, w)
    dd = gc.gradients(d, w)
    session = gc.Session(graph)

    def value(fetch, at):
        return float(session.run(fetch, {w: at}))

    h = 1e-6
    for slope, function in ((d, y), (dd, d)):
        expected = (value(function, 0.8 + h) - value(function, 0.8 - h)) / (2 * h)
        assert_near(value(slope, 0.8), expected, rtol=1e-5)


def test_named_sizes(graph) -> None:
    xs = gc.placeholder((None, 2), name="xs")
    n = xs.shape[0]
    _, total = gc.while_loop(
        lambda c: c[0] < gc.size(xs, 0) * 5,
        lambda c: (c[0] + 1, c[1] + xs[c[0]] * xs[c[0]]),
        (0, gc.zeros((2,))),
        max_trip_count=n,
    )
    again = gc.fori_loop(0, n, lambda i, c: c + xs[i] * xs[i], gc.zeros((2,)))
    fed = np.arange(6, dtype=np.float32).reshape(3, 2)
    fetches = [total, again, gc.gradients(gc.reduce_sum(total), xs)]
    got = gc.Session(graph).run(fetches, {xs: fed})
    for value, expected in zip(got, [(fed**2).sum(0), (fed**2).sum(0), 2 * fed], strict=True):
        assert_near(value, expected, rtol=1e-7)


def test_replicas_give_what_one_device_gives() -> None:
    rng = np.random.default_rng(0)
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 3), "float64", name="x", batch_axis=0)
        w = gc.variable(rng.normal(size=(3, 3)) * 0.3, name="w")

        def body(c):
            h, total = c
            h = h + gc.tanh(gc.matmul(h, w)) + x
            return h, total + gc.reduce_sum(h * h)

        h, total = gc.while_loop(
            lambda c: gc.reduce_mean(gc.square(c[0])) < 30.0, body, (x, x[0, 0]), max_trip_count=12
        )
        loss = gc.reduce_mean(gc.square(h)) + total * 0.1
        train = w.assign(w.read() - 0.001 * gc.gradients(loss, w))
    fetches = [train, loss, h, total]
    one = gc.compile(graph, fetches, {"x": (8, 3)})
    strategy = DataParallel(4, bucket_bytes=None)
    four = gc.compile(graph, fetches, {"x": (8, 3)}, strategy=strategy)
    # The condition in each trip; the total, the loss and the gradient after the loops.
    assert four.stablehlo().count("stablehlo.all_reduce") == 4
    a, b = one.init(), four.init()
    for i in range(3):
        feeds = {"x": np.random.default_rng(i).normal(size=(8, 3))}
        alone, a = one(a, feeds)
        together, b = four(b, feeds)
        for p, q in zip(alone, together, strict=True):
            assert_near(np.asarray(q), np.asarray(p), rtol=1e-10)


def test_the_program_of_a_gradient_survives_text_and_serial(graph) -> None:
    w, x = gc.placeholder((3,), name="w"), gc.placeholder((), name="x")
    last = growing(w, x, 20.0, 10)
    first = gc.gradients(last["h"], [w, x])
    program = functional(graph, [*first, *gc.gradients(first, [w, x])], [w, x])
    assert difference(program, parse_program(print_program(program), CATALOGUE)) is None
    manifest, arrays = dump_program(program)
    assert difference(program, load_program(manifest, arrays, CATALOGUE)) is None


def test_a_run_without_the_gradient_keeps_no_trips(graph) -> None:
    w, x = gc.placeholder((3,), name="w"), gc.placeholder((), name="x")
    last = growing(w, x, 20.0, 77)
    gc.gradients(last["h"], [w, x])
    compiled = gc.compile(graph, last["h"], {"w": (3,), "x": ()})
    assert "77x" not in compiled.stablehlo()


def test_map_fn_and_its_gradient(graph, wide) -> None:
    xs, w = gc.placeholder((4, 2), "float64", name="xs"), gc.placeholder((), "float64", name="w")
    pair = gc.map_fn(lambda x: {"p": gc.reduce_sum(x) * w, "q": gc.sin(x * w)}, xs)
    d = gc.gradients([gc.reduce_sum(pair["p"]), gc.reduce_sum(pair["q"])], [xs, w])
    fed = np.arange(8.0).reshape(4, 2)
    p, q, dxs, dw = gc.Session(graph).run([pair["p"], pair["q"], *d], {xs: fed, w: 0.3})
    assert_near(p, fed.sum(1) * 0.3, rtol=1e-7)
    assert_near(q, np.sin(fed * 0.3), rtol=1e-7)
    assert_near(dxs, 0.3 + 0.3 * np.cos(fed * 0.3), rtol=1e-7)
    assert_near(dw, fed.sum() + (fed * np.cos(fed * 0.3)).sum(), rtol=1e-7)
