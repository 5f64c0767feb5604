"""The text and serial forms of graphs: variables, initializers, sizes, collections, names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from graphc.errors import SerialError, TextError
from graphc.ir.dims import symbol
from graphc.ir.graph import Graph
from graphc.ir.parse import parse_graph
from graphc.ir.program import region
from graphc.ir.scopes import control_inputs, device, name_scope
from graphc.ir.serial import dump_graph, from_bytes, load_graph, to_bytes
from graphc.ir.source import Source
from graphc.ir.text import print_graph
from graphc.ir.types import parse_type
from graphc.ir.values import same_value
from graphc.ir.variable import Variable
from graphc.ir.verify import verify_graph
from tests.ir.catalogue import CATALOGUE


@dataclass(frozen=True)
class Uniform:
    low: Any = 0.0
    high: Any = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.low, str):
            raise ValueError("low must be a number")

    def __call__(self, rng: Any, shape: Any, dtype: Any) -> Any:
        raise NotImplementedError


def plain(rng: Any, shape: Any, dtype: Any) -> Any:
    raise NotImplementedError


INITIALIZERS = {"Uniform": Uniform, "Plain": object}
F32 = np.dtype(np.float32)

TEXT = """\
graph net(seed=3, draws=2) {
  variable w: f32[4, 4] = Uniform(low=-0.5, high=1.0) trainable on /device:GPU:0 in [weights, "a b"]  # model.py:3
  variable b: f32[4] = f32[4] [0.0, 1.0, 2.0, 3.0]
  variable ema: f32[4, 4] = %2
  size m == n
  %0 = Placeholder() {dtype=f32, shape=[n, 4]}                   : f32[n, 4] as x
  %1 = Placeholder() {dtype=f32, shape=[m, 4]}                   : f32[m, 4] as y
  %2 = ReadVariable() {variable="w", dtype=f32, shape=[4, 4]}    : f32[4, 4] as w/read on /device:GPU:0
  %3 = MatMul(%0, %2)                                            : f32[n, 4] as hidden/MatMul
  %4 = Add(%3, %1)                                               : f32[n, 4] as hidden/Add after w/read, y
  %5 = Scan(%4) {length=2}                                       : f32[n, 4] as Scan with body(a0: f32[n, 4]) {
    %0 = Relu(a0) : f32[n, 4] as inner
    return r0 = %0
  }
  Group() as train after hidden/Add
  collection losses = [%4, variable w, node train]
  collection "two words" = [%5]
}"""  # noqa: E501


def build() -> Graph:
    """The graph of `TEXT`, built with functions."""
    graph = Graph(3, "net")
    placeholder, read = CATALOGUE["Placeholder"], CATALOGUE["ReadVariable"]
    with graph:
        shape = {"dtype": F32, "shape": (symbol("n"), 4)}
        x = graph.add(placeholder, (), shape, name="x").outputs[0]
        y = graph.add(placeholder, (), {**shape, "shape": (symbol("m"), 4)}, name="y").outputs[0]
        with device("/gpu:0"):
            of_w = {"variable": "w", "dtype": F32, "shape": (4, 4)}
            w = graph.add(read, (), of_w, name="w/read").outputs[0]
        with name_scope("hidden"):
            h = graph.add(CATALOGUE["MatMul"], (x, w)).outputs[0]
            with control_inputs(("w/read", "y")):
                h = graph.add(CATALOGUE["Add"], (h, y)).outputs[0]
        inner = Graph(parent=graph)
        a = inner.add_input(h.type, "a0")
        with inner:
            r = inner.add(CATALOGUE["Relu"], (a,), name="inner").outputs[0]
        body = region("body", [a], inner.nodes, [r])
        graph.add(CATALOGUE["Scan"], (h,), {"length": 2}, (body,))
        with control_inputs(("hidden/Add",)):
            train = graph.add(CATALOGUE["Group"], (), name="train")
    variables = [
        Variable(graph, "w", parse_type("f32[4, 4]"), Uniform(-0.5), device="/device:GPU:0",
                 collections=("weights", "a b"), source=Source("/x/model.py", 3)),
        Variable(graph, "b", parse_type("f32[4]"), np.arange(4, dtype=F32), trainable=False),
        Variable(graph, "ema", parse_type("f32[4, 4]"), w, trainable=False),
    ]  # fmt: skip
    for variable in variables:
        graph.restore_variable(variable)
    for item in (h, variables[0], train):
        graph.add_to_collection("losses", item)
    graph.add_to_collection("two words", graph.tensor("Scan"))
    graph.next_draw()
    graph.next_draw()
    return graph


def parse(text: str) -> Graph:
    return parse_graph(text, CATALOGUE, INITIALIZERS)


def by_text(graph: Graph) -> Graph:
    return parse(print_graph(graph))


def by_file(graph: Graph) -> Graph:
    manifest, arrays = from_bytes(to_bytes(*dump_graph(graph)))
    return load_graph(manifest, arrays, CATALOGUE, INITIALIZERS)


def without_sources(text: str) -> str:
    return "\n".join(line.partition("  #")[0].rstrip() for line in text.split("\n"))


def squeeze(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))


def test_a_graph_prints_everything_it_holds() -> None:
    assert squeeze(without_sources(print_graph(build()))) == squeeze(without_sources(TEXT))
    text = print_graph(build())
    assert "# model.py:3" in text and "# test_graph_text.py:" in text
    assert "#" not in print_graph(build(), sources=False)


@pytest.mark.parametrize("there_and_back", [by_text, by_file])
def test_graphs_are_read_back(there_and_back: Any) -> None:
    graph = build()
    again = there_and_back(graph)
    verify_graph(again)
    text = print_graph(graph, sources=there_and_back is by_file)
    assert print_graph(again, sources=there_and_back is by_file) == text
    assert (again.name, again.seed, again.draws) == ("net", 3, 2)
    assert [n.name for n in again.nodes] == [n.name for n in graph.nodes]
    assert again.node("hidden/Add").control_inputs == ("w/read", "y")
    assert again.tensor("hidden/MatMul:0").node is again.node("hidden/MatMul")
    assert again.variable("w").initial == Uniform(-0.5)
    assert again.variable("w").collections == ("weights", "a b")
    assert again.variable("w").trainable and not again.variable("b").trainable
    assert same_value(again.variable("b").initial, graph.variable("b").initial)
    assert again.variable("ema").initial is again.tensor("w/read")
    assert again.collection("losses") == [
        again.tensor("hidden/Add"), again.variable("w"), again.node("train"),
    ]  # fmt: skip
    assert again.constraints.find(symbol("m")) == symbol("n")
    assert [port.kind for port in again.node("Scan").regions[0].inputs] == ["arg"]


@pytest.mark.parametrize("there_and_back", [by_text, by_file])
def test_a_graph_read_back_can_grow(there_and_back: Any) -> None:
    again = there_and_back(build())
    with again:
        node = again.add(CATALOGUE["Relu"], (again.tensor("x"),), name="inner")
        assert node.name == "inner_1"  # used in a region
        assert again.unique_name("w") == "w_1"  # used by a variable
        assert str(again.fresh_dim("n")) == "n_1"  # used by a size
        assert again.next_draw() == 3
    assert again.producer(node.outputs[0]) is node


def test_fresh_sizes_stay_fresh_in_a_scope_after_reading_back() -> None:
    graph = Graph()
    with graph, name_scope("a"):
        dim = graph.fresh_dim("n")
        attrs = {"dtype": F32, "shape": (dim,)}
        graph.add(CATALOGUE["Placeholder"], (), attrs, name="x")
    for again in (by_text(graph), by_file(graph)):
        with again, name_scope("a"):
            assert str(again.fresh_dim("n")) == "a.n_1"


def test_initial_values_of_every_form() -> None:
    for initial in [
        Uniform(None, (1, 2.0, "s")),
        Uniform(1j, np.arange(3)),
        Uniform(F32, float("-inf")),
        Uniform(),
        np.arange(1000, dtype=F32),
    ]:
        graph = Graph()
        type = parse_type("f32[1000]")
        graph.restore_variable(Variable(graph, "v", type, initial))
        for again in (by_text(graph), by_file(graph)):
            read = again.variable("v").initial
            if isinstance(initial, np.ndarray):
                assert same_value(read, initial)
            else:
                assert isinstance(initial, Uniform)
                assert isinstance(read, Uniform)
                assert same_value(read.low, initial.low) and same_value(read.high, initial.high)


def test_what_cannot_be_written_is_refused_and_named() -> None:
    graph = Graph()
    graph.restore_variable(Variable(graph, "v", parse_type("f32[2]"), plain))
    for error, write in ((TextError, print_graph), (SerialError, dump_graph)):
        with pytest.raises(error, match=r"(?s)variable 'v': its initial value is a function.*hint"):
            write(graph)
    assert "variable v: f32[2] = ... trainable" in print_graph(graph, elide=True)
    graph = Graph()
    graph.restore_variable(Variable(graph, "v", parse_type("f32[2]"), Uniform(object())))
    for error, write in ((TextError, print_graph), (SerialError, dump_graph)):
        with pytest.raises(error, match="a value of type object cannot be"):
            write(graph)
    graph = Graph()
    graph.add_to_collection("odd", 3.5)
    for error, write in ((TextError, print_graph), (SerialError, dump_graph)):
        with pytest.raises(error, match=r"collection 'odd' holds 3\.5"):
            write(graph)
        with pytest.raises(error, match="graph 'child' is the body of a node of 'graph'"):
            write(Graph(name="child", parent=graph))
    assert "collection odd = [...]" in print_graph(graph, elide=True)


BAD = [
    ("seed=3", "seed=x", "line 1: expected an integer, got 'x'"),
    (", draws=2", "", r"line 1: expected ',', got '\)'"),
    ("Uniform(low=-0.5", "Unifrom(low=-0.5", "line 2: no initializer 'Unifrom'.*mean 'Uniform'"),
    ("Uniform(low=-0.5", "Plain(low=-0.5", "line 2: Plain: object is not a dataclass"),
    ("low=-0.5", "law=-0.5", "line 2: Uniform: no field 'law'; its fields are high, low"),
    ("low=-0.5", 'low="a"', "line 2: Uniform: low must be a number"),
    ("= f32[4] [0.0, 1.0", "= f32[3] [0.0", r"line 3: expected an array of f32\[4\]|elements"),
    ("variable b:", "variable w:", "line 3: two variables have the name 'w'"),
    ("= %2\n", "= %9\n", "line 4: %9 is not defined in the graph"),
    ("= %2\n", "= ...\n", "line 4: expected an initial value .this one was left out"),
    ("as y\n", "as x\n", "line 7: two nodes have the name 'x'"),
    ("as y\n", "\n", "line 7: a node of a graph needs a name"),
    ("size m == n", "size 3 == 4", "line 5: 3 and 4 cannot be equal"),
    ("[%4, variable w", "[%4, variable v", "line 16: no variable 'v' in graph"),
    ("node train]", "node trian]", "line 16: no node 'trian' in graph.*did you mean 'train'"),
    ("[%4, variable w", "[%4, thing w", "line 16: no kind of item 'thing'"),
    ("[%4, ", "[%7, ", "line 16: %7 is not defined here"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[new[:24] for _, new, _ in BAD])
def test_bad_text_of_a_graph(old: str, new: str, message: str) -> None:
    assert TEXT.count(old) >= 1
    with pytest.raises(TextError, match=f"(?s)^{message}"):
        parse(TEXT.replace(old, new, 1))


def test_parsed_graphs_can_point_at_the_text() -> None:
    graph = parse_graph(TEXT, CATALOGUE, INITIALIZERS, source_file="/a/net.txt")
    assert str(graph.node("x").source) == "net.txt:6"
    assert str(graph.variable("b").source) == "net.txt:3"
