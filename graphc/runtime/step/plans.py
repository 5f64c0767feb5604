"""The plans of a session. Each combination of fetches and feed keys is resolved only once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from graphc.config import CompileOptions
from graphc.errors import FeedWarning
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor, is_among, position_of, same_items
from graphc.ir.source import current_source
from graphc.runtime.feeds.feeds import FeedSpec
from graphc.runtime.feeds.fetches import FetchSet, resolve_feeds
from graphc.runtime.feeds.shares import Shares
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.prepare import Prepared, UnusedFeedError, prepare

_LEAF: Any = jax.tree.structure(0)


class ProgramKey(NamedTuple):
    """The key of an executable in a plan: the shapes of its feeds, and its number of steps.

    Attributes:
        shapes: the shapes of the feeds of one step, in program order.
        steps: the number of steps; None means one step without a loop.
    """

    shapes: tuple[tuple[int, ...], ...]
    steps: int | None = None


class Plan:
    """One way of calling `run`: its fetches and feed keys, resolved."""

    def __init__(self, fetches: Any, fetch_set: FetchSet, prepared: Prepared) -> None:
        self.fetches = fetches  # keeps objects alive that the key refers to by identity
        self.fetch_set = fetch_set
        self.nest = fetch_set.nest
        self.feeds = fetch_set.feeds
        self.prepared = prepared
        self.order: list[int] | None = None  # of the given feeds, if it differs from `feeds`
        self.executables: dict[ProgramKey, Executable] = {}
        self._keys: dict[Any, ProgramKey] = {}  # of one step, by shapes: to make one costs 0.2 us
        sources = prepared.sources
        self.specs = [
            FeedSpec(port, sources.get(port.name), copy=True)
            for port in prepared.functional.ports("feed")
        ]

    @staticmethod
    def of(
        graph: Graph,
        fetches: Any,
        feeds: Mapping[Any, Any],
        options: CompileOptions,
        known: Iterable[Plan] = (),
        unused_feeds: str = "warn",
    ) -> Plan:
        """The plan of calls with these fetches and feeds.

        Args:
            known: other plans. If one has the same program, with another nest or order of feeds,
                both plans share the program and the executables.
            unused_feeds: see `Session`.

        Raises:
            FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph.
        """
        given = list(resolve_feeds(graph, feeds))
        try:
            plan = Plan._of(graph, fetches, given, options, known)
        except UnusedFeedError as error:
            if unused_feeds == "error":
                raise
            used = [feed for feed in given if not is_among(feed, error.feeds)]
            plan = Plan._of(graph, fetches, used, options, known)
            if unused_feeds == "warn":
                _warn_of_unused(error)
        if not same_items(given, plan.feeds):
            plan.order = [position_of(t, given) for t in plan.feeds]
        return plan

    @staticmethod
    def _of(
        graph: Graph,
        fetches: Any,
        given: Sequence[Tensor],
        options: CompileOptions,
        known: Iterable[Plan],
    ) -> Plan:
        fetch_set = FetchSet.of(graph, fetches, given)
        found = next((p for p in known if p.fetch_set.program == fetch_set.program), None)
        if found is None:
            prepared = prepare(graph, fetch_set.nest.distinct, fetch_set.feeds, options)
            plan = Plan(fetches, fetch_set, prepared)
        else:
            fetch_set.nest.take_order(found.nest.distinct)
            plan = Plan(fetches, fetch_set, found.prepared)
            plan.executables = found.executables
        return plan

    def copy_feeds(self) -> None:
        """Determines whether host arrays must be copied. JAX may alias them only on CPU."""
        devices = {d for executable in self.executables.values() for d in executable.devices}
        copy = not devices or any(device.platform == "cpu" for device in devices)
        for spec in self.specs:
            spec.copy = copy

    def convert(self, feeds: Mapping[Any, Any]) -> tuple[list[Any], ProgramKey]:
        """The values in order, as arrays of the right dtype, and the key of one step with them."""
        given = feeds.values() if self.order is None else self._reorder(feeds)
        values = [spec.convert(value) for spec, value in zip(self.specs, given, strict=True)]
        shapes = tuple([value.shape for value in values])
        key = self._keys.get(shapes)
        if key is None:
            key = self._keys[shapes] = ProgramKey(shapes)
        return values, key

    def joined(self, shares: Shares, values: Sequence[Any], *, stacked: bool = False) -> list[Any]:
        """The feeds of the whole step, from this process's shares; see `Shares.join`."""
        axes = self.prepared.functional.batch_axes
        return shares.join(self.specs, axes, values, stacked=stacked)

    def _reorder(self, feeds: Mapping[Any, Any]) -> list[Any]:
        given = list(feeds.values())
        return [given[i] for i in self.order or ()]

    def given(self, feeds: Mapping[Any, Any], keys: Sequence[Any]) -> list[Any]:
        """The values in order, as they are; `keys` are those the plan was made with."""
        given = [feeds[key] for key in keys]
        return given if self.order is None else [given[i] for i in self.order]


def _warn_of_unused(error: UnusedFeedError) -> None:
    source = current_source()
    text = f"{error.what}: ignored\n  hint: gc.Session(graph, unused_feeds='ignore') is silent"
    if source is None:
        warnings.warn(text, FeedWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, FeedWarning, source.file, source.line)


def fetch_key(fetches: Any) -> Any:
    """A hashable stand-in for a nest of fetches: by identity of tensors, by value of names."""
    kind = type(fetches)
    flat = (kind, *fetches) if kind is list or kind is tuple else fetches
    try:
        hash(flat)
    except TypeError:  # a nest in a nest
        return _nest_key(fetches)
    return flat


def _nest_key(fetches: Any) -> Any:
    if isinstance(fetches, (list, tuple)):
        return (type(fetches), *map(fetch_key, fetches))
    if isinstance(fetches, Mapping):
        items = ((key, fetch_key(value)) for key, value in fetches.items())
        return (type(fetches), *items)
    leaves, tree = jax.tree.flatten(fetches)
    if tree == _LEAF:
        return id(fetches)  # not a fetch: rejected when it is resolved
    return (tree, *map(fetch_key, leaves))  # a class that JAX knows as a nest
