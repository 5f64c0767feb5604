"""Tools for passes: their changes, preserved values, and errors."""

from __future__ import annotations

import pytest

from graphc.errors import FeedError, ShapeError, VerifyError
from graphc.ir.compare import difference
from graphc.ir.dims import Dim, symbol
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.node import Node, Tensor
from graphc.ir.parse import parse_program
from graphc.ir.program import Program
from graphc.ir.rewrite import (
    bind_sizes,
    clone,
    map_dims,
    sort_nodes,
    substitute,
    used_from,
)
from graphc.ir.types import TensorType
from graphc.ir.verify import verify
from tests.ir.catalogue import CATALOGUE


def parse(text: str) -> Program:
    return parse_program(text, CATALOGUE, source_file="p.txt")


def same_as(program: Program, text: str) -> None:
    found = difference(program, parse(text))
    assert found is None, found


CHAIN = """program p(x: f32[2]) {
  %0 = Relu(x) : f32[2]
  %1 = Softmax(%0) : f32[2]
  %2 = Add(%1, %0) : f32[2]
  return y = %2, z = %1
}"""


# -- substitute ---------------------------------------------------------------------------------


def test_substitute_redirects_operands_and_outputs() -> None:
    program = parse(CHAIN)
    relu, softmax, add = program.nodes
    result = substitute(program, {softmax.outputs[0]: relu.outputs[0]})
    same_as(result, CHAIN.replace("Add(%1,", "Add(%0,").replace("z = %1", "z = %0"))
    assert result.nodes[0] is relu and result.nodes[1] is softmax
    assert result.nodes[2].outputs == add.outputs and result.nodes[2].source == add.source


def test_substitute_follows_chains() -> None:
    program = parse(CHAIN)
    relu, softmax, add = (node.outputs[0] for node in program.nodes)
    x = program.inputs[0].tensor
    for order in ([relu, softmax, add], [add, softmax, relu], [softmax, add, relu]):
        next_one = {relu: x, softmax: relu, add: softmax}
        result = substitute(program, {tensor: next_one[tensor] for tensor in order})
        assert [port.tensor for port in result.outputs] == [x, x]
        assert result.nodes[2].inputs == (x, x)
    (node,) = substitute(program.nodes[2:], {softmax: x})
    assert node.inputs == (x, relu)


def test_substitute_refuses_circles_and_keeps_what_it_need_not_change() -> None:
    program = parse(CHAIN)
    relu, softmax, add = (node.outputs[0] for node in program.nodes)
    with pytest.raises(VerifyError, match="redirected to itself"):
        substitute(program, {relu: softmax, softmax: add, add: relu})
    assert substitute(program, {}) is program
    assert substitute(program, {Tensor(relu.type): relu}).nodes == program.nodes


# -- clone --------------------------------------------------------------------------------------

REGION = """program p(x: f32[n]) {
  %0 = Scan(x) {length=3} : f32[n] with b(u: f32[n]) {
    %0 = Reshape(u) {shape=[n]} : f32[n]
    return r = %0
  }
  return y = %0
}"""


def test_clone_maps_types_and_attributes_in_regions_too() -> None:
    program = parse(REGION)
    half = BY_SHORT["f16"]
    result = clone(
        program,
        type_map=lambda type: TensorType(half, type.shape),
        attr_map=lambda node: {**node.attrs, "length": 4} if node.regions else node.attrs,
    )
    same_as(result, REGION.replace("f32", "f16").replace("length=3", "length=4"))
    assert [node.source for node in result.walk()] == [node.source for node in program.walk()]
    assert str(program) == str(parse(REGION))


def test_clone_refuses_operands_from_nowhere() -> None:
    program = parse(CHAIN)
    with pytest.raises(VerifyError, match="p: '%1' is used before it is defined"):
        clone(program.replace(nodes=program.nodes[::-1]))


# -- sizes --------------------------------------------------------------------------------------

SIZES = """program p(x: f32[n, 4], w: state f32[4], m: i32[m]) {
  size 2*n == m + 1
  %0 = Relu(w) : f32[4]
  %1 = Reshape(x) {shape=[2*n, 2]} : f32[2*n, 2]
  %2 = Scan(%1) : f32[2*n, 2] with b(u: f32[2*n, 2]) {
    %0 = Everything(u) {n=floordiv(n, 2), ints=[7], pairs=[[0, n]], m={k=[dim(n)]}} : f32[2*n, 2]
    %1 = DimValue() {dim=m} : i32[]
    return r = %0
  }
  return y = %2
}"""


def test_bind_sizes_reaches_types_attributes_and_regions() -> None:
    program = parse(SIZES)
    bound = bind_sizes(program, {"n": 3, "m": 5})
    same_as(
        bound,
        """program p(x: f32[3, 4], w: state f32[4], m: i32[5]) {
  %0 = Relu(w) : f32[4]
  %1 = Reshape(x) {shape=[6, 2]} : f32[6, 2]
  %2 = Scan(%1) : f32[6, 2] with b(u: f32[6, 2]) {
    %0 = Everything(u) {n=1, ints=[7], pairs=[[0, 3]], m={k=[3]}} : f32[6, 2]
    %1 = DimValue() {dim=5} : i32[]
    return r = %0
  }
  return y = %2
}""",
    )
    verify(bound, "bound")
    assert bound.nodes[0] is program.nodes[0]  # it contains no size
    assert bound.inputs[1] is program.inputs[1]
    assert bound.nodes[1].source == program.nodes[1].source
    same_as(program, SIZES)


