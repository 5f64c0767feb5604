"""From indices to records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.data.core.cursor import Cursor, Following, Items, State
from graphc.data.core.node import Node, RandomAccess, Run
from graphc.data.stages.parallel import Parallel, Told, Workers, make_pool


def open_records(node: Node, epoch: int, run: Run) -> Cursor:
    """A cursor at the first record of an epoch of a stage."""
    cursor = node.open(epoch, run)
    source = node.indexed
    if source is None:
        return cursor
    if not source.workers:
        return OfIndices(cursor, source)
    workers = Workers(source.workers, source.processes)
    told = Told(type(source).__name__.lower(), node.made_at)
    pool = run.shared(id(source), lambda: make_pool(_Record(source), workers, told))
    return _ParallelRecords(_Plain(cursor, source), pool, epoch, 2 * source.workers, told)


class OfIndices(Following):
    """The records of an index cursor. Its positions are those of the indices.

    Args:
        upstream: the cursor of indices.
        source: what they are indices of.
    """

    def __init__(self, upstream: Cursor, source: RandomAccess) -> None:
        super().__init__(upstream)
        self._source = source
        self._last: int | None = None

    def read(self, n: int) -> Items:
        """The next records."""
        found = []
        for index in np.asarray(self.upstream.read(n)).tolist():
            self._last = index
            found.append(self._source.record(index))
        return found

    def skip(self, n: int) -> int:
        """Reads no record."""
        return self.upstream.skip(n)

    def state(self) -> State:
        """That of the indices."""
        return self.upstream.state()

    def restore(self, tree: Mapping[str, Any]) -> None:
        """That of the indices."""
        self.upstream.restore(tree)

    def origin(self) -> str:
        """That of the last record."""
        return "" if self._last is None else self._source.origin(self._last)


class _Plain(OfIndices):
    """The indices themselves, as Python numbers."""

    def read(self, n: int) -> Items:
        indices: list[int] = np.asarray(self.upstream.read(n)).tolist()
        self._last = indices[-1] if indices else self._last
        return indices


@dataclass(frozen=True)
class _Record:
    source: RandomAccess

    def __call__(self, index: int, epoch: int, number: int) -> Any:
        return self.source.record(index)


class _ParallelRecords(Parallel):
    """Records that workers read. Its positions are those of the indices."""

    def state(self) -> State:
        return self._after.plus(0)

    def restore(self, tree: Mapping[str, Any]) -> None:
        self._source.restore(tree)
        self._after = self._source.mark()
