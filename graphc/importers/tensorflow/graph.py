"""`TFGraph`: the nodes of a GraphDef or of a function's body, with their inputs as edges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from graphc.errors import UnknownNameError, nearest
from graphc.ir.mapped import MappedFile
from graphc.train.tensorflow.tensors import attribute, broken


class Edge(NamedTuple):
    """A result of a node. `str` gives TensorFlow's name, such as "dense/MatMul:0"."""

    node: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name

    def __str__(self) -> str:
        return f"{self.node}:{self.index}"


@dataclass(frozen=True, eq=False)
class TFNode:
    """A node of TensorFlow's graph.

    Attributes:
        name, op: its name, and the name of its operator.
        inputs: the results that it takes.
        controls: the names of the nodes that it runs after.
        proto: the NodeDef.
        file: the file of the graph, if it is large.
    """

    name: str
    op: str
    inputs: tuple[Edge, ...]
    controls: tuple[str, ...]
    proto: Any
    file: MappedFile | None = None

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or `default`; see `tensors.attribute`."""
        if name not in self.proto.attr:
            return default
        value = attribute(
            self.proto.attr[name], f"the attribute {name!r} of {self.name!r}", self.file
        )
        return default if value is None and default is not None else value

    @property
    def refusal(self) -> str:
        """What an error says if its operator has no rule."""
        return "is not imported"

    def __str__(self) -> str:
        return f"{self.name} ({self.op})"


@dataclass(eq=False)
class TFGraph:
    """The nodes of a graph or function by name.

    Attributes:
        name: of the function; "" for the main graph.
        nodes: in the order of the file.
        library: the functions that nodes may call.
        parameters: the names of a function's arguments; nodes of the op "_Arg" stand for them.
        results: a function's results.
        control_results: the nodes that a call of the function runs for their effects.
    """

    name: str
    nodes: dict[str, TFNode]
    library: Library
    parameters: tuple[str, ...] = ()
    results: tuple[Edge, ...] = ()
    control_results: tuple[str, ...] = ()
    cache: dict[str, Any] = field(default_factory=dict)

    def node(self, name: str) -> TFNode:
        """The node of a name.

        Raises:
            ModelFileError: there is none.
        """
        found = self.nodes.get(name)
        if found is None:
            where = f"the function {self.name!r}" if self.name else "the graph"
            raise broken(f"{where} refers to the node {name!r}, which it does not have")
        return found

    def edge(self, text: str, importer: str) -> Edge:
        """The edge of a name that a user gives: "node", "node:1".

        Raises:
            UnknownNameError: there is no such node.
        """
        name, _, index = text.removeprefix("^").partition(":")
        if name not in self.nodes or not (index or "0").isdigit():
            raise UnknownNameError.here(
                f"{importer}: the graph has no tensor {text!r}",
                hint=nearest(name, self.nodes, "the graph"),
            )
        return Edge(name, int(index or 0))

    @cached_property
    def consumers(self) -> dict[str, list[TFNode]]:
        """The nodes that take a result of a node, by the node's name."""
        found: dict[str, list[TFNode]] = {}
        for node in self.nodes.values():
            for name in dict.fromkeys(edge.node for edge in node.inputs):
                found.setdefault(name, []).append(node)
        return found

    def ancestors(self, names: Iterable[str], *, controls: bool = True) -> dict[str, TFNode]:
        """The nodes that the named ones need, and these themselves, nearest first."""
        found: dict[str, TFNode] = {}
        open_names = list(names)
        while open_names:
            name = open_names.pop()
            if name in found:
                continue
            node = found[name] = self.node(name)
            open_names.extend(edge.node for edge in node.inputs)
            open_names.extend(node.controls if controls else ())
        return found


OutputIndex = Callable[[str, str], int | None]
"""(operator, name of an output argument) -> its position; None if it is the only one."""

_INPUT = re.compile(r"([^:^]+)(?::(\d+))?\Z")
_INSIDE = re.compile(r"([^:^]+)(?::([^:]+):(\d+))?\Z")


