"""The stages `pad` and `bucket`, for arrays of different lengths."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from graphc.data.core.cursor import Cursor, Following, Items, State
from graphc.data.core.kept import Kept
from graphc.data.core.nests import stack
from graphc.data.core.node import Run, Stage
from graphc.data.stages.parallel import Told, name_of
from graphc.data.stages.reading import open_records
from graphc.errors import FeedError, GraphcError
from graphc.ir.dtypes import Array


@dataclass(frozen=True)
class Padding:
    """How rows of different lengths become one array. A function of a batch.

    Attributes:
        to: lengths to choose from in ascending order; empty: the longest row decides.
        multiple: round the length up to a multiple.
        value: the value of the padding.
        keys: the keys of a dict to pad; None: every list of arrays.
        lengths: None, or the key under which the lengths of the rows are added.
    """

    to: tuple[int, ...]
    multiple: int
    value: float
    keys: tuple[str, ...] | None
    lengths: str | None

    def __call__(self, batch: Any) -> Any:
        """The padded batch."""
        counts: list[Array] = []

        def padded(path: Any, leaf: Any) -> Any:
            if not _is_rows(leaf):
                return leaf
            if self.keys is not None and not (path and getattr(path[0], "key", "") in self.keys):
                return self._stacked(leaf, jax.tree_util.keystr(path))
            counts.append(np.array([len(row) for row in leaf], np.int32))
            return self._padded(leaf, int(counts[-1].max()))

        result = jax.tree_util.tree_map_with_path(padded, batch, is_leaf=_is_rows)
        if not counts:
            raise FeedError(
                "pad: the items have no lists of arrays to pad",
                hint="pad directly after batch or bucket: .batch(32).pad()",
            )
        if self.lengths is not None:
            if not isinstance(result, dict):
                raise FeedError(
                    f"pad: lengths are added to dicts, but the items are {type(result).__name__}s",
                    hint="make records dicts, or leave lengths= out",
                )
            result = {**result, self.lengths: counts[0]}
        return result

    def _stacked(self, rows: Sequence[Array], name: str) -> Array:
        if len({row.shape for row in rows}) != 1:
            raise FeedError(
                f"pad: {name} has rows of different lengths, and is not in keys",
                hint=f"keys=({', '.join(map(repr, self.keys or ()))}, ...)",
            )
        return np.stack(rows)

    def _padded(self, rows: Sequence[Array], longest: int) -> Array:
        length = -(-longest // self.multiple) * self.multiple
        if self.to:
            place = bisect_left(self.to, length)
            if place == len(self.to):
                raise FeedError(
                    f"pad: a row has {longest} elements, but the greatest length is {self.to[-1]}",
                    hint="filter long records before, cut them in a map, or add a length",
                )
            length = self.to[place]
        dtype = np.result_type(*{row.dtype for row in rows})
        result = np.full((len(rows), length, *rows[0].shape[1:]), self.value, dtype)
        for number, row in enumerate(rows):
            result[number, : len(row)] = row
        return result


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, np.ndarray) for v in value)


@dataclass(frozen=True, eq=False)
class Pad(Stage):
    """Batches whose rows are padded.

    Attributes:
        padding: a function of a batch.
    """

    padding: Callable[[Any], Any]
    label = "pad"

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor that pads each batch."""
        return _PaddingEach(self, open_records(self.upstream, epoch, run))


class _PaddingEach(Following):
    def __init__(self, node: Pad, upstream: Cursor) -> None:
        super().__init__(upstream)
        self._node = node

    def read(self, n: int) -> Items:
        found = []
        for item in self.upstream.read(n):
            try:
                found.append(self._node.padding(item))
            except GraphcError as error:
                error.source = error.source or self._node.made_at
                Told("pad", self._node.made_at).add_to(error, len(found), self.origin())
                raise
        return found

    def skip(self, n: int) -> int:
        return self.upstream.skip(n)


@dataclass(frozen=True, eq=False)
class Bucket(Stage):
    """Batches of records that are about as long as each other.

    Attributes:
        bounds: the greatest length of each bucket, in ascending order.
        sizes: the records of a batch of each bucket.
        length: the length of a record.
        drop_remainder: leave out the batches at the end that are not full.
    """

    bounds: tuple[int, ...]
    sizes: tuple[int, ...]
    length: Callable[[Any], int]
    drop_remainder: bool
    count = None  # not known

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor with empty buckets."""
        return _Bucketing(self, open_records(self.upstream, epoch, run))

    @property
    def label(self) -> str:
        """The stage with its numbers."""
        rest = ", drop_remainder=True" if self.drop_remainder else ""
        return f"bucket({[*self.bounds]}, {[*self.sizes]}{rest})"


class _Bucketing(Following):
    def __init__(self, node: Bucket, upstream: Cursor) -> None:
        super().__init__(upstream)
        self._node = node
        self._told = Told(f"bucket({name_of(node.length)})", node.made_at)
        self._source = Kept(upstream)
        self._waiting: list[list[Any]] = [[] for _ in node.bounds]
        self._ended = False

    @property
    def weight(self) -> int:  # type: ignore[override]
        return sum(self._node.sizes) + self.upstream.weight

    def read(self, n: int) -> Items:
        batches: list[Any] = []
        while len(batches) < n:
            batch = self._next_batch()
            if batch is None:
                break
            batches.append(batch)
        return batches

    def _next_batch(self) -> Any:
        while not self._ended:
            fresh = self._source.read()
            if fresh is None:
                self._ended = True
                break
            place = self._place(fresh)
            row = self._waiting[place]
            row.append(fresh)
            if len(row) == self._node.sizes[place]:
                return self._batch(place)
        if not self._node.drop_remainder:
            for place, row in enumerate(self._waiting):
                if row:
                    return self._batch(place)
        return None

    def _place(self, fresh: Any) -> int:
        item, number, _, origin = fresh
        try:
            length = int(self._node.length(item))
        except Exception as error:
            self._told.add_to(error, number, origin)
            raise
        place = bisect_left(self._node.bounds, length)
        if place == len(self._node.bounds):
            raise FeedError(
                f"bucket: a record has length {length}, but the largest bucket is for "
                f"{self._node.bounds[-1]}",
                details=[f"item {number}: {origin}"],
                source=self._node.made_at,
                hint="filter long records before, cut them in a map, or add a bucket",
            )
        return place

    def _batch(self, place: int) -> Any:
        row, self._waiting[place] = self._waiting[place], []
        try:
            return stack([item for item, *_ in row], lambda: str(row[-1][3]), ragged=True)
        except FeedError as error:
            error.source = self._node.made_at
            raise

    def state(self) -> State:
        marks = {number: mark for row in self._waiting for _, number, mark, _ in row}
        oldest = min(marks, default=0)
        kept = [[number - oldest for _, number, *_ in row] for row in self._waiting]
        return {"kept": kept, **self._source.state(marks)}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        numbers = sorted(number for row in tree["kept"] for number in row)
        found = dict(zip(numbers, self._source.restore(tree, numbers), strict=True))
        self._waiting = [[found[number] for number in row] for row in tree["kept"]]
