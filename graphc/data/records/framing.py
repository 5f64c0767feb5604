"""How a TFRecord file frames its records.

    uint64 length | uint32 masked CRC32C of the length | the record | uint32 masked CRC32C of it

All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graphc.errors import DataError
from graphc.ir.extras import importing
from graphc.ir.source import Source

HEAD = 12  # bytes before a record
FRAME = 16  # bytes around a record
_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")
_MASK = 0xA282EAD8
_CACHED = 4096  # heads
_ALIKE = 100  # records: for fewer, NumPy is slower than Python

Checksum = Callable[[bytes], int]
Ends = np.ndarray[tuple[int], np.dtype[np.int64]]


def import_crc32c(name: str, extra: str = "records") -> Checksum:
    """The function that computes CRC32C.

    Args:
        name: what needs it, for the error.
        extra: the extra of graphc that installs it.

    Raises:
        MissingExtraError: it is not installed.
    """
    with importing(f"{name} needs google-crc32c, which is not installed", extra):
        import google_crc32c
    checksum: Checksum = google_crc32c.value
    return checksum


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


class Frames:
    """Divides the bytes of files into records, and frames records.

    Args:
        checksum: computes CRC32C.
    """

    def __init__(self, checksum: Checksum) -> None:
        self._checksum = checksum
        self._lengths: dict[bytes, int] = {}  # of checked heads: most files have few lengths
        self._heads: dict[int, bytes] = {}  # and the other way round

    def length(self, head: bytes) -> int | None:
        """The length of the record after a head of 12 bytes; None if its CRC is wrong."""
        known = self._lengths.get(head)
        if known is not None:
            return known
        length, check = _HEAD.unpack(head)
        if _masked(self._checksum(head[:8])) != check:
            return None
        if len(self._lengths) >= _CACHED:
            self._lengths.clear()
        self._lengths[head] = length
        return int(length)

    def length_at(self, place: Place, data: bytes, size: int | None) -> int:
        """The length of the record whose head begins `data`, at a place in a file of this size.

        Raises:
            DataError: the head is cut off, or its CRC is wrong.
        """
        head = data[:HEAD]
        if len(head) < HEAD:
            raise cut_record(place, HEAD, len(head))
        length = self.length(head)
        if length is None:
            raise bad_head(place, head, size)
        return length

    def framed(self, records: list[bytes]) -> bytes:
        """The bytes of records in a file."""
        known = self._heads
        parts = [b""] * (3 * len(records))
        parts[0::3] = [known.get(size) or self._head(size) for size in map(len, records)]
        parts[1::3] = records
        parts[2::3] = self._crcs(records).astype("<u4").view("V4").tolist()
        return b"".join(parts)

    def _head(self, size: int) -> bytes:
        length = struct.pack("<Q", size)
        if len(self._heads) >= _CACHED:
            self._heads.clear()
        self._heads[size] = length + self.foot(length)
        return self._heads[size]

    def _crcs(self, records: list[bytes]) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The masked CRCs of records: in arrays, which takes half the time of a loop."""
        crc = np.fromiter(map(self._checksum, records), np.uint32, len(records))
        return (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(_MASK)

    def split(self, data: bytes) -> tuple[list[bytes], Ends]:
        """The intact records at the beginning of `data`, and the positions after each of them."""
        records = self._alike(data) or self._walk(data)
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        ends: Ends = np.cumsum(sizes + FRAME)
        good = self._intact(records, data, ends)
        return records[:good], ends[:good]

    def _alike(self, data: bytes) -> list[bytes]:
        """The whole records of `data`, if all are as long as the first one; otherwise none. That
        takes a third of the time of `_walk`."""
        length = self.length(data[:HEAD]) if len(data) >= HEAD else None
        count = 0 if length is None else len(data) // (length + FRAME)
        if not length or count < _ALIKE:
            return []
        frame = np.dtype([("head", f"V{HEAD}"), ("record", f"V{length}"), ("foot", "V4")])
        frames = np.frombuffer(data, frame, count)
        heads = np.frombuffer(data, np.uint8, count * frame.itemsize).reshape(count, -1)[:, :HEAD]
        if (heads != heads[0]).any():
            return []
        records: list[bytes] = frames["record"].tolist()
        return records

    def _walk(self, data: bytes) -> list[bytes]:
        """The records of `data` up to its end, or up to a head with a wrong CRC."""
        records: list[bytes] = []
        known = self._lengths.get
        at, size = 0, len(data)
        while True:
            start = at + HEAD
            head = data[at:start]
            length = known(head)
            if length is None:
                length = self.length(head) if len(head) == HEAD else None
                if length is None:
                    return records
            end = start + length
            at = end + 4
            if at > size:
                return records
            records.append(data[start:end])

    def _intact(self, records: list[bytes], data: bytes, ends: Ends) -> int:
        """How many records come before the first one with a wrong CRC."""
        if not records:
            return 0
        # A view in which a word begins at every byte.
        words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
        wrong = np.flatnonzero(words[ends - 4] != self._crcs(records))
        return int(wrong[0]) if len(wrong) else len(records)

    def is_intact(self, record: bytes, foot: bytes) -> bool:
        """Whether a record has the CRC in the 4 bytes after it."""
        return foot == self.foot(record)

    def foot(self, record: bytes) -> bytes:
        """The 4 bytes after a record."""
        return _FOOT.pack(_masked(self._checksum(record)))


class Place(NamedTuple):
    """Where a record begins, for errors.

    Attributes:
        path: the file.
        offset: the byte at which the head of the record begins.
        record: the number of the record in the file.
        compressed: the offset counts decompressed bytes.
        source: the user's line.
    """

    path: str
    offset: int
    record: int
    compressed: bool
    source: Source | None

    def error(self, what: str, hint: str | None = None, *details: str) -> DataError:
        """The error for this record."""
        unit = "byte of the decompressed data" if self.compressed else "byte"
        return DataError(
            f"{self.path}: record {self.record}, at {unit} {self.offset}: {what}",
            details=details,
            source=self.source,
            hint=hint,
        )


DAMAGED = "the file is damaged: copy it again from its source, or write it again"
CUT = "the file is incomplete: its writer was stopped or did not close it, or a copy was cut short"


def bad_head(place: Place, head: bytes, size: int | None) -> DataError:
    """The error for a head with a wrong CRC. `size` is how long the data are, if that is known."""
    length, check = _HEAD.unpack(head)
    if place.offset == 0 and (size is None or length + FRAME > size):
        return place.error(
            "this is not a TFRecord file, or its first 12 bytes are damaged",
            'a file that was compressed needs compression="gzip" or "zlib"; text files are read by '
            "gc.data.from_text",
            f"it begins with {head!r}",
        )
    return place.error(
        f"the CRC of the length is wrong (length {length}, stored CRC {check:#010x})", DAMAGED
    )


def bad_record(place: Place, length: int) -> DataError:
    """The error for a record with a wrong CRC."""
    return place.error(f"the CRC of the data ({length} bytes) is wrong", DAMAGED)


def cut_record(place: Place, wanted: int, there: int) -> DataError:
    """The error for a file that ends within a record."""
    return place.error(
        f"the file ends within the record: it needs {wanted} bytes, but {there} are left", CUT
    )
