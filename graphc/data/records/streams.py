"""The bytes of a TFRecord file by their offsets, decompressed where necessary."""

from __future__ import annotations

import os
from typing import Literal, Protocol, TypeAlias

from graphc.data.records.framing import CUT, DAMAGED, FRAME, HEAD, Frames
from graphc.data.records.inflating import inflating
from graphc.errors import AttributeValueError, DataError
from graphc.ir.source import Source

Compression: TypeAlias = Literal["", "gzip", "zlib"]

_CHUNK = 1 << 18  # bytes read from a compressed file at once
_STEP = 1 << 24  # bytes requested at once: a forged length must not allocate more than there is
WINDOW_BITS: dict[str, int] = {"gzip": 31, "zlib": 15}


def checked_compression(name: str, compression: str | None, none: str) -> None:
    """Refuses an unknown compression.

    Raises:
        AttributeValueError: there is no such compression.
    """
    if compression in (None, "", *WINDOW_BITS):
        return
    raise AttributeValueError.here(
        f"{name}: there is no compression {compression!r}",
        hint=f'"gzip", "zlib", "" for none, or None: {none}',
    )


class Stream(Protocol):
    """The bytes of a file."""

    compressed: bool

    def read_at(self, offset: int, count: int) -> bytes:
        """`count` bytes from an offset; fewer only at the end."""

    def size(self) -> int | None:
        """How many bytes there are, if that is known without reading them."""

    def reaches(self, offset: int) -> bool:
        """Whether there are so many bytes. Called after `read_at` of this offset gave none."""

    def close(self) -> None:
        """Closes the file."""


class Plain:
    """A file as it is.

    Reading does not move a position of the file, so processes may share it after a fork.
    """

    compressed = False

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - `close` closes it

    def read_at(self, offset: int, count: int) -> bytes:
        """`count` bytes from an offset; fewer only at the end."""
        first = self._read(offset, count)
        if len(first) == count or not first:
            return first
        parts = [first]
        done = len(first)
        while done < count and (part := self._read(offset + done, count - done)):
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def _read(self, offset: int, count: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), count, offset)
        self._file.seek(offset)  # Windows
        return self._file.read(count) or b""

    def size(self) -> int:
        """The size of the file now."""
        return os.fstat(self._file.fileno()).st_size

    def reaches(self, offset: int) -> bool:
        """Whether the file has so many bytes."""
        return offset <= self.size()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class Inflated:
    """The decompressed bytes of a file. Reading is fast only in order.

    Args:
        path: of the file.
        compression: "gzip" or "zlib".
        source: the user's line.
    """

    compressed = True

    def __init__(self, path: str, compression: str, source: Source | None) -> None:
        self._path, self._bits, self._source = path, WINDOW_BITS[compression], source
        self._name = compression
        self._library = inflating()
        self._raw = Plain(path)
        self._begin()

    def _begin(self) -> None:
        self._engine = self._library.stream(self._bits)
        self._pending = b""  # read from the file, not yet decompressed
        self._taken = 0  # bytes read from the file
        self._position: int | None = 0  # of the decompressed bytes; None within a read

    def size(self) -> None:
        """Unknown."""

    def reaches(self, offset: int) -> bool:
        """Whether there are so many bytes, after a read of this offset."""
        return self._position == offset

    def close(self) -> None:
        """Closes the file."""
        self._raw.close()

    def read_at(self, offset: int, count: int) -> bytes:
        """`count` bytes from an offset; fewer only at the end.

        Raises:
            DataError: the compressed data are damaged or incomplete.
        """
        position = self._position
        if position is None or position > offset:
            self._begin()
            position = 0
        self._position = None  # until the end of this function: an interrupt may come between
        while position < offset:
            passed = len(self._some(min(offset - position, _CHUNK * 4)))
            if not passed:
                break
            position += passed
        parts: list[bytes] = []
        while count and (part := self._some(min(count, _STEP))):
            parts.append(part)
            position += len(part)
            count -= len(part)
        self._position = position
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _some(self, count: int) -> bytes:
        """At most `count` decompressed bytes; none at the end."""
        while True:
            if self._engine.eof:
                if not self._next_member():
                    return b""
            elif not self._pending:
                self._pending = self._raw.read_at(self._taken, _CHUNK)
                self._taken += len(self._pending)
            try:
                found: bytes = self._engine.decompress(self._pending, count)
            except self._library.error as error:
                raise self._error(f"the {self._name} data are damaged ({error})", DAMAGED) from None
            self._pending = self._engine.unconsumed_tail
            if found:
                return found
            at_end = not self._pending and self._taken >= self._raw.size()
            if at_end and not self._engine.eof:
                raise self._error(f"the {self._name} data are incomplete", CUT)

    def _next_member(self) -> bool:
        """Begins another compressed stream after the end of one, as in concatenated files."""
        rest = self._engine.unused_data.lstrip(b"\0")  # gzip may be padded by zeros
        while not rest:
            rest = self._raw.read_at(self._taken, _CHUNK)
            if not rest:
                return False
            self._taken += len(rest)
            rest = rest.lstrip(b"\0")
        self._pending = rest
        self._engine = self._library.stream(self._bits)
        return True

    def _error(self, what: str, hint: str) -> DataError:
        about = max(0, self._taken - len(self._pending))
        return DataError(
            f"{self._path}: {what} near byte {about} of the file", source=self._source, hint=hint
        )


def opened(
    path: str, compression: Compression | None, frames: Frames, source: Source | None
) -> Stream:
    """The file, decompressed as given, or as its first bytes say."""
    plain = Plain(path)
    if compression is None:
        compression = _detected(plain.read_at(0, FRAME), frames)
    if not compression:
        return plain
    plain.close()
    return Inflated(path, compression, source)


def _detected(first: bytes, frames: Frames) -> Compression:
    """The compression of a file that begins with these bytes."""
    if len(first) >= HEAD and frames.length(first[:HEAD]) is not None:
        return ""
    if first[:3] == b"\x1f\x8b\x08":
        return "gzip"
    if len(first) >= 2 and first[0] & 0x8F == 8 and int.from_bytes(first[:2], "big") % 31 == 0:
        return "zlib"
    return ""
