"""`Block`: the records of a file that were read together."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.data.records.framing import Ends


class Block:
    """Records that were read together.

    Args:
        file: the number of their file.
        offset: where the first one begins.
        record: the number of the first one in the file.
        total: the number of the first one in all files.
        records: all of them, of every shard.
        ends: where each of them ends in `data`.
        data: the bytes that were read.
        first: which of `records` is the first of this shard.
        step: of the records of this shard.

    Attributes:
        own: those of this shard that have not been given yet.
        rest: the bytes after the records, which were read with them.
    """

    def __init__(
        self,
        file: int,
        offset: int,
        record: int,
        total: int,
        records: list[bytes] | None = None,
        ends: Ends | None = None,
        data: bytes = b"",
        first: int = 0,
        step: int = 1,
    ) -> None:
        self.file = file
        self._at = offset, record, total
        records = records or []
        self._ends = np.empty(0, np.int64) if ends is None else ends
        self._first, self._step = first, step
        own = records if step == 1 else records[first::step]
        self._count = len(own)
        self.own: Any = iter(own)  # typeshed does not know its __length_hint__
        self.rest = data[self._ends[-1] :] if records else data

    def position(self) -> tuple[int, int, int]:
        """The offset, the number in the file and the total number after the records that have been
        given."""
        given = self._count - int(self.own.__length_hint__())
        return self._after(self._first + (given - 1) * self._step + 1 if given else 0)

    def end(self) -> tuple[int, int, int]:
        """The offset, the number in the file and the total number after all records."""
        return self._after(len(self._ends))

    def _after(self, count: int) -> tuple[int, int, int]:
        offset, record, total = self._at
        passed = int(self._ends[count - 1]) if count else 0
        return offset + passed, record + count, total + count
