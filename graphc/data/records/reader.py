"""`read_tfrecords`: records of TFRecord files in order, with positions in bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

import jax

from graphc.closing import Closing
from graphc.data.records.block import Block
from graphc.data.records.framing import (
    FRAME,
    HEAD,
    Frames,
    Place,
    bad_record,
    cut_record,
    import_crc32c,
)
from graphc.data.records.paths import Paths, existing_files
from graphc.data.records.streams import Compression, Stream, checked_compression, opened
from graphc.errors import AttributeValueError, StateError
from graphc.ir.calls import explained
from graphc.ir.source import Source, current_source

_BLOCK = 1 << 18  # bytes read at once, at least a head: more would leave the processor's cache

ReaderState: TypeAlias = dict[str, int]
"""The position of a reader: numbers that JSON can represent."""

Shard: TypeAlias = tuple[int, int] | Literal["process"]
"""(index, count), or "process"."""


@explained
def read_tfrecords(
    paths: Paths, *, compression: Compression | None = None, shard: Shard | None = None
) -> RecordReader:
    """The records of TFRecord files, as an iterable of bytes.

    Every checksum is verified. Each iterator begins at the first record. Its `state()` is a
    position in bytes: `restore` does not read again what lies before it, unless the file is
    compressed. `gc.data.from_records(paths)` makes a pipeline of them.

    Args:
        paths: a file or several, read in this order.
        compression: "gzip", "zlib" or "" for none. None: each file as its first bytes say.
        shard: (index, count): a part of the records, for one of several processes; or "process" for
            the part of this process of `jax.distributed`. With at least `count` files, a shard is
            every `count`-th file, and otherwise every `count`-th record.

    Raises:
        DataError: there is no such file. From `next`: a file is damaged or incomplete, or no
            TFRecord file; the error names the file, the record and the byte.
        MissingExtraError: google-crc32c is not installed.

    Examples:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "words.tfrecord")
        ...     with gc.data.TFRecordWriter(path) as file:
        ...         for word in (b"one", b"two", b"three"):
        ...             file.write(word)
        ...     list(gc.data.read_tfrecords(path))
        [b'one', b'two', b'three']
    """
    checked_compression("read_tfrecords", compression, "each file as its first bytes say")
    found = existing_files("read_tfrecords", paths)
    index, count = _checked_shard(shard)
    if 1 < count <= len(found):
        found, index, count = found[index::count], 0, 1
    checksum = import_crc32c("read_tfrecords")
    plan = _Plan(tuple(found), compression, index, count, Frames(checksum), current_source())
    return RecordReader(plan)


def _checked_shard(shard: Any) -> tuple[int, int]:
    if shard is None:
        return 0, 1
    if isinstance(shard, str) and shard == "process":
        return jax.process_index(), jax.process_count()
    if (
        isinstance(shard, tuple)
        and len(shard) == 2
        and all(type(each) is int for each in shard)
        and 0 <= shard[0] < shard[1]
    ):
        return shard[0], shard[1]
    raise AttributeValueError.here(
        f"read_tfrecords: shard must be (index, count) or 'process', got {shard!r}",
        hint="shard=(0, 4), with an index from 0 to count - 1",
    )


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a reader reads."""

    paths: tuple[str, ...]
    compression: Compression | None
    index: int  # of the shard
    count: int  # of shards
    frames: Frames
    source: Source | None


class RecordReader:
    """An iterable of the records of TFRecord files; see `gc.data.read_tfrecords`.

    Attributes:
        paths: the files that it reads.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
        >>> with gc.data.TFRecordWriter(path) as file:
        ...     file.write(b"one")
        >>> reader = gc.data.read_tfrecords(path)
        >>> len(reader.paths), list(reader) == list(reader)
        (1, True)
    """

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self.paths = plan.paths

    def __iter__(self) -> RecordIterator:
        return RecordIterator(self._plan)

    def __repr__(self) -> str:
        return f"<RecordReader of {len(self.paths)} files>"

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        plan = self._plan
        return _unpickled, (plan.paths, plan.compression, plan.index, plan.count)


def _unpickled(
    paths: tuple[str, ...], compression: Compression | None, index: int, count: int
) -> RecordReader:
    frames = Frames(import_crc32c("read_tfrecords"))
    return RecordReader(_Plan(paths, compression, index, count, frames, None))