def test_sizes_can_be_bound_in_part() -> None:
    half = bind_sizes(parse(SIZES), {"n": 3})
    assert half.equalities == ((6, symbol("m") + 1),)
    assert str(half.inputs[0].tensor.type) == "f32[3, 4]"
    assert (
        difference(bind_sizes(half, {"m": 5}), bind_sizes(parse(SIZES), {"n": 3, "m": 5})) is None
    )


@pytest.mark.parametrize(
    ("bindings", "error", "message"),
    [
        (
            {"n": 3, "m": 6}, FeedError,
            r"the sizes fed do not fit: 2\*n must equal m \+ 1, got 6 and 7\n  n = 3, m = 6",
        ),
        ({"n": -1}, FeedError, "size 'n' must be an int of at least 0, got -1"),
        ({"n": 2.0}, FeedError, "size 'n' must be an int of at least 0, got 2.0"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit(
    bindings: dict[str, int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bind_sizes(parse(SIZES), bindings)


def test_no_dim_becomes_negative_or_divides_by_zero() -> None:
    program = parse("program p(x: f32[n - 3]) {\n return y = x\n}")
    with pytest.raises(ShapeError, match=r"x: f32\[n - 3\] becomes f32\[-1\]"):
        bind_sizes(program, {"n": 2})
    program = parse("program p(x: f32[floordiv(n, m)]) {\n return y = x\n}")
    with pytest.raises(ShapeError, match=r"floordiv\(n, m\) divides by zero\n  n = 4, m = 0"):
        bind_sizes(program, {"n": 4, "m": 0})


def test_map_dims_renames_and_drops_equalities_that_hold() -> None:
    n, m = symbol("n"), symbol("m")
    text = "program p(x: f32[n, 4]) {\n size n == m\n size 3*n == m + 1\n return y = x\n}"
    swapped: dict[Dim, Dim] = {n: m, m: n}
    result = map_dims(parse(text), lambda dim: swapped.get(dim, dim))
    assert str(result.inputs[0].tensor.type) == "f32[m, 4]"
    result = map_dims(parse(text), lambda dim: n if dim == m else dim)
    assert result.equalities == ((3 * n, m + 1),)
    with pytest.raises(ShapeError, match="n must equal m, and they become 1 and 2"):
        map_dims(parse(text), lambda dim: 1 if dim == n else 2)


# -- order --------------------------------------------------------------------------------------


def test_sorting_moves_only_what_must_move() -> None:
    program = parse(CHAIN)
    relu, softmax, add = program.nodes
    assert sort_nodes(program.nodes) == program.nodes
    for shuffled in ([add, softmax, relu], [softmax, add, relu], [add, relu, softmax]):
        assert sort_nodes(shuffled) == (relu, softmax, add)


def test_independent_nodes_keep_their_order() -> None:
    x = Tensor(TensorType(BY_SHORT["f32"], ()), "x")
    nodes = [Node(CATALOGUE["Relu"], (x,), (Tensor(x.type),), name=f"n{i}") for i in range(6)]
    late = Node(CATALOGUE["Add"], (nodes[1].outputs[0], nodes[4].outputs[0]), (Tensor(x.type),))
    order = [nodes[0], late, *nodes[1:]]
    expected = [nodes[0], nodes[1], nodes[4], late, nodes[2], nodes[3], nodes[5]]
    assert sort_nodes(order) == tuple(expected)


def test_a_deep_chain_is_sorted_without_recursion() -> None:
    x = Tensor(TensorType(BY_SHORT["f32"], ()), "x")
    nodes, tensor = [], x
    for _ in range(5000):
        nodes.append(Node(CATALOGUE["Add"], (tensor, tensor), (Tensor(x.type),)))
        tensor = nodes[-1].outputs[0]
    assert sort_nodes(nodes[::-1]) == tuple(nodes)


def test_a_circle_of_nodes_is_an_error() -> None:
    type = TensorType(BY_SHORT["f32"], ())
    a, b = Tensor(type), Tensor(type)
    nodes = [Node(CATALOGUE["Relu"], (a,), (b,)), Node(CATALOGUE["Relu"], (b,), (a,))]
    with pytest.raises(VerifyError, match="needs its own result"):
        sort_nodes(nodes)


def test_used_from_finds_what_the_outputs_need() -> None:
    program = parse(
        """program p(x: f32[4]) {
  %0, %1 = Split(x) {sizes=[2, 2]} : f32[2], f32[2]
  %2 = Relu(%0) : f32[2]
  %3 = Relu(%1) : f32[2]
  Print(%3)
  return y = %2
}"""
    )
    split, used, unused, printed = program.nodes
    assert used_from(program.nodes, program.output_tensors()) == (split, used)
    assert used_from(program.nodes, program.output_tensors(), lambda n: not n.outputs) == (
        split, used, unused, printed,
    )  # fmt: skip
    assert used_from(program.nodes, []) == ()
