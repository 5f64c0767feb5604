"""Arrays that stay in a large file until their values are needed."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphc.ir.dtypes import Array

LARGE_FILE: Final = 256 << 20
"""Bytes. Importers map files of this size, so that weights are in memory once: in the session."""

LARGE_ARRAY: Final = 64 << 10
"""Bytes. Smaller arrays of a mapped file are read."""


class MappedFile(mmap.mmap):
    """A file in memory, whose pages are read when they are needed. It cannot be written to."""


def map_file(path: Path) -> MappedFile:
    """Maps a file, which must not be empty.

    The mapping keeps the file's content if the file is replaced by another one or deleted. A
    program that writes into the file itself changes the arrays.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is empty.
    """
    with path.open("rb") as file:
        return MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)


def array_in(file: MappedFile, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A read-only array whose elements are in a mapped file.

    Raises:
        ValueError: the file ends before they do.
    """
    if not math.prod(shape):
        return np.zeros(shape, dtype)
    return np.frombuffer(file, dtype, math.prod(shape), offset).reshape(shape)


def is_constant(array: Array) -> bool:
    """Whether nobody can write to an array's memory: it is that of `bytes`, or of a mapped file."""
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return isinstance(base, (bytes, MappedFile)) and not array.flags.writeable
