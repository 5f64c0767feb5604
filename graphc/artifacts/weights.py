"""Values of variables as one safetensors member, written and read without further copies.

A value is a tensor of raw bytes there; its dtype and shape stand in the manifest, since
safetensors has no name for the narrowest dtypes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.artifacts.manifest import VariableRow, corrupt

WEIGHTS = "weights.safetensors"
"""The member's name."""

Array = np.ndarray[Any, Any]
_LENGTH = 8  # the length of the header, little-endian, stands before it; it is padded to this too


def pack(
    rows: Sequence[VariableRow], value_of: Callable[[str], Array]
) -> Iterator[bytes | memoryview]:
    """The member in pieces: its header, then each value, asked for when it is its turn."""
    header: dict[str, Any] = {}
    position = 0
    for row in rows:
        header[row.key] = {
            "dtype": "U8",
            "shape": [row.bytes],
            "data_offsets": [position, position + row.bytes],
        }
        position += row.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    yield len(text).to_bytes(_LENGTH, "little") + text
    for row in rows:
        value = np.ascontiguousarray(value_of(row.value.name))
        yield value.reshape(-1).view(np.uint8).data


def unpack(rows: Sequence[VariableRow], data: memoryview) -> dict[str, Array]:
    """Variable name -> value, each a read-only view of `data`.

    Raises:
        ArtifactCorruptError: the header is not one, or does not fit the rows or the data.
    """
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or end > len(data):
        raise corrupt("weights", "be as long as their header says")
    try:
        header = json.loads(bytes(data[_LENGTH:end]))
    except (ValueError, RecursionError) as error:
        raise corrupt("weights", "begin with a header in JSON") from error
    if not isinstance(header, dict):
        raise corrupt("weights", "begin with a header that names tensors")
    return {row.value.name: _value(row, header, data[end:]) for row in rows}


def _value(row: VariableRow, header: Mapping[str, Any], data: memoryview) -> Array:
    entry = header.get(row.key)
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(type(offset) is int for offset in offsets)
        or not 0 <= offsets[0] <= offsets[1] <= len(data)
        or offsets[1] - offsets[0] != row.bytes
    ):
        raise corrupt(
            f"the weights' tensor {row.key!r}", f"hold the {row.bytes} bytes of {row.value}"
        )
    raw = data[offsets[0] : offsets[1]]
    return np.frombuffer(raw, row.value.type.dtype).reshape(row.shape)
