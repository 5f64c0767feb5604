"""The backward side of a body: gradient nodes that use what the forward body computed.

The gradients of all operators with bodies use this module. Each tensor of the forward body that
gradient nodes use becomes an additional result of that body. So the body does not run twice, which
would repeat its random draws and assignments.
Source: Griewank & Walther, Evaluating Derivatives, 2008, chapter 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext
from graphc.ir.program import Program, is_pure
from graphc.ir.scopes import building
from graphc.ops.control.bodies import inline


class Backward(NamedTuple):
    """A differentiated body: nodes from adjoints of its results to adjoints of its inputs."""

    forward: Program  # the body; some of its nodes may have additional results
    nodes: list[Node]
    adjoints: list[Tensor]  # inputs that hold the adjoints of the results
    inputs: dict[int, Tensor]  # index of a body input that they use -> its stand-in
    saved: dict[Tensor, Tensor]  # other body tensor that they use -> its stand-in
    gradients: dict[int, Tensor]  # index of a body input -> its adjoint


def differentiate(
    ctx: GradientContext, parent: Graph, body: Program, flowing: Sequence[int]
) -> Backward:
    """The backward side of `body`, given adjoints of the results with the indices `flowing`."""
    taken, results = body.input_tensors(), body.output_tensors()
    child = Graph(name=f"{body.name}_grad", parent=parent)
    with building(child):
        args = [child.add_input(t.type, t.name) for t in taken]
        copies = inline(child, body, args)
        copied = set(child.nodes)
        adjoints = [child.add_input(results[i].type, f"d_result{i}") for i in flowing]
        inexact = [i for i, t in enumerate(taken) if is_inexact(t.type.dtype)]
        found = ctx.gradients(
            [copies[results[i]] for i in flowing], [args[i] for i in inexact], adjoints
        )
    gradients = {i: g for i, g in zip(inexact, found, strict=True) if g is not None}
    forward, used = drop_forward(child, body, copies, copied, list(gradients.values()))
    inputs = {i: used.pop(t) for i, t in enumerate(taken) if t in used}
    return Backward(forward, child.nodes, adjoints, inputs, used, gradients)


def drop_forward(
    child: Graph,
    body: Program,
    copies: Mapping[Tensor, Tensor],
    copied: set[Node],
    outputs: Sequence[Tensor],
) -> tuple[Program, dict[Tensor, Tensor]]:
    """Removes from `child` the nodes `copied` from `body`. Gradient nodes and constants remain.

    Returns the body, whose loops and branches get the additional results of their copies, and the
    body tensors that the remaining nodes or `outputs` use: tensor of the body -> its copy.
    """
    body, all_copies, shared = _share_results(child, body, copies)
    copied = copied | shared
    constants = {n for n in copied if not n.inputs and not n.regions and is_pure(n)}
    used = {t for n in child.nodes if n not in copied for t in n.inputs} | set(outputs)
    child.nodes = [n for n in child.nodes if n in constants or n not in copied]
    used.difference_update(t for n in constants for t in n.outputs)
    return body, {t: copy for t, copy in all_copies.items() if copy in used}


def _share_results(
    child: Graph, body: Program, copies: Mapping[Tensor, Tensor]
) -> tuple[Program, dict[Tensor, Tensor], set[Node]]:
    """Gives nodes with bodies in `body` the additional results of their copies in `child`.

    Otherwise the backward side would run them again and repeat their draws and assignments. Returns
    the body, all tensors with their copies, and the copied nodes with more results.
    """
    every = dict(copies)
    shared = set()
    nodes = []
    for node in body.nodes:
        copy = child.producer(every[node.outputs[0]]) if node.regions and node.outputs else None
        if copy is not None and len(copy.outputs) > len(node.outputs):
            shared.add(copy)
            added = copy.outputs[len(node.outputs) :]
            new = [Tensor(t.type, t.name) for t in added]
            every.update(zip(new, added, strict=True))
            node = node.replace(outputs=(*node.outputs, *new), regions=copy.regions)
        nodes.append(node)
    return body.replace(nodes=tuple(nodes)), every, shared
