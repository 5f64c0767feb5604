"""`Journal`: the folder of a parameter server, from which a restarted one continues.

The folder has a checkpoint of the server's variables, a log of the updates since then, and the
programs that the updates run. An update is written to the log before it is applied, so a killed
process loses none that was confirmed. What a killed process wrote in part is ignored. The files
survive a killed process, not a machine that loses power: the log is not flushed to the disk.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from graphc.errors import CheckpointCorruptError
from graphc.ir.dtypes import Array, as_dtype

_HEAD = 12  # bytes before a record: its length, and its checksum
_STATE = "state.bin"
_LOG = "log.bin"


class Record(NamedTuple):
    """Plain values and arrays."""

    facts: Mapping[str, Any]
    arrays: Sequence[Array]


def encode(record: Record) -> bytes:
    """A record as bytes, with its length and checksum."""
    arrays = [np.asarray(array) for array in record.arrays]
    specs = [[array.dtype.name, list(array.shape)] for array in arrays]
    header = json.dumps({"facts": record.facts, "arrays": specs}).encode()
    parts = [len(header).to_bytes(4, "little"), header, *(a.tobytes() for a in arrays)]
    content = b"".join(parts)
    return len(content).to_bytes(8, "little") + zlib.crc32(content).to_bytes(4, "little") + content


def decode(content: bytes) -> Record:
    """The record that `encode` wrote, without its length and checksum."""
    size = int.from_bytes(content[:4], "little")
    header = json.loads(content[4 : 4 + size])
    at, arrays = 4 + size, []
    for name, shape in header["arrays"]:
        dtype = as_dtype(name)
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(content, dtype, count, at).reshape(shape))
        at += count * dtype.itemsize
    return Record(header["facts"], arrays)


def read_records(file: BinaryIO) -> Iterator[tuple[Record, int]]:
    """The complete records of a file, each with the position of its end."""
    while True:
        head = file.read(_HEAD)
        if len(head) < _HEAD:
            return
        content = file.read(int.from_bytes(head[:8], "little"))
        whole = len(content) == int.from_bytes(head[:8], "little")
        if not whole or zlib.crc32(content) != int.from_bytes(head[8:], "little"):
            return
        yield decode(content), file.tell()


class Journal:
    """The folder of one parameter server, which only its process writes.

    Args:
        folder: it is made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._log: FileIO | None = None

    def keep_program(self, key: int, data: bytes) -> None:
        """Keeps the program that updates with this key run."""
        path = self._program(key)
        if not path.exists():
            self._replace(path, data)

    def program(self, key: int) -> bytes:
        """The program of a key."""
        return self._program(key).read_bytes()

    def _program(self, key: int) -> Path:
        return self._folder / f"program-{key}.bin"

    def checkpoint(self, facts: Mapping[str, Any], values: Mapping[str, Array]) -> None:
        """Replaces the checkpoint and begins an empty log. If the process is killed in between, the
        log has updates that the checkpoint contains; their numbers say so."""
        names = {"names": list(values)}
        self._replace(self._folder / _STATE, encode(Record({**facts, **names}, [*values.values()])))
        if self._log is not None:
            self._log.close()
        self._log = FileIO(self._folder / _LOG, "w")

    def append(self, record: Record) -> None:
        """Adds an update to the log."""
        if self._log is None:
            self._log = FileIO(self._folder / _LOG, "a")
        data = memoryview(encode(record))
        while data:
            data = data[self._log.write(data) :]

    def read(self) -> tuple[Mapping[str, Any], dict[str, Array], list[Record]] | None:
        """The facts and values of the checkpoint, and the updates in the log, whose incomplete end
        is cut off. None if there is no checkpoint.

        Raises:
            CheckpointCorruptError: the checkpoint was altered.
        """
        path = self._folder / _STATE
        if not path.exists():
            return None
        with open(path, "rb") as file:
            found = next(read_records(file), None)
        if found is None:
            raise CheckpointCorruptError(
                f"the checkpoint of the parameter server in {path} is truncated or altered",
                hint="start the run again from a checkpoint of the session",
            )
        facts, arrays = found[0]
        values = {name: array.copy() for name, array in zip(facts["names"], arrays, strict=True)}
        return facts, values, self._updates()

    def _updates(self) -> list[Record]:
        path = self._folder / _LOG
        if not path.exists():
            return []
        with open(path, "r+b") as file:
            found = list(read_records(file))
            file.truncate(found[-1][1] if found else 0)
        return [record for record, _ in found]

    def _replace(self, path: Path, data: bytes) -> None:
        beside = path.with_suffix(".part")
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)

    def close(self) -> None:
        """Closes the log."""
        if self._log is not None:
            self._log.close()
            self._log = None
