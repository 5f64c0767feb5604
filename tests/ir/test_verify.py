"""The verifier finds each kind of error, names the node and its line, and skips known nodes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from graphc.errors import VerifyError
from graphc.ir.dims import symbol
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.parse import parse_graph, parse_program
from graphc.ir.program import Program
from graphc.ir.types import parse_type
from graphc.ir.verify import Stage, verify, verify_graph
from tests.ir.catalogue import CATALOGUE


def program(*lines: str, inputs: str = "x: f32[n, 4]", outputs: str = "y = x") -> Program:
    inside = "\n".join(lines)
    return parse_program(
        f"program p({inputs}) {{\n{inside}\nreturn {outputs}\n}}", CATALOGUE, source_file="p.txt"
    )


VALID = [
    program(),
    program("%0 = MatMul(x, w) : f32[n, 3]", inputs="x: f32[n, 4], w: state f32[4, 3]"),
    program("%0, %1 = Split(x) {sizes=[1, 3], axis=1} : f32[n, 1], f32[n, 3]"),
    program("size n == m", "%0 = Add(x, y) : f32[m, 4]", inputs="x: f32[n, 4], y: f32[m, 4]"),
    program("size n == m", "%0 = Add(x, y) : f32[n, 4]", inputs="x: f32[n, 4], y: f32[m, 4]"),
    program("size 2*n == m + 1", "%0 = Add(x, y) : f32[2*n]", inputs="x: f32[2*n], y: f32[m + 1]"),
    program("%0 = Scan(x) : f32[n, 4] with b(u: f32[n, 4]) {", "return r = u", "}"),
    program("Print(x)", "Group()", outputs="y = x, state v = x"),
    program(inputs="x: f32[], x as %w: state f32[]", outputs="x = x, state x = %w"),
    program(inputs="x: arg f32[]", outputs="result r = x"),
]


@pytest.mark.parametrize("valid", VALID, ids=lambda p: str(p)[:60])
def test_valid_programs_pass(valid: Program) -> None:
    verify(valid)
    verify(valid, "functional")


FAULTS: list[tuple[Program, str]] = [
    (
        program("%0 = Relu(x) : f32[n, 5]"),
        r"p: Relu: its results have other types than its operands give\n"
        r"  %0 = Relu\(x\) : f32\[n, 5\]  # p.txt:2\n"
        r"  expected f32\[n, 4\]\n  got      f32\[n, 5\]\n  at p.txt:2",
    ),
    (program("%0 = Relu(x) : f16[n, 4]"), r"expected f32\[n, 4\]\n  got      f16\[n, 4\]"),
    (program("%0 = Relu(x) : f32[4]"), r"expected f32\[n, 4\]\n  got      f32\[4\]"),
    (program("%0, %1 = Relu(x) : f32[n, 4], f32[n, 4]"), r"expected f32\[n, 4\]\n  got      f32"),
    (program("Relu(x)"), r"expected f32\[n, 4\]\n  got      none"),
    (program("%0 = Print(x) : f32[]"), r"expected none\n  got      f32\[\]"),
    (
        program("%0 = MatMul(x, x) : f32[n, 4]", inputs="x: f32[3, 4]"),
        r"MatMul: inner dimensions differ, 4 and 3.*b  x +float32\[3, 4\].*at p.txt:2",
    ),
    (program("%0 = Relu(x, x) : f32[n, 4]"), r"Relu: takes 1 operands \(x -> y\), got 2"),
    (
        program("%0 = Add(x, y) : f32[n, 4]", inputs="x: f32[n, 4], y: f32[m, 4]"),
        r"needs n == m, which the program does not state",
    ),
    (
        program("%0 = Reshape(x) {shape=[2]} : f32[2]", "%1 = Broken(%0) : f32[2]"),
        r"Broken: its types cannot be inferred: IndexError",
    ),
    (program("size 3 == 4"), r"the equality 3 == 4 cannot hold"),
    (program("size n == 3", "size n == 4"), r"the equality (n == 4|3 == 4) cannot hold"),
    (program("batch_axis x=2"), r"p: batch axis 2 does not exist in 'x'"),
    (program(outputs="y = x, y = x"), r"p: two outputs have the name 'y'"),
    (program(inputs="x: f32[], x as %1: f32[]"), r"p: two inputs have the name 'x'"),
    (
        program("%0 = Reshape(w) {shape=[2, 2]} : f32[2, 2]", inputs="w: state f32[4]",
                outputs="state w = %0"),
        r"p: the new value of 'w' has another type\n  expected f32\[4\]\n  got      f32\[2, 2\]",
    ),
    (
        program("%0 = Scan(x) : f32[4] with b(u: f32[4]) {", "%0 = Relu(u) : f32[5]",
                "return r = %0", "}", inputs="x: f32[4]"),
        r"b: Relu: its results have other types.*at p.txt:3",
    ),
    (
        program("%0 = Scan(x) : f32[4] with b(u: feed f32[4]) {", "return r = u", "}"),
        r"b: input 'u' is of kind 'feed'\n  expected 'arg'",
    ),
    (
        program("%0 = Scan(x) : f32[4] with b(u: f32[4]) {", "return state r = u", "}"),
        r"b: output 'r' is of kind 'state'\n  expected 'result'",
    ),
    (
        program("%0 = Placeholder() {dtype=f32, shape=[]} : f32[]"),
        r"Placeholder: has the effect FEED.*allowed here: READ, WRITE, RANDOM, HOST",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("faulty", "message"), FAULTS, ids=lambda v: str(v)[:60])
def test_a_fault_is_named_with_its_node_and_line(faulty: Program, message: str) -> None:
    with pytest.raises(VerifyError, match=f"(?s){message}"):
        verify(faulty)


def relu(x: Tensor, y: Tensor, **fields: Any) -> Node:
    return Node(CATALOGUE["Relu"], (x,), (y,), name="r", **fields)


def test_faults_that_text_cannot_say() -> None:
    base = program("%0 = Relu(x) : f32[n, 4]", "%1 = Relu(%0) : f32[n, 4]")
    first, second = base.nodes
    x = base.inputs[0]
    stray = Tensor(x.tensor.type, "stray")
    softmax = CATALOGUE["Softmax"]
    region = program(inputs="x: arg f32[]", outputs="result y = x").replace(
        nodes=(relu(stray, Tensor(stray.type)),)
    )
    for nodes, message in [
        ((second, first), r"Relu: operand x \(%0\) is defined only later, by Relu"),
        ((relu(stray, Tensor(stray.type)),), r"Relu 'r': operand x \(stray\) is defined nowhere"),
        ((first, first), "%0 is defined twice"),
        ((relu(x.tensor, x.tensor),), "x is defined twice"),
        (
            (Node(CATALOGUE["Scan"], (), (), {"length": 1}, (region,)),),
            r"p: Relu 'r': operand x \(stray\) is not defined in the region: values that a region",
        ),
        ((relu(x.tensor, stray, attrs={"axis": 1}),), "expected none\n  got      axis"),
        ((Node(softmax, (x.tensor,), (stray,)),), "expected axis\n  got      none"),
        (
            (Node(softmax, (x.tensor,), (stray,), {"axis": 1.0}),),
            "Softmax: axis must be of kind int\n.*  got 1.0",
        ),
        (
            (Node(CATALOGUE["Split"], (x.tensor,), (), {"axis": 0, "sizes": (0,)}),),
            r"Split: sizes must be positive\n.*  got \(0,\)",
        ),
    ]:
        with pytest.raises(VerifyError, match=f"(?s){message}"):
            verify(base.replace(nodes=nodes, outputs=()))
    with pytest.raises(VerifyError, match="p: output 'y' is not defined in the program"):
        verify(base.replace(nodes=(), outputs=(x._replace(name="y", kind="fetch", tensor=stray),)))
    with pytest.raises(VerifyError, match="p: two inputs are the same tensor"):
        verify(base.replace(inputs=(x, x._replace(name="y"))))


READ = '%r = ReadVariable() {variable="v", dtype=f32, shape=[2]} : f32[2]'


@pytest.mark.parametrize("stage", ["functional", "bound", "local"])
@pytest.mark.parametrize(
    ("line", "effect"),
    [
        (READ, "READ"),
        ('%r = Assign(x) {variable="v"} : f32[2]', "WRITE"),
        ("%r = RandomKey() : u32[2]", "RANDOM"),
        (f"Scan() with b() {{\n{READ}\nreturn\n}}", "READ"),
    ],
)
def test_state_and_random_keys_are_gone_once_functional(
    line: str, effect: str, stage: Stage
) -> None:
    captured = program(line, inputs="x: f32[2]")
    verify(captured)
    with pytest.raises(VerifyError, match=f"effect {effect}, at the stage '{stage}'") as caught:
        verify(captured, stage)
    assert caught.value.source is not None


@pytest.mark.parametrize("stage", ["bound", "local"])
@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        (program(), r"input 'x' has a size that is not bound\n  got f32\[n, 4\]"),
        (
            program("%0 = Reshape(x) {shape=[n]} : f32[n]", inputs="x: f32[]"),
            r"(?s)Reshape: shape has a size that is not bound",
        ),
        (
            program("%0 = DimValue() {dim=2*n} : i32[]", inputs="x: f32[]"),
            r"(?s)DimValue: dim has a size that is not bound.*got 2\*n",
        ),
    ],
)
def test_sizes_are_ints_once_bound(faulty: Program, message: str, stage: Stage) -> None:
    verify(faulty, "functional")
    with pytest.raises(VerifyError, match=message):
        verify(faulty, stage)


def test_a_result_must_be_bound_whatever_made_it() -> None:
    op = dataclasses.replace(CATALOGUE["Relu"], infer=lambda ctx, x: parse_type("f32[n]"))
    x = program(inputs="x: f32[]")
    node = Node(op, (x.inputs[0].tensor,), (Tensor(parse_type("f32[n]")),))
    with pytest.raises(VerifyError, match=r"(?s)its result has a size that is not bound.*f32\[n\]"):
        verify(x.replace(nodes=(node,)), "bound")


def test_nodes_verified_before_are_not_looked_into_again() -> None:
    calls: list[int] = []

    def infer(ctx: Any, x: Any) -> Any:
        calls.append(1)
        return x

    op = dataclasses.replace(CATALOGUE["Relu"], infer=infer)
    x = program().inputs[0].tensor
    nodes, tensor = [], x
    for _ in range(5):
        nodes.append(Node(op, (tensor,), (Tensor(x.type),)))
        tensor = nodes[-1].outputs[0]
    chain = program().replace(inputs=program().inputs[:0], nodes=tuple(nodes), outputs=())
    chain = chain.replace(inputs=(program().inputs[0]._replace(tensor=x),))
    seen: set[Node] = set()
    verify(chain, previously=seen)
    assert len(calls) == 5 and seen == set(nodes)
    changed = (*nodes[:2], nodes[2].replace(device="/cpu:0"), *nodes[3:])
    verify(chain.replace(nodes=changed), previously=seen)
    assert len(calls) == 6
    with pytest.raises(VerifyError, match="defined only later"):
        verify(chain.replace(nodes=changed[::-1]), previously=seen)


# -- graphs -------------------------------------------------------------------------------------

GRAPH = """
graph g(seed=0, draws=0) {
  variable v: f32[2] = f32[2] [0.0, 1.0]
  %0 = Placeholder() {dtype=f32, shape=[n]} : f32[n] as x
  %1 = ReadVariable() {variable="v", dtype=f32, shape=[2]} : f32[2] as read
  %2 = Add(%0, %1) : f32[2] as Add after read
}
"""


def graph(text: str = GRAPH) -> Graph:
    return parse_graph(text, CATALOGUE)


def test_graphs_are_verified_under_their_own_equalities() -> None:
    verify_graph(graph(GRAPH.replace("  %0", "  size n == 2\n  %0")))
    with pytest.raises(VerifyError, match=r"needs n == 2|needs 2 == n"):
        verify_graph(graph())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("after read", "after raed", "Add 'Add': the graph has no node 'raed' to run after"),
        ('variable="v"', 'variable="w"', "ReadVariable 'read': the graph has no variable 'w'"),
    ],
)
def test_a_graph_names_only_what_it_has(old: str, new: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify_graph(graph(GRAPH.replace(old, new)))


def test_the_sizes_of_a_graph_built_by_hand() -> None:
    built = Graph()
    with built:
        shape = {"dtype": np.dtype(np.float32), "shape": (symbol("n"),)}
        x = built.add(CATALOGUE["Placeholder"], (), shape).outputs[0]
        y = built.add(CATALOGUE["Placeholder"], (), {**shape, "shape": (symbol("m"),)}).outputs[0]
        z = built.add(CATALOGUE["Add"], (x, y)).outputs[0]
    assert str(z.type) == "f32[n]"
    verify_graph(built)
