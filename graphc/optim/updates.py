"""Finds the assignments that belong to a loss: they share a computed value with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor

UPDATES = "updates"  # the collection of assignments that layers (batch norm, ...) add


def updates_of(graph: Graph, loss: Tensor) -> list[Any]:
    """The items of the collection "updates" that have a computed value in common with `loss`.

    Feeds, variables and constants do not count. The moving averages of another network with the
    same batch are therefore not included.
    """
    computed = _computed(graph, [graph.producer(loss)])
    found = []
    for item in graph.collection(UPDATES):
        node = item if isinstance(item, Node) else graph.find_producer(item)
        if node is not None and not computed.isdisjoint(_computed(graph, [node])):
            found.append(item)
    return found


def _computed(graph: Graph, nodes: Iterable[Node]) -> set[Node]:
    """`nodes` and the nodes that they need, without nodes that have no operands."""
    found: set[Node] = set()
    pending = [node for node in nodes if node.inputs]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            producers = [graph.find_producer(t) for t in node.inputs]
            pending += [p for p in producers if p is not None and p.inputs]
    return found