class RecordIterator(Closing):
    """Reads records in order; the iterator of `gc.data.RecordReader`.

    After an error, the position is that before the call of `next`. The next call tries again.

    Examples:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "words.tfrecord")
        >>> with gc.data.TFRecordWriter(path) as file:
        ...     file.write(b"one")
        ...     file.write(b"two")
        >>> items = iter(gc.data.read_tfrecords(path))
        >>> next(items), items.state()
        (b'one', {'file': 0, 'offset': 19, 'record': 1, 'total': 1})
        >>> with iter(gc.data.read_tfrecords(path)) as again:
        ...     again.restore(items.state())
        ...     next(again)
        b'two'
        >>> items.close()
        >>> folder.cleanup()
    """

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._stream: tuple[int, Stream] | None = None  # with the number of its file
        self._block = Block(0, 0, 0, 0)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while True:
            block = self._block
            for record in block.own:
                return record  # type: ignore[no-any-return]
            if not self._advance(block):
                raise StopIteration

    def read_some(self, n: int) -> list[bytes]:
        """From 1 to `n` records, which is faster than `next`; none at the end.

        Raises:
            AttributeValueError: `n` is no int of at least 1.
            DataError: see `gc.data.read_tfrecords`.

        Examples:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
            >>> with gc.data.TFRecordWriter(path) as file:
            ...     _ = [file.write(word) for word in (b"one", b"two", b"three")]
            >>> with iter(gc.data.read_tfrecords(path)) as items:
            ...     items.read_some(2), items.read_some(2), items.read_some(2)
            ([b'one', b'two'], [b'three'], [])
        """
        if type(n) is not int or n < 1:
            raise AttributeValueError.here(f"read_some: n must be an int of at least 1, got {n!r}")
        while True:
            block = self._block
            records = list(islice(block.own, n))
            if records or not self._advance(block):
                return records

    def state(self) -> ReaderState:
        """The position after the last record that `next` returned."""
        block = self._block
        offset, record, total = block.position()
        return {"file": block.file, "offset": offset, "record": record, "total": total}

    def restore(self, tree: Mapping[str, int]) -> None:
        """Goes to a position that `state` returned.

        Raises:
            StateError: `tree` is no such state, or no position in these files.
        """
        keys = ("file", "offset", "record", "total")
        given: Any = tree
        if not isinstance(given, Mapping) or not all(
            isinstance(given.get(key), int) and given[key] >= 0 for key in keys
        ):
            raise StateError.here(
                f"restore: this is not the state of a reader of records: {tree!r:.200}",
                hint="pass what state() of the iterator returned",
            )
        if tree["file"] > len(self._plan.paths):
            raise StateError.here(
                f"restore: the position is in file {tree['file']} of {len(self._plan.paths)} files",
                hint="restore it into a reader of the same files",
            )
        with self._lock:
            file, offset, record, total = (int(tree[key]) for key in keys)
            self._block = Block(file, offset, record, total)

    def close(self) -> None:
        """Closes the open file. `state` still gives the position."""
        with self._lock:
            self._close()

    def __del__(self) -> None:
        if getattr(self, "_stream", None) is not None:
            self._close()

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream[1].close()

    def _advance(self, block: Block) -> bool:
        """Reads the next records after those of `block`; False at the end of the last file."""
        with self._lock:
            if block is not self._block:  # another thread has read them
                return True
            plan = self._plan
            offset, record, total = block.end()
            if block.file >= len(plan.paths):
                return False
            try:
                data = self._more(block, offset, record)
            except BaseException:
                self._close()  # the next call begins with a fresh file at the same position
                raise
            if not data:
                self._close()
                self._block = Block(block.file + 1, 0, 0, total)
                return True
            records, ends = plan.frames.split(data)
            if not records:
                raise self._wrong(data, self._place(block.file, offset, record))
            first = (plan.index - total) % plan.count
            self._block = Block(
                block.file, offset, record, total, records, ends, data, first, plan.count
            )
            return True

    def _more(self, block: Block, offset: int, record: int) -> bytes:
        """Bytes from the position on with at least one whole record; none at the end."""
        stream = self._opened(block.file)
        data, frames = block.rest, self._plan.frames
        data += stream.read_at(offset + len(data), _BLOCK)
        if not data:
            if not stream.reaches(offset):
                raise self._beyond(block.file, offset)
            return data
        place = self._place(block.file, offset, record)
        size = stream.size()
        wanted = frames.length_at(place, data, size) + FRAME
        if wanted > len(data):
            if size is None or offset + wanted <= size:
                data += stream.read_at(offset + len(data), wanted - len(data))
            if wanted > len(data):
                raise cut_record(place, wanted, len(data) if size is None else size - offset)
        return data

    def _opened(self, number: int) -> Stream:
        if self._stream is not None and self._stream[0] != number:
            self._close()
        if self._stream is None:
            plan = self._plan
            path = plan.paths[number]
            self._stream = number, opened(path, plan.compression, plan.frames, plan.source)
        return self._stream[1]

    def _place(self, file: int, offset: int, record: int) -> Place:
        plan = self._plan
        compressed = self._stream is not None and self._stream[1].compressed
        return Place(plan.paths[file], offset, record, compressed, plan.source)

    def _wrong(self, data: bytes, place: Place) -> Exception:
        """The error for the first record of `data`, which is complete and not intact."""
        return bad_record(place, self._plan.frames.length(data[:HEAD]) or 0)

    def _beyond(self, file: int, offset: int) -> StateError:
        return StateError(
            f"{self._plan.paths[file]}: the position is byte {offset}, after the end of the file",
            source=self._plan.source,
            hint="the file must be the same as when the state was taken",
        )
