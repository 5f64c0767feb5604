"""`apply_gradients` does what `minimize` does, for gradients that the user passes."""

from __future__ import annotations

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import (
    AttributeValueError,
    DTypeError,
    GradientError,
    GraphError,
    ShapeError,
)
from tests.near import assert_near

QUICK = gc.CompileOptions(xla_options={"xla_backend_optimization_level": 0})


def network():
    """A graph with a loss, and its variables."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 3), "float64", name="x")
        h = gc.nn.Dense(4, activation=gc.nn.tanh, dtype="float64", name="hidden")(x)
        y = gc.nn.Dense(2, dtype="float64", name="out")(h)
        loss = gc.reduce_mean(gc.square(y - 1.0))
    return graph, loss, list(graph.variables.values())


def trained(graph, train, steps=3, fed=True):
    session = gc.Session(graph, options=QUICK)
    for i in range(steps):
        feeds = {"x": np.random.default_rng(i).normal(size=(5, 3))}
        assert session.run(train, feeds if fed else {}) is None
    return session.values()


def test_it_is_minimize_with_the_gradients_in_sight() -> None:
    """The variables get the same names and values, for any order of the pairs."""
    tx = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(0.1))
    graph, loss, _ = network()
    with graph:
        train = gc.minimize(loss, tx)
    wanted = trained(graph, train)
    graph, loss, variables = network()
    with graph:
        pairs = list(zip(gc.gradients(loss, variables), variables, strict=True))
        train = gc.train.apply_gradients(reversed(pairs), tx)
    found = trained(graph, train)
    assert found.keys() == wanted.keys() and "out/kernel/train/1/0/mu" in found
    for name, value in wanted.items():
        assert_near(found[name], value, rtol=1e-12, err_msg=name)


def test_gradients_of_ones_own_and_variables_without_any() -> None:
    graph, _, (kernel, bias, *_) = network()
    with graph:
        up = gc.constant(np.arange(4.0))
        train = gc.train.apply_gradients([(None, kernel), (up, bias)], optax.sgd(0.5), name="own")
    start, after = gc.Session(graph).values(), trained(graph, train, fed=False)
    np.testing.assert_array_equal(after["hidden/bias"], -1.5 * np.arange(4))
    np.testing.assert_array_equal(after["hidden/kernel"], start["hidden/kernel"])


def test_only_optimizers_that_use_the_loss_need_it() -> None:
    plateau = optax.chain(optax.sgd(1.0), optax.contrib.reduce_on_plateau(factor=0.5, patience=1))
    graph, loss, variables = network()
    with graph:
        pairs = [(gc.ones(v.shape, "float64"), v) for v in variables]
        with pytest.raises(GradientError, match=r"needs the loss(.|\n)*hint: pass loss="):
            gc.train.apply_gradients(pairs, plateau)
        train = gc.train.apply_gradients(pairs, plateau, loss=gc.constant(1.0))
    found = trained(graph, train, steps=6, fed=False)  # the rate falls: there is no progress
    assert_near(found["out/bias"], found["out/bias"][0], rtol=1e-7)
    assert -6 < found["out/bias"][0] < -1
    with graph.extend(), pytest.raises(GradientError, match=r"at other parameters(.|\n)*minimize"):
        gc.train.apply_gradients(pairs, optax.lbfgs())


def test_float16_gradients_of_ones_own_are_not_taken_for_scaled_ones() -> None:
    """Only `minimize` scales its loss; one program may contain both."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 3), "float32", name="x")
        w, u = (gc.variable(np.ones((3, 2), np.float32), name=name) for name in "wu")
        both = [gc.reduce_mean(gc.matmul(x, v)) for v in (w, u)]
        scaled = gc.minimize(both[0], optax.sgd(1.0), variables=[w])
        own = gc.train.apply_gradients([(gc.gradients(both[1], u), u)], optax.sgd(1.0), name="own")
    session = gc.Session(graph, options=gc.CompileOptions(precision="f16"))
    session.run([scaled, own], {x: np.ones((4, 3), np.float32)})
    np.testing.assert_array_equal(session.get("w"), 0.5)
    np.testing.assert_array_equal(session.get("u"), 0.5)


