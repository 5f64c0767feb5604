"""Graphs and programs as TensorFlow's GraphDef, for TensorBoard's graph view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphc.ir.device_spec import parse_device
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.train.tensorboard.node_attrs import add_attrs, add_types
from graphc.train.tensorboard.node_names import UniqueNames, readable, within
from graphc.train.tensorboard.protos import protos

# The view draws constants as small circles, and the first operand of an Assign as a reference.
_TENSORFLOW_NAMES = {"Constant": "Const", "Group": "NoOp"}


@dataclass
class GraphPicture:
    """What the graph view gets.

    Attributes:
        definition: the GraphDef.
        nodes: name in the definition -> the node, for those that are nodes of graphc.
        places: node, and the name of a node -> its names in the definition: several for nodes in a
            body that several calls share.
    """

    definition: Any
    nodes: dict[str, Node] = field(default_factory=dict)
    places: dict[Node | str, list[str]] = field(default_factory=dict)


def graph_def(target: Graph | Program) -> GraphPicture:
    """The picture of a graph, or of a program at any stage."""
    writer = _Writer()
    if isinstance(target, Graph):
        for name in _variables_in(target.nodes):
            variable = target.root.variables.get(name)
            writer.variable(name, None if variable is None else variable.type)
        writer.body(target.nodes, "", {})
        return writer.picture
    values: dict[Tensor, str] = {}
    for port in target.inputs:
        values[port.tensor] = writer.input(port)
    writer.body(target.nodes, "", values)
    for port in target.outputs:
        writer.output(port, values)
    return writer.picture


def _variables_in(nodes: Iterable[Node]) -> dict[str, None]:
    """The names of the variables that the nodes read or assign, in order."""
    found: dict[str, None] = {}
    for node in nodes:
        if node.attrs.get("variable"):
            found[node.attrs["variable"]] = None
        for body in node.regions:
            found.update(_variables_in(body.nodes))
    return found


class _Writer:
    """Adds nodes to a definition. `values` maps the tensors of one body to their places."""

    def __init__(self) -> None:
        definition = protos().graph.GraphDef()
        definition.versions.producer = 987  # of a TensorFlow that is recent enough for every reader
        self.picture = GraphPicture(definition)
        self._names = UniqueNames()
        self._variables: dict[str, str] = {}

    def add(self, op: str, name: str, inputs: Iterable[str], device: str = "") -> Any:
        """A new node."""
        added = self.picture.definition.node.add(
            op=_TENSORFLOW_NAMES.get(op, op), name=self._names.new(readable(name)), input=inputs
        )
        if device:
            added.device = str(parse_device(device))
        return added

    def variable(self, name: str, type: TensorType | None) -> str:
        """The node that stands for a variable."""
        added = self.add("VariableV2", name, ())
        add_types(added, () if type is None else (type,))
        self._variables[name] = str(added.name)
        return self._variables[name]

    def input(self, port: Port) -> str:
        """The node that stands for an input of a program."""
        if port.kind == "state":
            return self.variable(port.name, port.tensor.type)
        added = self.add("Placeholder", port.name, ())
        add_types(added, (port.tensor.type,))
        return str(added.name)

    def output(self, port: Port, values: dict[Tensor, str]) -> None:
        """The node that stands for an output of a program."""
        source = _known(values, [port.tensor])
        if port.kind == "state":
            # Not in the variable's scope: an edge back to that would be a cycle of boxes.
            variable = self._variables.get(port.name)
            added = self.add(
                "Assign", f"assign/{port.name}", [*([variable] if variable else []), *source]
            )
        else:
            added = self.add("Fetch", f"fetches/{port.name.partition(':')[0]}", source)
        add_types(added, (port.tensor.type,))

    def body(
        self, nodes: Sequence[Node], scope: str, values: dict[Tensor, str], owner: str = ""
    ) -> None:
        """The nodes of a graph, or of a body of the node `owner`. `scope` ends with a slash, or is
        empty."""
        names: dict[str, str] = {}
        for node in nodes:
            name = scope + within(node.name or node.op.name, owner)
            names[node.name] = self.node(node, name, values, names)

    def node(self, node: Node, name: str, values: dict[Tensor, str], names: dict[str, str]) -> str:
        """A node, with its bodies below it. `names` has those of the nodes before it."""
        results: list[str] = []
        given: set[Tensor] = set()
        added = self.add(node.op.name, name, (), node.device)
        for body in node.regions:
            results += self._region(node, body, f"{added.name}/", values, given)
        variable = self._variables.get(node.attrs.get("variable", ""))
        operands = [tensor for tensor in node.inputs if tensor not in given]
        added.input.extend([variable] if variable else [])
        added.input.extend(_known(values, operands))
        added.input.extend(results)
        added.input.extend(f"^{names[n]}" for n in node.control_inputs if n in names)
        add_types(added, [tensor.type for tensor in node.outputs])
        add_attrs(added, node)
        self._place(node, str(added.name))
        for number, tensor in enumerate(node.outputs):
            values[tensor] = f"{added.name}:{number}" if number else str(added.name)
        return str(added.name)

    def _region(
        self, node: Node, body: Program, scope: str, outside: dict[Tensor, str], given: set[Tensor]
    ) -> list[str]:
        """A body as a scope. Returns where its results are, and adds to `given` the operands that
        its arguments stand for."""
        scope = f"{scope}{readable(body.name).replace('/', '_')}/"
        values: dict[Tensor, str] = {}
        # A body takes the last operands of its node: a branch, all but the condition.
        shift = len(node.inputs) - len(body.inputs)
        for position, port in enumerate(body.inputs, shift):
            operand = node.inputs[position] if position >= 0 else None
            source = [] if operand is None else _known(outside, [operand])
            if operand is not None:
                given.add(operand)
            label = (port.tensor.name or port.name).removesuffix(":0").replace("/", "_")
            added = self.add("Arg", f"{scope}args/{label}", source)
            add_types(added, (port.tensor.type,))
            values[port.tensor] = str(added.name)
        self.body(body.nodes, scope, values, node.name)
        return _known(values, [port.tensor for port in body.outputs])

    def _place(self, node: Node, name: str) -> None:
        self.picture.nodes[name] = node
        self.picture.places.setdefault(node, []).append(name)
        if node.name:
            self.picture.places.setdefault(node.name, []).append(name)


def _known(values: dict[Tensor, str], tensors: Sequence[Tensor]) -> list[str]:
    """Where the tensors are, each once."""
    return list(dict.fromkeys(values[tensor] for tensor in tensors if tensor in values))
