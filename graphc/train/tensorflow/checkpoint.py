"""Reads TensorFlow's checkpoints: `PREFIX.index` and `PREFIX.data-00000-of-00001`, or one file."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphc.data.records.framing import import_crc32c
from graphc.errors import ModelFileError
from graphc.ir.dtypes import Array
from graphc.ir.mapped import LARGE_ARRAY, LARGE_FILE, array_in, map_file
from graphc.train.tensorflow.schema import messages, parse
from graphc.train.tensorflow.single_file import SingleFile
from graphc.train.tensorflow.slices import extent_of, joined
from graphc.train.tensorflow.sstable import entries, unmasked, varint
from graphc.train.tensorflow.tensors import broken, dtype_of, no_key, sizes_of

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_MOST_SLICES = 100_000
_PIECE = 4 << 20  # bytes that are read at once


def read_tf_checkpoint(prefix: str | os.PathLike[str], *, keys: bool = False) -> dict[str, Array]:
    """The variables of a checkpoint of TensorFlow. TensorFlow is not needed.

    Both versions of the format are read. Checksums of the index and of each array are verified.

    Args:
        prefix: the path without ".index", as `tf.train.Saver.save` returns it; the file itself, of
            version 1; or a folder, for the latest checkpoint that its file "checkpoint" names.
        keys: the keys of the file instead of the names of variables. They differ in checkpoints of
            `tf.train.Checkpoint` and Keras: "layer/kernel/.ATTRIBUTES/VARIABLE_VALUE" is the key
            of the variable "dense/kernel".

    Returns:
        The arrays by name. `session.set(name, array)` gives one to a variable.

    Raises:
        ModelFileError: a file is missing, truncated or altered.
        MissingExtraError: protobuf or google-crc32c is not installed.

    Examples:
        >>> gc.train.read_tf_checkpoint("model.ckpt")
        Traceback (most recent call last):
        ...
        graphc.errors.ModelFileError: read_tf_checkpoint: there is no checkpoint 'model.ckpt'
          ...
    """
    bundle = open_checkpoint(prefix)
    if keys:
        return {key: bundle.array(key) for key in bundle if key != _OBJECT_GRAPH}
    return {name: bundle.array(key) for name, key in bundle.names().items()}


class Bundle:
    """An open checkpoint: keys, and arrays that are read when they are asked for.

    Args:
        prefix: as of `read_tf_checkpoint`.

    Raises:
        ModelFileError: there is no such checkpoint, or its index is altered.
    """

    def __init__(self, prefix: str | os.PathLike[str]) -> None:
        path = Path(prefix)
        if path.is_dir():
            path = _latest(path)
        self._prefix = path
        checksum = import_crc32c("reading a TensorFlow checkpoint", "tensorflow")
        messages()  # an error if protobuf is missing
        index = path.with_name(path.name + ".index")
        try:
            data = index.read_bytes()
        except OSError:
            raise ModelFileError.here(
                f"read_tf_checkpoint: there is no checkpoint {path.name!r}",
                hint='the prefix is the path without ".index"',
            ) from None
        self._entries: dict[bytes, Any] = {}
        self._shards = 0
        for key, value in entries(data, checksum):
            if key == b"":
                header = parse("BundleHeaderProto", value, "the index of the checkpoint")
                self._shards = header.num_shards
                if header.endianness:
                    raise broken("the checkpoint was written on a big-endian machine")
            else:
                self._entries[key] = parse("BundleEntryProto", value, f"the entry {key!r}")
        if self._shards < 1:
            raise broken("the index of the checkpoint has no header: it is altered")
        self._is_large = sum(entry.size for entry in self._entries.values()) >= LARGE_FILE

    def __iter__(self) -> Iterator[str]:
        return (key.decode("utf-8", "replace") for key in self._entries if key[:1] != b"\0")

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.encode() in self._entries

    def names(self) -> dict[str, str]:
        """The keys by the names of the variables."""
        variables = self._variable_names()
        found: dict[str, str] = {}
        for key in self:
            if key == _OBJECT_GRAPH:
                continue
            name = variables.get(key) or key.removesuffix(_SUFFIX)
            found[key.removesuffix(_SUFFIX) if name in found else name] = key
        return found

    def _variable_names(self) -> dict[str, str]:
        """The full names of variables by key, from the graph of objects."""
        if _OBJECT_GRAPH not in self:
            return {}
        text = self.array(_OBJECT_GRAPH).reshape(-1)
        graph = parse("TrackableObjectGraph", text[0], "the objects of the checkpoint")
        return {
            a.checkpoint_key: a.full_name
            for node in graph.nodes
            for a in node.attributes
            if a.full_name
        }

    def array(self, key: str, *, copy: bool = True) -> Array:
        """The array of a key.

        Args:
            copy: with False, the array of a large checkpoint may stay in its file, and cannot be
                written to.

        Raises:
            UnknownNameError: there is no such key.
            ModelFileError: the data is missing, truncated or altered.
        """
        entry = self._entries.get(key.encode())
        if entry is None:
            raise no_key(self._prefix.name, key, self)
        what = f"{key!r} of the checkpoint"
        dtype, sizes = dtype_of(entry.dtype, what), sizes_of(entry.shape, what)
        if len(entry.slices):
            return self._joined(key, entry, dtype, sizes)
        if dtype.kind == "O":
            return _strings(self._bytes(entry, what), sizes, what)
        self._check_size(entry, sizes, dtype, what)
        if self._is_large and entry.size >= LARGE_ARRAY and not copy:
            self._check_sum(entry, what, None)
            return array_in(map_file(self._file(entry, what)), entry.offset, sizes, dtype)
        return self._read(entry, sizes, dtype, what)

    def _file(self, entry: Any, what: str) -> Path:
        """The file of an entry, which it lies in."""
        name = f"{self._prefix.name}.data-{entry.shard_id:05d}-of-{self._shards:05d}"
        path = self._prefix.with_name(name)
        try:
            length = os.stat(path).st_size
        except OSError:
            raise broken(f"the checkpoint has no file {name}") from None
        if entry.size < 0 or entry.offset < 0 or entry.offset + entry.size > length:
            raise broken(f"{what} is not within the file {name}, which is truncated or altered")
        return path

    def _check_size(
        self, entry: Any, sizes: tuple[int, ...], dtype: np.dtype[Any], what: str
    ) -> None:
        if entry.size != math.prod(sizes) * dtype.itemsize:
            raise broken(f"{what} has {entry.size} bytes for the shape {sizes}")

    def _bytes(self, entry: Any, what: str) -> bytes:
        with self._file(entry, what).open("rb") as file:
            file.seek(entry.offset)
            return file.read(entry.size)

    def _read(self, entry: Any, sizes: tuple[int, ...], dtype: np.dtype[Any], what: str) -> Array:
        """The array of an entry, in memory."""
        self._file(entry, what)  # before memory is allocated
        array = np.empty(sizes, dtype)
        self._check_sum(entry, what, array.reshape(-1).view(np.uint8).data)
        return array

    def _check_sum(self, entry: Any, what: str, into: memoryview | None) -> None:
        """Reads the bytes of an entry piece by piece, and compares their checksum.

        Args:
            into: where the bytes are written to.
        """
        from google_crc32c import extend as extended

        checksum, at = 0, 0
        with self._file(entry, what).open("rb") as file:
            file.seek(entry.offset)
            while at < entry.size:
                piece = file.read(min(_PIECE, entry.size - at))
                if not piece:
                    raise broken(f"{what} is truncated")
                checksum = extended(checksum, piece)
                if into is not None:
                    into[at : at + len(piece)] = piece
                at += len(piece)
        if checksum != unmasked(entry.crc32c):
            raise broken(f"{what} is altered: its checksum does not match")

    def _joined(self, key: str, entry: Any, dtype: np.dtype[Any], sizes: tuple[int, ...]) -> Array:
        """A partitioned variable, from its slices."""
        if len(entry.slices) > _MOST_SLICES:
            raise broken(f"{key!r} of the checkpoint has {len(entry.slices)} slices")
        parts = []
        for piece in entry.slices:
            own = self._entries.get(_slice_key(key, piece))
            if own is None or len(own.slices) or len(piece.extent) != len(sizes):
                raise broken(f"a slice of {key!r} is not in the checkpoint")
            what = f"a slice of {key!r} of the checkpoint"
            where = tuple(
                extent_of(e, size, what) for e, size in zip(piece.extent, sizes, strict=True)
            )
            shape = tuple(s.stop - s.start for s in where)
            self._check_size(own, shape, dtype, what)
            parts.append((where, partial(self._read, own, shape, dtype, what)))
        return joined(parts, sizes, dtype, repr(key))


def _strings(data: bytes, sizes: tuple[int, ...], what: str) -> Array:
    """An array of strings: their lengths, a checksum, their bytes."""
    count, at, lengths = math.prod(sizes), 0, []
    if count > len(data):
        raise broken(f"{what} is truncated")
    for _ in range(count):
        length, at = varint(data, at)
        lengths.append(length)
    at += 4
    if sum(lengths) != len(data) - at:
        raise broken(f"{what} is truncated or altered")
    result = np.empty(count, object)
    for i, length in enumerate(lengths):
        result[i] = data[at : at + length]
        at += length
    return result.reshape(sizes)


_STATE = re.compile(r'^model_checkpoint_path:\s*"((?:[^"\\]|\\.)*)"', re.M)


def _latest(folder: Path) -> Path:
    """The prefix that the file "checkpoint" of a folder names."""
    try:
        text = (folder / "checkpoint").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise ModelFileError.here(
            f"read_tf_checkpoint: the folder {folder.name!r} has no file 'checkpoint'",
            hint='give the prefix: the path of the checkpoint without ".index"',
        ) from None
    found = _STATE.search(text)
    if found is None:
        raise broken("the file 'checkpoint' does not name a checkpoint")
    return folder / Path(found[1]).name  # the folder may have moved


# -- keys of slices: TensorFlow's order-preserving code -------------------------------------------


def _slice_key(name: str, piece: Any) -> bytes:
    parts = [_number(0), _text(name.encode()), _number(len(piece.extent))]
    for extent in piece.extent:
        whole = not extent.WhichOneof("has_length")
        parts += [_signed(0 if whole else extent.start), _signed(-1 if whole else extent.length)]
    return b"".join(parts)


def _number(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    return bytes([size]) + value.to_bytes(size, "big")


def _text(value: bytes) -> bytes:
    escaped = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}
    return b"".join(escaped.get(b, bytes([b])) for b in value) + b"\x00\x01"


def _signed(value: int) -> bytes:
    magnitude = ~value if value < 0 else value
    size = magnitude.bit_length() // 7 + 1
    if size > 7:
        return b""  # no tensor is so large: the slice is not found
    header = (0xFF << (8 - size)) & 0xFF
    data = bytearray(magnitude.to_bytes(size, "big"))
    data[0] |= header
    return bytes(b ^ 0xFF for b in data) if value < 0 else bytes(data)


def open_checkpoint(source: Any) -> Any:
    """A checkpoint by its prefix, or a mapping of names to arrays as it is."""
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    path = _latest(path) if path.is_dir() else path
    is_single = path.is_file() and not path.with_name(path.name + ".index").exists()
    return SingleFile(path) if is_single else Bundle(path)