class Library:
    """The functions of a GraphDef by name. A body is read when it is first used."""

    def __init__(
        self, protos: Iterable[Any], output_index: OutputIndex, file: MappedFile | None = None
    ) -> None:
        self._file = file
        self._protos: dict[str, Any] = {p.signature.name: p for p in protos}
        self._output_index = output_index
        self._graphs: dict[str, TFGraph] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._protos

    def names(self) -> list[str]:
        """The names of all functions."""
        return list(self._protos)

    def function(self, name: str) -> TFGraph:
        """The body of a function.

        Raises:
            ModelFileError: there is no such function, or it is malformed.
        """
        if name not in self._graphs:
            if name not in self._protos:
                raise broken(f"a node calls the function {name!r}, which the file does not have")
            self._graphs[name] = self._read(self._protos[name])
        return self._graphs[name]

    def _read(self, proto: Any) -> TFGraph:
        name = proto.signature.name
        parameters = tuple(arg.name for arg in proto.signature.input_arg)
        nodes: dict[str, TFNode] = {}
        for parameter in parameters:
            _add(nodes, TFNode(parameter, "_Arg", (), (), proto), f"the function {name!r}")
        operators = {node.name: node.op for node in proto.node_def}
        resolve = _resolver(operators, set(parameters), self)
        for node in proto.node_def:
            _add(nodes, _node(node, resolve, self._file), f"the function {name!r}")
        for arg in proto.signature.output_arg:
            if arg.name not in proto.ret:
                raise broken(f"the function {name!r} has no value for its result {arg.name!r}")
        results = tuple(resolve(proto.ret[arg.name]) for arg in proto.signature.output_arg)
        after = tuple(dict.fromkeys(proto.control_ret.values()))
        return TFGraph(name, nodes, self, parameters, results, after)

    def position(self, op: str, argument: str) -> int:
        """The position of the first result of an output argument of an operator or function."""
        if op in self._protos:
            outputs = [arg.name for arg in self._protos[op].signature.output_arg]
            return outputs.index(argument) if argument in outputs else 0
        return self._output_index(op, argument) or 0


def _resolver(
    operators: Mapping[str, str], parameters: set[str], library: Library
) -> Callable[[str], Edge]:
    """Reads the inputs of a function's nodes: "parameter", or "node:output argument:index"."""

    def resolve(text: str) -> Edge:
        found = _INSIDE.match(text)
        if found is None:
            raise broken(f"{text[:100]!r} is not an input of a node in a function")
        name, argument, index = found.groups()
        if name in parameters or argument is None:
            return Edge(name, 0)
        return Edge(name, library.position(operators.get(name, ""), argument) + int(index))

    return resolve


def _main_edge(text: str) -> Edge:
    found = _INPUT.match(text)
    if found is None:
        raise broken(f"{text[:100]!r} is not an input of a node")
    return Edge(found[1], int(found[2] or 0))


def _node(proto: Any, resolve: Callable[[str], Edge], file: MappedFile | None) -> TFNode:
    inputs = tuple(resolve(text) for text in proto.input if not text.startswith("^"))
    controls = tuple(text[1:] for text in proto.input if text.startswith("^"))
    return TFNode(proto.name, proto.op, inputs, controls, proto, file)


def _add(nodes: dict[str, TFNode], node: TFNode, where: str) -> None:
    if node.name in nodes or not node.name:
        raise broken(f"{where} has two nodes with the name {node.name!r}")
    nodes[node.name] = node


def read_graph(proto: Any, output_index: OutputIndex, file: MappedFile | None = None) -> TFGraph:
    """The main graph of a GraphDef.

    Args:
        file: that of the proto, if contents of large tensors were left in it.

    Raises:
        ModelFileError: two nodes have one name, or an input is malformed.
    """
    library = Library(proto.library.function, output_index, file)
    nodes: dict[str, TFNode] = {}
    for node in proto.node:
        _add(nodes, _node(node, _main_edge, file), "the graph")
    return TFGraph("", nodes, library)
