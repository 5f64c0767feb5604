"""`Mesh`: devices on named axes, over which one program is spread as its annotations say.

What a mesh means is XLA's: GSPMD (Xu et al. 2021). `runtime.sharded` carries it out.
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
from graphc.devices.strategy import DataParallel, checked_devices, resolve_devices
from graphc.errors import AttributeValueError
from graphc.ir.sharding import is_axis_name
from graphc.ir.source import current_source

_BATCH = "data"  # the axis that feeds with a batch axis are cut along, unless another one is named


@dataclass(frozen=True)
class Mesh:
    """Devices as a grid with named axes: what `gc.shard` cuts tensors over.

    A run means what it means on one device. `gc.shard` says of a few tensors and variables how
    they lie, XLA how all others do. A feed with a batch axis is cut along the mesh's axis for
    that, unless a `gc.shard` of the placeholder says otherwise; other feeds, and variables
    without an annotation, are whole on each device.

    Args:
        axes: how many devices there are along each axis, by name, the outermost first.
        devices: as for `DataParallel`, as many as the grid has places, in its order; by default
            the first ones.
        batch_axis: the axis of the mesh that feeds with a batch axis are cut along; by default
            the one called "data", if there is one.

    Raises:
        AttributeValueError: axes, or a batch axis, that are none; another number of devices than
            the grid has places.
        DeviceError: a name does not parse.

    >>> Mesh({"data": 1, "model": 1}).batch_axis
    'data'
    """

    axes: Mapping[str, int] = field(hash=False)
    devices: int | Sequence[jax.Device | str] | None = None
    batch_axis: str | None = None

    def __post_init__(self) -> None:
        source = current_source()
        axes: Any = self.axes
        sized = isinstance(axes, Mapping) and axes and all(map(_is_axis, axes.items()))
        if not sized:
            raise AttributeValueError(
                f"Mesh: {axes!r} does not give the number of devices on each axis",
                source=source,
                hint='Mesh({"data": 2, "model": 4}): names that are identifiers, sizes of 1 or '
                "more",
            )
        object.__setattr__(self, "axes", dict(axes))
        if self.batch_axis is None and _BATCH in axes:
            object.__setattr__(self, "batch_axis", _BATCH)
        if self.batch_axis is not None and self.batch_axis not in axes:
            raise AttributeValueError(
                f"Mesh: batch_axis={self.batch_axis!r} is no axis of {dict(axes)}",
                source=source,
                hint=f"name one of {', '.join(axes)}",
            )
        if self.devices is not None:
            given = checked_devices(self.devices, "Mesh")
            object.__setattr__(self, "devices", given)
            if isinstance(given, int):
                self._check_count(given, source)

    @property
    def size(self) -> int:
        """How many devices the grid has places for."""
        return math.prod(self.axes.values())

    @property
    def replicas(self) -> int:
        """How many pieces a batch is cut into."""
        return 1 if self.batch_axis is None else self.axes[self.batch_axis]

    def meaning(self) -> dict[str, Any]:
        """What a compiled program depends on, beside the devices themselves."""
        return {"mesh": tuple(self.axes.items()), "batch_axis": self.batch_axis}

    def resolve(self) -> tuple[jax.Device, ...]:
        """The devices themselves, in the order of the grid, the last axis first.

        Raises:
            AttributeValueError: not as many as the grid has places.
            DeviceError: more devices than there are, one that is not there, one twice, or of
                several kinds.
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
        self._check_count(len(found), current_source(), [name_of(device) for device in found])
        return found

    def _check_count(self, count: int, source: Any, names: Sequence[str] = ()) -> None:
        if count != self.size:
            grid = " x ".join(f"{name}={size}" for name, size in self.axes.items())
            raise AttributeValueError(
                f"Mesh: {grid} has {self.size} places, got {count} devices",
                details=[", ".join(names)] if names else (),
                source=source,
                hint="give as many devices, or leave devices out for the first ones",
            )


def _is_axis(item: tuple[Any, Any]) -> bool:
    name, size = item
    return is_axis_name(name) and type(size) is int and size >= 1


def jax_mesh(axes: Sequence[tuple[str, int]], devices: Sequence[jax.Device]) -> jax.sharding.Mesh:
    """JAX's record of the grid, on whose axes XLA itself decides where nothing is said."""
    names, sizes = tuple(name for name, _ in axes), tuple(size for _, size in axes)
    kinds = (AxisType.Auto,) * len(names)
    return jax.sharding.Mesh(np.array(devices).reshape(sizes), names, axis_types=kinds)


Strategy = DataParallel | Mesh
