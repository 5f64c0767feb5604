"""Copies feeds to the devices of a session's steps before the steps run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, Sharding, SingleDeviceSharding

from graphc.devices.mesh import Mesh as DeviceMesh
from graphc.devices.strategy import DataParallel
from graphc.ir.capture import capture
from graphc.ir.graph import Graph
from graphc.ir.node import same_items
from graphc.ops.structure.state import READ_VARIABLE
from graphc.runtime.buffers.annotated import specs_of
from graphc.runtime.feeds.batches import checked_count, leading, stack, take_batches
from graphc.runtime.feeds.feeds import FeedSpec, bind_feeds
from graphc.runtime.feeds.fetches import in_program_order, resolve_feeds
from graphc.runtime.feeds.shares import AXIS_NAME, Shares
from graphc.runtime.step.plans import Plan, ProgramKey
from graphc.runtime.targets.executors import cut_along, put_on
from graphc.runtime.targets.sharded import feed_places


class FeedPlacer:
    """Copies feeds to where the steps of a session need them. Any thread may use it.

    A step that is compiled for feeds of these shapes determines the place. Before there is one,
    feeds shared by replicas are split along their batch axes. All other feeds go to the session's
    first device or to JAX's default device. A step that needs them elsewhere moves them again.
    """

    def __init__(self, graph: Graph, strategy: Any, shares: Shares | None = None) -> None:
        self._graph = graph
        self._strategy = strategy
        self._shares = shares
        self._known: dict[Any, FeedPlaces] = {}

    def put(self, feeds: Any, steps: int | None, plans: Iterable[Plan]) -> dict[Any, jax.Array]:
        """See `Session.put`.

        Args:
            plans: the plans of the session.
        """
        if steps is None:
            return self._places_of(feeds).put(feeds, plans)
        n = checked_count(steps, "put: steps")
        if isinstance(feeds, Mapping):
            return self._places_of(feeds).put_stacked(feeds, n, plans)
        batches = take_batches(feeds, n)
        return self._places_of(batches[0]).put_steps(batches, plans)

    def _places_of(self, feeds: Any) -> FeedPlaces:
        if not isinstance(feeds, Mapping):
            resolve_feeds(self._graph, feeds)  # raises the error
        keys = tuple(feeds)
        if keys not in self._known:
            self._known[keys] = FeedPlaces(self._graph, keys, self._strategy, self._shares)
        return self._known[keys]


class FeedPlaces:
    """Where steps need the feeds of some tensors.

    Args:
        graph: the graph of the tensors.
        keys: the keys of the feeds, as the caller writes them.
        strategy: the strategy of the session.
        shares: joins the shares of several processes.

    Raises:
        FeedError, UnknownNameError: a key does not fit the graph.
    """

    def __init__(
        self, graph: Graph, keys: Sequence[Any], strategy: Any, shares: Shares | None = None
    ) -> None:
        tensors = resolve_feeds(graph, dict.fromkeys(keys))
        by_tensor = dict(zip(tensors, keys, strict=True))
        self._tensors = in_program_order(graph, tensors)
        self._program = capture(graph, [], self._tensors, READ_VARIABLE)
        ports = self._program.ports("feed")
        sources = [tensor.node.source for tensor in self._tensors]
        self._sources = {p.name: s for p, s in zip(ports, sources, strict=True)}
        # Copy for any device, because the caller may write to a buffer during its transfer.
        specs = [FeedSpec(port, self._sources[port.name], copy=True) for port in ports]
        self._specs = list(zip([by_tensor[t] for t in self._tensors], specs, strict=True))
        self._graph = graph
        self._strategy = strategy
        self._shares = shares
        # By the keys of executables in plans: shardings that a step determined, and guesses.
        self._found: dict[ProgramKey, Sequence[Sharding]] = {}
        self._guessed: dict[ProgramKey, Sequence[Sharding]] = {}

    def put(self, feeds: Mapping[Any, Any], plans: Iterable[Plan]) -> dict[Any, jax.Array]:
        """The feeds of one step, with the same keys. The copies have started.

        Raises:
            FeedError: they do not fit the graph.
        """
        values = [spec.convert(feeds[key]) for key, spec in self._specs]
        return self._put(feeds, values, ProgramKey(tuple([value.shape for value in values])), plans)

    def put_stacked(
        self, feeds: Mapping[Any, Any], n: int, plans: Iterable[Plan]
    ) -> dict[Any, jax.Array]:
        """The feeds of `n` steps, which have a leading axis of that size; otherwise as `put`."""
        values = [leading(spec, feeds[key], n) for key, spec in self._specs]
        return self._put(feeds, values, _stacked(values, n), plans)

    def put_steps(
        self, batches: Sequence[Mapping[Any, Any]], plans: Iterable[Plan]
    ) -> dict[Any, jax.Array]:
        """The feeds of several steps, stacked along a leading axis; otherwise as `put`."""
        values = [stack(spec, [batch[key] for batch in batches]) for key, spec in self._specs]
        return self._put(batches[0], values, _stacked(values, len(batches)), plans)

    def _put(
        self, feeds: Mapping[Any, Any], values: list[Any], key: ProgramKey, plans: Iterable[Plan]
    ) -> dict[Any, jax.Array]:
        arrays = self._placed(values, key, plans)
        placed = dict(zip([key for key, _ in self._specs], arrays, strict=True))
        return {key: placed[key] for key in feeds}  # in the caller's order, like the plans

    def _placed(
        self, values: list[Any], key: ProgramKey, plans: Iterable[Plan]
    ) -> Sequence[jax.Array]:
        if self._shares is None:
            return put_on(values, self._found.get(key) or self._find(key, plans))
        specs, axes = [spec for _, spec in self._specs], self._program.batch_axes
        return self._shares.join(specs, axes, values, stacked=key.steps is not None)

    def _find(self, key: ProgramKey, plans: Iterable[Plan]) -> Sequence[Sharding]:
        for plan in plans:
            step = plan.executables.get(key) if same_items(plan.feeds, self._tensors) else None
            if step is not None:
                self._found[key] = step.feed_homes
                return step.feed_homes
        if key not in self._guessed:
            self._guessed[key] = self._guess(key)
        return self._guessed[key]

    def _guess(self, key: ProgramKey) -> Sequence[Sharding]:
        """The expected shardings of feeds of these shapes. The shapes are checked."""
        stacked, shapes = key.steps is not None, key.shapes
        bind_feeds(self._program, shapes, self._sources)
        devices = jax.local_devices() if self._strategy is None else self._strategy.resolve()
        if isinstance(self._strategy, DeviceMesh):
            full = [shape if key.steps is None else (key.steps, *shape) for shape in shapes]
            said = specs_of(self._graph.nodes, self._tensors)
            ports = zip(self._program.ports("feed"), self._tensors, strict=True)
            rows = [(self._program.batch_axes.get(p.name), said.get(t)) for p, t in ports]
            return feed_places(self._strategy, full, rows, int(stacked))
        if not isinstance(self._strategy, DataParallel):
            return [SingleDeviceSharding(devices[0])] * len(shapes)
        mesh = Mesh(np.array(devices), (AXIS_NAME,))
        axes = [self._program.batch_axes.get(port.name) for port in self._program.ports("feed")]
        # A feed that cannot be split evenly goes to all devices; the step handles it.
        return [
            cut_along(mesh, None if axis is None or shape[axis] % mesh.size else axis + stacked)
            for axis, shape in zip(axes, shapes, strict=True)
        ]


def _stacked(values: Sequence[Any], n: int) -> ProgramKey:
    """The key of `n` steps with these feeds, which have a leading axis of that size."""
    return ProgramKey(tuple([value.shape[1:] for value in values]), n)
