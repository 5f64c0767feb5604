"""`LoopView` takes a loop apart and writes it again."""

from __future__ import annotations

import pytest

from graphc.ir.builder import Builder
from graphc.ir.dtypes import FLOAT32
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, same_items
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ir.verify import verify
from graphc.ops.catalogue import FUNCTIONS as ops
from graphc.ops.control.loop_view import LoopView

VECTOR = TensorType(FLOAT32, (3,))


def loop(kind: str) -> tuple[Node, list[Tensor]]:
    """A loop and its operands."""
    with Graph() as graph:
        x, w = graph.add_input(VECTOR, "x"), graph.add_input(VECTOR, "w")
        if kind == "While":
            ops.while_loop(lambda y: ops.reduce_sum(y * w) < 9.0, lambda y: y + w, x)
        else:
            ops.scan(lambda y, _: (y + w, y * w), x, length=4)
    return next(node for node in graph.nodes if node.op.name == kind), [x, w]


def checked(node: Node) -> None:
    """Verifies a program that contains only this node."""
    inputs = tuple(Port(f"i{i}", "feed", t) for i, t in enumerate(dict.fromkeys(node.inputs)))
    outputs = tuple(Port(f"o{i}", "fetch", t) for i, t in enumerate(node.outputs))
    verify(Program("p", inputs, (node,), outputs))


@pytest.mark.parametrize("kind", ["Scan", "While"])
def test_a_view_writes_the_loop_that_it_is_of(kind: str) -> None:
    node, _ = loop(kind)
    again = LoopView.of(node).write()
    assert same_items(again.inputs, node.inputs)
    assert same_items(again.outputs, node.outputs)
    assert again.attrs == node.attrs
    for new, old in zip(again.regions, node.regions, strict=True):
        assert same_items(new.input_tensors(), old.input_tensors())
        assert same_items(new.output_tensors(), old.output_tensors())
        assert same_items(new.nodes, old.nodes)


@pytest.mark.parametrize("kind", ["Scan", "While"])
def test_constants_and_carries_come_behind_those_there_are_in_all_regions(kind: str) -> None:
    node, _ = loop(kind)
    outside, inside, start, before, last = (Tensor(VECTOR, name) for name in "oisbl")
    with Builder(node) as builder:
        after = before + inside
    view = LoopView.of(node)
    more = view.with_consts([(outside, inside)]).with_carries([(start, before, after, last)])
    new = more.with_nodes([*view.nodes, *builder.nodes]).write()
    checked(new)
    assert new.attrs["consts"] == node.attrs["consts"] + 1
    assert new.attrs["carries"] == node.attrs["carries"] + 1
    assert new.outputs[node.attrs["carries"]] is last
    fewer = LoopView.of(new).without_carries({node.attrs["carries"]}).with_nodes(view.nodes)
    checked(fewer.write())
    assert same_items(fewer.write().outputs, node.outputs)


def test_more_is_stacked() -> None:
    node, _ = loop("Scan")
    view = LoopView.of(node)
    stack = Tensor(TensorType(FLOAT32, (4, 3)), "stack")
    new = view.with_ys([(view.following[0], stack)]).write()
    checked(new)
    assert new.outputs[-1] is stack


def test_each_region_has_tensors_of_its_own() -> None:
    node, _ = loop("While")
    outside, inside = Tensor(VECTOR, "o"), Tensor(VECTOR, "i")
    (condition,) = LoopView.of(node).with_consts([(outside, inside)]).others
    assert condition.consts[-1] is not inside and condition.consts[-1].type == VECTOR
