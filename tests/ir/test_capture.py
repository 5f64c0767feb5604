"""The nodes of a graph that a set of fetches needs."""

from __future__ import annotations

import pytest

from graphc.errors import FeedError, FetchError
from graphc.ir.capture import capture
from graphc.ir.compare import difference
from graphc.ir.graph import Graph
from graphc.ir.parse import parse_graph, parse_program
from graphc.ir.program import Program
from graphc.ir.verify import verify
from tests.ir.catalogue import CATALOGUE

GRAPH = """graph g(seed=0, draws=0) {
  variable v: f32[2] = f32[2] [0.0, 1.0]
  size m == n
  size 2*n == k + 1
  %0 = Placeholder() {dtype=f32, shape=[n]} : f32[n] as x
  %1 = Placeholder() {dtype=f32, shape=[m]} : f32[m] as y
  %2 = Add(%0, %1) : f32[n] as sum
  %3 = ReadVariable() {variable="v", dtype=f32, shape=[2]} : f32[2] as read
  %4, %5 = Split(%3) {sizes=[1, 1]} : f32[1], f32[1] as split
  %6 = Relu(%4) : f32[1] as left
  %7 = Relu(%5) : f32[1] as right
  %8 = Assign(%3) {variable="v"} : f32[2] as assign
  Group() as train after assign, x
}"""


def graph() -> Graph:
    return parse_graph(GRAPH, CATALOGUE)


def captured(graph: Graph, fetches: list[str], feeds: list[str]) -> Program:
    found = [graph.variable("v") if f == "v" else graph.tensor(f) for f in fetches]
    program = capture(graph, found, [graph.tensor(f) for f in feeds], CATALOGUE["ReadVariable"])
    verify(program)
    return program


def same(program: Program, text: str) -> None:
    found = difference(program, parse_program(text, CATALOGUE))
    assert found is None, found


def test_the_fetches_choose_the_nodes_and_sizes_become_one() -> None:
    same(
        captured(graph(), ["sum", "v"], ["x", "y"]),
        """program g(x: f32[n], y: f32[n]) {
  size 2*n == k + 1
  %0 = Add(x, y) : f32[n]
  %1 = ReadVariable() {variable="v", dtype=f32, shape=[2]} : f32[2]
  return sum = %0, v = %1
}""",
    )


def test_nodes_behind_a_feed_are_left_out() -> None:
    same(
        captured(graph(), ["left"], ["split:0"]),
        """program g(split: f32[1]) {
  size 2*n == k + 1
  %0 = Relu(split) : f32[1]
  return left = %0
}""",
    )


def test_a_node_with_one_fed_result_still_makes_the_others() -> None:
    program = captured(graph(), ["left", "right"], ["split"])
    left, right = program.nodes[-2:]
    assert left.inputs == (program.inputs[0].tensor,)
    assert right.inputs == (program.nodes[1].outputs[1],)


def test_a_fed_placeholder_that_is_a_control_input_is_no_node() -> None:
    made = graph()
    program = capture(made, [made.node("train")], [made.tensor("x")], CATALOGUE["ReadVariable"])
    verify(program)
    assert [node.name for node in program.nodes] == ["read", "assign", "train"]


def test_a_missing_feed_and_a_strange_fetch_are_refused() -> None:
    with pytest.raises(FeedError, match=r"placeholder 'y' \(f32\[m\]\) is needed and not fed"):
        captured(graph(), ["sum"], ["x"])
    with pytest.raises(FetchError, match="fetch 'sum:0' is not of graph 'g'"):
        capture(graph(), [graph().tensor("sum")], [], CATALOGUE["ReadVariable"])
    with pytest.raises(FeedError, match="feed 'x:0' is not of graph 'g'"):
        capture(graph(), [], [graph().tensor("x")], CATALOGUE["ReadVariable"])
