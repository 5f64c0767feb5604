"""Finds the members of a file from its zip directory, without trusting the directory.

Python's zipfile reads the directory. This module checks what zipfile does not: members are stored
uncompressed, have plain and different names, and follow one another within the file.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import struct
import weakref
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from graphc.errors import ArtifactCorruptError, ArtifactError

_CHUNK = 1 << 18  # fits into the caches of a core
_LARGEST_DIRECTORY = 1 << 20  # some 10,000 members; zipfile uses 10 times as much memory
_LOCAL = struct.Struct("<4s22xHH")  # a member's own header: signature, lengths of two fields
_AGAIN = "copy or save it again"


class Extent(NamedTuple):
    """The bytes of a member within the file."""

    start: int
    size: int


class OpenFile:
    """A file that is read by position, from any thread; closed when there are no references to it.

    Args:
        pace: called after each piece.

    Attributes:
        name: the path, for errors.
        size: bytes of the file when it was opened.
        bytes_read: the number of bytes read so far.
    """

    def __init__(self, name: str, pace: Callable[[], None] = lambda: None) -> None:
        # Not blocking, because opening a pipe without a writer would wait forever.
        self._handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
        weakref.finalize(self, os.close, self._handle)
        facts = os.fstat(self._handle)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(name)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", name)
        self.name = name
        self._pace = pace
        self.size = facts.st_size
        self.bytes_read = 0

    def read(self, start: int, size: int, digest: Any = None) -> memoryview:
        """Bytes of the file, in memory of this process, read-only.

        Args:
            digest: of hashlib; takes the bytes too.

        Raises:
            ArtifactCorruptError: the file no longer has these bytes.
            ArtifactError: it cannot be read.
        """
        content = bytearray(size)
        for piece in self._fill(start, memoryview(content)):
            if digest is not None:
                digest.update(piece)
        return memoryview(content).toreadonly()

    def pieces(self, start: int, size: int) -> Iterator[memoryview]:
        """The same bytes in pieces, none of which is large. The next piece overwrites a piece."""
        buffer = memoryview(bytearray(min(size, _CHUNK)))
        for position in range(0, size, _CHUNK):
            yield from self._fill(start + position, buffer[: size - position])

    def _fill(self, start: int, memory: memoryview) -> Iterator[memoryview]:
        """Reads until the memory is full; gives each part of it that was read."""
        position = 0
        while position < len(memory):
            part = memory[position : position + _CHUNK]
            try:
                count = os.preadv(self._handle, [part], start + position)
            except OSError as error:
                raise ArtifactError(f"cannot read {self.name!r}: {error.strerror}") from error
            if not count:
                raise ArtifactCorruptError(
                    f"{self.name!r} has become shorter since it was opened", hint=_AGAIN
                )
            self.bytes_read += count
            position += count
            yield part[:count]
            self._pace()


def extents(file: OpenFile, needed: str) -> dict[str, Extent]:
    """Member -> its byte range.

    Args:
        needed: the member that every artifact has.

    Raises:
        ArtifactError: the file is not a zip file.
        ArtifactCorruptError: the file is truncated or altered, or `gc.save` cannot have written it.
    """
    start = bytes(file.read(0, min(4, file.size)))
    if not start:
        raise ArtifactCorruptError(f"{file.name!r} is empty", hint=_AGAIN)
    try:
        with zipfile.ZipFile(_View(file)) as archive:
            infos, end = archive.infolist(), archive.start_dir
    except ArtifactError:
        raise
    except Exception as error:  # zipfile raises errors of many types for an altered file
        if start != b"PK\x03\x04":
            raise no_artifact(file.name, "it does not begin like one") from error
        raise ArtifactCorruptError(
            f"{file.name!r} is truncated or was altered",
            details=[f"{type(error).__name__}: {error}"],
            hint=_AGAIN,
        ) from error
    if all(info.filename != needed for info in infos):
        raise no_artifact(file.name, f"it has no {needed}")
    found: dict[str, Extent] = {}
    position = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        place = _extent(file, info, position)
        if place is None or place.start + place.size > end or info.filename in found:
            raise ArtifactCorruptError(
                f"{file.name!r}: its members are not those of an artifact",
                details=[f"at {info.filename[:80]!r}"],
                hint=_AGAIN,
            )
        found[info.filename] = place
        position = place.start + place.size
    return found


def no_artifact(name: str, why: str) -> ArtifactError:
    """The error for a file that is something else."""
    return ArtifactError(
        f"{name!r} is not a graphc artifact", details=[why], hint="give a file that gc.save wrote"
    )


def _extent(file: OpenFile, info: zipfile.ZipInfo, position: int) -> Extent | None:
    """The byte range of a member, if it is stored uncompressed and begins where the previous member
    ends."""
    name = info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437")
    stored = (
        info.compress_type == zipfile.ZIP_STORED
        and info.compress_size == info.file_size
        and not info.flag_bits & 1  # encrypted
        and info.header_offset == position
        and _is_plain(info.orig_filename)
        and position + _LOCAL.size + len(name) <= file.size
    )
    if not stored:
        return None
    header = bytes(file.read(position, _LOCAL.size + len(name)))
    signature, length, extra = _LOCAL.unpack_from(header)
    if signature != b"PK\x03\x04" or length != len(name) or header[_LOCAL.size :] != name:
        return None
    return Extent(position + _LOCAL.size + length + extra, info.file_size)


def _is_plain(name: str) -> bool:
    """Whether a name is a plain file name without a path outside its folder."""
    return not set(name) & set("\\:\0") and not {"", ".", ".."} & set(name.split("/"))


class _View(io.RawIOBase):
    """The view of the file that zipfile reads. It rejects an invalid directory before reading
    it."""

    def __init__(self, file: OpenFile) -> None:
        self._source = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._source.size}
        if base[whence] + offset < 0:
            raise OSError("before the beginning")
        self._position = base[whence] + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        rest = max(self._source.size - self._position, 0)
        wanted = rest if size is None or size < 0 else min(size, rest)
        if wanted > _LARGEST_DIRECTORY:
            raise ValueError(f"a directory of {wanted} bytes")
        data = bytes(self._source.read(self._position, wanted))
        self._position += wanted
        return data
