"""The memory that a partition's values take on each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from graphc.devices.partition import Cluster, Partition
from graphc.devices.schedule import dispatch_order
from graphc.ir.costs import bytes_of_type
from graphc.ir.node import Tensor


def kept_bytes(partition: Partition) -> dict[str, int]:
    """The most bytes that each device holds at one time of values that its clusters compute or
    receive, such as activations that wait for a backward pass. State, feeds, and what a cluster
    needs only while it runs do not count.

    Args:
        partition: `Executable.partition`.

    Returns:
        Bytes by the name of the device.

    Examples:
        >>> with gc.device("/cpu:0"):
        ...     x = gc.exp(gc.placeholder((2,), name="x"))
        >>> with gc.device("/cpu:1"):
        ...     y = gc.sqrt(x)
        >>> gc.devices.kept_bytes(gc.compile(graph, y, {"x": (2,)}).partition)
        {'/device:CPU:0': 8, '/device:CPU:1': 8}
    """
    clusters = [partition.clusters[index] for index in dispatch_order(partition)]
    targets: dict[Tensor, list[str]] = {}
    for send in partition.sends:
        targets.setdefault(send.tensor, []).append(send.target)
    last: dict[tuple[str, Tensor], int] = {}  # where a device uses a value last
    for position, cluster in enumerate(clusters):
        last.update(((cluster.device, tensor), position) for tensor in cluster.takes)
        last.update(((cluster.device, tensor), len(clusters)) for tensor in cluster.results)
    held: dict[tuple[str, Tensor], int] = {}
    most = dict.fromkeys([cluster.device for cluster in clusters], 0)
    for position, cluster in enumerate(clusters):
        for key in _overwritten(cluster, {k for k in held if last.get(k, -1) == position}):
            del held[key]
        for tensor in cluster.gives:
            size = bytes_of_type(tensor.type)
            held.update(((d, tensor), size) for d in (cluster.device, *targets.get(tensor, ())))
        for device in most:
            now = sum(size for (place, _), size in held.items() if place == device)
            most[device] = max(most[device], now)
        held = {key: size for key, size in held.items() if last.get(key, -1) > position}
    return most


def _overwritten(cluster: Cluster, ending: Set[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """The values that a cluster uses last and may overwrite with results of the same type."""
    room = Counter(tensor.type for tensor in cluster.gives)
    for tensor in cluster.takes:
        if (cluster.device, tensor) in ending and room[tensor.type]:
            room[tensor.type] -= 1
            yield cluster.device, tensor
