"""`Spans`: where the lists of one feature lie in the joined bytes of many records."""

from __future__ import annotations

import numpy as np

from graphc.data.records.values import elements_of, packed_of
from graphc.ir.dtypes import Array

_SMALL = 32  # bytes: a slice of fewer costs more than NumPy


class Spans:
    """The lists of records in which `layouts.found` has found them; the others are in any form.

    Args:
        data: the bytes of all records.
        starts: int64 [records], where the packed numbers or the one element of each record begin.
        sizes: int64 [records], how many bytes they are; 0 for records without the feature.
        there: bool [records], who has the feature.
        odd: the features of the records in which nothing was found, by their numbers.
    """

    def __init__(
        self, data: bytes, starts: Array, sizes: Array, there: Array, odd: dict[int, bytes | None]
    ) -> None:
        self.data, self.starts, self.sizes, self.there = data, starts, sizes, there
        self.odd = odd

    def __len__(self) -> int:
        return len(self.starts)

    def packed(self, kind: str) -> tuple[bytes, Array, Array]:
        """See `values.Lists`."""
        if not self.odd:
            return self._joined(), self.sizes, self.there
        parts, sizes, there = self._slices(), self.sizes.copy(), self.there.copy()
        for row, value in self.odd.items():
            part = packed_of(kind, row, value)
            there[row] = part is not None
            parts[row] = part or b""
            sizes[row] = len(parts[row])
        return b"".join(parts), sizes, there

    def elements(self) -> list[list[bytes] | None]:
        """See `values.Lists`."""
        found: list[list[bytes] | None] = [[each] for each in self._slices()]
        for row in np.flatnonzero(~self.there).tolist():
            found[row] = None
        for row, value in self.odd.items():
            found[row] = elements_of(row, value)
        return found

    def joined(self, size: int) -> bytes | None:
        """See `values.Lists`."""
        if self.odd or not self.there.all() or (self.sizes != size).any():
            return None
        return self._joined()

    def _slices(self) -> list[bytes]:
        data = self.data
        ends = (self.starts + self.sizes).tolist()
        return [data[start:end] for start, end in zip(self.starts.tolist(), ends, strict=True)]

    def _joined(self) -> bytes:
        total = int(self.sizes.sum())
        if total > _SMALL * len(self):
            return b"".join(self._slices())
        return gathered(self.data, self.starts, self.sizes, total).tobytes()


def gathered(data: bytes, starts: Array, sizes: Array, total: int) -> Array:
    """The bytes of spans, one after the other."""
    before = np.cumsum(sizes) - sizes  # the bytes of the spans before each
    where = np.repeat(starts - before, sizes)
    where += np.arange(total)
    found: Array = np.frombuffer(data, np.uint8)[where]
    return found
