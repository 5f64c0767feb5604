"""`Bucketing`: pads feeds of any size to one of a few sizes, so that few programs are compiled."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from graphc.build.placeholders import placeholder
from graphc.errors import AttributeValueError, FeedError, FetchError
from graphc.ir.capture import Fetch, choose
from graphc.ir.dims import Dim, DimExpr, as_symbol, substitute, symbol, symbols_of
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.runtime.feeds.feeds import FeedSpec
from graphc.runtime.feeds.fetches import resolve_feeds, resolve_fetch
from graphc.runtime.session import Session
from graphc.typing import Feeds, Fetched, Fetches


class Sizes(NamedTuple):
    """The named sizes of one set of feeds, before and after padding."""

    real: dict[str, int]
    padded: dict[str, int]
    lengths: dict[tuple[str, str], Array]  # for ragged feeds: the length of each row


def _checked_sizes(name: str, row: Sequence[Any]) -> list[int]:
    """The sizes of a bucket in ascending order, without duplicates."""
    if len(row) == 0 or any(not isinstance(n, (int, np.integer)) or n < 1 for n in row):
        raise AttributeValueError.here(
            f"Bucketing: the sizes of {name!r} must be ints of 1 or more, got {row}",
            hint='Bucketing({"time": [16, 32, 64]})',
        )
    return sorted({int(n) for n in row})


class Bucketing:
    """Pads feeds to the nearest of given sizes, and cuts results to the real sizes.

    A session compiles once for each combination of feed shapes; with buckets, there are at most as
    many shapes as combinations of `sizes`. Padding is added at the end of an axis and is zero.
    Computations along a padded axis must exclude it by a mask:

        buckets = gc.Bucketing({"batch": [8, 32], "time": [16, 32, 64]})
        with graph:
            tokens = gc.placeholder(("batch", "time"), "int32", name="tokens")
            mask = buckets.mask("batch", "time")
            lengths = gc.reduce_sum(gc.cast(mask, "int32"), axis=1)
            ...
            loss = gc.nn.masked_mean(losses, mask)
        buckets.run(session, [train, loss], {tokens: [[3, 1, 4], [1, 5]]})

    Args:
        sizes: a named size of the graph's placeholders -> the sizes to pad it to.

    Raises:
        AttributeValueError: no sizes, or sizes that are not positive ints.

    Examples:
        >>> buckets = gc.data.Bucketing({"batch": [4], "time": [4, 8]})
        >>> x = gc.placeholder(("batch", "time"), name="x")
        >>> mask = buckets.mask("batch", "time")
        >>> total = gc.reduce_sum(gc.where(mask, gc.exp(x), 0), axis=1)
        >>> buckets.run(gc.Session(graph), total, {x: [[0, 0, 0], [0]]})
        array([3., 1.], dtype=float32)
    """

    def __init__(self, sizes: Mapping[str, Sequence[int]]) -> None:
        if not isinstance(sizes, Mapping):
            raise AttributeValueError.here(
                f"Bucketing: takes the lengths by the name of the size, got {sizes!r}",
                hint='gc.Bucketing({"time": [8, 16]}), for gc.placeholder(("batch", "time"))',
            )
        self.sizes = {name: _checked_sizes(name, row) for name, row in sizes.items()}
        self._masks: list[Tensor] = []
        self._masks_of: dict[Any, list[Tensor]] = {}  # by fetches and feeds

    @property
    def count(self) -> int:
        """The number of combinations of sizes.

        Examples:
            >>> gc.Bucketing({"batch": [8, 32], "time": [16, 32, 64]}).count
            6
        """
        return math.prod(map(len, self.sizes.values()))

    def mask(self, *names: str) -> Tensor:
        """A bool tensor of the named sizes that is True where the feeds are not padding.

        A placeholder of the graph being built, which `run` and `pad` feed. If rows of different
        lengths are fed, it is True up to the length of each row.

        Raises:
            AttributeValueError: a size has no buckets.

        Examples:
            >>> buckets = gc.Bucketing({"time": [4, 8]})
            >>> buckets.mask("time")
            <Tensor mask_time:0 bool[time]>
        """
        unknown = [name for name in names if name not in self.sizes]
        if unknown or not names:
            raise AttributeValueError.here(
                f"Bucketing: mask takes names of sizes, got {', '.join(map(repr, names))}",
                hint=f"the sizes with buckets are {', '.join(self.sizes)}",
            )
        mask = placeholder(names, "bool", name="_".join(("mask", *names)))
        self._masks.append(mask)
        return mask

    def pad(self, graph: Graph, fetches: Fetches, feeds: Feeds) -> dict[Tensor, Any]:
        """The padded feeds and the feeds of the masks, for an executable of `gc.compile`.

        Args:
            graph: the graph of the placeholders.
            fetches: the fetches of the run. Masks that they do not need are left out.
            feeds: as for `Session.run`; or for a placeholder of two named sizes or more a list
                of arrays, one for each row, that differ in their leading size.

        Raises:
            FeedError: a size exceeds the largest bucket, or sizes contradict each other.

        Examples:
            >>> buckets = gc.Bucketing({"time": [4, 8]})
            >>> x = gc.placeholder(("time",), name="x")
            >>> total = gc.sum(x)
            >>> buckets.pad(graph, total, {x: [1, 2, 3]})
            {<Tensor x:0 f32[time]>: array([1., 2., 3., 0.], dtype=float32)}
        """
        leaves = [resolve_fetch(graph, leaf) for leaf in jax.tree.leaves(fetches)]
        return self._padded(graph, leaves, feeds)[0]

    def run(self, session: Session, fetches: Fetches, feeds: Feeds) -> Fetched:
        """`session.run` on padded feeds.

        Args:
            session: the session of the graph with the placeholders.
            fetches: as for `Session.run`.
            feeds: as for `pad`.

        Returns:
            The values, cut to the real sizes if the type of a fetch has a padded size. These values
                are NumPy arrays.

        Raises:
            FeedError: see `pad`.
            FetchError: a size of a fetch combines padded sizes, such as `batch * time` after a
                reshape.
            Others: as `Session.run`.

        Examples:
            >>> buckets = gc.Bucketing({"time": [4, 8]})
            >>> x = gc.placeholder(("time",), name="x")
            >>> buckets.run(gc.Session(graph), x * 2, {x: [1, 2, 3]})
            array([2., 4., 6.], dtype=float32)
        """
        graph = session.graph
        given, tree = jax.tree.flatten(fetches)
        leaves = [resolve_fetch(graph, leaf) for leaf in given]
        padded, sizes = self._padded(graph, leaves, feeds)
        cuts = [_cut(graph, leaf, sizes) for leaf in leaves]
        rows = zip(session.run(leaves, padded), cuts, strict=True)
        return jax.tree.unflatten(tree, [v if c is None else np.asarray(v)[c] for v, c in rows])

    def _padded(
        self, graph: Graph, fetches: Sequence[Fetch], feeds: Feeds
    ) -> tuple[dict[Tensor, Any], Sizes]:
        given = resolve_feeds(graph, feeds)
        found = {name: as_symbol(graph.constraints.find(symbol(name))) for name in self.sizes}
        # Except masks that the graph requires to have equal sizes:
        names = {own: name for name, own in found.items() if own is not None}
        sizes = Sizes({}, {}, {})
        for tensor, value in given.items():
            given[tensor] = _as_array(graph, tensor, value, names, sizes)
            for dim, size in zip(_dims(graph, tensor), np.shape(given[tensor]), strict=False):
                name = as_symbol(dim)
                if name is None or name not in names:
                    continue
                if sizes.real.setdefault(name, size) != size:
                    raise FeedError(
                        f"feed {_label(tensor)} has {size} for {names[name]}, but another feed has "
                        f"{sizes.real[name]}",
                        source=tensor.node.source,
                        hint="feed values whose sizes agree",
                    )
        for name, size in sizes.real.items():
            sizes.padded[name] = self._bucket(names[name], size)
        padded = {t: _grown(graph, t, value, sizes) for t, value in given.items()}
        for mask in self._needed(graph, fetches, given):
            padded[mask] = _mask_value(mask, _dims(graph, mask), sizes)
        return padded, sizes

    def _needed(
        self, graph: Graph, fetches: Sequence[Fetch], given: Mapping[Tensor, Any]
    ) -> list[Tensor]:
        """The masks that the fetches depend on, unless they are fed by the caller."""
        key = (*fetches, None, *given)
        if key not in self._masks_of:
            chosen = choose(graph, fetches, set(given))
            self._masks_of[key] = [m for m in self._masks if m.graph is graph and m.node in chosen]
        return self._masks_of[key]

    def _bucket(self, name: str, size: int) -> int:
        row = self.sizes[name]
        place = bisect_left(row, size)
        if place == len(row):
            raise FeedError.here(
                f"{name} is {size}, but its largest bucket is {row[-1]}",
                hint="add a larger bucket, or feed less at once",
            )
        return row[place]


def _dims(graph: Graph, tensor: Tensor) -> list[Dim]:
    """The shape, with each named size replaced by the representative of its equal sizes."""
    return [graph.constraints.find(dim) for dim in tensor.type.shape]


def _label(tensor: Tensor) -> str:
    return repr(tensor.name.removesuffix(":0"))


def _as_array(
    graph: Graph, tensor: Tensor, value: Any, names: Mapping[str, str], sizes: Sizes
) -> Any:
    """`value` as an array of the feed's dtype. Rows of different lengths are padded to one length,
    and their lengths are added to `sizes`."""
    spec = FeedSpec.of_type(tensor.name.removesuffix(":0"), tensor.type, tensor.node.source)
    if isinstance(value, (list, tuple)) and tensor.type.rank >= 2:
        value = _evened(graph, tensor, value, names, sizes, spec)
    return spec.convert(value, copy=False)


def _evened(
    graph: Graph, tensor: Tensor, value: Any, names: Mapping[str, str], sizes: Sizes, spec: FeedSpec
) -> Any:
    """Rows of different lengths as one padded array; anything else unchanged."""
    counts = np.array([_length(row) for row in value])
    batch, time = [as_symbol(dim) for dim in _dims(graph, tensor)[:2]]
    if batch is None or time is None or not {batch, time} <= names.keys():
        return value  # the session reports any error
    if len(set(counts)) < 2 or -1 in counts:
        return value  # even, or rejected when it is converted
    rows = [
        spec.convert(row, copy=False) for row, count in zip(value, counts, strict=True) if count
    ]
    rest = rows[0].shape[1:]
    if any(
        row.ndim != tensor.type.rank - 1 or row.shape != (count, *rest)
        for row, count in zip(rows, counts[counts > 0], strict=True)
    ):
        return value  # invalid in another way: rejected as a whole
    if not np.array_equal(sizes.lengths.setdefault((batch, time), counts), counts):
        raise FeedError(
            f"feed {_label(tensor)} has rows of lengths {_listed(counts)}, but another feed of "
            f"{names[batch]} and {names[time]} has {_listed(sizes.lengths[batch, time])}",
            source=tensor.node.source,
            hint="feed rows that agree in their lengths",
        )
    result = np.zeros((len(value), max(counts), *rest), spec.dtype)
    for number, row in zip(np.flatnonzero(counts), rows, strict=True):
        result[number, : len(row)] = row
    return result


def _length(row: Any) -> int:
    """How long a row is; -1 if it has no length."""
    try:
        return len(row)
    except Exception:  # a number, or an object that raises
        return -1


def _listed(counts: Array) -> str:
    return f"[{', '.join(map(str, counts[:8]))}{', ...' if len(counts) > 8 else ''}]"


def _grown(graph: Graph, tensor: Tensor, value: Any, sizes: Sizes) -> Any:
    """`value` with zeros at the end of its padded axes."""
    shape = np.shape(value)
    widths = []
    for dim, size in zip(_dims(graph, tensor), shape, strict=False):
        wanted = _bound(dim, sizes.padded)
        widths.append((0, 0 if wanted is None else max(0, wanted - size)))
    if len(widths) != len(shape) or not any(after for _, after in widths):
        return value  # of another rank: the session rejects it
    return np.pad(np.asarray(value), widths)


def _bound(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """The value of a dim that depends on padded sizes only."""
    if not isinstance(dim, DimExpr) or not symbols_of(dim) <= sizes.keys():
        return None
    return int(substitute(dim, sizes))


def _mask_value(tensor: Tensor, dims: Sequence[Dim], sizes: Sizes) -> Array:
    real, padded = [[substitute(dim, known) for dim in dims] for known in sizes[:2]]
    unknown = [str(size) for size in real if isinstance(size, DimExpr)]
    if unknown:
        raise FeedError(
            f"mask {_label(tensor)} needs the size {unknown[0]}, which no feed has",
            source=tensor.node.source,
            hint="feed a placeholder with that size in its shape too",
        )
    mask = np.ones(real, bool)
    names = [as_symbol(dim) for dim in dims]
    for (batch, time), counts in sizes.lengths.items():
        if batch in names and time in names:
            axes = names.index(batch), names.index(time)
            rows, columns = np.ix_(counts, np.arange(sizes.real[time]))
            inside = columns < rows  # [batch, time]
            others = [axis for axis in range(mask.ndim) if axis not in axes]
            mask &= np.expand_dims(inside if axes == tuple(sorted(axes)) else inside.T, others)
    return np.pad(mask, [(0, b - a) for a, b in zip(real, padded, strict=True)])


def _cut(graph: Graph, fetch: Fetch, sizes: Sizes) -> tuple[slice, ...] | None:
    """The part of a fetch's value to keep, or None for all of it."""
    if not isinstance(fetch, Tensor) or sizes.real == sizes.padded:
        return None
    cut = []
    for dim in _dims(graph, fetch):
        inside = symbols_of(dim) & sizes.real.keys()
        if inside and not all(isinstance(dim - symbol(name), int) for name in inside):
            raise FetchError(
                f"{fetch.name}: its size {dim} combines padded and unpadded sizes",
                source=graph.producer(fetch).source,
                hint="fetch it with the padded axes as separate axes",
            )
        cut.append(slice(_bound(dim, sizes.real)))
    return None if cut == [slice(None)] * len(cut) else tuple(cut)
