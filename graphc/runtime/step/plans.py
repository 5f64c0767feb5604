"""How a session remembers the ways it is called: fetches and feed keys, resolved once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from graphc.ir.node import Tensor
from graphc.runtime.feeds.feeds import FeedSpec
from graphc.runtime.feeds.fetches import FetchNest
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.prepare import Prepared

_LEAF: Any = jax.tree.structure(0)


class Plan:
    """One way of calling `run`: its fetches and feed keys, resolved."""

    def __init__(
        self,
        fetches: Any,
        nest: FetchNest,
        feeds: list[Tensor],
        prepared: Prepared,
        same: Any,
    ) -> None:
        self.fetches = fetches  # keeps the objects alive that the key holds by identity
        self.nest = nest
        self.feeds = feeds
        self.prepared = prepared
        self.same = same
        self.order: list[int] | None = None  # of the given feeds, where it is not that of `feeds`
        # By the shapes of the feeds; with the number of steps first, where it makes several.
        self.executables: dict[tuple[Any, ...], Executable] = {}
        sources = prepared.sources
        self.specs = [
            FeedSpec(port, sources.get(port.name), copy=True)
            for port in prepared.functional.ports("feed")
        ]

    def copy_feeds(self) -> None:
        """Finds out whether host arrays have to be copied: only on CPU JAX may alias them."""
        devices = {d for executable in self.executables.values() for d in executable.devices}
        copy = not devices or any(device.platform == "cpu" for device in devices)
        for spec in self.specs:
            spec.copy = copy

    def convert(self, feeds: Mapping[Any, Any]) -> tuple[list[Any], tuple[tuple[int, ...], ...]]:
        """The values in order as arrays of the right dtype, and their shapes."""
        given = feeds.values() if self.order is None else self._reorder(feeds)
        values = [spec.convert(value) for spec, value in zip(self.specs, given, strict=True)]
        return values, tuple([value.shape for value in values])

    def _reorder(self, feeds: Mapping[Any, Any]) -> list[Any]:
        given = list(feeds.values())
        return [given[i] for i in self.order or ()]

    def given(self, feeds: Mapping[Any, Any], keys: Sequence[Any]) -> list[Any]:
        """The values in order, as they are; `keys` are those the plan was made with."""
        given = [feeds[key] for key in keys]
        return given if self.order is None else [given[i] for i in self.order]


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
        return id(fetches)  # not a fetch at all: refused when it is resolved
    return (tree, *map(fetch_key, leaves))  # a class that JAX knows as a nest
