"""The loop-invariant operands of bodies: their positions, and how to add more."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ops.control.branching import SWITCH
from graphc.ops.control.calling import CALL
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.mapping import MAP
from graphc.ops.control.scan import SCAN
from graphc.ops.control.while_loops import WHILE

_LOOPS = (SCAN, WHILE)


def invariants(node: Node) -> range:
    """The positions of the operands that are the same in each iteration of the bodies; empty for a
    node without bodies that run."""
    if node.op in _LOOPS:
        return range(len(LoopView.of(node).outer.consts))
    if node.op is MAP:
        return range(node.attrs["mapped"], len(node.inputs))
    if node.op is SWITCH:
        return range(1, len(node.inputs))
    return range(len(node.inputs)) if node.op is CALL else range(0)


def inner(node: Node, place: int, body: Program) -> Tensor:
    """The input of a body that represents the operand at `place`."""
    return body.inputs[place - 1 if node.op is SWITCH else place].tensor


def with_invariants(node: Node, outer: Sequence[Tensor], bodies: Sequence[Program]) -> Node:
    """The node with additional operands, for bodies with as many additional inputs at their end.

    Args:
        bodies: one for each region. Their new inputs, which are last, are moved to their position.
    """
    at = invariants(node).stop
    start = at - 1 if node.op is SWITCH else at
    count = len(outer)

    def placed(body: Program) -> Program:
        taken = body.input_tensors()
        own, new = taken[: len(taken) - count], taken[len(taken) - count :]
        inputs = [*own[:start], *new, *own[start:]]
        return region(body.name, inputs, body.nodes, body.output_tensors())

    counts = {"consts": at + count} if node.op in _LOOPS else {}
    return node.replace(
        inputs=(*node.inputs[:at], *outer, *node.inputs[at:]),
        attrs={**node.attrs, **counts},
        regions=tuple(placed(body) for body in bodies),
    )
