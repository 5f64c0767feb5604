"""Reads the text form of programs and graphs, which `graphc.ir.text` writes.

Invalid text raises a `TextError` with the line, the text found and the text expected. Types are
accepted as written: `graphc.ir.verify` checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.catalogue import Catalogue
from graphc.ir.dims import Dim
from graphc.ir.graph import Graph
from graphc.ir.initial import make_initializer
from graphc.ir.lexer import Cursor, Token, quote_name
from graphc.ir.node import EMPTY, Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.parse_values import by_name, read_array, read_attr, read_spec, read_value
from graphc.ir.program import Port, Program
from graphc.ir.sharding import Spec
from graphc.ir.text import REGION_KINDS, TOP_KINDS
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable

_INPUT_KINDS = ("feed", "state", "arg")
_OUTPUT_KINDS = ("fetch", "state", "result")


def parse_program(text: str, catalogue: Catalogue, *, source_file: str | None = None) -> Program:
    """The program that `text` describes.

    Args:
        text: as `print_program` writes it; comments and white space are ignored.
        catalogue: the operators it may use.
        source_file: if given, the source of each node is its line in this file.

    Raises:
        TextError: the text does not parse.
    """
    cursor = Cursor(text, source_file)
    cursor.expect("program")
    program = _program(cursor, catalogue, TOP_KINDS)
    _end(cursor)
    return program


def parse_graph(
    text: str,
    catalogue: Catalogue,
    initializers: Mapping[str, type] = EMPTY,
    *,
    source_file: str | None = None,
) -> Graph:
    """The graph that `text` describes, as `print_graph` writes it.

    Args:
        initializers: the dataclasses an initial value `Name(field=value)` may be, by name.

    Raises:
        TextError: the text does not parse.
    """
    cursor = Cursor(text, source_file)
    graph = _Graphs(cursor, catalogue, initializers).read()
    _end(cursor)
    return graph


def _end(cursor: Cursor) -> None:
    if cursor.peek().kind != "end":
        cursor.fail("the end of the text")


@dataclass
class _Scope:
    """The tensors that a node may use, by their names in the text."""

    cursor: Cursor
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def define(self, token: Token, key: str, type: TensorType, name: str) -> Tensor:
        if key in self.tensors:
            self.cursor.fail_at(token, f"{key} is defined twice")
        tensor = self.tensors[key] = Tensor(type, name)
        return tensor

    def use(self) -> Tensor:
        token = self.cursor.peek()
        key = token.text
        if token.kind == "tensor":
            self.cursor.next()
        else:
            key = quote_name(self.cursor.name("a tensor: %0, or the name of an input"))
        found = self.tensors.get(key)
        if found is None:
            known = ", ".join(list(self.tensors)[-5:])
            self.cursor.fail_at(
                token, f"{key} is not defined here", f"defined last: {known}" if known else None
            )
        return found


def _program(cursor: Cursor, catalogue: Catalogue, kinds: tuple[str, str]) -> Program:
    """Name, ports and body: a program, or a region."""
    cursor.enter()
    scope = _Scope(cursor)
    name = cursor.name("the name of the program")
    cursor.expect("(")
    inputs = cursor.items(")", lambda: _input(cursor, scope, kinds[0]))
    cursor.expect("{")
    nodes: list[Node] = []
    equalities: list[tuple[Dim, Dim]] = []
    batch_axes: dict[str, int] = {}
    shards: dict[str, Spec] = {}
    while not _statement(cursor, "return"):
        if _statement(cursor, "size"):
            equalities.append(_size(cursor))
        elif _statement(cursor, "batch_axis"):
            batch_axes.update(by_name(cursor, "a feed", Cursor.integer))
        elif _statement(cursor, "shard"):
            shards.update(by_name(cursor, "a variable", read_spec))
        else:
            nodes.append(_node(cursor, catalogue, scope))
    outputs = cursor.items("}", lambda: _output(cursor, scope, kinds[1]))
    cursor.leave()
    ends, sizes = (tuple(inputs), tuple(nodes), tuple(outputs)), tuple(equalities)
    return Program(name, *ends, sizes, batch_axes, shards)


def _statement(cursor: Cursor, word: str) -> bool:
    """Skips `word` and returns True if it starts a statement and is not the name of an operator."""
    token = cursor.peek()
    if not token.first:
        cursor.fail("a new line")
    return cursor.peek(1).text != "(" and cursor.accept(word)


def _input(cursor: Cursor, scope: _Scope, default_kind: str) -> Port:
    token = cursor.peek()
    name = cursor.name("the name of an input")
    key = quote_name(name)
    if cursor.accept("as"):
        key = cursor.expect_kind("tensor", "a tensor such as %in0").text
    cursor.expect(":")
    kind = default_kind
    if cursor.peek(1).text != "[":
        kind = cursor.known(cursor.next(), _INPUT_KINDS, "kind of input")
    return Port(name, kind, scope.define(token, key, cursor.type(), name))


def _output(cursor: Cursor, scope: _Scope, default_kind: str) -> Port:
    kind = default_kind
    if cursor.peek(1).text != "=":
        kind = cursor.known(cursor.next(), _OUTPUT_KINDS, "kind of output")
    name = cursor.name("the name of an output")
    cursor.expect("=")
    return Port(name, kind, scope.use())


def _size(cursor: Cursor) -> tuple[Dim, Dim]:
    left = cursor.dim("==")
    cursor.expect("==")
    return left, cursor.dim("")


def _node(cursor: Cursor, catalogue: Catalogue, scope: _Scope) -> Node:
    """`%0, %1 = Op(x) {axis=1} : f32[2], f32[3] as name on device after other with body(..) {`."""
    start = cursor.peek()
    results: list[Token] = []
    if start.kind == "tensor":
        results = cursor.several(lambda: cursor.expect_kind("tensor", "a result such as %1"))
        cursor.expect("=")
    elif cursor.at("}") or start.kind == "end":
        cursor.fail("a node, or `return` and the outputs")
    token = cursor.expect_kind("name", "an operator")
    if token.text not in catalogue:
        cursor.fail_at(token, f"no operator {token.text!r}", catalogue.hint_for(token.text))
    op = catalogue[token.text]
    cursor.expect("(")
    inputs = tuple(cursor.items(")", scope.use))
    attrs = _attrs(cursor, op, token)
    types: list[TensorType] = []
    if results:
        cursor.expect(":")
        types = cursor.several(cursor.type)
    if len(types) != len(results):
        cursor.fail_at(start, f"{len(results)} results but {len(types)} types")
    name, device, after = _labels(cursor)
    regions = []
    while cursor.accept("with"):
        regions.append(_program(cursor, catalogue, REGION_KINDS))
    if not cursor.peek().first and not cursor.at("}"):
        cursor.fail("the end of the line")
    outputs = tuple(
        scope.define(result, result.text, type, f"{name}:{position}" if name else result.text)
        for position, (result, type) in enumerate(zip(results, types, strict=True))
    )
    source = cursor.source(start)
    return Node(op, inputs, outputs, attrs, tuple(regions), name, source, device, after)


def _attrs(cursor: Cursor, op: OpDef, token: Token) -> Mapping[str, Any]:
    """The attributes in braces, if any, and the defaults of the others."""
    given: dict[str, Any] = {}

    def read() -> None:
        name = cursor.peek()
        attr = op.attrs[cursor.known(name, op.attrs, f"attribute of {op.name}")]
        cursor.next()
        if name.text in given:
            cursor.fail_at(name, f"{name.text} occurs twice")
        cursor.expect("=")
        given[name.text] = read_attr(cursor, attr.kind)

    if cursor.accept("{"):
        cursor.items("}", read)
    try:
        return op.complete(given)
    except GraphcError as error:
        cursor.fail_at(token, error.what, cause=error)


def _labels(cursor: Cursor) -> tuple[str, str, tuple[str, ...]]:
    """The name, device and control inputs, each if present."""
    name = cursor.name("the name of the node") if _word(cursor, "as") else ""
    device = _device(cursor) if _word(cursor, "on") else ""
    after: list[str] = []
    if _word(cursor, "after"):
        after = cursor.several(lambda: cursor.name("the name of a node"))
    return name, device, tuple(after)


def _word(cursor: Cursor, word: str) -> bool:
    return not cursor.peek().first and cursor.accept(word)


def _device(cursor: Cursor) -> str:
    if cursor.peek().kind == "device":
        return cursor.next().text
    return cursor.name("a device such as /device:GPU:0")


@dataclass
class _Graphs:
    """Reads one graph."""

    cursor: Cursor
    catalogue: Catalogue
    initializers: Mapping[str, type]
    later: list[tuple[Variable, Token]] = field(default_factory=list)

    def read(self) -> Graph:
        cursor = self.cursor
        cursor.expect("graph")
        name = cursor.name("the name of the graph")
        for text in ("(", "seed", "="):
            cursor.expect(text)
        graph = Graph(cursor.integer(), name)
        for text in (",", "draws", "="):
            cursor.expect(text)
        graph.draws = cursor.integer()
        cursor.expect(")")
        cursor.expect("{")
        scope = _Scope(cursor)
        while not cursor.accept("}"):
            if _statement(cursor, "variable"):
                self.variable(graph)
            elif _statement(cursor, "size"):
                self.size(graph)
            elif _statement(cursor, "collection"):
                self.collection(graph, scope)
            else:
                self.node(graph, scope)
        for variable, token in self.later:
            if token.text not in scope.tensors:
                cursor.fail_at(token, f"{token.text} is not defined in the graph")
            variable.initial = scope.tensors[token.text]
        return graph

    def node(self, graph: Graph, scope: _Scope) -> None:
        start = self.cursor.peek()
        node = _node(self.cursor, self.catalogue, scope)
        if not node.name:
            self.cursor.fail_at(start, "a node of a graph needs a name: `as hidden/MatMul`")
        try:
            graph.restore(node)
        except GraphcError as error:
            self.cursor.fail_at(start, error.what, cause=error)

    def size(self, graph: Graph) -> None:
        token = self.cursor.peek()
        left, right = _size(self.cursor)
        # The left one is replaced, because `unify` keeps its first argument.
        if not graph.constraints.unify(right, left):
            self.cursor.fail_at(token, f"{left} and {right} cannot be equal")

    def variable(self, graph: Graph) -> None:
        cursor = self.cursor
        start = cursor.peek()
        name = cursor.name("the name of a variable")
        cursor.expect(":")
        type = cursor.type()
        cursor.expect("=")
        token = cursor.peek()
        initial = self.initial()
        if isinstance(initial, np.ndarray) and (initial.dtype, initial.shape) != tuple(type):
            cursor.fail_at(token, f"expected an array of {type}")
        trainable = cursor.accept("trainable")
        device = _device(cursor) if _word(cursor, "on") else ""
        shard = read_spec(cursor) if _word(cursor, "shard") else None
        collections: list[str] = []
        if _word(cursor, "in"):
            cursor.expect("[")
            collections = cursor.items("]", lambda: cursor.name("the name of a collection"))
        variable = Variable(
            graph, name, type, initial,
            trainable=trainable, collections=tuple(collections), device=device, shard=shard,
            source=cursor.source(start),
        )  # fmt: skip
        try:
            graph.restore_variable(variable)
        except GraphcError as error:
            cursor.fail_at(start, error.what, cause=error)
        if initial is None:
            self.later.append((variable, token))

    def initial(self) -> Any:
        """An initial value; None for a tensor, which is defined later in the text."""
        cursor = self.cursor
        if cursor.peek().kind == "tensor":
            cursor.next()
            return None
        if cursor.at("..."):
            cursor.fail("an initial value (this one was left out: print without elide)")
        if cursor.peek(1).text == "(":
            return self.initializer()
        return read_array(cursor)

    def initializer(self) -> Any:
        cursor = self.cursor
        token = cursor.next()
        kind = self.initializers[cursor.known(token, self.initializers, "initializer")]
        given: dict[str, Any] = {}

        def read() -> None:
            name = cursor.name("a field")
            cursor.expect("=")
            given[name] = read_value(cursor)

        cursor.expect("(")
        cursor.items(")", read)
        try:
            return make_initializer(kind, given)
        except (GraphcError, TypeError, ValueError) as error:
            cursor.fail_at(token, f"{token.text}: {error}", cause=error)

    def collection(self, graph: Graph, scope: _Scope) -> None:
        name = self.cursor.name("the name of a collection")
        self.cursor.expect("=")
        self.cursor.expect("[")
        for item in self.cursor.items("]", lambda: self.item(graph, scope)):
            graph.add_to_collection(name, item)

    def item(self, graph: Graph, scope: _Scope) -> Any:
        cursor = self.cursor
        kind = cursor.peek()
        if kind.kind == "tensor":
            return scope.use()
        cursor.known(cursor.next(), ("variable", "node"), "kind of item")
        name = cursor.name("a name")
        try:
            return graph.variable(name) if kind.text == "variable" else graph.node(name)
        except GraphcError as error:
            cursor.fail_at(kind, error.what, cause=error)
