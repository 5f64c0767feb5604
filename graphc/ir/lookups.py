"""`Lookups`: finds nodes, tensors and variables of a graph by name, and keeps its collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.errors import GraphError, UnknownNameError, nearest
from graphc.ir.names import check_length, look_up

if TYPE_CHECKING:
    from graphc.ir.node import Node, Tensor
    from graphc.ir.variable import Variable


class Lookups:
    """The methods of a `Graph` that find nodes, tensors and variables.

    Attributes:
        name: the name of the graph, for errors.
        variables: the variables of the whole graph by name.
    """

    name: str
    root: Lookups
    variables: dict[str, Variable]
    _by_name: dict[str, Node]
    _producers: dict[Tensor, Node]
    _collections: dict[str, list[Any]]

    def producer(self, tensor: Tensor) -> Node:
        """The node that computes `tensor`.

        Raises:
            GraphError: the tensor is an input of a body, or belongs to another graph.

        Examples:
            >>> x = gc.constant(1.0, name="x")
            >>> graph.producer(x)
            <Node x = Constant -> f32[]>
        """
        node = self._producers.get(tensor)
        if node is None:
            raise GraphError(f"tensor {tensor.name!r} is not the result of a node of {self.name!r}")
        return node

    def find_producer(self, tensor: Tensor) -> Node | None:
        """Like `producer`, but None for a body's input.

        Examples:
            >>> x = gc.constant(1.0, name="x")
            >>> graph.find_producer(x)
            <Node x = Constant -> f32[]>
        """
        return self._producers.get(tensor)

    def has_node(self, node: Node) -> bool:
        """Whether this graph contains `node` under its name.

        Examples:
            >>> x = gc.constant(1.0, name="x")
            >>> graph.has_node(x.node), gc.Graph().has_node(x.node)
            (True, False)
        """
        return self._by_name.get(node.name) is node

    def find_node(self, name: str) -> Node | None:
        """Like `node`, but None if there is no node of this name.

        Examples:
            >>> graph.find_node("absent") is None
            True
        """
        return self._by_name.get(name)

    def node(self, name: str) -> Node:
        """The node of this name.

        Raises:
            UnknownNameError: there is none; the nearest name is suggested.

        Examples:
            >>> x = gc.constant(1.0, name="x")
            >>> graph.node("x")
            <Node x = Constant -> f32[]>
        """
        return look_up(
            self._by_name, name, f"no node {name!r} in graph {self.name!r}", "graph.nodes"
        )

    def tensor(self, name: str) -> Tensor:
        """The tensor of this name: `hidden/MatMul:0`, or `hidden/MatMul` for result 0.

        Raises:
            UnknownNameError: no such node, or no such result of it.

        Examples:
            >>> values, places = gc.top_k([3, 1, 2], 2, name="best")
            >>> graph.tensor("best"), graph.tensor("best:1")
            (<Tensor best:0 i32[2]>, <Tensor best:1 i32[2]>)
        """
        node_name, _, index = name.partition(":")
        node = self.node(node_name)
        position = int(index) if index.isdigit() else (0 if not index else -1)
        if not 0 <= position < len(node.outputs):
            raise UnknownNameError.here(
                f"no tensor {name!r}: {node.op.name} {node_name!r} has {len(node.outputs)} results",
                hint=nearest(name, [t.name for t in node.outputs]),
            )
        return node.outputs[position]

    def variable(self, name: str) -> Variable:
        """The variable of this name.

        Raises:
            UnknownNameError: there is none; the nearest name is suggested.

        Examples:
            >>> w = gc.variable(1.0, name="w")
            >>> graph.variable("w") is w
            True
        """
        return look_up(
            self.variables,
            name,
            f"no variable {name!r} in graph {self.name!r}",
            "graph.variables",
        )

    # -- collections ------------------------------------------------------------------------

    def add_to_collection(self, collection: str, item: Tensor | Variable | Node) -> None:
        """Appends `item` (a tensor, node or variable) to the named collection.

        Examples:
            >>> x = gc.constant(1.0, name="x")
            >>> graph.add_to_collection("summaries", x)
            >>> graph.collection("summaries")
            [<Tensor x:0 f32[]>]
        """
        check_length(collection, "name of a collection")
        self.root._collections.setdefault(collection, []).append(item)

    def collection(self, collection: str, scope: str | None = None) -> list[Any]:
        """The items of a collection in order. With `scope`, only items with names in that scope.

        A collection without additions is empty.

        Examples:
            >>> with gc.name_scope("net"):
            ...     w = gc.variable(1.0, name="w", collections=["weights"])
            >>> graph.collection("weights"), graph.collection("weights", "other")
            ([<Variable net/w f32[]>], [])
        """
        items = self.root._collections.get(collection, [])
        if scope is None:
            return list(items)
        prefix = scope.rstrip("/") + "/"
        return [item for item in items if getattr(item, "name", "").startswith(prefix)]

    def collections(self) -> dict[str, list[Any]]:
        """Every collection by name.

        Examples:
            >>> w = gc.variable(1.0, name="w", collections=["weights"])
            >>> graph.collections()
            {'weights': [<Variable w f32[]>]}
        """
        return {name: list(items) for name, items in self.root._collections.items()}
