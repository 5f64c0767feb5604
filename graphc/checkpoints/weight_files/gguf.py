"""`gc.read_gguf`: the arrays of a GGUF file. Source: the specification of GGUF (ggml)."""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from graphc.checkpoints.weight_files.gguf_blocks import q4_0, q4_k, q6_k, q8_0
from graphc.checkpoints.weight_files.weights import StoredWeight, Weights, damaged, opened_size

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MOST: Final = 1 << 24  # entries of the header, or of an array in it
_DEEPEST: Final = 4  # arrays of arrays
_NUMBERS: Final = "BbHhIif?"  # the forms of values of the types 0 to 7
_LONG_NUMBERS: Final = {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9


class _Kind(NamedTuple):
    """How elements are stored: so many in a block of so many bytes."""

    name: str
    elements: int
    bytes: int
    dtype: np.dtype[Any]
    decode: Any = None


def _plain(name: str, dtype: Any) -> _Kind:
    return _Kind(name, 1, np.dtype(dtype).itemsize, np.dtype(dtype))


_FLOAT: Final = np.dtype(np.float32)
_KINDS: Final[Mapping[int, _Kind]] = {
    0: _plain("F32", np.float32),
    1: _plain("F16", np.float16),
    2: _Kind("Q4_0", 32, 18, _FLOAT, q4_0),
    8: _Kind("Q8_0", 32, 34, _FLOAT, q8_0),
    12: _Kind("Q4_K", 256, 144, _FLOAT, q4_k),
    14: _Kind("Q6_K", 256, 210, _FLOAT, q6_k),
    24: _plain("I8", np.int8),
    25: _plain("I16", np.int16),
    26: _plain("I32", np.int32),
    27: _plain("I64", np.int64),
    28: _plain("F64", np.float64),
    30: _plain("BF16", ml_dtypes.bfloat16),
}


def read_gguf(path: str | os.PathLike[str]) -> Weights:
    """The arrays of a GGUF file by name. Each is read when it is asked for.

    Quantised arrays (Q4_0, Q8_0, Q4_K, Q6_K) become float32. Shapes are those of NumPy: the last
    axis is the one whose elements are neighbours in the file. `metadata` has the keys of the file,
    such as "general.architecture".

    Args:
        path: a file ".gguf" of version 2 or 3, little-endian.

    Raises:
        ModelFileError: there is no such file, its header is not valid, or an array is of another
            type.

    Examples:
        >>> weights = gc.read_gguf("tests/checkpoints/weight_files/small.gguf")
        >>> weights.metadata["general.architecture"], weights["q8_0"].shape
        ('test', (2, 64))
    """
    file, size = opened_size(path, "read_gguf")
    if size < 24:
        raise damaged(file, "it is too short")
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Reader(file, data, size).weights()


class _Reader:
    """Reads the header from the start to its end. Each read checks that it is within the file."""

    def __init__(self, file: Path, data: mmap.mmap, size: int) -> None:
        self._file, self._data, self._size = file, data, size
        self._at = 0

    def weights(self) -> Weights:
        if self._take(4) != _MAGIC:
            raise damaged(self._file, "it does not begin with GGUF")
        version = self._number("I")
        if version not in _VERSIONS:
            raise damaged(self._file, f"its version is {version}, and 2 and 3 are read")
        count, keys = self._count(), self._count()
        metadata = {}
        for _ in range(keys):
            name = self._text()
            metadata[name] = self._value(self._number("I"), 0)
        rows = [self._row() for _ in range(count)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20:
            raise damaged(self._file, "its alignment is not valid")
        start = -(-self._at // alignment) * alignment
        variables = {row[0]: self._stored(start, *row) for row in rows}
        if len(variables) != count:
            raise damaged(self._file, "two arrays have the same name")
        return Weights(self._file, variables, metadata)

    def _row(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._text()
        rank = self._number("I")
        if rank > 8:
            raise damaged(self._file, f"{name!r} has {rank} axes")
        shape = tuple(self._number("Q") for _ in range(rank))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _stored(
        self, start: int, name: str, shape: tuple[int, ...], number: int, offset: int
    ) -> StoredWeight:
        kind = _KINDS.get(number)
        if kind is None:
            known = ", ".join(each.name for each in _KINDS.values())
            raise damaged(self._file, f"{name!r} is of type {number}; read are {known}")
        elements = math.prod(shape)
        if elements and (shape[-1] if shape else 1) % kind.elements:
            raise damaged(self._file, f"the rows of {name!r} are no whole blocks of {kind.name}")
        count = elements // kind.elements * kind.bytes
        if start + offset + count > self._size:
            raise damaged(self._file, f"the data of {name!r} are outside of the file")
        return StoredWeight(name, kind.dtype, shape, self._file, start + offset, count, kind.decode)

    def _value(self, kind: int, depth: int) -> Any:
        if kind < len(_NUMBERS):
            return self._number(_NUMBERS[kind])
        if kind in _LONG_NUMBERS:
            return self._number(_LONG_NUMBERS[kind])
        if kind == _TEXT:
            return self._text()
        if kind == _ARRAY and depth < _DEEPEST:
            inner, count = self._number("I"), self._count()
            return [self._value(inner, depth + 1) for _ in range(count)]
        raise damaged(self._file, f"a value of type {kind}")

    def _count(self) -> int:
        count = int(self._number("Q"))
        if count > _MOST or count > self._size:
            raise damaged(self._file, f"a list of {count} entries")
        return count

    def _text(self) -> str:
        try:
            return self._take(self._number("Q")).decode()
        except UnicodeDecodeError:
            raise damaged(self._file, "a text is not UTF-8") from None

    def _number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(form)))[0]

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > self._size:
            raise damaged(self._file, "its header ends early")
        data = self._data[self._at : end]
        self._at = end
        return data
