"""Calls of bodies that are supplied later. Nodes recorded now cannot depend on their content."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphc.ir.dtypes import DType
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, same_items
from graphc.ir.program import Program, region
from graphc.ir.scopes import AMBIENT, building
from graphc.ops.control.calling import CALL
from graphc.ops.core.emit import constant, emit_node

# No user function has such a name.
OBJECTIVE = "objective to be given"
CURVATURE = "curvature to be given"


def call_objective(operands: Sequence[Tensor], count: int, dtype: DType) -> tuple[Tensor, ...]:
    """A scalar of `dtype` computed from the operands, and its gradients.

    Args:
        operands: the `count` parameters, then the other tensors that it is computed from.

    Returns:
        The scalar and its gradient for each parameter. Requests for the same operands share one
        call.
    """
    for node in reversed(AMBIENT.graphs[-1].nodes):
        if _promised(node) == OBJECTIVE and same_items(node.inputs, operands):
            return node.outputs
    inputs = _inputs(operands)
    with building(Graph(name=OBJECTIVE)) as scratch:
        nothing = constant(np.zeros((), dtype))
    # Placeholders of the right types: zero, and the parameters in place of their gradients.
    body = region(OBJECTIVE, inputs, scratch.nodes, [nothing, *inputs[:count]])
    return emit_node(CALL, operands, name="objective", regions=(body,)).outputs


def call_curvature(operands: Sequence[Tensor], count: int) -> tuple[Tensor, ...]:
    """The products of that scalar's Hessian with tangents.

    Args:
        operands: those of `call_objective`, then a tangent for each parameter.

    Returns:
        One tensor for each parameter, of the same type.
    """
    inputs = _inputs(operands)
    body = region(CURVATURE, inputs, [], inputs[:count])
    return emit_node(CALL, operands, name="curvature", regions=(body,)).outputs


def _inputs(operands: Sequence[Tensor]) -> list[Tensor]:
    return [Tensor(t.type, f"x{i}") for i, t in enumerate(operands)]


def _promised(node: Node) -> str | None:
    """The name of the body that is to be supplied to the node, if any."""
    name = node.regions[0].name if node.op is CALL else None
    return name if name in (OBJECTIVE, CURVATURE) else None


def with_bodies(program: Program, body: Callable[[str], Program]) -> Program:
    """The program with the deferred bodies filled in, also within its regions.

    Args:
        body: returns the body named `OBJECTIVE` or `CURVATURE`. It is called once for each such
            node.
    """
    nodes = []
    for node in program.nodes:
        name = _promised(node)
        regions = (
            [with_bodies(inner, body) for inner in node.regions] if name is None else [body(name)]
        )
        nodes.append(node.replace(regions=tuple(regions)))
    return program.replace(nodes=tuple(nodes))
