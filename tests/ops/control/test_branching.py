"""`cond` and `switch`: state, draws, gradients, nesting, replication, and errors."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import DTypeError, GradientError, GraphcError, ShapeError
from graphc.ir.capture import capture
from graphc.ops.structure.state import READ_VARIABLE
from graphc.passes.core.costs import node_cost
from graphc.passes.simplify.functionalize import Functionalize
from graphc.passes.simplify.prune import Prune
from tests.near import assert_near
from tests.passes.check import check, program


@pytest.fixture
def graph():
    with gc.Graph(seed=3) as g:
        yield g


def functional(graph, *fetches, feeds=()):
    program = capture(graph, list(fetches), list(feeds), READ_VARIABLE)
    return Functionalize().run(program).program


# -- state ----------------------------------------------------------------------------------


def test_a_variable_that_one_branch_assigns_keeps_its_value_in_the_other(graph) -> None:
    v, w = gc.variable(np.float32(1), name="v"), gc.variable(np.float32(10), name="w")
    p = gc.placeholder((), "bool", name="p")
    y = gc.cond(p, lambda: v.assign_add(w.read()), lambda: w.assign(v.read() * 2))
    after = v.read() + w.read()
    session = gc.Session(graph)
    assert session.run([y, after], {p: True}) == [11, 21]
    assert (session.get("v"), session.get("w")) == (11, 10)
    assert session.run([y, after], {p: False}) == [22, 33]
    assert (session.get("v"), session.get("w")) == (11, 22)


def test_a_branch_reads_what_was_assigned_before(graph) -> None:
    v = gc.variable(np.float32(1), name="v")
    assigned = v.assign(5.0)
    y = gc.cond(gc.constant(True), lambda: v.read() + 1, lambda: v.read())
    assert gc.Session(graph).run([assigned, y]) == [5, 6]
    assert gc.Session(graph).run(y) == 2


def test_two_variables_of_one_value(graph) -> None:
    v, w = gc.variable(np.float32(1), name="v"), gc.variable(np.float32(2), name="w")
    x, p = gc.placeholder((), name="x"), gc.placeholder((), "bool", name="p")
    same = [v.assign(x), w.assign(x)]

    def swap():
        before = v.read() * 1
        v.assign_add(w.read())
        return w.assign(before * 10)

    y = gc.cond(p, swap, lambda: x)
    assert gc.Session(graph).run([*same, y, v, w], {x: 3, p: True}) == [3, 3, 30, 6, 30]
    assert gc.Session(graph).run([*same, y, v, w], {x: 3, p: False}) == [3, 3, 3, 3, 3]


def test_each_switch_and_each_branch_draws_from_its_own_stream(graph) -> None:
    p = gc.placeholder((), "bool", name="p")

    def draw():
        return gc.random.normal((3,))

    a, b = gc.cond(p, draw, draw), gc.cond(p, draw, draw)
    session = gc.Session(graph)
    drawn = [*session.run([a, b], {p: True}), *session.run([a, b], {p: False})]
    assert len({np.asarray(x).tobytes() for x in drawn}) == 4
    again = gc.Session(graph).run([a, b], {p: True})
    np.testing.assert_array_equal(again, drawn[:2])


# -- gradients ------------------------------------------------------------------------------


def test_gradients_of_captured_variables_and_arguments(graph) -> None:
    v, w = gc.variable(np.float32(2), name="v"), gc.variable(np.float32(3), name="w")
    x, i = gc.placeholder((), name="x"), gc.placeholder((), "int32", name="i")
    branches = [lambda x: gc.sin(x * v), lambda x: w * w * x, lambda x: x]
    y = gc.switch(i, branches, x)
    gradients = gc.gradients(y, [x, v, w])
    second = gc.gradients(gradients[0], [x, w], unconnected="zero")

    def plain(x, v, w, i):
        functions = [lambda: jnp.sin(x * v), lambda: w * w * x, lambda: x]
        return jax.lax.switch(i, functions)

    first = jax.grad(plain, (0, 1, 2))
    session = gc.Session(graph)
    for index in (-1, 0, 1, 2, 7):  # out of range: clamped
        at = (np.float32(0.7), np.float32(2), np.float32(3), index)
        got = session.run([y, *gradients, *second], {x: 0.7, i: index})
        of_x = jax.grad(lambda *a: first(*a)[0], (0, 2))(*at)
        assert_near(got, [plain(*at), *first(*at), *of_x], rtol=1e-5)


def test_the_backward_branch_runs_nothing_of_the_forward_one(graph) -> None:
    p, x = gc.placeholder((), "bool", name="p"), gc.placeholder((4,), name="x")
    y = gc.cond(p, lambda: gc.tanh(gc.exp(x)), lambda: gc.sin(x))
    dx = gc.gradients(y, x)
    ops = [node.op.name for node in functional(graph, y, dx, feeds=[p, x]).walk()]
    assert {name: ops.count(name) for name in ("Switch", "Exp", "Tanh", "Sin")} == {
        "Switch": 2, "Exp": 1, "Tanh": 1, "Sin": 1,
    }  # fmt: skip


def test_branches_share_the_results_that_they_save(graph) -> None:
    p, x = gc.placeholder((), "bool", name="p"), gc.placeholder((4,), name="x")
    y = gc.cond(p, lambda: gc.exp(gc.tanh(x)) + 1, lambda: gc.tanh(gc.exp(x)) + 1)
    gc.gradients(y, x)
    assert len(y.node.outputs) == 3  # the results of two operators, in either branch


def test_the_backward_branch_uses_what_the_forward_one_drew_and_read(graph) -> None:
    v, x = gc.variable(np.float32(1), name="v"), gc.placeholder((), name="x")
    p = gc.placeholder((), "bool", name="p")

    def drawing(x):
        v.assign_add(2)
        return x * gc.random.normal(()) * v.read()

    y = gc.cond(p, drawing, lambda x: x * x, x)
    dx = gc.gradients(y, x)
    value, slope, after = gc.Session(graph).run([y, dx, v], {x: 1.5, p: True})
    assert_near(slope, value / 1.5, rtol=1e-5)
    assert after == 3
    assert gc.Session(graph).run([y, dx, v], {x: 1.5, p: False}) == [2.25, 3, 1]


def test_not_with_respect_to_a_variable_that_a_branch_assigns(graph) -> None:
    v = gc.variable(np.float32(2), name="v")

    def branch():
        y = v.read() * 3
        v.assign(y)
        return y

    y = gc.cond(gc.constant(True), branch, lambda: gc.constant(1.0))
    with pytest.raises(GradientError, match=r"respect to 'v'.*assigns it") as caught:
        gc.gradients(y, v)
    assert "test_branching.py" in str(caught.value)


def test_one_cond_differentiated_in_several_ways(graph) -> None:
    a, b = gc.placeholder((), name="a"), gc.placeholder((), name="b")
    x, y = gc.cond(a > b, lambda: (a * b, gc.exp(a)), lambda: (b * b, gc.sin(b)))
    fetches = [gc.gradients(x, b), gc.gradients(y, b), *gc.gradients([x, y], [a, b])]
    session = gc.Session(graph)
    assert_near(session.run(fetches, {a: 2, b: 1}), [2, 0, 1 + np.exp(2.0), 2], rtol=1e-6)
    assert_near(session.run(fetches, {a: 1, b: 2}), [4, np.cos(2.0), 0, 4 + np.cos(2.0)], rtol=1e-6)


# -- nesting --------------------------------------------------------------------------------


def in_scan(gx, lax_like, w, xs):
    """A cond in a scan."""
    cond, scan, cos, exp = lax_like

    def step(c, x):
        c = cond(x > 0, lambda: cos(c * w) + x, lambda: exp(-c) * w)
        return c, c * c

    return scan(step, w, xs)


def around_scan(gx, lax_like, w, xs):
    """A scan inside a cond; the body of the scan contains another cond."""
    cond, scan, cos, exp = lax_like

    def looped():
        return scan(lambda c, x: (cond(c > 1, lambda: c * w, lambda: cos(c) + x * w), c), w, xs)

    return cond(w > 0, looped, lambda: (exp(w), xs * w))


@pytest.mark.parametrize("program", [in_scan, around_scan])
def test_nested_with_loops(graph, program) -> None:
    xs = np.linspace(-1, 1, 6).astype(np.float32)
    ours = (gc.cond, gc.scan, gc.cos, gc.exp)
    theirs = (jax.lax.cond, jax.lax.scan, jnp.cos, jnp.exp)
    w, fed = gc.variable(np.float32(0.7), name="w"), gc.placeholder((None,), name="xs")
    c, ys = program(gc, ours, w.read(), fed)
    loss = c * gc.sum(ys)
    d = gc.gradients(loss, w)
    got = gc.Session(graph).run([loss, d, gc.gradients(d, w)], {fed: xs})

    def plain(w):
        c, ys = program(jnp, theirs, w, xs)
        return c * ys.sum()

    functions = (plain, jax.grad(plain), jax.grad(jax.grad(plain)))
    assert_near(got, [f(np.float32(0.7)) for f in functions], rtol=1e-4)


def test_draws_in_a_cond_in_a_loop_are_those_of_the_backward_pass(graph) -> None:
    w = gc.placeholder((), name="w")

    def step(c, x):
        return gc.cond(x > 1, lambda: c * gc.random.normal(()), lambda: c * 2), None

    y, _ = gc.scan(step, w, np.arange(4, dtype=np.float32))
    value, slope = gc.Session(graph).run([y, gc.gradients(y, w)], {w: 1.5})
    assert_near(slope, value / 1.5, rtol=1e-5)


def test_a_variable_assigned_in_a_cond_in_a_loop(graph) -> None:
    count = gc.variable(np.int32(0), name="count")

    def step(c, x):
        gc.cond(x > 1, lambda: count.assign_add(1), lambda: count.read())
        return c + x, count.read()

    _, ys = gc.scan(step, 0.0, np.arange(4, dtype=np.float32))
    ys, after = gc.Session(graph).run([ys, count])
    np.testing.assert_array_equal(ys, [0, 0, 1, 2])
    assert after == 2


# -- replication ----------------------------------------------------------------------------


def conditional_training():
    """A step with a cond on a mean over the batch. Each branch computes another mean."""
    rng = np.random.default_rng(0)
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 3), "float64", name="x")
        w = gc.variable(rng.normal(size=(3, 2)), name="w")
        seen = gc.variable(np.float64(0), name="seen")

        def large():
            seen.assign_add(gc.mean(x))
            return gc.tanh(gc.matmul(x, w)), gc.mean(gc.square(w.read()))

        def small():
            y = gc.matmul(x, w)
            return y - gc.mean(y, 0), gc.mean(y)

        y, penalty = gc.cond(gc.mean(x) > 0, large, small)
        loss = gc.mean(gc.square(y)) + penalty
        step = w.assign_sub(0.1 * gc.gradients(loss, w))
    return graph, x, [y, loss, step, seen]


def test_on_two_devices_as_on_one() -> None:
    graph, x, fetches = conditional_training()
    alone, both = gc.Session(graph), gc.Session(graph, strategy=DataParallel(2))
    for i in range(6):
        batch = np.random.default_rng(i).normal(size=(4, 3)) + (-1) ** i
        wanted, got = alone.run(fetches, {x: batch}), both.run(fetches, {x: batch})
        for a, b in zip(wanted, got, strict=True):
            assert_near(np.asarray(b), np.asarray(a), rtol=1e-7, atol=1e-12)


# -- in a program ---------------------------------------------------------------------------


def test_prune_removes_unused_results_and_their_operands() -> None:
    check(
        Prune(),
        """
        program p(i: i32[], x: f32[2], y: f32[3]) {
          %0, %1 = Switch(i, x, y) : f32[2], f32[3] with branch0(a0: f32[2], a1: f32[3]) {
            %0 = Negative(a1) : f32[3]
            return r0 = a0, r1 = %0
          } with branch1(a0: f32[2], a1: f32[3]) {
            %0 = Negative(a0) : f32[2]
            return r0 = %0, r1 = a1
          }
          %2, %3 = Call(x, y) : f32[2], f32[3] with f(a0: f32[2], a1: f32[3]) {
            %0 = Negative(a0) : f32[2]
            %1 = Negative(a1) : f32[3]
            return r0 = %0, r1 = %1
          }
          return chosen = %0, called = %3
        }
        """,
        """
        program p(i: i32[], x: f32[2], y: f32[3]) {
          %0 = Switch(i, x) : f32[2] with branch0(a0: f32[2]) {
            return r0 = a0
          } with branch1(a0: f32[2]) {
            %0 = Negative(a0) : f32[2]
            return r0 = %0
          }
          %1 = Call(y) : f32[3] with f(a0: f32[3]) {
            %0 = Negative(a0) : f32[3]
            return r0 = %0
          }
          return chosen = %0, called = %1
        }
        """,
        prune=False,
    )


def test_the_cost_is_that_of_the_costliest_branch() -> None:
    (node,) = program(
        """
        program p(i: i32[], x: f32[2]) {
          %0 = Switch(i, x) : f32[2] with branch0(a0: f32[2]) {
            return r0 = a0
          } with branch1(a0: f32[2]) {
            %0 = Negative(a0) : f32[2]
            return r0 = %0
          }
          return out = %0
        }
        """
    ).nodes
    assert node_cost(node) == (2, 16)


def test_gradients_of_convolutions_in_a_branch_are_plain_ones(graph) -> None:
    """Branches are like loops: XLA:CPU runs other forms with a routine that is 50 times slower."""
    x, w = gc.placeholder((2, 8, 8, 3), name="x"), gc.placeholder((3, 3, 3, 4), name="w")
    y = gc.cond(gc.sum(x) > 0, lambda: gc.sum(gc.square(gc.nn.conv2d(x, w))), lambda: gc.sum(w))
    step = gc.compile(graph, [gc.gradients(y, w)], {x: x.shape, w: w.shape})
    rows = [line for line in step.stablehlo().splitlines() if "stablehlo.convolution" in line]
    assert len(rows) == 2
    assert all("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]" in row for row in rows)


# -- errors ---------------------------------------------------------------------------------


def test_different_result_types_are_named_with_their_lines(graph) -> None:
    x = gc.placeholder((2,), name="x")
    with pytest.raises(ShapeError) as caught:
        gc.cond(gc.constant(True), lambda: gc.sum(x), lambda: x * 2)
    text = str(caught.value)
    assert "result 0 is f32[2] from false_branch and f32[] from true_branch" in text
    assert text.count("test_branching.py") == 3, text
    with pytest.raises(DTypeError, match=r"i32\[2\] from branch1"):
        gc.switch(0, [lambda: x * 2, lambda: gc.cast(x, "int32")])


def test_different_sizes_are_refused_and_named_ones_unified(graph) -> None:
    x, y = gc.placeholder((None,), name="x"), gc.placeholder((None,), name="y")
    with pytest.raises(ShapeError, match="sizes of result 0 of false_branch and true_branch"):
        gc.cond(gc.constant(True), lambda: gc.zeros((2,)), lambda: gc.zeros((3,)))
    z = gc.cond(gc.constant(True), lambda: x, lambda: y)
    session = gc.Session(graph)
    np.testing.assert_array_equal(session.run(z, {x: [1, 2], y: [3, 4]}), [1, 2])
    with pytest.raises(GraphcError, match=r"2.*3|3.*2"):
        session.run(z, {x: [1, 2], y: [3, 4, 5]})


def test_tensors_of_one_branch_are_not_for_the_other(graph) -> None:
    kept = []
    with pytest.raises(GraphcError, match="a body's tensors can be used inside that body only"):
        gc.switch(
            0, [lambda: kept.append(gc.zeros(())) or kept[0], lambda: kept[0] + gc.constant(1.0)]
        )
