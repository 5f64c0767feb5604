"""The text form of programs and graphs, for people and for tests of passes.

    program mlp(x: f32[batch, 784], hidden/kernel: state f32[784, 512]) {
      %0 = MatMul(x, hidden/kernel) : f32[batch, 512]      # train.py:12
      %1 = Softmax(%0) {axis=1}     : f32[batch, 512]      # train.py:13
      return probabilities = %1
    }

Attributes that have their default are left out. `graphc.ir.parse` reads it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import TextError
from graphc.ir.initial import initializer_fields
from graphc.ir.late import written
from graphc.ir.lexer import quote_device, quote_name
from graphc.ir.node import Node, Tensor
from graphc.ir.values import same_value, write_array, write_attr, write_key, write_value
from graphc.ir.variable import Variable

if TYPE_CHECKING:
    from graphc.ir.graph import Graph
    from graphc.ir.program import Port, Program

_WIDTH = 100
_COLUMN = 48  # after calls of at most this width, the next column is aligned
_INDENT = "  "

TOP_KINDS = ("feed", "fetch")  # the kinds of ports that a program does not write
REGION_KINDS = ("arg", "result")  # the kinds of ports that a region does not write
UNDEFINED = "%undefined"  # an operand that is not defined, in a faulty program


def print_program(
    program: Program, *, names: bool = False, sources: bool = True, elide: bool = False
) -> str:
    """The text of a program, which `parse_program` reads back.

    Args:
        program: any program, even a faulty one.
        names: write each node's name, device and control inputs as well.
        sources: write the user's line of each node as a comment.
        elide: write `...` for arrays of more than 64 elements; the text is then for reading only.

    Raises:
        TextError: an attribute has a value without a written form.
    """
    writer = _Writer(names, sources, elide)
    return "\n".join(["program " + writer.head(program, TOP_KINDS), *writer.body(program), "}"])


def print_graph(graph: Graph, *, sources: bool = True, elide: bool = False) -> str:
    """The text of a root graph: variables, equalities of sizes, nodes, collections.

    Args:
        graph: a graph that is not the body of another one.
        sources: write the user's line of each node and variable as a comment.
        elide: write `...` for large arrays, and for values without a written form (an initial value
            that is a bare function); the text is then for reading only.

    Raises:
        TextError: the graph is a body, or holds something that has no written form.
    """
    if graph.parent is not None:
        raise TextError(
            f"graph {graph.name!r} is the body of a node of {graph.parent.name!r}",
            hint="print the root graph, which holds it",
        )
    writer = _Writer(True, sources, elide)
    nodes = graph.nodes if elide else written(graph.nodes)
    tensors = name_tensors((), nodes)
    rows = [writer.variable(v, tensors) for v in graph.variables.values()]
    lines = [f"graph {quote_name(graph.name)}(seed={graph.seed}, draws={graph.draws}) {{"]
    lines += writer.align(rows)
    lines += _equalities(graph.constraints.equalities())
    lines += writer.nodes(nodes, tensors)
    for name, items in graph.collections().items():
        inside = ", ".join(writer.item(item, name, tensors) for item in items)
        lines.append(f"{_INDENT}collection {quote_name(name)} = [{inside}]")
    return "\n".join([*lines, "}"])


def name_tensors(inputs: Iterable[Port], nodes: Iterable[Node]) -> dict[Tensor, str]:
    """The name of each tensor in the text: inputs have that of their port, results `%0`, `%1`."""
    tensors: dict[Tensor, str] = {}
    taken: set[str] = set()
    for position, port in enumerate(inputs):
        name = quote_name(port.name)
        tensors[port.tensor] = f"%in{position}" if name in taken else name
        taken.add(name)
    number = 0
    for node in nodes:
        for tensor in node.outputs:
            tensors[tensor] = f"%{number}"
            number += 1
    return tensors


def node_text(node: Node, tensors: Mapping[Tensor, str]) -> str:
    """One node on one line, without its regions: for messages."""
    row = _Writer(names=False, sources=True, elide=True).row(node, tensors)
    return f"{row.call} {row.rest}".rstrip() + (f"  # {row.source}" if row.source else "")


@dataclass
class _Row:
    """A line in three columns, and the lines below it."""

    call: str
    rest: str
    source: str
    under: Sequence[str] = ()


@dataclass(frozen=True)
class _Writer:
    names: bool
    sources: bool
    elide: bool

    def head(self, program: Program, kinds: tuple[str, str]) -> str:
        """`name(x: f32[2], w: state f32[2]) {`, broken into lines if it is long."""
        tensors = name_tensors(program.inputs, ())
        ports = [_input(port, tensors[port.tensor], kinds[0]) for port in program.inputs]
        name = quote_name(program.name)
        line = f"{name}({', '.join(ports)}) {{"
        if len(line) <= _WIDTH:
            return line
        return "\n".join([f"{name}(", ",\n".join(_INDENT + port for port in ports), ") {"])

    def body(self, program: Program, kinds: tuple[str, str] = TOP_KINDS) -> list[str]:
        """Everything between the braces, indented once."""
        tensors = name_tensors(program.inputs, program.nodes)
        lines = _equalities(program.equalities)
        if program.batch_axes:
            axes = [f"{quote_name(name)}={axis}" for name, axis in program.batch_axes.items()]
            lines.append(f"{_INDENT}batch_axis {', '.join(axes)}")
        if program.shards:
            specs = [f"{quote_name(n)}={write_value(spec)}" for n, spec in program.shards.items()]
            lines.append(f"{_INDENT}shard {', '.join(specs)}")
        lines += self.nodes(program.nodes, tensors)
        outputs = [_output(p, tensors.get(p.tensor, UNDEFINED), kinds[1]) for p in program.outputs]
        line = f"{_INDENT}return {', '.join(outputs)}".rstrip()
        if len(line) > _WIDTH:
            line = f"{_INDENT}return\n" + ",\n".join(_INDENT * 2 + output for output in outputs)
        return [*lines, *line.split("\n")]

    def nodes(self, nodes: Iterable[Node], tensors: Mapping[Tensor, str]) -> list[str]:
        return self.align([self.row(node, tensors) for node in nodes])

    def align(self, rows: Sequence[_Row]) -> list[str]:
        """The rows as lines with aligned columns."""
        call = max((len(r.call) for r in rows if len(r.call) <= _COLUMN), default=0)
        rest = max((len(r.rest) for r in rows if len(r.rest) <= _COLUMN), default=0)
        lines: list[str] = []
        for row in rows:
            line = f"{row.call:{call}} {row.rest}"
            if self.sources and row.source:
                line = f"{line:{call + 1 + rest}}  # {row.source}"
            lines.append(_INDENT + line.rstrip())
            lines += [_INDENT + below for below in row.under]
        return lines

    def row(self, node: Node, tensors: Mapping[Tensor, str]) -> _Row:
        """The line of a node, with the bodies of its regions below it."""
        results = ", ".join([tensors.get(t, UNDEFINED) for t in node.outputs])
        operands = ", ".join([tensors.get(t, UNDEFINED) for t in node.inputs])
        call = f"{node.op.name}({operands})"
        if results:
            call = f"{results} = {call}"
        if node.attrs:
            call += self.attrs(node)
        rest = [f": {', '.join([str(t.type) for t in node.outputs])}"] if results else []
        if self.names:
            rest += _labels(node)
        source = "" if node.source is None else str(node.source)
        if not node.regions:
            return _Row(call, " ".join(rest), source)
        under: list[str] = []
        for region in node.regions:
            head = f"with {self.head(region, REGION_KINDS)}".split("\n")
            if under:
                under[-1] += f" {head[0]}"
            else:
                rest.append(head[0])
            under += [*head[1:], *self.body(region, REGION_KINDS), "}"]
        return _Row(call, " ".join(rest), source, under)

    def attrs(self, node: Node) -> str:
        """` {axis=1, keepdims=true}`: the attributes that do not have their default."""
        listed = []
        for name, attr in node.op.attrs.items():
            if name in node.attrs and not same_value(node.attrs[name], attr.default):
                text = write_attr(attr.kind, node.attrs[name], elide=self.elide)
                listed.append(f"{write_key(name)}={text}")
        for name in node.attrs.keys() - node.op.attrs.keys():  # of a faulty node
            listed.append(f"{write_key(name)}={write_value(node.attrs[name])}")
        return f" {{{', '.join(listed)}}}" if listed else ""

    def variable(self, variable: Variable, tensors: Mapping[Tensor, str]) -> _Row:
        """`variable w: f32[2] = Zeros() trainable on /device:GPU:0 in [weights]`."""
        words = [f"{variable.type} = {self.initial(variable, tensors)}"]
        if variable.trainable:
            words.append("trainable")
        if variable.device:
            words.append(f"on {quote_device(variable.device)}")
        if variable.shard is not None:
            words.append(f"shard {write_value(variable.shard)}")
        if variable.collections:
            words.append(f"in [{', '.join(map(quote_name, variable.collections))}]")
        source = "" if variable.source is None else str(variable.source)
        return _Row(f"variable {quote_name(variable.name)}:", " ".join(words), source)

    def initial(self, variable: Variable, tensors: Mapping[Tensor, str]) -> str:
        """An initial value: an array, a tensor of the graph, or `Name(field=value)`."""
        initial = variable.initial
        if isinstance(initial, np.ndarray):
            return write_array(initial, elide=self.elide)
        if isinstance(initial, Tensor):
            if initial not in tensors:
                raise TextError(
                    f"variable {variable.name!r}: its initial value is not a tensor of the graph",
                    source=variable.source,
                )
            return tensors[initial]
        given = initializer_fields(initial)
        if given is not None:
            name, values = given
            pairs = [f"{key}={self.value(value)}" for key, value in values.items()]
            return f"{name}({', '.join(pairs)})"
        if self.elide:
            return "..."
        raise TextError(
            f"variable {variable.name!r}: its initial value is a function, which cannot be written",
            source=variable.source,
            hint="use an array, or an initializer record such as GlorotUniform(scale=1.0)",
        )

    def value(self, value: Any) -> str:
        return write_value(value, array=lambda array: write_array(array, elide=self.elide))

    def item(self, item: Any, collection: str, tensors: Mapping[Tensor, str]) -> str:
        """A member of a collection."""
        if isinstance(item, Tensor) and item in tensors:
            return tensors[item]
        if isinstance(item, Variable):
            return f"variable {quote_name(item.name)}"
        if isinstance(item, Node):
            return f"node {quote_name(item.name)}"
        if self.elide:
            return "..."
        raise TextError(
            f"collection {collection!r} holds {item!r:.80}, which cannot be written",
            hint="collect tensors, nodes and variables of the graph",
        )


def _input(port: Port, tensor: str, default_kind: str) -> str:
    name = quote_name(port.name)
    alias = f" as {tensor}" if tensor != name else ""
    kind = "" if port.kind == default_kind else f"{port.kind} "
    return f"{name}{alias}: {kind}{port.tensor.type}"


def _output(port: Port, tensor: str, default_kind: str) -> str:
    kind = "" if port.kind == default_kind else f"{port.kind} "
    return f"{kind}{quote_name(port.name)} = {tensor}"


def _equalities(equalities: Iterable[tuple[Any, Any]]) -> list[str]:
    return [f"{_INDENT}size {a} == {b}" for a, b in equalities]


def _labels(node: Node) -> list[str]:
    """`as hidden/MatMul on /device:GPU:0 after init`, each part only if it exists."""
    words = [f"as {quote_name(node.name)}"] if node.name else []
    if node.device:
        words.append(f"on {quote_device(node.device)}")
    if node.control_inputs:
        words.append(f"after {', '.join(map(quote_name, node.control_inputs))}")
    return words
