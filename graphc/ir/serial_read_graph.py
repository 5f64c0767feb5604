"""Reads serialised graphs, with the same checks as `graphc.ir.serial_read`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.errors import GraphcError, VerifyError, nearest
from graphc.ir.catalogue import Catalogue
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.initial import make_initializer
from graphc.ir.node import Tensor
from graphc.ir.serial_read import Reader
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.ir.verify import verify_graph


class GraphReader(Reader):
    """Reads a manifest of the kind `graph`."""

    def __init__(
        self,
        manifest: Mapping[str, Any],
        arrays: Mapping[str, Array],
        catalogue: Catalogue,
        initializers: Mapping[str, type],
    ) -> None:
        super().__init__(manifest, arrays, catalogue)
        self._initializers = initializers

    def read_graph(self) -> Graph:
        """The graph in the manifest."""
        record, where = self.content("graph"), "graph"
        graph = Graph(
            self.field(record, "seed", int, where), self.field(record, "name", str, where)
        )
        graph.draws = self.field(record, "draws", int, where)
        tensors: list[Tensor] = []
        nodes = self.nodes(record, where, tensors)
        for i, variable in enumerate(self.field(record, "variables", list, where)):
            self._variable(graph, variable, f"{where}.variables[{i}]", tensors)
        for left, right in self.equalities(record, where):
            # The left one is replaced, because `unify` keeps its first argument.
            if not graph.constraints.unify(right, left):
                self.fail(f"{where}.equalities", f"{left} and {right} cannot be equal")
        for node in nodes:
            self._restore(lambda node=node: graph.restore(node), where)  # type: ignore[misc]
        for name, items in self.field(record, "collections", dict, where).items():
            at = f"{where}.collections.{name}"
            for item in self.expect(items, list, at):
                graph.add_to_collection(name, self._item(graph, item, at, tensors))
        try:
            verify_graph(graph)
        except VerifyError as error:
            self.invalid("graph", error)
        return graph

    def _restore(self, action: Callable[[], None], where: str) -> None:
        try:
            action()
        except GraphcError as error:
            self.fail(where, error.what, error)

    def _variable(self, graph: Graph, record: Any, where: str, tensors: list[Tensor]) -> None:
        type = self.type(self.field(record, "type", int, where), where)
        variable = Variable(
            graph,
            self.field(record, "name", str, where),
            type,
            self._initial(self.field(record, "initial", dict, where), where, tensors, type),
            trainable=self.field(record, "trainable", bool, where),
            collections=self.strings(record, "collections", where),
            device=self.device(record, where),
            source=self.source(record, where),
            shard=self.spec(record["shard"], where) if "shard" in record else None,
        )
        self._restore(lambda: graph.restore_variable(variable), where)

    def _initial(
        self, record: dict[str, Any], where: str, tensors: list[Tensor], type: TensorType
    ) -> Any:
        if "tensor" in record:
            return tensors[self.index(record["tensor"], len(tensors), "tensor", where)]
        if "value" in record:
            value = self.value(record["value"], where)
            if not isinstance(value, np.ndarray) or (value.dtype, value.shape) != tuple(type):
                self.fail(where, f"expected an initial value of type {type}")
            return value
        name = self.field(record, "initializer", str, where)
        if name not in self._initializers:
            hint = nearest(name, self._initializers)
            self.fail(where, f"no initializer {name!r:.80} in this graphc", hint=hint)
        fields = self.field(record, "fields", dict, where)
        values = {key: self.value(value, f"{where}.{key}") for key, value in fields.items()}
        try:
            return make_initializer(self._initializers[name], values)
        except (GraphcError, TypeError, ValueError) as error:
            self.fail(where, f"{name}: {error}", error)

    def _item(self, graph: Graph, item: Any, where: str, tensors: list[Tensor]) -> Any:
        if type(item) is not list or len(item) != 2:
            self.fail(where, f"expected a kind and a name, got {item!r:.80}")
        kind, name = item
        if kind == "tensor":
            return tensors[self.index(name, len(tensors), "tensor", where)]
        self.expect(name, str, where)
        try:
            if kind == "variable":
                return graph.variable(name)
            if kind == "node":
                return graph.node(name)
        except GraphcError as error:
            self.fail(where, error.what, error)
        self.fail(where, f"expected a tensor, variable or node, got {item!r:.80}")
