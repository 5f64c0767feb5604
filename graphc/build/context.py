"""The context in which a graph is built: control dependencies and collections.

Name scopes and devices are `graphc.ir.scopes.name_scope` and `device`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphc.ir.scopes import control_inputs, current_graph
from graphc.ops.structure.state import node_names


@contextmanager
def control_dependencies(items: Sequence[Any]) -> Iterator[None]:
    """Nodes created inside depend on `items`: a run of such a node also runs the items.

    Args:
        items: tensors and nodes (assignments, groups), or nests of them.

    Raises:
        FetchError: an item is of another kind.
    """
    with control_inputs(node_names(items)):
        yield


def collection(name: str, scope: str | None = None) -> list[Any]:
    """The items of a collection of the graph being built, in order; see `Graph.collection`.

    Raises:
        GraphError: no graph is being built.
    """
    return current_graph().collection(name, scope)


def add_to_collection(name: str, item: Any) -> None:
    """Appends a tensor, node or variable to a collection of the graph being built.

    Raises:
        GraphError: no graph is being built.
    """
    current_graph().add_to_collection(name, item)
