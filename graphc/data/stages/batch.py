"""The stage `batch`: several records become one nest of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphc.data.core.cursor import Cursor, Following, Items
from graphc.data.core.nests import stack
from graphc.data.core.node import RandomAccess, Run, Stage
from graphc.data.stages.reading import open_records
from graphc.errors import FeedError


@dataclass(frozen=True, eq=False)
class Batch(Stage):
    """Nests of arrays with a leading axis.

    Attributes:
        size: the records of a batch.
        drop_remainder: leave out the records at the end that do not fill a batch.
        ragged: arrays become lists of arrays, whose leading sizes may differ.
    """

    size: int
    drop_remainder: bool
    ragged: bool = False

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor of batches: records of arrays are gathered once."""
        source = self.upstream.indexed
        if source is None or source.workers or self.ragged:
            return _Batching(self, open_records(self.upstream, epoch, run), None)
        return _Batching(self, self.upstream.open(epoch, run), source)

    @property
    def count(self) -> int | None:
        """The number of batches."""
        records = self.upstream.count
        if records is None:
            return None
        return records // self.size if self.drop_remainder else -(-records // self.size)

    @property
    def label(self) -> str:
        """The stage with its size."""
        return f"batch({self.size}{', drop_remainder=True' if self.drop_remainder else ''})"


class _Batching(Following):
    def __init__(self, node: Batch, upstream: Cursor, source: RandomAccess | None) -> None:
        super().__init__(upstream)
        self._node = node
        self._source = source  # of the indices that `upstream` gives
        self._last = ""

    def read(self, n: int) -> Items:
        batches: list[Any] = []
        for _ in range(n):
            items = self.upstream.read(self._node.size)
            if not len(items) or (self._node.drop_remainder and len(items) < self._node.size):
                break
            batches.append(self._batch(items))
        return batches

    def _batch(self, items: Any) -> Any:
        if self._source is not None:
            batch = self._source.gather(items)
            if batch is not None:
                return batch
            records = []
            for index in items.tolist():
                records.append(self._source.record(index))
                self._last = self._source.origin(index)
            items = records
        try:
            return stack(items, self._where, self._node.ragged)
        except FeedError as error:
            error.source = self._node.made_at
            raise

    def _where(self) -> str:
        last = self.origin()
        return f"the last record of the batch: {last}" if last else ""

    def skip(self, n: int) -> int:
        size = self._node.size
        done = self.upstream.skip(n * size)
        return done // size if self._node.drop_remainder else -(-done // size)

    def origin(self) -> str:
        return self._last or self.upstream.origin()