def test_errors() -> None:
    graph, loss, (kernel, *_) = network()
    with graph:
        g = gc.ones(kernel.shape, "float64")
        tx = optax.sgd(0.1)
        apply = gc.train.apply_gradients
        with pytest.raises(GradientError, match="there are no gradients"):
            apply([(None, kernel)], tx)
        with pytest.raises(GradientError, match="two gradients for the variable 'hidden/kernel'"):
            apply([(g, kernel), (g, kernel)], tx)
        with pytest.raises(GraphError, match=r"expected pairs \(gradient, variable\)"):
            apply([g], tx)
        with pytest.raises(GraphError, match="expected pairs"):
            apply([(kernel, g)], tx)
        with pytest.raises(ShapeError, match=r"must be f64\[3, 4\], got f64\[4\]"):
            apply([(g[0], kernel)], tx)
        with pytest.raises(DTypeError, match=r"must be f64\[3, 4\], got f32\[3, 4\]"):
            apply([(gc.cast(g, "float32"), kernel)], tx)
        with pytest.raises(AttributeValueError, match="apply_gradients: 3 is not an optax"):
            apply([(g, kernel)], 3)
    with gc.Graph(), pytest.raises(GraphError, match="not of the graph being built"):
        apply([(g, kernel)], tx)
    inner = []

    def body(row):
        inner.append(gc.gradients(gc.reduce_sum(kernel * row), kernel))
        return row

    with graph:
        gc.map_fn(body, gc.ones((2, 4), "float64"))
    with pytest.raises(GraphError, match="not of the graph being built"):
        apply([(inner[0], kernel)], tx)
    train = apply([(g, kernel)], tx)  # outside of a `with`: in the gradients' own graph
    assert graph.node(train.name) is train


@pytest.mark.parametrize("tx", [optax.adam(0.1), optax.chain(optax.clip(1.0), optax.sgd(0.1, 0.9))])
def test_a_branch_chooses_a_step(tx) -> None:
    with gc.Graph() as graph:
        chosen = gc.placeholder((), "bool", name="chosen")
        w = gc.variable([1.0, 2.0], name="w")
        pairs = [(gradient, w) for gradient in gc.gradients(gc.reduce_sum(w**3), [w])]

        def update():
            with gc.control_dependencies([gc.train.apply_gradients(pairs, tx)]):
                return gc.constant(1.0)

        done = gc.cond(chosen, update, lambda: gc.constant(0.0))
    session = gc.Session(graph)
    want = np.float32([1, 2])
    slots = tx.init(want)
    for choice in (True, False, True):
        assert session.run(done, {chosen: choice}) == choice
        if choice:
            updates, slots = tx.update(3 * want**2, slots, want)
            want = np.asarray(optax.apply_updates(want, updates))
        assert_near(session.get("w"), want, rtol=1e-6)


def test_a_loop_makes_steps() -> None:
    with gc.Graph() as graph:
        w = gc.variable(1.0, name="w")
        x = gc.placeholder((None,), name="x")

        def step(count, each):
            value = w.read()
            pairs = [(gradient, w) for gradient in gc.gradients(gc.square(value - each), [value])]
            with gc.control_dependencies([gc.train.apply_gradients(pairs, optax.sgd(0.1))]):
                return count + 1, value + 0

        count, before = gc.scan(step, 0, x)
    session = gc.Session(graph)
    found = session.run([count, before], {x: [1.0, 2.0, 3.0]})
    assert found[0] == 3
    assert_near(found[1], [1.0, 1.0, 1.2], rtol=1e-6)
    assert_near(session.get("w"), 1.56, rtol=1e-6)
