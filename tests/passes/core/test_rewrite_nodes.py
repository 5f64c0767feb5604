"""The traversal that passes share: replacements, counts and errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from graphc.errors import PassError
from graphc.ir.builder import Builder
from graphc.ir.dtypes import FLOAT32
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ops.core.emit import constant
from graphc.ops.elementwise.arithmetic import negative
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes


@dataclass(frozen=True)
class Nothing(Pass):
    def run(self, program: Program) -> PassResult:
        return rewrite_nodes(self, program, lambda node: node)


def _program() -> Program:
    """-(-x), and an unused constant."""
    x = Tensor(TensorType(FLOAT32, (2,)), "x")
    with Builder(scope="p") as builder:
        y = negative(negative(x))
        constant(np.zeros(3, np.float32))
    return Program("p", (Port("x", "feed", x),), tuple(builder.nodes), (Port("y", "fetch", y),))


def test_without_changes_the_program_is_the_same_object() -> None:
    program = _program()
    assert Nothing().run(program) == (program, 0)


def test_a_node_may_become_no_node_one_or_several() -> None:
    program = _program()
    first, second, unused = program.nodes
    renamed, copy = first.replace(name="renamed"), unused.replace(name="copy")
    answers: dict[Node, Node | list[Node]] = {
        first: renamed,
        second: second,
        unused: [copy, unused],
    }
    after, changed = rewrite_nodes(Nothing(), program, answers.__getitem__)
    assert (after.nodes, changed) == ((renamed, second, copy, unused), 2)
    after, changed = rewrite_nodes(Nothing(), program, lambda n: () if n is unused else n)
    assert (after.nodes, changed) == ((first, second), 1)


def test_operands_and_outputs_are_redirected() -> None:
    program = _program()
    x, unused = program.inputs[0].tensor, program.nodes[-1]
    instead: dict[Tensor, Tensor] = {}

    def without(node: Node) -> Node | tuple[()]:
        if node is unused:
            return node
        instead[node.outputs[0]] = x
        return ()

    after, changed = rewrite_nodes(Nothing(), program, without, instead=instead)
    assert (after.nodes, changed) == ((unused,), 2) and after.outputs[0].tensor is x


def test_an_error_names_the_pass_and_the_node() -> None:
    def broken(node: Node) -> Node:
        raise ValueError("no")

    with pytest.raises(PassError, match=r"pass nothing failed at Negative 'p/Negative'"):
        rewrite_nodes(Nothing(), _program(), broken)
