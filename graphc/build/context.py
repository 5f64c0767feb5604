"""The context in which a graph is built: control dependencies and collections.

Name scopes and devices are `graphc.ir.scopes.name_scope` and `device`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphc.ir.node import Node, Tensor
from graphc.ir.scopes import control_inputs, current_graph
from graphc.ir.variable import Variable
from graphc.ops.structure.state import node_names
from graphc.typing import TensorTree


@contextmanager
def control_dependencies(items: Sequence[Node | TensorTree]) -> Iterator[None]:
    """Nodes created inside depend on `items`: a run of such a node also runs the items.

    Args:
        items: tensors and nodes (assignments, groups), or nests (lists, tuples) of them.

    Raises:
        FetchError: an item is neither a tensor nor a node.

    Examples:
        >>> count = gc.variable(0, name="count")
        >>> with gc.control_dependencies([count.assign_add(1)]):
        ...     y = gc.square(3.0)
        >>> run([y, count])
        [Array(9., dtype=float32), Array(1, dtype=int32)]
    """
    with control_inputs(node_names(items)):
        yield


def collection(name: str, scope: str | None = None) -> list[Any]:
    """The items of a collection of the graph being built, in order; see `Graph.collection`.

    Raises:
        GraphError: no graph is being built.
    """
    return current_graph().collection(name, scope)


def add_to_collection(name: str, item: Tensor | Variable | Node) -> None:
    """Appends an item to a collection of the graph being built; `Graph.collection` reads it.

    Args:
        name: the name of the collection, which need not exist.
        item: a tensor, a node or a variable of the graph.

    Raises:
        GraphError: no graph is being built.

    Examples:
        >>> loss = gc.constant(1.5, name="loss")
        >>> gc.add_to_collection("losses", loss)
        >>> graph.collection("losses")
        [<Tensor loss:0 f32[]>]
    """
    current_graph().add_to_collection(name, item)
