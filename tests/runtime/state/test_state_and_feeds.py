"""Initial values, opaque state, and the rules for feeds, without sessions."""

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.errors import FeedError, GraphError, UnknownNameError
from graphc.ir.dtypes import SHORT, is_64bit
from graphc.ir.node import Tensor
from graphc.ir.program import Port
from graphc.ir.types import parse_type
from graphc.runtime.feeds.feeds import FeedSpec
from tests.near import assert_near

# The dtypes that JAX puts on a device unchanged.
PLAIN = {dtype.name for dtype in SHORT if not is_64bit(dtype)}


def test_initial_values_from_other_variables_in_any_order() -> None:
    g = gc.Graph()
    with g:
        a = gc.variable(np.arange(3, dtype=np.float32), name="a")
        b = gc.variable(gc.exp(a), name="b")
        gc.variable(b * 2.0 + a, name="c")
    s = gc.Session(g)
    assert_near(s.get("c"), 2 * np.exp(np.arange(3.0)) + np.arange(3), rtol=1e-6)


def test_state_names_are_those_of_the_graph() -> None:
    g = gc.Graph()
    with g:
        v = gc.variable(np.float32(2), name="v")
        draw = gc.random.normal(()) * v
    step = gc.compile(g, draw)
    state = step.init()
    assert list(state) == ["v"] and len(state) == 1
    with pytest.raises(UnknownNameError, match="no variable 'w'"):
        state["w"]
    first, state = step(state)
    second, state = step(state)
    assert first != second
    assert state.with_value("v", np.float32(0))["v"] == 0
    assert state["v"] == 2


def counting(dtype: str, devices: tuple[str, str]):
    """A graph that adds a variable of `dtype` to a feed and then increments the variable."""
    g = gc.Graph()
    with g:
        x = gc.placeholder((None, 8), dtype, name="x")
        with gc.device(devices[0]):
            v = gc.variable(np.ones(8, dtype), name="v")
            gc.variable(np.ones(8, dtype), name="u")  # could share an array with the other variable
            one_more = gc.cast(gc.real(gc.cast(v, "complex64")) + 1, dtype)
        with gc.device(devices[1]):
            y = gc.cast(x, "complex64") + gc.cast(v, "complex64")
        with gc.device(devices[0]):
            write = v.assign(one_more)
    return g, x, y, write


@pytest.mark.parametrize("dtype", sorted(dtype.name for dtype in SHORT))
@pytest.mark.parametrize("way", ["one device", "replicas", "partition"])
def test_variables_and_feeds_of_every_dtype(dtype: str, way: str) -> None:
    devices = ("/cpu:1", "/cpu:0") if way == "partition" else ("", "")
    g, x, y, write = counting(dtype, devices)
    strategy = gc.devices.DataParallel(2) if way == "replicas" else None
    session = gc.Session(g, strategy=strategy)
    ones = np.ones((4, 8), dtype)
    feeds = [ones, jax.device_put(ones)] if dtype in PLAIN else [ones]
    for feed in feeds:
        assert_near(session.run(y, {x: feed}), np.full((4, 8), 2), rtol=1e-6)
    session.run(write)
    after = 2 if dtype == "bool" else 3
    assert_near(session.run([y, write], {x: ones})[0], np.full((4, 8), after), rtol=1e-6)
    session.set("v", np.zeros(8, dtype))
    assert_near(session.run(y, {x: ones}), np.ones((4, 8)), rtol=1e-6)


def spec(text: str) -> FeedSpec:
    type = parse_type(text)
    return FeedSpec(Port("x", "feed", Tensor(type, "x")), None, copy=True)


@pytest.mark.parametrize(
    "type, value, dtype",
    [
        ("f32[2]", np.ones(2), "float32"),
        ("f32[2]", [1, 2], "float32"),
        ("i32[2]", np.ones(2, np.int64), "int32"),
        ("bool[2]", [True, False], "bool"),
        ("c64[2]", [1.0, 2], "complex64"),
        ("bf16[2]", np.ones(2, np.float32), "bfloat16"),
        ("i8[2]", np.ones(2, np.uint8), "int8"),
    ],
)
def test_feeds_are_cast_within_a_kind(type: str, value: object, dtype: str) -> None:
    assert spec(type).convert(value).dtype.name == dtype


@pytest.mark.parametrize(
    "type, value",
    [
        ("i32[2]", np.ones(2, np.float32)),
        ("f32[2]", np.ones(2, np.int32)),
        ("f32[2]", np.ones(2, bool)),
        ("i32[2]", [1.5, 2.0]),
        ("f32[2]", np.ones(2, complex)),
        ("f32[2]", ["a", "b"]),
        ("f32[2]", None),
        ("f32[2]", [[1, 2], [3]]),
    ],
)
def test_feeds_of_another_kind_are_refused(type: str, value: object) -> None:
    with pytest.raises(FeedError, match="feed 'x'"):
        spec(type).convert(value)


def test_a_session_needs_a_graph() -> None:
    with pytest.raises(GraphError, match="must be a graph, got int"):
        gc.Session(3)
