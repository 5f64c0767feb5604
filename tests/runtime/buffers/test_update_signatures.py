"""Update signatures: which variables are updated by the same elementwise operators."""

from __future__ import annotations

import pytest

from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.runtime.buffers.update_signatures import STATE, Roles
from tests.passes.check import program


def chain(length: int) -> tuple[Program, list[Tensor]]:
    """Returns a program that negates a variable `length` times, and the tensor after each step."""
    lines = [
        f"    %{i + 1} = Negative({'v' if i == 0 else f'%{i}'}) : f32[3]" for i in range(length)
    ]
    text = "\n".join(
        ["program p(v: state f32[3]) {", *lines, f"    return state v = %{length}", "}"]
    )
    made = program(text)
    return made, [*made.input_tensors("state"), *(node.outputs[0] for node in made.nodes)]


def test_a_role_is_the_operators_that_lead_to_it() -> None:
    made, tensors = chain(3)
    roles = [Roles(made).of(t) for t in tensors]
    assert roles[0] == STATE
    assert None not in roles


@pytest.mark.parametrize("first", [0, 10, 45, 59])
def test_roles_do_not_depend_on_the_order_of_queries(first: int) -> None:
    """Long chains have no role; their first parts have one, whichever tensor was queried first."""
    made, tensors = chain(60)
    roles = Roles(made)
    roles.of(tensors[first])
    assert [roles.of(t) is None for t in tensors] == [i > 40 for i in range(61)]


def test_a_long_chain_needs_no_recursion() -> None:
    made, tensors = chain(5000)
    assert Roles(made).of(tensors[-1]) is None


def test_attributes_and_shared_numbers_are_part_of_a_role() -> None:
    made = program(
        """
        program p(a: state f32[3], b: state f32[3], c: state f32[3],
                  x: state f32[], y: state f32[], z: state f32[]) {
          %a = LeakyRelu(a) {alpha=0.1} : f32[3]
          %b = LeakyRelu(b) {alpha=0.1} : f32[3]
          %c = LeakyRelu(c) {alpha=0.2} : f32[3]
          %one = Constant() {value=f32[] 1.0} : f32[]
          %two = Constant() {value=f32[] 2.0} : f32[]
          %x = Add(x, %one) : f32[]
          %y = Add(y, %one) : f32[]
          %z = Add(z, %two) : f32[]
          return state a = %a, state b = %b, state c = %c,
                 state x = %x, state y = %y, state z = %z
        }
        """
    )
    roles = Roles(made).of_variables()
    assert roles["a"] == roles["b"] != roles["c"]
    assert roles["x"] == roles["y"] != roles["z"]


def test_sources_have_the_shape_of_what_comes_from_them() -> None:
    made = program(
        """
        program p(v: state f32[3], s: state f32[]) {
          %0 = Multiply(v, s) : f32[3]
          return state v = %0
        }
        """
    )
    assert Roles(made).sources(made.nodes[0].outputs[0]) == {made.input_tensors("state")[0]}
