"""Arrays of any dtype in NumPy's files."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.ir.dtypes import is_floating


def common(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The value in a dtype that every NumPy version and its files support. Strings become text."""
    if value.dtype.kind == "O":
        words = [word.decode("utf-8", "replace") for word in value.reshape(-1).tolist()]
        return np.array(words, np.str_).reshape(value.shape)
    if value.dtype.isbuiltin == 1:
        return value
    return value.astype(np.float32 if is_floating(value.dtype) else np.int8)


def write_arrays(path: str | Path, arrays: Mapping[str, Any] | Sequence[Any]) -> None:
    """Writes a .npz file, without numpy.savez, which cannot write an array named `file`.

    Args:
        arrays: arrays by name; or a sequence, whose arrays are named by their numbers.
    """
    named = arrays if isinstance(arrays, Mapping) else {f"{i}": a for i, a in enumerate(arrays)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in named.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, common(value), allow_pickle=False)
