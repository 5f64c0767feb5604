"""Feeds of a strategy over the devices of several processes: each process feeds its share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from graphc.ir.node import EMPTY
from graphc.ir.sharding import Spec, trimmed
from graphc.runtime.core.across import from_share
from graphc.runtime.feeds.feeds import FeedSpec


class Shares:
    """Joins the shares of the processes to the feeds of the whole step.

    A feed with a batch axis is split: each process feeds the rows of its own devices, and all feed
    equally many. Every other feed must be equal in all processes.

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
        batch_axes: Mapping[str, int],
        values: Sequence[Any],
        annotations: Mapping[str, Spec] = EMPTY,
        *,
        stacked: bool = False,
    ) -> list[jax.Array]:
        """The feeds of the whole step, whose shapes are those of all rows together.

        Args:
            specs: of the feeds.
            batch_axes: the axis of the rows by the name of the feed, as in a `Program`.
            values: this process's shares. An array that spans the processes is left as it is.
            annotations: the shardings of one step that the user sets, by the name of the feed.
            stacked: whether the values have a leading axis of steps.

        Raises:
            FeedError: the devices of this process cannot share the rows evenly.
        """
        with jax.enable_x64(True):
            names = [spec.label for spec in specs]
            places = [
                self._place(batch_axes.get(name), annotations.get(name), int(stacked))
                for name in names
            ]
            return list(map(from_share, names, values, places))

    def _place(self, axis: int | None, annotation: Spec | None, leading: int) -> NamedSharding:
        spec: Spec = ()
        if annotation is not None:
            spec = trimmed((*[None] * leading, *annotation))
        elif axis is not None and self._rows is not None:
            spec = (*[None] * (axis + leading), self._rows)
        return NamedSharding(self._mesh, PartitionSpec(*spec))


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
