"""Fetches and feeds in the form that users write: nests of tensors, nodes, variables and names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax

from graphc.errors import FeedError, FetchError, UnknownNameError, nearest
from graphc.ir.capture import Fetch
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, position_of
from graphc.ir.variable import Variable

_DEEPEST: Final = 64  # the largest depth of nested lists, tuples and dicts


def resolve_fetch(graph: Graph, fetch: Any) -> Fetch:
    """One fetch: a tensor, node or variable of `graph`, or the name of one.

    A name refers to a variable, to a tensor (`Relu:0`), or to a node. A node stands for its first
    result if it has one.

    Raises:
        UnknownNameError: nothing has this name; the nearest name is suggested.
        FetchError: `fetch` cannot be fetched.
    """
    if isinstance(fetch, (Tensor, Node, Variable)):
        return fetch
    if not isinstance(fetch, str):
        raise FetchError.here(f"{fetch!r} cannot be fetched", hint=_instead(fetch))
    if fetch in graph.variables:
        return graph.variables[fetch]
    try:
        node = graph.node(fetch.partition(":")[0])
    except UnknownNameError:
        known = [n.name for n in graph.nodes] + list(graph.variables)
        raise UnknownNameError.here(
            f"no tensor, node or variable {fetch!r} in graph {graph.name!r}",
            hint=nearest(fetch, known, "the graph"),
        ) from None
    return node if not node.outputs and ":" not in fetch else graph.tensor(fetch)


def _instead(fetch: object) -> str:
    if callable(fetch):
        return "call it, and fetch what it returns; a training step is gc.minimize(loss, optimizer)"
    return "fetch a tensor, a variable, what gc.minimize or gc.group returned, or a name"


class FetchNest:
    """A nest of fetches: its distinct leaves, and the structure to rebuild it from their values."""

    def __init__(self, graph: Graph, fetches: Any) -> None:
        if fetches is None:
            raise FetchError.here(
                "the fetch is None, so there is nothing to run",
                hint="fetch a tensor, or what gc.minimize returned: session.run([train, loss])",
            )
        _check_depth(fetches, 0)
        leaves, tree = jax.tree.flatten(fetches)
        self._fetches, self._tree = fetches, tree
        self._leaves = [resolve_fetch(graph, leaf) for leaf in leaves]
        self.distinct: list[Fetch] = list(dict.fromkeys(self._leaves))
        self.rebuild = self._rebuilder()

    def take_order(self, distinct: Sequence[Fetch]) -> None:
        """Sets the order of the values to that of `distinct`, which has the same fetches."""
        self.distinct = list(distinct)
        self.rebuild = self._rebuilder()

    def _rebuilder(self) -> Callable[[Sequence[Any]], Any]:
        tree: Any = self._tree
        valued = [f for f in self.distinct if not isinstance(f, Node)]
        place = {fetch: i for i, fetch in enumerate(valued)}
        places = [None if isinstance(f, Node) else place[f] for f in self._leaves]
        kind: Any = type(self._fetches)
        if kind in (list, tuple) and tree.num_nodes == len(places) + 1:
            # This is the common case, a flat nest. It needs no tree functions.
            return lambda values: kind(None if i is None else values[i] for i in places)
        return lambda values: jax.tree.unflatten(
            tree, [None if i is None else values[i] for i in places]
        )


def _check_depth(nest: Any, depth: int) -> None:
    """Rejects nests that are too deep or contain themselves, because JAX would never return."""
    if depth > _DEEPEST:
        raise FetchError.here(
            f"the fetches are nested more than {_DEEPEST} deep", hint="fetch a flat list, or a dict"
        )
    if isinstance(nest, (list, tuple, Mapping)):
        for item in nest.values() if isinstance(nest, Mapping) else nest:
            if isinstance(item, (list, tuple, Mapping)):
                _check_depth(item, depth + 1)


def resolve_feeds(graph: Graph, feeds: Any) -> dict[Tensor, Any]:
    """The feeds by tensor, in their order.

    Raises:
        FeedError: `feeds` is not a mapping, or two keys mean one tensor; see also `resolve_feed`.
    """
    if not isinstance(feeds, Mapping):
        raise FeedError.here(
            f"feeds must be a mapping, got {type(feeds).__name__}",
            hint="feeds={x: value}, by tensor or by name",
        )
    found: dict[Tensor, Any] = {}
    for key, value in feeds.items():
        tensor = resolve_feed(graph, key)
        if tensor in found:
            raise FeedError.here(
                f"feed {tensor.name.removesuffix(':0')!r} is given twice, by two keys",
                details=[f"keys: {', '.join(map(str, feeds))}"],
                hint="feed it once, by tensor or by name",
            )
        found[tensor] = value
    return found


def in_program_order(graph: Graph, feeds: Iterable[Tensor]) -> list[Tensor]:
    """The feeds in the order of the graph, so that any order of the user gives the same program."""
    found = list(feeds)
    if len(found) > 1:
        place = {node: i for i, node in enumerate(graph.nodes)}
        found.sort(key=lambda t: (place.get(t.node, -1), position_of(t, t.node.outputs)))
    return found


@dataclass(frozen=True, eq=False)
class FetchSet:
    """The resolved fetches and feeds of a call.

    Attributes:
        nest: the fetches.
        feeds: the tensors that are fed, in program order.
    """

    graph: Graph
    nest: FetchNest
    feeds: Sequence[Tensor]

    @staticmethod
    def of(graph: Graph, fetches: Any, feeds: Iterable[Tensor]) -> FetchSet:
        """The fetch set of fetches in the form that users write.

        Raises:
            FetchError, UnknownNameError: they do not fit the graph.
        """
        return FetchSet(graph, FetchNest(graph, fetches), in_program_order(graph, feeds))

    @cached_property
    def program(self) -> tuple[frozenset[Fetch], frozenset[Tensor]]:
        """A key that is equal for fetch sets that differ only in nest and order. They share one
        program."""
        return frozenset(self.nest.distinct), frozenset(self.feeds)


def resolve_feed(graph: Graph, key: Any) -> Tensor:
    """The tensor that the key of a feed refers to. The key is a tensor or its name.

    Raises:
        UnknownNameError, FeedError: there is no such tensor, or it cannot be fed.
    """
    if isinstance(key, Tensor):
        return key
    if isinstance(key, Variable) or (isinstance(key, str) and key in graph.variables):
        name = key if isinstance(key, str) else key.name
        raise FeedError.here(
            f"variable {name!r} cannot be fed", hint=f"set it: session.set({name!r}, value)"
        )
    if not isinstance(key, str):
        raise FeedError.here(f"{key!r} is not a feed key", hint="use a tensor or its name")
    return graph.tensor(key)
