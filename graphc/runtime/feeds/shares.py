"""Feeds of a strategy over the devices of several processes: each process feeds its share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from graphc.devices.mesh import Mesh as DeviceMesh
from graphc.devices.mesh import jax_mesh
from graphc.devices.strategy import DataParallel
from graphc.runtime.core.across import from_share, spans_processes
from graphc.runtime.feeds.feeds import FeedSpec

AXIS_NAME: Final = "replica"
"""The axis of the mesh of the replicas of a `DataParallel`."""


class Shares:
    """Joins the shares of the processes to the feeds of the whole step.

    A feed with a batch axis is split: each process feeds the rows of its own devices, and all feed
    equally many. Every other feed must be equal in all processes. Shares do not depend on the
    annotations of feeds: a step that needs its feeds elsewhere moves them.

    Args:
        mesh: the devices.
        rows: the axis of the mesh along which batches are split; None if they are whole on each
            device.
    """

    def __init__(self, mesh: Mesh, rows: str | None) -> None:
        self._mesh, self._rows = mesh, rows

    def join(
        self,
        specs: Sequence[FeedSpec],
        axes: Mapping[str, int | None],
        values: Sequence[Any],
        *,
        stacked: bool = False,
    ) -> list[jax.Array]:
        """The feeds of the whole step, whose shapes are those of all rows together.

        Args:
            specs: of the feeds.
            axes: the axis of the rows by the name of the feed, as in a `Program`.
            values: this process's shares. An array that spans the processes is left as it is.
            stacked: whether the values have a leading axis of steps, which `axes` does not count.

        Raises:
            FeedError: the devices of this process cannot share the rows evenly.
        """
        found = []
        for spec, value in zip(specs, values, strict=True):
            axis = axes.get(spec.label)
            axis = None if axis is None else axis + stacked
            found.append(from_share(spec.label, value, self._place(axis), axis))
        return found

    def _place(self, axis: int | None) -> NamedSharding:
        split = () if axis is None or self._rows is None else (*[None] * axis, self._rows)
        return NamedSharding(self._mesh, PartitionSpec(*split))


def shares_under(strategy: Any) -> Shares | None:
    """The shares that the processes feed under a strategy; None if it uses only this process."""
    if not isinstance(strategy, DataParallel | DeviceMesh):
        return None
    devices = strategy.resolve()
    if not spans_processes(devices):
        return None
    if isinstance(strategy, DeviceMesh):
        return Shares(jax_mesh(tuple(strategy.axes.items()), devices), strategy.batch_axis)
    return Shares(Mesh(np.array(devices), (AXIS_NAME,)), AXIS_NAME)


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
