"""The nodes of stages with many arguments, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax

from graphc.data.bucketing import Bucketing
from graphc.data.core.checks import check_count
from graphc.data.core.node import Node
from graphc.data.stages.batch import Batch
from graphc.data.stages.lengths import Bucket, Pad, Padding
from graphc.errors import AttributeValueError, DataError, nearest
from graphc.ir.graph import Graph
from graphc.ir.source import Source, current_source


class Opened:
    """item -> the node of the pipeline that the user's function makes of it."""

    def __init__(self, function: Callable[[Any], Any], made_at: Source | None) -> None:
        self._function, self._made_at = function, made_at
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, item: Any) -> Node:
        """The node.

        Raises:
            DataError: the function returned something else.
        """
        made = self._function(item)
        node = getattr(made, "_node", None)
        if not isinstance(node, Node):
            raise DataError(
                f"interleave: the function returned {type(made).__name__}, not a pipeline",
                source=self._made_at,
                hint="return gc.data.from_iterable(items), or another pipeline",
            )
        return node


class _BucketingPad:
    """Pads feeds by a `Bucketing`, and adds its masks."""

    def __init__(self, buckets: Bucketing, graph: Graph, fetches: Any) -> None:
        self._buckets, self._graph, self._fetches = buckets, graph, fetches

    def __call__(self, batch: Any) -> Any:
        return self._buckets.pad(self._graph, self._fetches, batch)


def pad_node(
    before: Node,
    to: int | Sequence[int] | Bucketing | None,
    multiple: int,
    value: float,
    keys: Sequence[str] | None,
    lengths: str | None,
    fetches: Any,
) -> Node:
    """The node of `Pipeline.pad`. A batch before it keeps its rows apart."""
    made_at = current_source()
    if isinstance(before, Batch):
        before = replace(before, ragged=True)
    if isinstance(to, Bucketing):
        if multiple != 1 or value != 0 or keys is not None or lengths is not None:
            raise AttributeValueError(
                "pad: a Bucketing decides on lengths and masks itself",
                source=made_at,
                hint=".pad(buckets, fetches=loss)",
            )
        return Pad(made_at, before, _BucketingPad(to, _graph_of(fetches), fetches))
    if fetches is not None:
        raise AttributeValueError(
            "pad: fetches= belongs to a Bucketing", source=made_at, hint=".pad(buckets, fetches=f)"
        )
    check_count("pad: multiple", multiple, 1)
    sizes = () if to is None else _lengths("pad: to", [to] if isinstance(to, int) else to)
    if isinstance(keys, str):
        keys = (keys,)
    chosen = None if keys is None else tuple(keys)
    return Pad(made_at, before, Padding(sizes, multiple, value, chosen, lengths))


def _graph_of(fetches: Any) -> Graph:
    for leaf in jax.tree.leaves(fetches):
        graph = getattr(leaf, "graph", None)
        if isinstance(graph, Graph):
            return graph
    raise AttributeValueError.here(
        "pad: with a Bucketing, fetches= must have a tensor or a node of the graph",
        hint=".pad(buckets, fetches=[train, loss])",
    )


def _lengths(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    found = list(values)
    for value in found:
        check_count(name, value, 1)
    if not found:
        raise AttributeValueError.here(f"{name}: no lengths")
    return tuple(sorted(set(found)))


def bucket_node(
    before: Node,
    bounds: Sequence[int] | Bucketing,
    size: int | Sequence[int],
    length: str | Callable[[Any], int],
    axis: str,
    drop_remainder: bool,
) -> Node:
    """The node of `Pipeline.bucket`."""
    if isinstance(bounds, Bucketing):
        if axis not in bounds.sizes:
            raise AttributeValueError.here(
                f"bucket: the Bucketing has no sizes of {axis!r}",
                hint=nearest(axis, bounds.sizes) or "axis= is the name of the size",
            )
        bounds = bounds.sizes[axis]
    sorted_bounds = _lengths("bucket: bounds", bounds)
    sizes = [size] * len(sorted_bounds) if isinstance(size, int) else list(size)
    for each in sizes:
        check_count("bucket: size", each, 1)
    if len(sizes) != len(sorted_bounds):
        raise AttributeValueError.here(
            f"bucket: {len(sizes)} sizes for {len(sorted_bounds)} buckets",
            hint="one size for all buckets, or one for each",
        )
    function = _LengthOf(length) if isinstance(length, str) else length
    made_at = current_source()
    return Bucket(made_at, before, sorted_bounds, tuple(sizes), function, drop_remainder)


class _LengthOf:
    """The length of the array under a key of a record."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.__name__ = repr(key)

    def __call__(self, record: Any) -> int:
        return len(record[self._key])
