"""`IndexedRecords`: random access to the records of TFRecord files."""

from __future__ import annotations

import bisect
import itertools
import operator
import os
import threading
from collections.abc import Iterator

import numpy as np

from graphc.data.records.framing import (
    FRAME,
    HEAD,
    Frames,
    Place,
    bad_head,
    bad_record,
    cut_record,
    import_crc32c,
)
from graphc.data.records.offsets import Offsets, saved, stored
from graphc.data.records.paths import Paths, existing_files
from graphc.data.records.streams import Inflated, Plain, opened
from graphc.errors import DataError
from graphc.ir.source import Source, current_source

_PAGE = 1 << 16  # bytes read at once to find the records
_OPEN = 128  # files kept open


class IndexedRecords:
    """The records of TFRecord files, in any order: it has `len` and `[]`.

    One pass over the files finds where each record begins; it reads only a part of files with large
    records. `gc.data.from_records` takes it: `shuffle` directly after that shuffles numbers, and
    not records. Every checksum is verified when a record is read.

    Args:
        paths: a file or several. They must not be compressed.
        store: keep the offsets beside each file, in a file whose name ends in ".index". It is used
            later if the size and the last change of the file are still the same. Where the folder
            cannot be written, the offsets stay in memory.

    Raises:
        DataError: there is no such file; or a file is compressed, damaged or incomplete.
        MissingExtraError: google-crc32c is not installed.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
        >>> with gc.data.TFRecordWriter(path) as file:
        ...     for word in (b"one", b"two", b"three"):
        ...         file.write(word)
        >>> records = gc.data.IndexedRecords(path)
        >>> len(records), records[2], records[-3]
        (3, b'three', b'one')
    """

    def __init__(self, paths: Paths, *, store: bool = False) -> None:
        self.paths = tuple(existing_files("IndexedRecords", paths))
        source = current_source()
        frames = Frames(import_crc32c("IndexedRecords"))
        offsets = [_offsets_of(path, bool(store), frames, source) for path in self.paths]
        self._start(offsets, frames, source)

    def _start(self, offsets: list[Offsets], frames: Frames, source: Source | None) -> None:
        self._offsets = offsets  # of the records of each file, and its end
        self._ends = list(itertools.accumulate(len(each) - 1 for each in offsets))
        self._frames, self._source = frames, source
        self._files: dict[int, Plain] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> bytes:
        given = operator.index(index)
        number = given + len(self) if given < 0 else given
        if not 0 <= number < len(self):
            raise IndexError(f"record {given} of {len(self)} records")
        file, record = self._found(number)
        offsets = self._offsets[file]
        start, end = int(offsets[record]), int(offsets[record + 1])
        data = self._read(file, start, end - start)
        found = data[HEAD:-4]
        intact = (
            len(data) == end - start
            and self._frames.length(data[:HEAD]) == len(found)
            and self._frames.is_intact(found, data[-4:])
        )
        if not intact:
            raise self._wrong(
                Place(self.paths[file], start, record, False, self._source), data, end
            )
        return found

    def _wrong(self, place: Place, data: bytes, end: int) -> DataError:
        """The error for a record that is not as the index says."""
        size = end - place.offset
        if len(data) < size:
            return cut_record(place, size, len(data))
        length = self._frames.length(data[:HEAD])
        if length is None:
            return bad_head(place, data[:HEAD], end if place.offset else None)
        if length + FRAME != size:
            return place.error(
                f"the record has {length} bytes, but {size - FRAME} in the index",
                f"the file has changed: delete {place.path}.index if it exists",
            )
        return bad_record(place, length)

    def __iter__(self) -> Iterator[bytes]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return f"<IndexedRecords: {len(self)} records of {len(self.paths)} files>"

    def origin(self, index: int) -> str:
        """The file and the number in it of a record, for messages.

        Examples:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
            >>> with gc.data.TFRecordWriter(path) as file:
            ...     file.write(b"hello")
            >>> gc.data.IndexedRecords(path).origin(0).endswith("words.tfrecord, record 0")
            True
        """
        file, record = self._found(index)
        return f"{self.paths[file]}, record {record}"

    def close(self) -> None:
        """Closes the open files. Reading opens them again.

        Examples:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
            >>> with gc.data.TFRecordWriter(path) as file:
            ...     file.write(b"hello")
            >>> records = gc.data.IndexedRecords(path)
            >>> records[0], records.close()
            (b'hello', None)
        """
        with self._lock:
            files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def __del__(self) -> None:
        if getattr(self, "_files", None):
            self.close()

    def __getstate__(self) -> dict[str, object]:
        """Without the open files: another process opens its own."""
        return {"paths": self.paths, "offsets": self._offsets}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.paths = state["paths"]  # type: ignore[assignment]
        frames = Frames(import_crc32c("IndexedRecords"))
        self._start(state["offsets"], frames, None)  # type: ignore[arg-type]

    def _found(self, number: int) -> tuple[int, int]:
        """The file of a record, and its number there."""
        file = bisect.bisect_right(self._ends, number)
        return file, number - (self._ends[file - 1] if file else 0)

    def _read(self, number: int, offset: int, count: int) -> bytes:
        """Bytes of a file. The first files stay open; there may be more than the system allows."""
        file = self._files.get(number)
        if file is not None and hasattr(os, "pread"):
            return file.read_at(offset, count)
        with self._lock:  # one opens the file; on Windows, one moves its position
            file = self._files.get(number)
            if file is None:
                file = Plain(self.paths[number])
                if len(self._files) < _OPEN:
                    self._files[number] = file
        try:
            with self._lock:
                return file.read_at(offset, count)
        finally:
            if self._files.get(number) is not file:
                file.close()


def _offsets_of(path: str, store: bool, frames: Frames, source: Source | None) -> Offsets:
    """Where each record of a file begins, and where the last one ends."""
    known = stored(path, frames) if store else None
    if known is not None:
        return known
    stream = opened(path, None, frames, source)
    try:
        if isinstance(stream, Inflated):
            raise DataError(
                f"IndexedRecords: {path} is compressed, so its records have no random access",
                source=source,
                hint="gc.data.read_tfrecords reads it in order; or write it without compression",
            )
        offsets = np.array(_scanned(stream, path, frames, source), np.int64)  # type: ignore[arg-type]
    finally:
        stream.close()
    if store:
        saved(path, offsets, frames)
    return offsets


def _scanned(file: Plain, path: str, frames: Frames, source: Source | None) -> list[int]:
    size = file.size()
    offsets, offset = [0], 0
    start, page = 0, b""
    while offset < size:
        at = offset - start
        if at + HEAD > len(page):
            start, at = offset, 0
            page = file.read_at(offset, _PAGE)
        place = Place(path, offset, len(offsets) - 1, False, source)
        length = frames.length_at(place, page[at : at + HEAD], size)
        if offset + length + FRAME > size:
            raise cut_record(place, length + FRAME, size - offset)
        offset += length + FRAME
        offsets.append(offset)
    return offsets
