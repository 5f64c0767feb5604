"""The loss and its derivatives as functions of the parameters, which line searches evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from graphc.autodiff import gradients
from graphc.errors import GradientError
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import PURE, Effects
from graphc.ir.program import Program, dependents, effects_of, is_pure, region
from graphc.ir.scopes import AMBIENT, at_source, building
from graphc.ir.variable import Variable
from graphc.ops.control.bodies import close_body, open_body
from graphc.ops.control.deferred_bodies import OBJECTIVE
from graphc.ops.structure.state import read
from graphc.optim.recipe import paste


@dataclass(frozen=True)
class Objective:
    """A loss as a function of its parameters.

    Attributes:
        count: the number of parameters.
        body: parameters, then captured -> loss, then the gradient for each parameter.
        captured: the other values from which the loss is computed: feeds, keys, other variables,
            and everything that does not change with the parameters.
    """

    count: int
    body: Program
    captured: list[Tensor]

    @cached_property
    def curvature(self) -> Program:
        """Parameters, captured, then a tangent for each parameter -> the Hessian's products with
        the tangents, which are the derivatives of the gradient along them (Pearlmutter, 1994).

        Raises:
            GradientError: the gradient of the loss has no gradient.
        """
        types = [t.type for t in self.body.input_tensors()]
        types += types[: self.count]
        with building(Graph(name="curvature")) as child:
            inputs = [child.add_input(type, f"x{i}") for i, type in enumerate(types)]
            slopes = paste(self.body, inputs[: -self.count])[1:]
            parameters, tangents = inputs[: self.count], inputs[-self.count :]
            products = gradients(slopes, parameters, tangents, unconnected="zero")
        return region("curvature", inputs, child.nodes, products)

    def body_for(self, promise: str) -> Program:
        """The body for a call that `graphc.ops.control.deferred_bodies` created."""
        return self.body if promise == OBJECTIVE else self.curvature


def objective_of(loss: Tensor, parameters: Sequence[Variable]) -> Objective:
    """The nodes between the parameters and the loss, as a separate body with gradients.

    Raises:
        GradientError: a node has effects. The loss at other parameters would then draw other
            numbers, or assign twice.
    """
    graph = AMBIENT.graphs[-1]
    reads: dict[Tensor, int] = {}
    position = {v.name: i for i, v in enumerate(parameters)}
    for node in graph.nodes:
        if node.op.effects & Effects.READ and node.attrs["variable"] in position:
            reads[node.outputs[0]] = position[node.attrs["variable"]]
    nodes = _between(graph, reads, loss)
    with open_body("objective") as child:
        inputs = [child.add_input(v.type, v.name) for v in parameters]
        copies = {outer: inputs[i] for outer, i in reads.items()}
        for node in nodes:
            _copy(child, node, copies)
        slopes = gradients(copies[loss], inputs)
        body = close_body(child, [copies[loss], *slopes], read)
    program = region("objective", [*inputs, *body.inner], child.nodes, body.results)
    return Objective(len(inputs), program, body.captured)


def _copy(child: Graph, node: Node, copies: dict[Tensor, Tensor]) -> None:
    graph = child.parent
    for tensor in node.inputs:
        producer = None if graph is None or tensor in copies else graph.find_producer(tensor)
        if producer is not None and not producer.inputs and producer.op.effects is PURE:
            _copy(child, producer, copies)  # a constant, which passes can use if it is inside
    with at_source(node.source):
        inputs = [copies.get(t, t) for t in node.inputs]
        new = child.add(node.op, inputs, node.attrs, node.regions, node.op.name)
    copies.update(zip(node.outputs, new.outputs, strict=True))


def _between(graph: Graph, reads: dict[Tensor, int], loss: Tensor) -> list[Node]:
    """The nodes on paths from the reads to the loss, in program order."""
    reached = dependents(graph.nodes, reads)
    needed, found = {loss}, []
    for node in reversed(graph.nodes):
        if reached.isdisjoint(node.outputs) or needed.isdisjoint(node.outputs):
            continue
        if node.outputs[0] in reads:
            continue
        needed.update(t for t in node.inputs if t in reached)
        if not is_pure(node):
            raise _impure(node)
        found.append(node)
    return found[::-1]


def _impure(node: Node) -> GradientError:
    effects = effects_of(node)
    does = "reads or assigns a variable"
    if effects & Effects.RANDOM:
        does = "draws random numbers inside"
    elif effects & Effects.HOST:
        does = "calls back to Python"
    return GradientError(
        f"minimize: this optax transformation evaluates the loss at other parameters than the "
        f"step's, and {node.op.name} {node.name!r} on the way to it {does}",
        source=node.source,
        hint="draw random keys outside loops and branches, and remove prints and assignments",
    )
