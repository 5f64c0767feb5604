"""Feeds of a strategy over the devices of several processes: each process feeds its share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from graphc.runtime.core.across import from_share, spans_processes
from graphc.runtime.feeds.feeds import FeedSpec


class Shares:
    """Joins the shares of the processes to the feeds of the whole step.

    A feed with a batch axis is split: each process feeds the rows of its own devices, and all feed
    equally many. Every other feed must be equal in all processes.

    Args:
        mesh: the replicas, with one axis.
    """

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    def join(
        self,
        specs: Sequence[FeedSpec],
        batch_axes: Mapping[str, int],
        values: Sequence[Any],
        *,
        stacked: bool = False,
    ) -> list[jax.Array]:
        """The feeds of the whole step, whose shapes are those of all rows together.

        Args:
            specs: of the feeds.
            batch_axes: the axis of the rows by the name of the feed, as in a `Program`.
            values: this process's shares. An array that spans the processes is left as it is.
            stacked: whether the values have a leading axis of steps.

        Raises:
            FeedError: the devices of this process cannot share the rows evenly.
        """
        with jax.enable_x64(True):
            return [
                from_share(spec.label, value, self._place(batch_axes.get(spec.label), stacked))
                for spec, value in zip(specs, values, strict=True)
            ]

    def _place(self, axis: int | None, stacked: bool) -> NamedSharding:
        axes = () if axis is None else (*[None] * (axis + stacked), *self._mesh.axis_names)
        return NamedSharding(self._mesh, PartitionSpec(*axes))


def shares_of(devices: Sequence[jax.Device], axis_name: str) -> Shares | None:
    """The shares of these replicas, or None if they all are devices of this process."""
    if not spans_processes(devices):
        return None
    return Shares(Mesh(np.array(devices), (axis_name,)))


class HasShares:
    """What a session says about the processes that its steps run on."""

    _shares: Shares | None

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what its cluster has once, such as checkpoints: process 0,
        or any process if the session uses only its own devices.

        Examples:
            >>> gc.Session(graph).is_chief
            True
        """
        return not self.spans_processes or jax.process_index() == 0

    @property
    def spans_processes(self) -> bool:
        """Whether its steps run on devices of several processes, which all have to run them.

        Examples:
            >>> gc.Session(graph).spans_processes
            False
        """
        return self._shares is not None
