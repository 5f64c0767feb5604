"""Time and memory of nodes, as TensorBoard's graph view reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from graphc.errors import AttributeValueError, UnknownNameError, nearest
from graphc.ir.costs import bytes_of
from graphc.ir.node import Node
from graphc.train.tensorboard.graph_def import GraphPicture
from graphc.train.tensorboard.protos import protos

_DEFAULT = "/device:default:0"  # of nodes that request none


def run_metadata(
    picture: GraphPicture, seconds: Mapping[Any, float], memory: Mapping[Any, int] | None
) -> Any:
    """The message with the figures of each node.

    The view takes the time from the first start to the last end in a scope for the time of the
    scope. So the nodes are put one after another by scope, which makes it the sum of their times.

    Raises:
        UnknownNameError: the picture has no such node.
        AttributeValueError: a figure is negative or not finite.
    """
    times = _placed(picture, "seconds", seconds)
    sizes = _result_sizes(picture) if memory is None else _placed(picture, "memory", memory)
    message = protos().config.RunMetadata()
    devices: dict[str, Any] = {}
    clock = 1  # microseconds; the view takes 0 for an absent number
    for name, device in sorted(_devices(picture).items(), key=_scopes):
        if name not in times and name not in sizes:
            continue
        if device not in devices:
            devices[device] = message.step_stats.dev_stats.add(device=device)
        stats = devices[device].node_stats.add(node_name=name, all_start_micros=clock)
        taken = times.get(name, 0.0)
        if taken > 0:
            stats.all_end_rel_micros = max(1, round(taken * 1e6))
            clock += stats.all_end_rel_micros
        if name in sizes:
            stats.memory.add(allocator_name="results", total_bytes=round(sizes[name]))
    return message


def _scopes(item: tuple[str, str]) -> list[str]:
    return item[0].split("/")


def _devices(picture: GraphPicture) -> dict[str, str]:
    """Name in the definition -> its device."""
    return {
        str(node.name): str(node.device) or _DEFAULT
        for node in picture.definition.node
        if node.name in picture.nodes
    }


def _placed(picture: GraphPicture, what: str, figures: Mapping[Any, float]) -> dict[str, float]:
    """The figures by the names of the definition. Copies of a node share its figure equally."""
    found: dict[str, float] = {}
    for key, figure in figures.items():
        label = key.name if isinstance(key, Node) else key
        places = picture.places.get(key)
        if places is None:
            known = [name for name in picture.places if isinstance(name, str)]
            raise UnknownNameError.here(
                f"SummaryWriter.run_metadata: there is no node {label!r}",
                hint=nearest(str(label), known)
                or "give the graph, program or executable that was measured",
            )
        number: Any = figure
        if not isinstance(number, int | float) or not 0 <= number < math.inf:
            raise AttributeValueError.here(
                f"SummaryWriter.run_metadata: {what}[{label!r}] must be a finite number of at "
                f"least 0, got {figure!r}"
            )
        for place in places:
            found[place] = found.get(place, 0.0) + figure / len(places)
    return found


def _result_sizes(picture: GraphPicture) -> dict[str, float]:
    """The bytes of the results, for the nodes whose sizes are known."""
    return {
        name: float(bytes_of(*node.outputs))
        for name, node in picture.nodes.items()
        if node.outputs and all(tensor.type.is_static for tensor in node.outputs)
    }
