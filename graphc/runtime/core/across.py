"""Arrays over the devices of several processes, which `jax.distributed` has connected.

Such an array has one shape everywhere, but each process holds only the pieces on its own devices.
Values that are whole on each device (state) are given whole by every process. Values that are split
(batches) are given and returned in shares: each process has the rows of its own devices.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, Sharding

from graphc.devices.topology import is_here
from graphc.errors import ClusterError, DeviceError, FeedError
from graphc.ir.dtypes import Array
from graphc.ir.sharding import names_of
from graphc.runtime.core.agreement import different, exchanged


def spans_processes(devices: Iterable[jax.Device]) -> bool:
    """Whether some of the devices are those of other processes."""
    return jax.process_count() > 1 and any(
        is_here(device) and device.process_index != jax.process_index() for device in devices
    )


def refuse_processes(strategy: Any, function: str) -> None:
    """Raises `DeviceError` for a strategy over devices of other processes, or if there are too few
    devices."""
    if strategy is not None and spans_processes(strategy.resolve()):
        raise DeviceError.here(
            f"{function}: the strategy has devices of other processes",
            hint="gc.Session and gc.compile run on several processes, on graphs; "
            "gc.from_jax makes a graph of a function",
        )


def is_across(where: Any) -> bool:
    """Whether a sharding has devices of other processes."""
    return isinstance(where, Sharding) and not where.is_fully_addressable


def from_whole(
    value: Array, where: Sharding, place: Callable[[Any, jax.Device], jax.Array]
) -> jax.Array:
    """An array from a value that every process has whole. Each copies its pieces to its devices.

    Args:
        place: copies a piece to a device.

    Raises:
        ClusterError: the processes do not have the same value.
    """
    agree_on(value)
    pieces = [
        place(value[index], device)
        for device, index in where.addressable_devices_indices_map(value.shape).items()
    ]
    return jax.make_array_from_single_device_arrays(value.shape, where, pieces)


def agree_on(value: Array) -> None:
    """Checks that all processes have the same value.

    Raises:
        ClusterError: they have not.
    """
    facts = f"{value.dtype.name} {value.shape} {zlib.crc32(np.ascontiguousarray(value).tobytes())}"
    given = exchanged("sets variables", facts)
    other = different(given)
    if other is not None:
        raise ClusterError(
            f"process 0 and process {other} have different values of a variable of shape "
            f"{value.shape}, of which every process must have the same",
            hint="build the same graph in all processes: gc.Graph(seed=...), and initial values "
            "that do not depend on the process; set and restore the same values",
        )


def from_share(name: str, share: Any, where: NamedSharding, axis: int | None) -> jax.Array:
    """An array from this process's share of it: the rows that its devices hold, and all of it along
    the other axes.

    Args:
        name: of the feed, for errors.
        share: on the host or on devices of this process; an array that spans the processes is
            returned unchanged.
        where: the sharding of the array. All processes hold equally many rows.
        axis: the axis of the rows; None if every process has the whole array.

    Raises:
        FeedError: the share cannot be split evenly over the devices of this process.
        DeviceError: the rows of a process are not consecutive.
    """
    if isinstance(share, jax.Array) and not share.is_fully_addressable:
        return share
    shape, starts, rows = share.shape, [0], 0
    if axis is not None:
        held, parts = _counts(where, axis, len(shape))
        if shape[axis] % held:
            raise FeedError(
                f"feed {name!r} has {shape[axis]} rows, which cannot be split evenly over the "
                f"{held} devices of this process",
                hint="feed batches of one size: drop the remainder of the last one, for example "
                "with batch(n, drop_remainder=True)",
            )
        rows = shape[axis] // held
        shape = (*shape[:axis], rows * parts, *shape[axis + 1 :])
    places: Mapping[jax.Device, Any] = where.addressable_devices_indices_map(shape)
    if axis is not None:
        starts = sorted({_start(index, axis) for index in places.values()})
        if starts[-1] - starts[0] != rows * (len(starts) - 1):
            raise DeviceError(
                f"feed {name!r}: the rows that the devices of this process hold are not "
                "consecutive",
                hint="give the devices in the order of jax.devices()",
            )
    pieces = []
    for index in places.values():
        if axis is not None:
            first = starts.index(_start(index, axis)) * rows
            index = (*index[:axis], slice(first, first + rows), *index[axis + 1 :])
        pieces.append(share[index])
    with jax.enable_x64(True):
        placed = jax.device_put(pieces, list(places))
        return jax.make_array_from_single_device_arrays(shape, where, placed)


def _counts(where: NamedSharding, axis: int, rank: int) -> tuple[int, int]:
    """How many parts of an axis the devices of this process hold, and how many there are."""
    sizes = dict(where.mesh.shape)
    names = names_of(where.spec[axis]) if axis < len(where.spec) else ()
    parts = math.prod(sizes[name] for name in names)
    # A shape that each sharding divides.
    shape = tuple([parts if i == axis else math.prod(sizes.values()) for i in range(rank)])
    places: Mapping[jax.Device, Any] = where.addressable_devices_indices_map(shape)
    return len({_start(index, axis) for index in places.values()}), parts


def _start(index: Any, axis: int) -> int:
    return index[axis].start or 0


def split_axis(where: NamedSharding) -> int | None:
    """The axis that a sharding splits, or None."""
    found = [axis for axis, name in enumerate(where.spec) if name is not None]
    return found[0] if found else None


def share_of(array: Any) -> Any:
    """This process's share of an array: its rows, on its own devices; the array itself if it is on
    this process's devices only. Nothing is copied."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return array
    if array.is_fully_replicated:
        return array.addressable_data(0)
    whole: Any = array.sharding  # a NamedSharding: others are replicated or on one process
    axis = split_axis(whole) or 0
    shards = sorted(array.addressable_shards, key=lambda shard: _start(shard.index, axis))
    pieces = [shard.data for shard in shards]
    mesh = Mesh(np.array([piece.device for piece in pieces]), whole.mesh.axis_names)
    where = NamedSharding(mesh, whole.spec)
    rows = sum(piece.shape[axis] for piece in pieces)
    shape = (*array.shape[:axis], rows, *array.shape[axis + 1 :])
    return jax.make_array_from_single_device_arrays(shape, where, pieces)


def on_host(array: Any) -> Array:
    """The whole array as a host array. If it is split over processes, all of them must call this
    at the same step."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    with jax.enable_x64(True):
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))
