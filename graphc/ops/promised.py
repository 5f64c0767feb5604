"""Calls of a body that is given later: what is recorded now may not depend on what it holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc.ir.dtypes import DType
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.scopes import AMBIENT, building
from graphc.ops.calling import CALL
from graphc.ops.emit import constant, emit_node

_BODY = "objective to be given"  # no function of a user's has such a name


def call_objective(operands: Sequence[Tensor], count: int, dtype: DType) -> tuple[Tensor, ...]:
    """A scalar of `dtype` calculated from the operands, and its slopes.

    Args:
        operands: the `count` parameters, then what else it is calculated from.

    Returns:
        The scalar, and its slope for each parameter. One call serves all who ask for the same.
    """
    for node in reversed(AMBIENT.graphs[-1].nodes):
        if _is_promised(node) and node.inputs == tuple(operands):
            return node.outputs
    body = _empty_body(operands, count, dtype)
    return emit_node(CALL, operands, name="objective", regions=(body,)).outputs


def _empty_body(operands: Sequence[Tensor], count: int, dtype: DType) -> Program:
    """A body of the right types: zero, and the parameters in place of their slopes."""
    inputs = [Tensor(t.type, f"x{i}") for i, t in enumerate(operands)]
    with building(Graph(name=_BODY)) as scratch:
        nothing = constant(np.zeros((), dtype))
    return region(_BODY, inputs, scratch.nodes, [nothing, *inputs[:count]])


def _is_promised(node: Node) -> bool:
    return node.op is CALL and node.regions[0].name == _BODY


def with_objective(program: Program, body: Program) -> Program:
    """The program with `body` where `call_objective` stands, in its regions too."""
    nodes = [
        node.replace(
            regions=(body,)
            if _is_promised(node)
            else tuple([with_objective(inner, body) for inner in node.regions])
        )
        for node in program.nodes
    ]
    return program.replace(nodes=tuple(nodes))
