"""How often a loop of TensorFlow is repeated, if its condition says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.importers.tensorflow.graph import Edge, TFGraph
from graphc.importers.tensorflow.values import Sizes, Value
from graphc.ir.dims import Dim, DimExpr

_SAME = frozenset(("Identity", "LoopCond", "Enter", "RefIdentity", "StopGradient"))


@dataclass(frozen=True)
class Side:
    """The condition or the body of a loop.

    Attributes:
        graph: that holds it.
        carried: the edges that are the carried values, with their numbers.
        known: the edges whose values are the same in each iteration.
    """

    graph: TFGraph
    carried: dict[Edge, int]
    known: dict[Edge, Value]

    def strip(self, edge: Edge) -> Edge:
        """The edge behind identities."""
        for _ in range(len(self.graph.nodes)):
            node = self.graph.nodes.get(edge.node)
            if edge in self.carried or edge in self.known or node is None:
                break
            if node.op not in _SAME or not node.inputs:
                break
            edge = node.inputs[0]
        return edge

    def size(self, edge: Edge) -> Dim | None:
        """The integer of an edge, if it is known at import."""
        edge = self.strip(edge)
        if edge in self.known:
            return as_dim(self.known[edge])
        node = self.graph.nodes.get(edge.node)
        if node is not None and node.op == "Const":
            return as_dim(node.attr("value"))
        return None


def as_dim(value: Value) -> Dim | None:
    """A scalar integer that is known at import, else None."""
    if isinstance(value, Sizes) and value.items.ndim == 0:
        found: Any = value.items.reshape(1)[0]
        return found if isinstance(found, DimExpr) else int(found)
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iu":
        return int(value)
    return None


@dataclass(frozen=True)
class Trips:
    """The number of iterations.

    Attributes:
        most: an upper bound, None if none is known.
        exact: whether each run makes exactly so many.
    """

    most: Dim | None
    exact: bool


def count_trips(
    condition: Side, test: Edge, body: Side, following: Sequence[Edge], init: Sequence[Value]
) -> Trips:
    """The iterations of `while i < limit: ...; i += 1`, also with several such tests.

    Args:
        test: the result of the condition.
        following: the next value of each carried one.
        init: the first value of each.
    """
    bounds: list[Dim | None] = []

    def visit(edge: Edge, depth: int = 0) -> None:
        edge = condition.strip(edge)
        node = condition.graph.nodes.get(edge.node)
        if node is not None and node.op == "LogicalAnd" and depth < 8:
            visit(node.inputs[0], depth + 1)
            visit(node.inputs[1], depth + 1)
            return
        bounds.append(_bound(condition, node, body, following, init))

    visit(test)
    known = [b for b in bounds if b is not None]
    if not known:
        return Trips(None, exact=False)
    ints = [b for b in known if isinstance(b, int)]
    alike = all(b == known[0] for b in known)
    most = min(ints) if len(ints) == len(known) else (known[0] if alike else (ints or known)[0])
    return Trips(most, exact=len(known) == len(bounds) and (alike or len(ints) == len(known)))


def _bound(
    condition: Side, node: Any, body: Side, following: Sequence[Edge], init: Sequence[Value]
) -> Dim | None:
    if node is None or node.op not in _TESTS or len(node.inputs) != 2:
        return None
    left, right = node.inputs if _TESTS[node.op][0] else node.inputs[::-1]
    number = condition.carried.get(condition.strip(left))
    limit = condition.size(right)
    if number is None or limit is None:
        return None
    start = as_dim(init[number])
    if start is None or not _adds_one(body, following[number], number):
        return None
    trips = limit - start + _TESTS[node.op][1]
    return max(trips, 0) if isinstance(trips, int) else trips


# The test: whether the counter is on the left, and what is added to the limit.
_TESTS = {"Less": (True, 0), "Greater": (False, 0), "LessEqual": (True, 1)}
_TESTS["GreaterEqual"] = (False, 1)


def _adds_one(body: Side, edge: Edge, number: int) -> bool:
    node = body.graph.nodes.get(body.strip(edge).node)
    if node is None or node.op not in ("Add", "AddV2") or len(node.inputs) != 2:
        return False
    pairs = (node.inputs, node.inputs[::-1])
    return any(body.carried.get(body.strip(a)) == number and body.size(b) == 1 for a, b in pairs)
