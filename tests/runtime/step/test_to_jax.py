"""`gc.to_jax` returns fetches as a pure function, which JAX's transformations accept."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import DTypeError, ExecutionError, FeedError, GraphError, UnknownNameError
from tests.near import assert_near


def training(dtype: str = "float32") -> tuple[gc.Graph, Any, Any, Any, Any]:
    with gc.Graph(seed=3) as graph:
        x = gc.placeholder((None, 4), dtype, name="x")
        y = gc.placeholder((None, 1), dtype, name="y")
        w = gc.variable(np.ones((4, 1), dtype), name="w")
        kept = gc.cast(gc.random.bernoulli(0.8, x.shape), dtype)
        loss = gc.reduce_mean(gc.square(gc.matmul(x * kept, w) - y), name="loss")
        train = gc.minimize(loss, optax.adam(0.1), name="train")
    return graph, x, y, loss, train


def batch(count: int, dtype: str = "float32") -> dict[str, Any]:
    rng = np.random.default_rng(count)
    return {"x": rng.normal(size=(count, 4)).astype(dtype), "y": np.ones((count, 1), dtype)}


@pytest.mark.slow
def test_steps_equal_those_of_a_session() -> None:
    graph, *_, loss, train = training()
    function, state = gc.to_jax(graph, {"step": train, "loss": loss, "w": "w"})
    step = jax.jit(function)
    session = gc.Session(graph)
    for count in (3, 5, 5):
        fetched, state = step(state, batch(count))
        wanted = session.run([train, loss, "w"], batch(count))
        assert fetched["step"] is None
        assert_near(fetched["loss"], wanted[1], rtol=1e-6)
        assert_near(fetched["w"], wanted[2], rtol=1e-6)
    for name, value in session.state().items():
        assert_near(state[name], value, rtol=1e-6, err_msg=name)


@pytest.mark.slow
def test_transformations_of_jax() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None,), name="x")
        w = gc.variable(np.array([1.0, 2.0, 3.0], np.float32), name="w")
        y = gc.reduce_sum(gc.tanh(x * w))
    function, state = gc.to_jax(graph, y)
    value = jnp.arange(3.0)

    def total(state: Any, x: Any) -> Any:
        return function(state, {"x": x})[0]

    slope = jax.grad(lambda s: total(s, value))(state)["w"]
    assert_near(slope, value / np.cosh(value * state["w"]) ** 2, rtol=1e-7, atol=1e-6)
    many = jax.vmap(total, (None, 0))(state, jnp.stack([value, value + 1]))
    assert_near(many[0], total(state, value), rtol=1e-6)
    exported = jax.export.export(jax.jit(function))(state, {"x": value})
    assert_near(exported.call(state, {"x": value})[0], many[0], rtol=1e-6)
    assert state.keys() == {"w"}


def test_any_tensor_may_be_fed_by_name_or_itself() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2,), name="x")
        hidden = gc.exp(x, name="hidden")
        y = hidden + 1
    function, state = gc.to_jax(graph, [y], feeds=["hidden"])
    for key in ("hidden", hidden):
        np.testing.assert_array_equal(function(state, {key: np.ones(2, "f4")})[0][0], [2.0, 2.0])
    assert state == {}


def test_feeds_are_cast_within_a_kind_alone() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((), "float16", name="x")
        y = x * 2
    function, state = gc.to_jax(graph, y)
    assert function(state, {"x": 1.5})[0] == 3.0
    assert function(state, {"x": np.float32(1.5)})[0].dtype == jnp.float16
    with pytest.raises(DTypeError, match=r"'x' must be f16\[\], got int32"):
        function(state, {"x": np.int32(1)})


@pytest.mark.slow
def test_64_bit_values_need_their_mode() -> None:
    graph, *_, loss, _ = training("float64")
    function, state = gc.to_jax(graph, loss)
    with pytest.raises(ExecutionError, match="64-bit values") as caught:
        function(state, batch(2, "float64"))
    assert "jax.enable_x64(True)" in str(caught.value)
    with jax.enable_x64(True):
        value, _ = jax.jit(function)(state, batch(2, "float64"))
    assert value.dtype == np.float64


def test_callbacks_and_loops_go_along(capfd: pytest.CaptureFixture[str]) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        last, _ = gc.scan(lambda c, a: (c + a, gc.print("{}", a)) and (c + a, None), 0.0, x)
        shown = gc.print("sum {}", last)
    function, state = gc.to_jax(graph, [last, shown])
    fetched, _ = jax.jit(function)(state, {"x": np.arange(3, dtype=np.float32)})
    assert fetched == [3.0, None]
    jax.effects_barrier()
    assert capfd.readouterr().out.splitlines() == ["0.0", "1.0", "2.0", "sum 3.0"]


def test_errors() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 3), name="x")
        y = x * 2
    function, state = gc.to_jax(graph, y)
    with pytest.raises(FeedError, match="are not those that the function takes") as caught:
        function(state, {})
    assert "takes  x" in str(caught.value)
    with pytest.raises(FeedError, match=r"feed 'x' must be f32\[x_0, 3\]"):
        function(state, {"x": np.ones((2, 4), np.float32)})
    with pytest.raises(UnknownNameError, match="'z'"):
        gc.to_jax(graph, "z")
    with pytest.raises(FeedError, match="needed and not fed"):
        gc.to_jax(graph, y, feeds=[])
    with pytest.raises(GraphError, match="must be a graph"):
        gc.to_jax(y, y)  # type: ignore[arg-type]
