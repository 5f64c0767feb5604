"""Initial values, opaque state, and the rules for feeds apart from sessions."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import FeedError, GraphError, UnknownNameError
from graphc.ir.node import Tensor
from graphc.ir.program import Port
from graphc.ir.types import parse_type
from graphc.runtime.feeds.feeds import FeedSpec
from tests.near import assert_near


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
