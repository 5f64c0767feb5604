"""Values of variables in one safetensors member, which is written as a whole and read value by
value.

In this member, a value is a tensor of raw bytes. Its dtype, shape, offset and checksum are in the
manifest, because safetensors has no names for the narrowest dtypes, and no checksums.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphc.artifacts.container import Members
from graphc.artifacts.manifest import Value, VariableRow, corrupt
from graphc.artifacts.sharing import Content
from graphc.errors import ArtifactCorruptError
from graphc.ir.dtypes import Array, short_name

WEIGHTS = "weights.safetensors"
"""The member's name."""

_LENGTH = 8  # bytes of the little-endian length before the header; the header is padded to it too
_LARGEST_HEADER = 1 << 24  # the header is parsed as a whole


class Packer:
    """Writes the member: pass `pieces()` to the container, and call `rows` afterwards."""

    def __init__(self, values: Sequence[Value], value_of: Callable[[str], Array]) -> None:
        self.rows = tuple(VariableRow(value, f"v{i}") for i, value in enumerate(values))
        self._value_of = value_of

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The member in pieces: its header, then each value, generated one after the other."""
        header: dict[str, Any] = {}
        position = 0
        for row in self.rows:
            end = position + row.bytes
            header[row.key] = {"dtype": "U8", "shape": [row.bytes], "data_offsets": [position, end]}
            position = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _LENGTH)
        yield len(text).to_bytes(_LENGTH, "little") + text
        position = _LENGTH + len(text)
        written = []
        for row in self.rows:
            value = np.ascontiguousarray(self._value_of(row.value.name))
            data = value.reshape(-1).view(np.uint8).data
            digest = hashlib.sha256(data).hexdigest()
            written.append(replace(row, offset=position, sha256=digest))
            position += row.bytes
            yield data
        self.rows = tuple(written)


class Weights:
    """The values in an open artifact. Each is read, and its checksum checked, on access.

    Raises:
        ArtifactCorruptError: the byte ranges in the rows are outside the member, or overlap.
    """

    def __init__(self, rows: Sequence[VariableRow], members: Members) -> None:
        self._members = members
        self._old = bool(rows) and rows[0].offset is None  # version 1 has one checksum for all
        self._unchecked = self._old
        rows = _with_offsets(rows, members) if self._old else rows
        self._rows = {row.value.name: row for row in rows}
        _check_places(rows, members.size(WEIGHTS))

    def __getitem__(self, name: str) -> Array:
        """The value of a variable, in its own memory, read-only.

        Raises:
            ArtifactCorruptError: it was altered.
        """
        row = self._rows[name]
        if self._unchecked:
            self._members.check(WEIGHTS)
            self._unchecked = False
        digest = hashlib.sha256()
        data = self._members.part(WEIGHTS, row.offset or 0, row.bytes, digest)
        if not self._old and digest.hexdigest() != row.sha256:
            raise self._altered(name)
        return np.frombuffer(data, row.value.type.dtype).reshape(row.shape)

    def content(self, name: str) -> Content | None:
        """The content of a variable as the file describes it; None if a file of version 1 does
        not."""
        row = self._rows[name]
        if self._old:
            return None
        return Content(row.sha256, short_name(row.value.type.dtype), row.shape)

    def check(self, name: str) -> None:
        """Checks the value of a variable without storing it.

        Raises:
            ArtifactCorruptError: it was altered.
        """
        row, digest = self._rows[name], hashlib.sha256()
        for piece in self._members.pieces(WEIGHTS, row.offset or 0, row.bytes):
            digest.update(piece)
        if digest.hexdigest() != row.sha256:
            raise self._altered(name)

    def _altered(self, name: str) -> ArtifactCorruptError:
        return ArtifactCorruptError(
            f"{self._members.path!r}: the value of {name!r} was altered",
            hint="copy or save it again",
        )


def _check_places(rows: Sequence[VariableRow], size: int) -> None:
    end = 0
    for row in sorted(rows, key=lambda row: (row.offset or 0, row.bytes)):
        start = row.offset or 0
        if start + row.bytes > size:
            raise corrupt(f"the weights' {row.key!r}", f"hold the {row.bytes} bytes of {row.value}")
        if row.bytes and start < end:
            raise corrupt(f"the weights' {row.key!r}", "share no bytes with another")
        end = max(end, start + row.bytes)


def _with_offsets(rows: Sequence[VariableRow], members: Members) -> list[VariableRow]:
    """The rows of a file of version 1, with the positions in the member's header."""
    size = members.size(WEIGHTS)
    length = int.from_bytes(members.part(WEIGHTS, 0, min(size, _LENGTH)), "little")
    end = _LENGTH + length
    if size < _LENGTH or end > size or length > _LARGEST_HEADER:
        raise corrupt("the weights", "be as long as their header says")
    try:
        header = json.loads(bytes(members.part(WEIGHTS, _LENGTH, length)))
    except (ValueError, RecursionError) as error:
        raise corrupt("the weights", "begin with a header in JSON") from error
    if not isinstance(header, dict):
        raise corrupt("the weights", "begin with a header that names tensors")
    return [replace(row, offset=end + _offset(row, header)) for row in rows]


def _offset(row: VariableRow, header: Mapping[str, Any]) -> int:
    entry = header.get(row.key)
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(type(offset) is int and offset >= 0 for offset in offsets)
        or offsets[1] - offsets[0] != row.bytes
    ):
        raise corrupt(f"the weights' {row.key!r}", f"hold the {row.bytes} bytes of {row.value}")
    return int(offsets[0])
