"""Optimizers that evaluate the loss at other parameters, with all ways to run a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import GradientError, JaxImportError
from tests.near import assert_near

Array = np.ndarray[Any, Any]
STEPS = 4


def data(rows: int = 8) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    return {"x": rng.normal(size=(rows, 3)), "y": rng.normal(size=(rows, 2))}


def start() -> dict[str, Array]:
    rng = np.random.default_rng(6)
    return {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=(4, 2))}


def backtracking(steps: int = 12) -> Any:
    return optax.chain(optax.sgd(2.0), optax.scale_by_backtracking_linesearch(steps))


def build(
    tx: Any,
    between: Callable[[Any], Any] = lambda h: h,
    *,
    sizes: tuple[Any, ...] = (None,),
) -> tuple[gc.Graph, Any, Any]:
    with gc.Graph(seed=1) as graph:
        x = gc.placeholder((*sizes, 3), "float64", name="x")
        y = gc.placeholder((*sizes, 2), "float64", name="y")
        a, b = (gc.variable(v, name=n) for n, v in start().items())
        out = gc.matmul(between(gc.tanh(gc.matmul(x, a))), b)
        loss = gc.mean(gc.square(out - y))
        train = gc.minimize(loss, tx)
    return graph, train, loss


def by_hand(
    tx: Any, between: Callable[..., Any] = lambda h, _: h, extras: Any = (0.0,) * STEPS
) -> tuple[list[float], Any]:
    with jax.enable_x64(True):
        feed = {name: jnp.asarray(v) for name, v in data().items()}
        params = {name: jnp.asarray(v) for name, v in start().items()}
        state = tx.init(params)

        @jax.jit
        def step(params: Any, state: Any, extra: Any) -> Any:
            def loss(p: Any, obj_fn: Any = None) -> Any:  # line searches pass on their arguments
                h = between(jnp.tanh(feed["x"] @ p["a"]), extra)
                return jnp.mean((h @ p["b"] - feed["y"]) ** 2)

            value, grad = jax.value_and_grad(loss)(params)
            updates, state = optax.with_extra_args_support(tx).update(
                grad, state, params, value=value, grad=grad, value_fn=loss, obj_fn=loss
            )
            return optax.apply_updates(params, updates), state, value

        losses = []
        for extra in extras:
            params, state, value = step(params, state, extra)
            losses.append(float(value))
    return losses, {name: np.asarray(v) for name, v in params.items()}


def check(session: Any, losses: Any, wanted: tuple[list[float], Any]) -> None:
    assert_near(losses, wanted[0], rtol=1e-10)
    assert losses[-1] < losses[0]
    for name, value in wanted[1].items():
        assert_near(session.get(name), value, rtol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("tx", [optax.lbfgs, backtracking])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_step_on_several_devices_is_the_step_on_one(tx: Any, replicas: int) -> None:
    graph, train, loss = build(tx())
    session = gc.Session(graph, strategy=gc.devices.DataParallel(replicas))
    losses = [float(session.run([train, loss], data())[1]) for _ in range(STEPS)]
    check(session, losses, by_hand(tx()))


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("tx", [optax.lbfgs, backtracking])
@pytest.mark.parametrize("passes", ["O0", "O2"])
def test_many_steps_in_one_loop_and_without_passes(tx: Any, passes: str) -> None:
    graph, train, loss = build(tx())
    session = gc.Session(graph, options=gc.CompileOptions(pipeline=passes))
    stacked = {name: np.stack([v] * STEPS) for name, v in data().items()}
    losses = session.run_steps([train, loss], stacked, STEPS)[1]
    check(session, np.asarray(losses), by_hand(tx()))


@pytest.mark.slow
def test_the_loss_may_hold_loops_branches_and_functions() -> None:
    double = gc.function(lambda h: gc.sin(h) * 2.0)

    def loops(h: Any) -> Any:
        h = gc.scan(lambda c, _: (gc.cos(c) + c, None), h, None, length=3)[0]
        h = gc.cond(gc.reduce_sum(h) > -1e9, lambda v: v * 0.5, lambda v: v, h)
        count = gc.constant(0)
        turns = gc.while_loop(
            lambda s: s[0] < 2, lambda s: (s[0] + 1, gc.tanh(s[1])), (count, h), max_trip_count=3
        )
        return double(turns[1])

    def plain(h: Any, _: Any) -> Any:
        for _ in range(3):
            h = jnp.cos(h) + h
        return jnp.sin(jnp.tanh(jnp.tanh(h * 0.5))) * 2.0

    graph, train, loss = build(optax.lbfgs(), loops)
    session = gc.Session(graph)
    losses = [float(session.run([train, loss], data())[1]) for _ in range(STEPS)]
    check(session, losses, by_hand(optax.lbfgs(), plain))


@pytest.mark.slow
def test_the_loss_draws_the_same_numbers_wherever_it_is_found() -> None:
    """With other masks at other rates, the search would not see the loss along one line."""
    seen = []

    def dropped(h: Any) -> Any:
        seen.extend([h, gc.nn.dropout(h, 0.5)])
        return seen[1]

    graph, train, loss = build(optax.lbfgs(), dropped)
    session = gc.Session(graph)
    runs = [session.run([loss, *seen, train], data()) for _ in range(STEPS)]
    masks = np.stack([np.asarray(d) / np.asarray(h) for _, h, d, _ in runs])
    assert {*np.unique(np.round(masks, 9))} == {0.0, 2.0}
    wanted, params = by_hand(optax.lbfgs(), lambda h, mask: h * mask, masks)
    assert_near([float(run[0]) for run in runs], wanted, rtol=1e-9)
    assert_near(session.get("a"), params["a"], rtol=1e-8)


def test_parameters_of_two_dtypes_and_some_left_out() -> None:
    with gc.Graph() as graph:
        wide = gc.variable(np.ones(3, np.float32), name="wide")
        narrow = gc.variable(np.full(3, 2.0, jnp.bfloat16), name="narrow")
        fixed = gc.variable(np.float32(3.0), name="fixed")
        product = wide.read() * gc.cast(narrow.read(), "float32") * fixed.read()
        loss = gc.reduce_sum(gc.square(product - 1.0))
        train = gc.minimize(loss, backtracking(60), variables=[wide, narrow])
    session = gc.Session(graph)
    losses = [float(session.run([train, loss], {})[1]) for _ in range(8)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.1 * losses[0]
    assert float(session.get("fixed")) == 3.0 and session.get("narrow").dtype == jnp.bfloat16


def test_complex_parameters() -> None:
    target = np.array([1 + 2j, -3j])

    def loss_of(z: Any, square: Any, total: Any, real: Any, imag: Any) -> Any:
        return total(square(real(z) - target.real) + square(imag(z) - target.imag))

    with gc.Graph() as graph:
        z = gc.variable(np.zeros(2, np.complex128), name="z")
        loss = loss_of(z.read(), gc.square, gc.reduce_sum, gc.real, gc.imag)
        conjugate = optax.stateless(lambda g, p: jax.tree.map(jnp.conj, g))
        tx = optax.chain(conjugate, backtracking())
        train = gc.minimize(loss, tx)
    session = gc.Session(graph)
    for _ in range(30):
        session.run(train, {})
    assert_near(session.get("z"), target, rtol=1e-7, atol=0.1)


@pytest.mark.slow
def test_a_compiled_step_is_saved_and_loaded(tmp_path: Path) -> None:
    graph, train, loss = build(optax.lbfgs(), sizes=(8,))
    session = gc.Session(graph)
    signature = gc.Signature(
        {"x": graph.tensor("x"), "y": graph.tensor("y")}, {"loss": loss}, updates=[train]
    )
    gc.save(session, tmp_path / "model.gcx", signatures={"train": signature})
    model = gc.load(tmp_path / "model.gcx")
    losses = []
    state = model.state()
    for _ in range(STEPS):
        results, state = model.signatures["train"](state, **data())
        losses.append(float(results["loss"]))
    assert_near(losses, by_hand(optax.lbfgs())[0], rtol=1e-10)


def test_a_line_search_follows_another_loss_of_the_same_types() -> None:
    graph, train, loss = build(backtracking(), gc.sin)
    session = gc.Session(graph)
    losses = [float(session.run([train, loss], data())[1]) for _ in range(STEPS)]
    check(session, losses, by_hand(backtracking(), lambda h, _: jnp.sin(h)))


# -- errors ------------------------------------------------------------------------------------


def test_a_loss_that_draws_inside_a_loop_is_refused() -> None:
    def noisy(h: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            return c + gc.random.normal(c.shape, dtype="float64"), None

        return gc.scan(body, h, None, length=2)[0]

    with pytest.raises(GradientError, match="draws random numbers inside") as caught:
        build(optax.lbfgs(), noisy, sizes=(8,))
    assert "test_line_search.py" in str(caught.value)
    build(optax.adam(0.1), noisy, sizes=(8,))


def _evaluates(change: Callable[[Any, Any], Any]) -> Any:
    def update(updates: Any, state: Any, params: Any = None, *, value_fn: Any, **_: Any) -> Any:
        factor = change(value_fn, params)
        return jax.tree.map(lambda u: u * factor, updates), state

    return optax.GradientTransformationExtraArgs(lambda p: (), update)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda f, p: jax.jvp(lambda q: jax.jvp(jax.grad(f), (q,), (p,))[1]["a"], (p,), (p,))[
                1
            ].sum(),
            "third derivatives of the loss",
        ),
        (lambda f, p: f(p["a"]), "it evaluates the loss at"),
        (lambda f, p: f({"a": p["a"]}), "it evaluates the loss at"),
    ],
    ids=["third", "leaf", "part"],
)
def test_unsupported_uses_of_a_loss(change: Any, text: str) -> None:
    with pytest.raises(JaxImportError, match=text) as caught:
        build(_evaluates(change))
    assert "test_line_search.py" in str(caught.value)


def test_a_loss_evaluated_in_other_ways() -> None:
    """A jitted function, forward mode and a scan all evaluate the loss at the given parameters."""

    def change(f: Any, p: Any) -> Any:
        value = jax.jit(f)(jax.tree.map(lambda v: 0.5 * v, p))
        slope = jax.jvp(f, (p,), (p,))[1]
        steps = jax.lax.scan(lambda c, s: (c, f(jax.tree.map(lambda v: s * v, c))), p, jnp.ones(2))
        gradient = jax.jit(jax.grad(f))(p)["b"]
        return value + slope + steps[1].sum() + gradient.sum()

    graph, train, loss = build(optax.chain(_evaluates(change), optax.scale(-0.01)))
    session = gc.Session(graph)
    losses = [float(session.run([train, loss], data())[1]) for _ in range(STEPS)]
    tx = optax.chain(_evaluates(change), optax.scale(-0.01))
    assert_near(losses, by_hand(tx)[0], rtol=1e-9)


# -- second derivatives ------------------------------------------------------------------------


def _products(f: Any, p: Any, along: Any) -> list[Any]:
    """The Hessian times `along`, in each way that JAX offers."""

    def slope(q: Any) -> Any:
        return jax.jvp(f, (q,), (along,))[1]

    def dot(q: Any) -> Any:
        parts = jax.tree.map(lambda g, v: (g * v).sum(), jax.grad(f)(q), along)
        return sum(jax.tree.leaves(parts))

    return [
        jax.jvp(jax.grad(f), (p,), (along,))[1],
        jax.grad(dot)(p),
        jax.jit(jax.grad(slope))(p),
    ]


@pytest.mark.parametrize("way", range(3))
def test_products_with_the_hessian(way: int) -> None:
    def change(f: Any, p: Any) -> Any:
        along = jax.tree.map(jnp.cos, p)
        product = _products(f, p, along)[way]
        bend = jax.jvp(lambda q: jax.jvp(f, (q,), (along,))[1], (p,), (along,))[1]
        return 1.0 + product["a"][0, 0] + product["b"].sum() + bend

    tx = optax.chain(_evaluates(change), optax.scale(-0.01))
    graph, train, loss = build(tx)
    session = gc.Session(graph)
    losses = [float(session.run([train, loss], data())[1]) for _ in range(STEPS)]
    check(session, losses, by_hand(tx))


def test_many_parameters_at_once() -> None:
    def change(f: Any, p: Any) -> Any:
        def scaled(v: Any) -> Any:
            return jax.tree.map(lambda w: w * v, p)

        values = jax.vmap(lambda v: f(scaled(v)))(jnp.arange(3.0))
        slopes = jax.vmap(lambda v: jax.grad(f)(scaled(v)))(jnp.ones(2))
        rows = jax.hessian(lambda b: f({"a": p["a"], "b": b}))(p["b"])
        return 1.0 + values.sum() + slopes["a"].sum() + rows[0, 1].sum()

    tx = optax.chain(_evaluates(change), optax.scale(-0.01))
    graph, train, loss = build(tx)
    session = gc.Session(graph)
    losses = [float(session.run([train, loss], data())[1]) for _ in range(STEPS)]
    check(session, losses, by_hand(tx))


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_sophia(replicas: int) -> None:
    """Sophia estimates the Hessian's diagonal with random signs, in a branch, every second step."""

    def sophia() -> Any:
        return optax.contrib.sophia(0.05, update_interval=2)

    graph, train, loss = build(sophia())
    strategy = gc.devices.DataParallel(replicas) if replicas > 1 else None
    session = gc.Session(graph, strategy=strategy)
    losses = [float(session.run([train, loss], data())[1]) for _ in range(STEPS)]
    check(session, losses, by_hand(sophia()))


def test_a_parameter_without_curvature() -> None:
    with gc.Graph() as graph:
        bent, straight = (gc.variable(np.float64(2.0), name=n) for n in ("bent", "straight"))
        loss = gc.square(gc.square(bent.read())) + straight.read()

        def update(updates: Any, state: Any, params: Any = None, *, obj_fn: Any, **_: Any) -> Any:
            return jax.jvp(jax.grad(obj_fn), (params,), (params,))[1], state

        step = gc.minimize(loss, optax.GradientTransformationExtraArgs(lambda p: (), update))
    session = gc.Session(graph)
    session.run(step, {})
    # The Hessian of bent^4 is 12 bent^2, the Hessian of a sum is 0.
    assert float(session.get("bent")) == 2.0 + 12 * 2.0**2 * 2.0
    assert float(session.get("straight")) == 2.0
