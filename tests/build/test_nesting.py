"""Nested bodies, long chains and long names work, or an error names the limit."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, ExecutionError, FeedError, GraphcError, GraphError
from graphc.ir.graph import DEEPEST_NEST
from graphc.ir.names import LONGEST_NAME
from graphc.ir.parse import parse_graph
from graphc.ir.serial import dump_graph, load_graph
from graphc.ir.text import print_graph
from graphc.ops.catalogue import CATALOGUE
from tests.near import assert_near

Tensor = gc.Tensor
Body = Callable[[Tensor], Tensor]


def _cond(x: Tensor, body: Body) -> Tensor:
    return gc.cond(gc.reduce_sum(x) > 0, lambda: body(x), lambda: x)


def _switch(x: Tensor, body: Body) -> Tensor:
    return gc.switch(gc.cast(x[0] > 0, "int32"), [lambda: x, lambda: body(x)])


def _scan(x: Tensor, body: Body) -> Tensor:
    carry, _ = gc.scan(lambda c, _: (body(c), c), x, np.zeros(1, np.float32))
    return carry


def _while_loop(x: Tensor, body: Body) -> Tensor:
    return gc.while_loop(
        lambda s: s[0] < 1, lambda s: (s[0] + 1, body(s[1])), (0, x), max_trip_count=1
    )[1]


def _map_fn(x: Tensor, body: Body) -> Tensor:
    return gc.map_fn(body, x[None])[0]


def _function(x: Tensor, body: Body) -> Tensor:
    return gc.function(body)(x)


KINDS = [_cond, _switch, _scan, _while_loop, _map_fn, _function]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))


def nest(kind: Callable[[Tensor, Body], Tensor], x: Tensor, depth: int) -> Tensor:
    return kind(x, lambda v: nest(kind, v, depth - 1)) if depth else gc.sin(x)


def build(kind: Callable[[Tensor, Body], Tensor], depth: int) -> tuple[gc.Graph, Tensor, Tensor]:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), "float32", name="x")
        y = nest(kind, x, depth)
    return graph, x, y


@each_kind
def test_bodies_nest_up_to_the_limit_and_not_beyond(
    kind: Callable[[Tensor, Body], Tensor],
) -> None:
    for depth in (DEEPEST_NEST + 1, 60, 200, 10**6):  # the last one: endless recursion
        with pytest.raises(GraphError, match=rf"nested {DEEPEST_NEST + 1} deep") as caught:
            build(kind, depth)
        assert "test_nesting.py" in str(caught.value)
    graph, x, y = build(kind, DEEPEST_NEST)
    with graph:
        (dx,) = gc.gradients(gc.reduce_sum(y), [x])
    assert dx is not None
    names = [node.name for outer in graph.nodes for node in _inside(outer)]
    assert max(map(len, names)) < 1000  # they used to double in length at each level
    manifest, arrays = dump_graph(graph)
    text = print_graph(graph, sources=False)
    assert print_graph(load_graph(manifest, arrays, CATALOGUE, {}), sources=False) == text
    assert print_graph(parse_graph(text, CATALOGUE), sources=False) == text


def _inside(node: gc.Node) -> list[gc.Node]:
    return [node, *[n for region in node.regions for inner in region.nodes for n in _inside(inner)]]


@pytest.mark.parametrize("kind", [_cond, _scan])
def test_the_deepest_nest_runs(kind: Callable[[Tensor, Body], Tensor]) -> None:
    graph, x, y = build(kind, DEEPEST_NEST)
    got = gc.Session(graph).run(y, {x: np.ones(2, np.float32)})
    assert_near(got, np.sin(np.ones(2)), rtol=1e-5)


@pytest.mark.slow
@each_kind
def test_gradients_of_the_deepest_nest_run(kind: Callable[[Tensor, Body], Tensor]) -> None:
    graph, x, y = build(kind, DEEPEST_NEST)
    with graph:
        (dx,) = gc.gradients(gc.reduce_sum(y), [x])
    got = gc.Session(graph).run(dx, {x: np.ones(2, np.float32)})
    assert_near(got, np.cos(np.ones(2)), rtol=1e-5)


def test_a_full_stack_is_an_error_of_graphc() -> None:
    """The user's own functions may already use most of Python's stack."""
    graph, x, y = build(_scan, 10)
    session = gc.Session(graph)

    def deep(levels: int) -> Any:
        return deep(levels - 1) if levels else session.run(y, {x: np.ones(2, np.float32)})

    frames = 0
    frame: Any = sys._getframe()
    while frame is not None:
        frames, frame = frames + 1, frame.f_back
    for left in (30, 50, 100, 200):
        with pytest.raises(ExecutionError, match=r"(?s)stack is too small.*recursion") as caught:
            deep(sys.getrecursionlimit() - frames - left)
        assert caught.value.__cause__ is not None
    assert_near(deep(1), np.sin(np.ones(2)), rtol=1e-5)  # the session still works


def test_deep_nests_of_fetches_and_feeds() -> None:
    graph, x, y = build(_function, 1)
    session = gc.Session(graph)
    fetches: Any = y
    for _ in range(3000):
        fetches = [fetches]
    with pytest.raises(GraphcError):
        session.run(fetches, {x: np.ones(2, np.float32)})
    endless: list[Any] = []
    endless.append(endless)
    for bad in (endless, {"a": endless}):
        with pytest.raises(GraphcError):
            session.run(bad, {x: np.ones(2, np.float32)})
        with pytest.raises(FeedError):
            session.run(y, {x: bad})
    assert session.run([[[[y]]]], {x: np.ones(2, np.float32)})[0][0][0][0].shape == (2,)


@pytest.mark.parametrize("place", ["graph", "scope", "placeholder", "variable", "node", "function",
                                   "collection", "signature", "input"])  # fmt: skip
def test_names_have_a_greatest_length(place: str, tmp_path: Any) -> None:
    def use(text: str) -> None:
        name = {"graph": "g", "scope": "s", "placeholder": "x", "variable": "v", "node": "n",
                "function": "f", "collection": "c", "signature": "e", "input": "i"}  # fmt: skip
        name[place] = text
        graph = gc.Graph(name=name["graph"])
        with graph, gc.name_scope(name["scope"]):
            x = gc.placeholder((2,), "float32", name=name["placeholder"])
            v = gc.variable(np.float32(1), name=name["variable"])
            y = gc.function(lambda x: x * v, name=name["function"])(x)
            y = gc.multiply(y, 2.0, name=name["node"])
            gc.add_to_collection(name["collection"], y)
        path = tmp_path / "m.gcx"
        signature = gc.Signature({name["input"]: x}, {"y": y})
        gc.save(gc.Session(graph), path, signatures={name["signature"]: signature})
        point = gc.load(path).signatures[name["signature"]]
        assert point(**{name["input"]: np.ones(2, np.float32)})["y"].tolist() == [2, 2]

    for length in (LONGEST_NAME + 1, 70_000):
        with pytest.raises(AttributeValueError, match=r"(?s)has \d+,\d+ characters.*test_nesting"):
            use("n" * length)
    use("n" * (LONGEST_NAME - 100))


def test_name_scopes_do_not_grow_without_end() -> None:
    def deeper(levels: int) -> None:
        with gc.name_scope("scope"):
            deeper(levels - 1)

    with gc.Graph(), pytest.raises(AttributeValueError, match="use fewer name scopes"):
        deeper(10**6)


def chain(length: int) -> tuple[gc.Graph, Tensor, Tensor]:
    graph = gc.Graph()
    with graph:
        x = y = gc.placeholder((2,), "float32", name="x")
        for i in range(length):
            y = gc.sin(y) if i % 2 else y * 1.5
    return graph, x, y


@pytest.mark.slow
def test_a_chain_of_20_000_nodes() -> None:
    """The test does not run the chain: XLA's recursion over it may exhaust the stack."""
    graph, x, y = chain(20_000)
    assert len(parse_graph(print_graph(graph), CATALOGUE)) == len(graph)
    assert len(load_graph(*dump_graph(graph), CATALOGUE, {})) == len(graph)
    with graph:
        assert gc.gradients(gc.reduce_sum(y), [x])[0] is not None


@pytest.mark.slow
def test_a_chain_of_2_000_nodes_and_its_gradient_through_all_passes() -> None:
    graph, x, y = chain(2_000)
    with graph:
        (dx,) = gc.gradients(gc.reduce_sum(y), [x])
    options = gc.CompileOptions(pipeline="O2", cache=None)
    got = gc.Session(graph, options=options).run([y, dx], {x: np.ones(2)})
    value, slope = 1.0, 1.0
    for i in range(2_000):
        slope *= np.cos(value) if i % 2 else 1.5
        value = np.sin(value) if i % 2 else value * 1.5
    assert_near(got[0], np.full(2, value), rtol=1e-5)
    # A product of 1,000 cosines: the argument of each has an error of 1e-7.
    assert_near(got[1], np.full(2, slope), rtol=1e-3, atol=1e-30)
