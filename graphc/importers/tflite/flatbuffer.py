"""Reads the encoding of FlatBuffers. Each offset and length is checked against the file."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from graphc.errors import ModelFileError
from graphc.ir.source import current_source

_SIZES = {"b": 1, "B": 1, "?": 1, "H": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8}
_REPEATS = 4  # how often each byte of a file is read at most: tables may be shared


def broken(text: str, *details: str) -> ModelFileError:
    """The error of a file that no converter can have written."""
    return ModelFileError(
        f"from_tflite: {text}",
        details=details,
        source=current_source(),
        hint="the file is truncated, altered, or no model of TensorFlow Lite",
    )


class File:
    """The bytes of a file, and how many of them may still be read.

    A small file can name the same large table very often. The limit keeps the work proportional to
    the size of the file.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = _REPEATS * len(data) + (1 << 16)

    def number(self, at: int, code: str) -> Any:
        """The number at a place."""
        self.check(at, _SIZES[code])
        return struct.unpack_from(f"<{code}", self.data, at)[0]

    def check(self, at: int, size: int) -> None:
        """Checks that the file has `size` bytes at a place, and counts them.

        Raises:
            ModelFileError: it has not.
        """
        self._left -= size
        if at < 0 or at + size > len(self.data) or self._left < 0:
            raise broken(f"an offset leads to byte {at}, behind the end or to what was read often")

    def target(self, at: int) -> int:
        """The place that the offset at a place leads to."""
        return at + int(self.number(at, "I"))

    def root(self) -> Table:
        """The table of the file."""
        return Table(self, self.target(0))


class Table:
    """A table: numbered fields, of which any may be absent."""

    def __init__(self, file: File, at: int) -> None:
        self._file, self._at = file, at
        self._fields = at - file.number(at, "i")
        self._count = (file.number(self._fields, "H") - 4) // 2

    def _place(self, field: int) -> int | None:
        if field >= self._count:
            return None
        offset = self._file.number(self._fields + 4 + 2 * field, "H")
        return self._at + offset if offset else None

    def number(self, field: int, code: str, default: Any = 0) -> Any:
        """A number."""
        at = self._place(field)
        return default if at is None else self._file.number(at, code)

    def table(self, field: int) -> Table | None:
        """A table in the table."""
        at = self._place(field)
        return None if at is None else Table(self._file, self._file.target(at))

    def _items(self, field: int) -> tuple[int, int]:
        """Where a vector begins, and its length."""
        at = self._place(field)
        if at is None:
            return 0, 0
        start = self._file.target(at)
        count = self._file.number(start, "I")
        return start + 4, count

    def vector(self, field: int, code: str) -> list[Any]:
        """A vector of numbers."""
        start, count = self._items(field)
        self._file.check(start, count * _SIZES[code])
        return np.frombuffer(self._file.data, f"<{code}", count, start).tolist() if count else []

    def data(self, field: int) -> memoryview:
        """A vector of bytes, which is not copied."""
        start, count = self._items(field)
        self._file.check(start, count)
        return memoryview(self._file.data)[start : start + count]

    def text(self, field: int) -> str:
        """A string."""
        return bytes(self.data(field)).decode("utf-8", "replace")

    def tables(self, field: int) -> list[Table]:
        """A vector of tables."""
        start, count = self._items(field)
        self._file.check(start, 4 * count)
        places = range(start, start + 4 * count, 4)
        return [Table(self._file, self._file.target(at)) for at in places]
