"""`TFRecordWriter`: writes records to a TFRecord file."""

from __future__ import annotations

import io
import os
import threading
import zlib
from bisect import bisect_right
from contextlib import suppress
from itertools import accumulate
from typing import NoReturn

from graphc.closing import Closing
from graphc.data.records.framing import FRAME, Frames, import_crc32c
from graphc.data.records.streams import WINDOW_BITS, Compression, checked_compression
from graphc.errors import CopyError, DataError, DTypeError, StateError
from graphc.interrupts import uninterrupted
from graphc.ir.calls import explain_methods

_BUFFER = 1 << 20  # bytes written at once


class TFRecordWriter(Closing):
    """Writes records to a TFRecord file, which `gc.data.read_tfrecords` and TensorFlow read.

    Use it in a `with`, or call `close`: records are buffered. It may be used by several threads.

    Args:
        path: of the file, which is replaced if it exists.
        compression: "gzip" or "zlib"; None or "" for none. Compressed files have no random access.
        level: of compression, from 0 (none) to 9 (smallest).

    Raises:
        MissingExtraError: google-crc32c is not installed.
        DataError: the file cannot be created.

    Examples:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "words.tfrecord.gz")
        ...     with gc.data.TFRecordWriter(path, compression="gzip") as file:
        ...         file.write(b"hello")
        ...     list(gc.data.read_tfrecords(path))
        [b'hello']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        compression: Compression | None = None,
        *,
        level: int = 6,
    ) -> None:
        checked_compression("TFRecordWriter", compression, "not compressed")
        self._frames = Frames(import_crc32c("TFRecordWriter"))
        self._engine = (
            zlib.compressobj(level, zlib.DEFLATED, WINDOW_BITS[compression])
            if compression
            else None
        )
        self._path = os.fspath(path)
        self._file = _created(self._path)
        self._lock = threading.RLock()
        self._records: list[bytes] = []  # not yet framed: that is faster for many at once
        self._buffered = 0
        self._flushed = 0  # records
        self._written = 0  # bytes
        self._failed = False
        self._partial = 0  # bytes of the last write, if that failed

    @property
    def count(self) -> int:
        """How many records have been written.

        Examples:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
            >>> with gc.data.TFRecordWriter(path) as file:
            ...     file.write(b"hello")
            >>> file.count
            1
        """
        return self._flushed + len(self._records)

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Adds a record.

        Raises:
            DTypeError: it is not bytes.
            DataError: the file cannot be written, because the disk is full for example.
            StateError: the writer is closed, or a call failed before.

        Examples:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
            >>> with gc.data.TFRecordWriter(path) as file:
            ...     file.write(b"hello")
            >>> list(gc.data.read_tfrecords(path))
            [b'hello']
        """
        if type(record) is not bytes:
            record = _as_bytes(record)
        with self._lock:
            if self._failed or self._file.closed:
                raise self._unusable()
            self._records.append(record)
            self._buffered += len(record) + FRAME
            if self._buffered >= _BUFFER:
                uninterrupted(self._flush)

    def flush(self) -> None:
        """Writes the buffered records to the file. A compressed file can be read after `close`.

        Raises:
            DataError: the file cannot be written.

        Examples:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
            >>> file = gc.data.TFRecordWriter(path)
            >>> file.write(b"hello")
            >>> file.flush()
            >>> list(gc.data.read_tfrecords(path))
            [b'hello']
            >>> file.close()
        """
        with self._lock:
            if self._failed or self._file.closed:
                raise self._unusable()
            uninterrupted(self._flush)

    def close(self) -> None:
        """Writes what is left, and closes the file; errors as for `flush`. Later calls do nothing.

        Examples:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
            >>> file = gc.data.TFRecordWriter(path)
            >>> file.close()
            >>> os.path.getsize(path)
            0
        """
        with self._lock:
            uninterrupted(self._close)

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None and not file.closed:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise CopyError.here(
            "a TFRecordWriter cannot be pickled or copied: it writes to an open file",
            hint="make a writer in each process, for a file of its own",
        )

    def _unusable(self) -> StateError:
        if self._failed:
            return StateError.here(f"TFRecordWriter: writing {self._path} failed before")
        return StateError.here(
            f"TFRecordWriter: {self._path} is closed",
            hint="write inside the `with`, before close()",
        )

    def _close(self) -> None:
        if self._file.closed:
            return
        try:
            if not self._failed:
                self._flush()
                if self._engine is not None:
                    self._put(self._engine.flush())
        finally:
            self._file.close()

    def _flush(self) -> None:
        records, self._records = self._records, []
        self._flushed += len(records)
        self._buffered = 0
        data = self._frames.framed(records)
        if self._engine is not None:
            self._put(self._engine.compress(data))
            return
        ends = list(accumulate(len(record) + FRAME for record in records))
        try:
            self._put(data)
        except DataError as error:
            whole = bisect_right(ends, self._partial)
            with suppress(OSError):  # a device; its reader finds the cut
                self._file.truncate(self._written + (ends[whole - 1] if whole else 0))
            self._flushed -= len(ends) - whole
            error.details = (f"the file keeps its first {self._flushed} records",)
            raise

    def _put(self, data: bytes) -> None:
        """Writes bytes. If that fails, `_partial` is the number of those that were written."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._failed, self._partial = True, len(data) - len(rest)
            raise DataError.here(
                f"TFRecordWriter: cannot write {self._path}: {error.strerror}"
            ) from error
        self._written += len(data)


explain_methods(TFRecordWriter)


def _created(path: str) -> io.FileIO:
    try:
        return open(path, "wb", buffering=0)
    except OSError as error:
        raise DataError.here(
            f"TFRecordWriter: cannot create {path}: {error.strerror}",
            hint="the folder must exist and be writable",
        ) from error


def _as_bytes(record: object) -> bytes:
    if isinstance(record, (bytes, bytearray, memoryview)):
        return bytes(record)
    raise DTypeError.here(
        f"TFRecordWriter.write: a record is bytes, got {type(record).__name__}",
        hint='text.encode("utf-8") for text; gc.data.example({...}) for named values',
    )
