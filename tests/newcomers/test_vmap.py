"""`gc.vmap` compared with `jax.vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphc as gc
from graphc import errors
from tests.newcomers.running import assert_near, run

ROWS = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
OTHER = np.random.default_rng(1).normal(size=(3, 4)).astype("float32")


def test_every_slice_is_mapped():
    got = run(gc.vmap(lambda row: gc.softmax(row) * row[0]), ROWS)
    assert_near(got, jax.vmap(lambda row: jax.nn.softmax(row) * row[0])(ROWS))


@pytest.mark.parametrize(
    ("in_axes", "out_axes", "second"),
    [((0, None), 0, ROWS[0]), ((0, 1), 0, OTHER), ((0, -1), 1, OTHER), ((1, 0), -1, OTHER)],
)
def test_axes_are_those_of_jax(in_axes, out_axes, second):
    got = run(gc.vmap(lambda a, b: a * b + gc.sum(a), in_axes, out_axes), ROWS, second)
    want = jax.vmap(lambda a, b: a * b + a.sum(), in_axes, out_axes)(ROWS, second)
    assert_near(got, want)


def test_arguments_and_results_may_be_nested():
    def both(pair):
        return {"sum": pair["a"] + pair["b"], "first": pair["a"][0]}

    with gc.Graph() as graph:
        result = gc.vmap(both)({"a": gc.constant(ROWS), "b": gc.constant(ROWS * 2)})
    values = gc.Session(graph).run(result)
    assert_near(values["sum"], ROWS * 3)
    assert_near(values["first"], ROWS[:, 0])


def test_maps_may_be_nested():
    pairs = gc.vmap(lambda a: gc.vmap(lambda b: gc.sum(a * b))(gc.constant(ROWS)))
    assert_near(run(pairs, ROWS), ROWS @ ROWS.T)


def test_named_sizes_stay_named():
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 3), name="x")
        y = gc.vmap(lambda steps: steps - gc.mean(steps, axis=0) + gc.ones(steps.shape))(x)
    assert y.shape == x.shape
    for shape in [(2, 5, 3), (3, 1, 3)]:
        value = np.random.default_rng(0).normal(size=shape).astype("float32")
        want = value - value.mean(1, keepdims=True) + 1
        assert_near(gc.Session(graph).run(y, {x: value}), want)


@pytest.mark.slow
def test_gradients_of_any_order_reach_arguments_and_variables():
    def value(w, x):
        return jax.vmap(lambda row: jnp.tanh(jnp.linalg.inv(w + jnp.diag(row)) @ row))(x)

    def slope(w, x):
        return jax.grad(lambda w: (value(w, x) ** 2).sum())(w)

    start = np.arange(9, dtype="float32").reshape(3, 3) / 9 + 3 * np.eye(3, dtype="float32")
    with gc.Graph() as graph:
        w = gc.variable(start, name="w")
        x = gc.placeholder((None, 3), name="x")
        y = gc.vmap(lambda row: gc.tanh(gc.linalg.inv(w + gc.diag(row)) @ row))(x)
        (first,) = gc.gradients(gc.sum(y**2), [w])
        (second,) = gc.gradients(gc.sum(first**2), [x])
    got = gc.Session(graph).run([y, first, second], {x: ROWS})
    assert_near(got[0], value(start, ROWS))
    assert_near(got[1], slope(start, ROWS))
    assert_near(got[2], jax.grad(lambda x: (slope(start, x) ** 2).sum())(ROWS))


def test_loops_and_branches_are_mapped():
    def steps(row):
        total = gc.fori_loop(0, 3, lambda i, carry: carry * 0.5 + row, gc.zeros(3))
        return gc.cond(row[0] > 0, lambda: total, lambda: -total)

    def plain(row):
        total = row * 1.75
        return jnp.where(row[0] > 0, total, -total)

    assert_near(run(gc.vmap(steps), ROWS), jax.vmap(plain)(ROWS))


def test_a_batch_is_shared_among_devices():
    with gc.Graph() as graph:
        x = gc.placeholder((None, 3), name="x")
        w = gc.variable(np.ones((3, 2), "float32"), name="w")
        loss = gc.mean(gc.vmap(lambda row: gc.sum((row @ w) ** 2))(x))
        (slope,) = gc.gradients(loss, [w])
    one = gc.Session(graph).run([loss, slope], {x: ROWS})
    parallel = gc.Session(graph, strategy=gc.devices.DataParallel(2))
    two = parallel.run([loss, slope], {x: ROWS})
    assert_near(two[0], one[0])
    assert_near(two[1], one[1])
    assert parallel.executables[0].notes == []  # no value is gathered


@pytest.mark.parametrize(
    ("make", "error", "phrase"),
    [
        (lambda: gc.vmap(gc.sin)(1.0), errors.ShapeError, "has no axis 0"),
        (lambda: gc.vmap(gc.sin, None)(ROWS), errors.AttributeValueError, "no argument is mapped"),
        (lambda: gc.vmap(gc.add)(ROWS, OTHER), errors.ShapeError, "different sizes, 4 and 3"),
        (
            lambda: gc.vmap(gc.add, (0,))(ROWS, ROWS),
            errors.AttributeValueError,
            "1 axes in in_axes",
        ),
        (
            lambda: gc.vmap(lambda x: gc.nn.dropout(x, 0.5))(ROWS),
            errors.GraphError,
            "the function draws random numbers",
        ),
    ],
)
def test_mistakes(make, error, phrase):
    with gc.Graph(), pytest.raises(error, match=phrase) as caught:
        make()
    assert "test_vmap.py:" in str(caught.value)


def test_an_assignment_is_refused():
    with gc.Graph():
        v = gc.variable(0.0, name="v")
        with pytest.raises(errors.GraphError, match="assigns a variable"):
            gc.vmap(lambda x: v.assign(x) + x)(np.ones(3, "float32"))


def test_gradients_of_loops_with_a_limit() -> None:
    """Each example ends its loops by its own conditions."""

    def grow(x: gc.Tensor, most: int) -> gc.Tensor:
        return gc.while_loop(lambda c: c < 100.0, lambda c: c * c + 1.0, x, max_trip_count=most)

    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        each = gc.vmap(lambda e: grow(e, 3) + grow(e * 0.5, 5))(x)
        (slope,) = gc.gradients([gc.reduce_sum(each)], [x])
        alone = [grow(x[i], 3) + grow(x[i] * 0.5, 5) for i in range(3)]
        slopes = [gc.gradients([y], [x])[0][i] for i, y in enumerate(alone)]
    found = gc.Session(graph).run([each, slope, alone, slopes], {x: [0.0, 3.0, 200.0]})
    assert_near(found[0], np.stack(found[2]))
    assert_near(found[1], np.stack(found[3]))


def test_a_limit_is_not_that_of_another_loop() -> None:
    def count(x: gc.Tensor, most: int | None) -> gc.Tensor:
        return gc.while_loop(lambda c: c < 9.0, lambda c: c + 1.0, x, max_trip_count=most)

    got = run(gc.vmap(lambda x: count(x, 3) * 100 + count(x, None)), np.zeros(2, "float32"))
    assert got.tolist() == [309.0, 309.0]


def test_loops_without_a_limit_have_no_gradient() -> None:
    with gc.Graph():
        x = gc.placeholder((3,), name="x")
        y = gc.vmap(lambda e: gc.while_loop(lambda c: c < 9.0, lambda c: c + 1.0, e))(x)
        with pytest.raises(errors.GradientError, match="maximum number of iterations is not known"):
            gc.gradients([gc.reduce_sum(y)], [x])
