"""The gradient of `Switch`."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext
from graphc.ir.program import Program, region
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.control.backward import Backward, differentiate
from graphc.ops.core.emit import emit_node, graph_of

# A result of a branch, None for zeros, and its type.
_Wanted = tuple[Tensor | None, TensorType]


def switch_gradient(
    ctx: GradientContext, node: Node, *adjoints: Tensor | None
) -> list[Tensor | None]:
    """A switch between the backward sides of the branches, over values that the forward switch
    saved.

    Each value that a backward branch needs from its forward branch becomes a result of the forward
    switch. The other branches return zeros for it. Branches share such a result if they save values
    of the same type.
    """
    graph = graph_of(node.inputs)
    node = graph.node(node.name)  # it may have additional results by now
    flowing = {i: adjoint for i, adjoint in enumerate(adjoints) if adjoint is not None}
    sides = [differentiate(ctx, graph, body, list(flowing)) for body in node.regions]
    found: list[Tensor | None] = [None] * len(node.inputs)
    reached = sorted({i for side in sides for i in side.gradients})
    if not reached:
        return found
    node, places = _with_saved(ctx, graph, node, sides)
    index, *operands = node.inputs
    inputs = {i: operands[i] for i in sorted({i for side in sides for i in side.inputs})}
    saved = {i: node.outputs[i] for i in sorted({i for row in places for i in row.values()})}
    regions = []
    for side, row in zip(sides, places, strict=True):
        kept = {place: side.saved[tensor] for tensor, place in row.items()}
        taken = [*_stand_ins(side.inputs, inputs), *side.adjoints, *_stand_ins(kept, saved)]
        wanted: list[_Wanted] = [(side.gradients.get(i), operands[i].type) for i in reached]
        regions.append(_filled(ctx, graph, f"{side.forward.name}_grad", taken, side.nodes, wanted))
    backward = emit_node(
        node.op,
        [index, *inputs.values(), *flowing.values(), *saved.values()],
        regions=tuple(regions),
        **node.attrs,
    )
    for i, tensor in zip(reached, backward.outputs, strict=True):
        found[1 + i] = tensor
    return found


def _with_saved(
    ctx: GradientContext, graph: Graph, node: Node, sides: Sequence[Backward]
) -> tuple[Node, list[dict[Tensor, int]]]:
    """The forward switch with additional results for the values that its backward sides use.

    Also returns, for each branch, a map from each saved tensor to the index of its result.
    """
    added: list[TensorType] = []
    places = []
    for body, side in zip(node.regions, sides, strict=True):
        known = {t: i for i, t in enumerate(body.output_tensors())}
        free = list(range(len(added)))
        for tensor in side.saved:
            if tensor in known:
                continue
            fitting = [i for i in free if added[i] == tensor.type]
            if fitting:
                free.remove(fitting[0])
            else:
                added.append(tensor.type)
            place = fitting[0] if fitting else len(added) - 1
            known[tensor] = len(node.outputs) + place
        places.append({tensor: known[tensor] for tensor in side.saved})
    if not added:
        return node, places
    regions = []
    for side, row in zip(sides, places, strict=True):
        body = side.forward
        own = {place: tensor for tensor, place in row.items()}
        given: list[_Wanted] = [(t, t.type) for t in body.output_tensors()]
        given += [(own.get(len(node.outputs) + i), type) for i, type in enumerate(added)]
        regions.append(_filled(ctx, graph, body.name, body.input_tensors(), body.nodes, given))
    results = [Tensor(type, f"{node.name}:saved") for type in added]
    changed = node.replace(outputs=(*node.outputs, *results), regions=tuple(regions))
    graph.replace_node(node, changed)
    return changed, places


def _stand_ins(own: dict[int, Tensor], every: dict[int, Tensor]) -> list[Tensor]:
    """The input of a branch for each of `every`: its own stand-in, or an unused one."""
    return [own[i] if i in own else Tensor(t.type, t.name) for i, t in every.items()]


def _filled(
    ctx: GradientContext,
    graph: Graph,
    name: str,
    inputs: Sequence[Tensor],
    nodes: Sequence[Node],
    results: Sequence[_Wanted],
) -> Program:
    """A branch that returns `results`, with zeros of the type for each result that is None."""
    with building(Graph(name=name, parent=graph)) as rest:
        tensors = [
            ctx.ops.zeros(type.shape, type.dtype) if tensor is None else tensor
            for tensor, type in results
        ]
    return region(name, inputs, [*nodes, *rest.nodes], tensors)
