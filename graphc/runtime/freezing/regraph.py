"""Converts a functional program back to a graph, which `gc.freeze` returns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.names import Names, legal_name
from graphc.ir.node import EMPTY, Node, Tensor, same_items
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import clone
from graphc.ir.source import Source
from graphc.ir.variable import Variable
from graphc.ops.core.emit import CONSTANT
from graphc.ops.draws.random_keys import FOLD_IN, RANDOM_KEY
from graphc.ops.structure.state import IDENTITY, PLACEHOLDER, READ_VARIABLE
from graphc.passes.core.building import node_of
from graphc.passes.simplify.functionalize import RNG_COUNTER, RNG_KEY

RANDOM_STATE = (RNG_KEY, RNG_COUNTER)


def as_graph(
    program: Program,
    values: Mapping[str, Array],
    *,
    name: str,
    seed: int,
    sources: Mapping[str, Source | None] = EMPTY,
) -> Graph:
    """The graph of a pure program. Feeds become placeholders, and state becomes variables that are
    never assigned.

    Draws of the program become draws of the graph, with the graph's own random streams. Inputs are
    in the collection "inputs" and results in "outputs", under the names of the program's ports.

    Args:
        values: the values of the program's state by name, without the random state.
        sources: feed name -> the user's line of the placeholder.
    """
    graph = Graph(seed=seed, name=name)
    writer = _Writer(graph, _drawing(clone(program)))
    for port in writer.program.ports("feed"):
        writer.placeholder(port, program.batch_axes.get(port.name), sources.get(port.name))
    for port in writer.program.ports("state"):
        if port.name not in RANDOM_STATE:
            writer.variable(port, values[port.name])
    for node in writer.program.nodes:
        writer.node(node)
    for port in writer.program.ports("fetch"):
        graph.add_to_collection("outputs", writer.output(port))
    for a, b in program.equalities:
        graph.constraints.unify(a, b)
    return graph


def _drawing(program: Program) -> Program:
    """The program with its own random key in place of the key of the run."""
    state = {port.name: port.tensor for port in program.ports("state")}
    if RNG_KEY not in state:
        return program
    root, counter = state[RNG_KEY], state.get(RNG_COUNTER)
    nodes: list[Node] = []
    for node in program.nodes:
        if node.op is FOLD_IN and same_items(node.inputs, (root, counter)):
            seed = Tensor(node.inputs[1].type)
            zero = np.zeros((), np.int32)
            nodes.append(node_of(CONSTANT, (), (seed,), name="random/seed", value=zero))
            node = node.replace(op=RANDOM_KEY, inputs=(seed,), attrs=RANDOM_KEY.complete())
        nodes.append(node)
    kept = tuple(port for port in program.outputs if port.kind == "fetch")
    used = {port.tensor for port in kept}
    needed: list[Node] = []
    for node in reversed(nodes):
        if not node.outputs or not used.isdisjoint(node.outputs):
            used.update(node.inputs)
            needed.append(node)
    return program.replace(nodes=tuple(reversed(needed)), outputs=kept)


class _Writer:
    """Gives nodes and tensors unique names. The names of ports are reserved for the ports."""

    def __init__(self, graph: Graph, program: Program) -> None:
        self.graph, self.program = graph, program
        ports = (*program.ports("feed"), *program.ports("fetch"))
        self._ports = {legal_name(port.name): port.tensor for port in ports}
        self._names = Names()
        for name in (*self._ports, *(port.name for port in program.ports("state"))):
            self._names.reserve(name)

    def placeholder(self, port: Port, batch_axis: int | None, source: Source | None) -> None:
        dtype, shape = port.tensor.type
        attrs = PLACEHOLDER.complete({"dtype": dtype, "shape": shape, "batch_axis": batch_axis})
        name = self._free(legal_name(port.name))
        self._restore(Node(PLACEHOLDER, (), (port.tensor,), attrs, name=name, source=source))
        self.graph.add_to_collection("inputs", port.tensor)

    def variable(self, port: Port, value: Array) -> None:
        value = np.array(value)
        value.flags.writeable = False
        type = port.tensor.type
        self.graph.restore_variable(Variable(self.graph, port.name, type, value, trainable=False))
        self._restore(
            node_of(
                READ_VARIABLE,
                (),
                (port.tensor,),
                name=self._names.unique(f"{port.name}/read"),
                variable=port.name,
                dtype=type.dtype,
                shape=type.shape,
            )
        )

    def node(self, node: Node) -> None:
        wanted = node.name or node.op.name
        mine = node.outputs and self._ports.get(wanted) is node.outputs[0]
        name = self._free(wanted) if mine else self._names.unique(wanted)
        self._restore(node.replace(name=name))

    def output(self, port: Port) -> Tensor:
        """The result under the port's name. If it has another name, an identity is added."""
        name = legal_name(port.name)
        if port.tensor.name in (name, f"{name}:0"):
            return port.tensor
        result = Tensor(port.tensor.type)
        self._restore(node_of(IDENTITY, (port.tensor,), (result,), name=self._free(name)))
        return result

    def _free(self, name: str) -> str:
        """The name of a port, or another one if an earlier port or variable already has it."""
        return name if self.graph.find_node(name) is None else self._names.unique(name)

    def _restore(self, node: Node) -> None:
        for i, tensor in enumerate(node.outputs):
            # A tensor cannot be renamed once a graph finds it by its name.
            object.__setattr__(tensor, "name", f"{node.name}:{i}")
        self.graph.restore(node)
