"""Arrays in safetensors files, written and read in blocks, each with a checksum.

A flipped bit in a safetensors file is not noticed when it is loaded, so the manifest has checksums.
Dtypes that safetensors has no name for are stored as bytes; the manifest has the dtype.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import numpy as np

from graphc.checkpoints.manifest import BLOCK, Entry, corrupt
from graphc.errors import CheckpointError
from graphc.ir.dtypes import Array
from graphc.runtime.feeds.feed_memory import aligned

_SHARD_BYTES = 1 << 30  # a shard ends with the value that reaches this size
_READERS = 4
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


def write(folder: Path, arrays: Sequence[tuple[str, Array]]) -> list[Entry]:
    """Writes shards into a folder and returns where each array is; flushed to the disk.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    entries: list[Entry] = []
    for number, shard in enumerate(_divided(arrays)):
        file = f"values-{number:05d}.safetensors"
        with open(folder / file, "xb", buffering=0) as raw:
            entries += _write_shard(raw, file, shard)
            os.fsync(raw.fileno())
    return entries


def _divided(arrays: Sequence[tuple[str, Array]]) -> Iterator[list[tuple[str, Array]]]:
    shard: list[tuple[str, Array]] = []
    size = 0
    for name, array in arrays:
        shard.append((name, array))
        size += array.nbytes
        if size >= _SHARD_BYTES:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


def _write_shard(raw: FileIO, file: str, shard: Sequence[tuple[str, Array]]) -> Iterator[Entry]:
    header = _header(shard)
    _write_all(raw, memoryview(header))
    offset = len(header)
    for name, array in shard:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        checksums = []
        for start in range(0, array.nbytes, BLOCK):
            block = data[start : start + BLOCK]
            checksums.append(zlib.crc32(block))
            _write_all(raw, block)
        yield Entry(name, array.dtype, array.shape, file, offset, tuple(checksums))
        offset += array.nbytes


def _header(shard: Sequence[tuple[str, Array]]) -> bytes:
    rows, position = {}, 0
    for name, array in shard:
        known = _NAMES.get(array.dtype.name)
        rows[name] = {
            "dtype": known or "U8",
            "shape": list(array.shape) if known else [array.nbytes],
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants values at multiples of 8
    return len(text).to_bytes(8, "little") + text


def write_file(path: Path, content: bytes) -> None:
    """Writes a file, flushed to the disk.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    with open(path, "xb", buffering=0) as raw:
        _write_all(raw, memoryview(content))
        os.fsync(raw.fileno())


def _write_all(raw: FileIO, data: memoryview) -> None:
    while data:
        data = data[raw.write(data) :]


# -- reading --------------------------------------------------------------------------------


def read(folder: Path, entries: Sequence[Entry]) -> dict[str, Array]:
    """Arrays by name, whose checksums match. Several threads read.

    Raises:
        CheckpointError: a shard cannot be read.
        CheckpointCorruptError: a shard is missing, too short, or altered.
    """
    files = {name: _open(folder, name) for name in {entry.file for entry in entries}}
    try:
        sizes = {name: os.fstat(handle).st_size for name, handle in files.items()}
        for entry in entries:  # before memory is taken for what is not there
            if entry.offset + entry.bytes > sizes[entry.file]:
                raise corrupt(folder, f"{entry.file} ends before the value of {entry.name!r}")
        values = {entry.name: aligned(entry.shape, entry.dtype) for entry in entries}
        blocks = [
            (entry, files[entry.file], values[entry.name], number)
            for entry in entries
            for number in range(len(entry.checksums))
        ]
        with ThreadPoolExecutor(min(_READERS, max(1, len(blocks)))) as pool:
            for entry, whole in pool.map(_read_block, *zip(*blocks, strict=True)) if blocks else ():
                if not whole:
                    raise corrupt(folder, f"the value of {entry.name!r} in {entry.file} differs")
    except OSError as error:
        raise CheckpointError(
            f"cannot read the checkpoint {str(folder)!r}: {error.strerror or error}"
        ) from error
    finally:
        for handle in files.values():
            os.close(handle)
    return values


def _open(folder: Path, name: str) -> int:
    try:
        # Not blocking, because opening a pipe that has no writer would wait forever.
        handle = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise corrupt(folder, f"{name}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise corrupt(folder, f"{name} is not a regular file")
    return handle


def _read_block(entry: Entry, handle: int, value: Array, number: int) -> tuple[Entry, bool]:
    start = number * BLOCK
    data = memoryview(value.reshape(-1).view(np.uint8).data)[start : start + BLOCK]
    read = 0
    while read < len(data):
        count = os.preadv(handle, [data[read:]], entry.offset + start + read)
        if not count:
            return entry, False
        read += count
    return entry, zlib.crc32(data) == entry.checksums[number]
