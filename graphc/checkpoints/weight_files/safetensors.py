"""`gc.read_safetensors`: the arrays of a safetensors file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from graphc.checkpoints.weight_files.weights import StoredWeight, Weights, damaged, opened_size

_LARGEST_HEADER: Final = 100_000_000
_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "C64": np.dtype(np.complex64),
}


def read_safetensors(path: str | os.PathLike[str]) -> Weights:
    """The arrays of a safetensors file by name. Each is read when it is asked for.

    Args:
        path: a file ".safetensors", or the index of several (".safetensors.index.json").

    Raises:
        ModelFileError: there is no such file, or its header is not valid.

    Examples:
        >>> import tempfile
        >>> from safetensors.numpy import save_file
        >>> folder = tempfile.TemporaryDirectory()
        >>> save_file({"w": np.float32([1.0, 2.0])}, f"{folder.name}/m.safetensors")
        >>> weights = gc.read_safetensors(f"{folder.name}/m.safetensors")
        >>> weights, weights["w"]
        (<Weights m.safetensors: 1 arrays>, array([1., 2.], dtype=float32))
        >>> folder.cleanup()
    """
    file, size = opened_size(path, "read_safetensors")
    if file.name.endswith(".json"):
        return _of_index(file)
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if not 2 <= length <= min(_LARGEST_HEADER, size - 8):
            raise damaged(file, "its header has no valid length")
        header = _parsed(file, opened.read(length))
    metadata = header.pop("__metadata__", {})
    start, room = 8 + length, size - 8 - length
    variables = {name: _stored(file, name, row, start, room) for name, row in header.items()}
    ends = sorted((each.offset, each.bytes) for each in variables.values())
    position = start
    for offset, count in ends:
        if offset != position:
            raise damaged(file, "its arrays overlap, or leave gaps")
        position += count
    if position != size:
        raise damaged(file, "it is longer than its arrays")
    return Weights(file, variables, metadata if isinstance(metadata, dict) else {})


def _parsed(file: Path, data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError):
        raise damaged(file, "its header is not JSON") from None
    if not isinstance(header, dict):
        raise damaged(file, "its header is no object")
    return header


def _stored(file: Path, name: str, row: Any, start: int, room: int) -> StoredWeight:
    try:
        dtype, shape, (first, last) = _DTYPES[row["dtype"]], row["shape"], row["data_offsets"]
        numbers = [*shape, first, last]
    except (KeyError, TypeError, ValueError):
        raise damaged(file, f"the row of {name!r} is not valid") from None
    if not all(type(n) is int and n >= 0 for n in numbers) or len(shape) > 32:
        raise damaged(file, f"the row of {name!r} has no valid numbers")
    if not first <= last <= room or last - first != math.prod(shape) * dtype.itemsize:
        raise damaged(file, f"the data of {name!r} do not fit its shape")
    return StoredWeight(name, dtype, tuple(shape), file, start + first, last - first)


def _of_index(file: Path) -> Weights:
    """The arrays of several files beside an index."""
    if file.stat().st_size > _LARGEST_HEADER:
        raise damaged(file, "it is too long for an index")
    found = _parsed(file, file.read_bytes()).get("weight_map")
    if not isinstance(found, dict) or not all(
        isinstance(part, str) and Path(part).name == part for part in found.values()
    ):
        raise damaged(file, "it has no weight_map with names of files beside it")
    parts = {part: read_safetensors(file.with_name(part)) for part in set(found.values())}
    missing = [name for name, part in found.items() if name not in parts[part]]
    if missing:
        raise damaged(file, f"{found[missing[0]]!r} has no array {missing[0]!r}")
    return Weights(file, {name: parts[part].variables[name] for name, part in found.items()})
