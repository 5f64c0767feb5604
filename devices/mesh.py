"""`Mesh`: devices on named axes, over which a program is distributed by its annotations.

A mesh has the semantics of XLA's GSPMD (Xu et al. 2021). `runtime.sharded` executes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType

from graphc.devices.discovery import first_devices, name_of
from graphc.devices.pipelining import PipelineParallel
from graphc.devices.strategy import DataParallel, checked_devices, resolve_devices
from graphc.errors import AttributeValueError, DeviceError
from graphc.ir.sharding import is_axis_name

_BATCH = "data"  # the default axis along which feeds with a batch axis are split


@dataclass(frozen=True)
class Mesh:
    """Devices as a grid with named axes: `gc.shard` splits tensors over its axes.

    A run gives the same results as on one device. `gc.shard` sets the layout of a few tensors and
    variables, and XLA chooses the layout of all others. A feed with a batch axis is split along the
    mesh's batch axis, unless a `gc.shard` of the placeholder sets another layout. Other feeds, and
    variables without an annotation, are replicated on each device.

    Args:
        axes: the number of devices along each axis, by name. The outermost axis comes first.
        devices: as for `DataParallel`, one for each position of the grid, in its order; by default
            the first devices of this process. With those of all processes of a cluster, each
            process feeds the rows that its devices hold (`share`), and fetches are whole in each.
        batch_axis: the axis of the mesh along which feeds with a batch axis are split; by default
            the axis called "data", if there is one.

    Raises:
        AttributeValueError: the axes or the batch axis are invalid, or the number of devices
            differs from the size of the grid.
        DeviceError: a name does not parse.

    Examples:
        >>> mesh = gc.devices.Mesh({"data": 2, "model": 2})
        >>> mesh.batch_axis
        'data'
    """

    axes: Mapping[str, int] = field(hash=False)
    devices: int | Sequence[jax.Device | str] | None = None
    batch_axis: str | None = None

    def __post_init__(self) -> None:
        axes: Any = self.axes
        sized = isinstance(axes, Mapping) and axes and all(map(_is_axis, axes.items()))
        if not sized:
            raise AttributeValueError.here(
                f"Mesh: {axes!r} does not give the number of devices on each axis",
                hint='Mesh({"data": 2, "model": 4}): names that are identifiers, sizes of 1 or '
                "more",
            )
        object.__setattr__(self, "axes", dict(axes))
        if self.batch_axis is None and _BATCH in axes:
            object.__setattr__(self, "batch_axis", _BATCH)
        if self.batch_axis is not None and self.batch_axis not in axes:
            raise AttributeValueError.here(
                f"Mesh: batch_axis={self.batch_axis!r} is not an axis of {dict(axes)}",
                hint=f"name one of {', '.join(axes)}",
            )
        if self.devices is not None:
            given = checked_devices(self.devices, "Mesh")
            object.__setattr__(self, "devices", given)
            if isinstance(given, int):
                self._check_count(given)

    @property
    def size(self) -> int:
        """The number of positions in the grid.

        Examples:
            >>> gc.devices.Mesh({"data": 2, "model": 4}).size
            8
        """
        return math.prod(self.axes.values())

    @property
    def replicas(self) -> int:
        """How many pieces a batch is split into.

        Examples:
            >>> gc.devices.Mesh({"data": 2, "model": 4}, batch_axis="data").replicas
            2
        """
        return 1 if self.batch_axis is None else self.axes[self.batch_axis]

    def share(self) -> tuple[int, int]:
        """Which part of the rows of a batch this process feeds: the number of the part, and of all
        parts. `rows.shard(*mesh.share())` is the part of a pipeline. Processes whose devices hold
        the same rows feed the same.

        Examples:
            >>> gc.devices.Mesh({"data": 1}).share()
            (0, 1)
        """
        devices = self.resolve()
        if self.batch_axis is None or len({device.process_index for device in devices}) == 1:
            return 0, 1
        parts = self._parts(devices, self.batch_axis)
        different = sorted(set(parts), key=min)
        return different.index(parts[jax.process_index()]), len(different)

    def meaning(self) -> dict[str, Any]:
        """The properties on which a compiled program depends, besides the devices themselves."""
        return {"mesh": tuple(self.axes.items()), "batch_axis": self.batch_axis}

    def resolve(self) -> tuple[jax.Device, ...]:
        """The devices themselves, in the order of the grid, the last axis first.

        Raises:
            AttributeValueError: the number of devices differs from the size of the grid.
            DeviceError: there are too few devices, a device does not exist or is given twice, or
                the devices are of several kinds.

        Examples:
            >>> len(gc.devices.Mesh({"data": 1}).resolve())
            1
        """
        return self._resolve(None)

    def on(self, known: Mapping[str, jax.Device]) -> Mesh:
        """The same mesh over devices of another machine, which `known` lists by name.

        Raises:
            AttributeValueError, DeviceError: as for `resolve`.
        """
        return replace(self, devices=self._resolve(known))

    def _resolve(self, known: Mapping[str, jax.Device] | None) -> tuple[jax.Device, ...]:
        if self.devices is None:
            return tuple(first_devices(self.size, known))
        found = resolve_devices(self.devices, "Mesh", "place", known)
        self._check_count(len(found), [name_of(device) for device in found])
        if known is None:
            self._check_processes(found)
        return found

    def _check_processes(self, found: Sequence[jax.Device]) -> None:
        """Checks that along each axis, any two processes hold the same places or none in common,
        and all hold equally many."""
        for axis in self.axes:
            parts = self._parts(found, axis)
            if len(set(map(len, parts))) > 1 or sum(map(len, set(parts))) > self.axes[axis]:
                raise DeviceError.here(
                    f"Mesh: the processes divide the axis {axis!r} unevenly",
                    details=[
                        f"process {process} holds {', '.join(map(str, sorted(part)))}"
                        for process, part in enumerate(parts)
                    ],
                    hint="give the devices in the order of jax.devices(), with the axes that stay "
                    "inside a process last",
                )

    def _parts(self, devices: Sequence[jax.Device], axis: str) -> list[frozenset[int]]:
        """The places along an axis that each process holds."""
        grid = np.array([device.process_index for device in devices]).reshape(self._shape)
        rows = np.moveaxis(grid, list(self.axes).index(axis), 0).reshape(self.axes[axis], -1)
        return [
            frozenset(np.flatnonzero((rows == process).any(1)).tolist())
            for process in sorted(set(grid.flat))
        ]

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.axes.values())

    def _check_count(self, count: int, names: Sequence[str] = ()) -> None:
        if count != self.size:
            grid = " x ".join(f"{name}={size}" for name, size in self.axes.items())
            raise AttributeValueError.here(
                f"Mesh: {grid} has {self.size} positions, got {count} devices",
                details=[", ".join(names)] if names else (),
                hint="give as many devices, or omit devices= to use the first ones",
            )


def _is_axis(item: tuple[Any, Any]) -> bool:
    name, size = item
    return is_axis_name(name) and type(size) is int and size >= 1


def jax_mesh(axes: Sequence[tuple[str, int]], devices: Sequence[jax.Device]) -> jax.sharding.Mesh:
    """JAX's record of the grid. XLA chooses the layout along its axes where there is no
    annotation."""
    names, sizes = tuple(name for name, _ in axes), tuple(size for _, size in axes)
    kinds = (AxisType.Auto,) * len(names)
    return jax.sharding.Mesh(np.array(devices).reshape(sizes), names, axis_types=kinds)


Strategy = DataParallel | Mesh | PipelineParallel
