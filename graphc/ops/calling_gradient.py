"""The gradient of `Call`: a call of one backward body, which all callers share."""

from __future__ import annotations

from typing import NamedTuple

from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, is_among, position_of
from graphc.ir.opdef import GradientContext
from graphc.ir.program import Program, region
from graphc.ops.backward import differentiate
from graphc.ops.emit import emit_node, graph_of


class _Derivative(NamedTuple):
    """Two bodies for the one of a call that is differentiated."""

    forward: Program  # gives what the other needs as further results
    backward: Program
    inputs: list[int]  # the operands that the backward body takes
    saved: list[int]  # the forward results that it takes, after the adjoints
    reached: list[int]  # the operands whose adjoints it gives


def call_gradient(
    ctx: GradientContext, node: Node, *adjoints: Tensor | None
) -> list[Tensor | None]:
    """A call of the backward side of the body, over what the forward one saved."""
    graph = graph_of(node.inputs)
    node = graph.node(node.name)  # it may have been given more results meanwhile
    flowing = {i: adjoint for i, adjoint in enumerate(adjoints) if adjoint is not None}
    key = ("derivative", node.regions[0], tuple(flowing))
    if key not in graph.memo:
        graph.memo[key] = _derivative(ctx, graph, node.regions[0], list(flowing))
    found: _Derivative = graph.memo[key]
    results: list[Tensor | None] = [None] * len(node.inputs)
    if not found.reached:
        return results
    node = _with_body(graph, node, found.forward)
    backward = emit_node(
        node.op,
        [
            *(node.inputs[i] for i in found.inputs),
            *flowing.values(),
            *(node.outputs[i] for i in found.saved),
        ],
        regions=(found.backward,),
    )
    for i, tensor in zip(found.reached, backward.outputs, strict=True):
        results[i] = tensor
    return results


def _derivative(
    ctx: GradientContext, graph: Graph, body: Program, flowing: list[int]
) -> _Derivative:
    side = differentiate(ctx, graph, body, flowing)
    results = side.forward.output_tensors()
    results += [t for t in side.saved if not is_among(t, results)]
    forward = region(body.name, body.input_tensors(), side.forward.nodes, results)
    taken = [*side.inputs.values(), *side.adjoints, *side.saved.values()]
    gradients = list(side.gradients.values())
    backward = region(f"{body.name}_grad", taken, side.nodes, gradients)
    saved = [position_of(t, results) for t in side.saved]
    return _Derivative(forward, backward, list(side.inputs), saved, list(side.gradients))


def _with_body(graph: Graph, node: Node, body: Program) -> Node:
    """The call with a body that gives more results."""
    added = body.output_tensors()[len(node.outputs) :]
    if not added:
        return node
    results = [Tensor(t.type, f"{node.name}:saved") for t in added]
    changed = node.replace(outputs=(*node.outputs, *results), regions=(body,))
    graph.replace_node(node, changed)
    return changed
