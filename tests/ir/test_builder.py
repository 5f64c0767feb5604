"""`Builder`: passes make nodes with operator functions."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.errors import ShapeError
from graphc.ir.builder import Builder
from graphc.ir.dtypes import FLOAT32
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.scopes import name_scope
from graphc.ir.source import Source
from graphc.ir.types import TensorType
from graphc.ops.arrays.joining import split
from graphc.ops.arrays.shape import reshape
from graphc.ops.structure.state import IDENTITY

LIKE = Node(IDENTITY, (), (), name="layer", source=Source("a.py", 3), device="CPU:1")


def tensor(*shape: int) -> Tensor:
    return Tensor(TensorType(FLOAT32, shape), "x")


def test_nodes_are_like_the_one_they_are_written_for() -> None:
    x = tensor(2, 3)
    with Builder(LIKE) as builder:
        y = reshape(x, (6,)) * 2
    names = [node.name for node in builder.nodes]
    assert names == ["layer/Reshape", "layer/Constant", "layer/Multiply"]
    assert {(node.source, node.device) for node in builder.nodes} == {(LIKE.source, "CPU:1")}
    assert (y.name, y.type, y.graph) == ("layer/Multiply:0", TensorType(FLOAT32, (6,)), None)
    assert builder.nodes[0].inputs[0] is x
    assert np.array_equal(builder.nodes[1].attrs["value"], np.float32(2))


def test_names_may_begin_otherwise() -> None:
    with Builder(LIKE, scope="state") as builder:
        reshape(tensor(4), (2, 2), name="rows")
        with builder.at(None, scope="other"):
            reshape(tensor(4), (2, 2))
        with builder.at(None):
            reshape(tensor(4), (2, 2))
        with name_scope("inner"):
            reshape(tensor(4), (2, 2))
    names = ["state/rows", "other/Reshape", "Reshape", "state/inner/Reshape"]
    assert [node.name for node in builder.nodes] == names
    assert [node.device for node in builder.nodes] == ["CPU:1", "", "", "CPU:1"]


def test_new_nodes_define_tensors_of_the_program() -> None:
    old = tensor(1)
    with Builder(LIKE) as builder:
        first, second = split(tensor(3), [1, 2])
        third = reshape(second, (2, 1))
        builder.define((first, old))
    assert builder.nodes[0].outputs[0] is old
    assert builder.nodes[0].outputs[1] is second
    assert builder.nodes[1].outputs[0] is third
    assert builder.find_producer(old) is builder.nodes[0]


def test_it_is_entered_inside_of_another_graph_and_leaves_that_as_it_is() -> None:
    with Graph() as graph:
        x = graph.add_input(TensorType(FLOAT32, (2,)), "x")
        with Builder() as builder:
            doubled = x + x
        assert not graph.nodes
        assert doubled.graph is None
        tripled = x + x
    assert len(builder.nodes) == 1
    assert tripled.graph is graph


def test_an_operator_says_on_which_line_its_operands_do_not_fit() -> None:
    with Builder(LIKE), pytest.raises(ShapeError) as caught:
        reshape(tensor(4), (3,))
    assert caught.value.source == LIKE.source
