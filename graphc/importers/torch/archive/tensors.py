"""The tensors in a .pt2 file: raw bytes, with shapes and strides in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np

from graphc.importers.torch.archive.container import Archive, broken
from graphc.importers.torch.call import Refused
from graphc.importers.torch.exported import Stored

_DTYPES: Final[Mapping[int, Any]] = {  # `ScalarType` of the file's schema
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.float16,
    7: np.float32,
    8: np.float64,
    10: np.complex64,
    11: np.complex128,
    12: np.bool_,
    13: ml_dtypes.bfloat16,
    28: np.uint16,
    29: ml_dtypes.float8_e4m3fn,
    30: ml_dtypes.float8_e5m2,
    34: np.uint32,
    35: np.uint64,
}
_STRIDED: Final = 7  # `Layout` of the file's schema
_MOST_TIMES: Final = 4  # bytes of all tensors, in bytes of the file: views may share bytes
_MOST_EXPANDED: Final = 1 << 26  # bytes of all tensors that repeat their elements, as `expand` does


def dtype_number(number: int) -> np.dtype[Any]:
    """The dtype with a number of the file's schema.

    Raises:
        Refused: graphc has none.
    """
    if number not in _DTYPES:
        raise Refused(f"uses the dtype number {number} of PyTorch, which is not supported")
    found: np.dtype[Any] = np.dtype(_DTYPES[number])
    return found


def stored(archive: Archive, folder: str) -> dict[str, Stored]:
    """The tensors of a folder, "weights" or "constants", by name. Their bytes are read later.

    Raises:
        ModelFileError: one is pickled, sparse, or does not fit its bytes.
    """
    config = archive.json(f"data/{folder}/{archive.model}_{folder}_config.json")["config"]
    found: dict[str, Stored] = {}
    sizes: dict[Any, int] = {}
    expanded: dict[Any, int] = {}
    for name, entry in config.items():
        if entry["use_pickle"]:
            raise broken(
                f"{archive.name}: {name!r} is pickled, because its class is not torch.Tensor",
                "use plain tensors: loading this file executes code that is in it",
            )
        found[name] = _stored(archive, f"data/{folder}/{entry['path_name']}", name, entry)
        counted = expanded if _is_expanded(entry["tensor_meta"]) else sizes
        counted[found[name].key] = found[name].bytes
    most = _MOST_TIMES * archive.size
    if sum(sizes.values()) > most or sum(expanded.values()) > max(most, _MOST_EXPANDED):
        raise broken(f"{archive.name} has tensors that are larger than the file")
    return found


def _is_expanded(meta: Any) -> bool:
    pairs = zip(meta["sizes"], meta["strides"], strict=False)
    return any(size["as_int"] > 1 and stride["as_int"] == 0 for size, stride in pairs)


def _stored(archive: Archive, member: str, name: str, entry: Any) -> Stored:
    meta = entry["tensor_meta"]
    shape = tuple(_whole(size["as_int"]) for size in meta["sizes"])
    strides = tuple(_whole(stride["as_int"]) for stride in meta["strides"])
    offset = _whole(meta["storage_offset"]["as_int"])
    if len(shape) > 64:
        raise broken(f"{archive.name}: {name!r} has {len(shape)} dimensions")
    if meta["layout"] != _STRIDED:
        raise broken(f"{archive.name}: {name!r} is sparse, which is not supported")
    dtype = dtype_number(meta["dtype"])

    def read() -> np.ndarray[Any, Any]:
        data = archive.bytes(member)
        if 0 in shape:
            return np.zeros(shape, dtype)
        steps = tuple(stride * dtype.itemsize for stride in strides)
        stored_as = np.dtype(np.uint8) if dtype.kind == "b" else dtype
        try:
            view: Any = np.ndarray(shape, stored_as, data, offset * dtype.itemsize, steps)
        except (TypeError, ValueError) as error:
            raise broken(
                f"{archive.name}: {name!r} with the shape {shape} and strides {strides} does not "
                f"fit its {len(data)} bytes"
            ) from error
        return view != 0 if dtype.kind == "b" else np.array(view, order="C")

    grad = meta["requires_grad"] is True and dtype.kind in "fcV"
    key = (member, shape, strides, offset, dtype) if 0 not in shape else name
    return Stored(key, grad, math.prod(shape) * dtype.itemsize, read, member)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"a size is {value!r}")
    return value
