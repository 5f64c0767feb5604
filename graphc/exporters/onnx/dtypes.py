"""Dtypes as ONNX's element types."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from graphc.exporters.onnx.refused import Refused

_NUMBERS: Final = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
    "uint4": 21,
    "int4": 22,
}

SPELLINGS: Final = {
    "float32": "tensor(float)",
    "float64": "tensor(double)",
    **{name: f"tensor({name})" for name in _NUMBERS if name not in ("float32", "float64")},
}
"""How operator schemas write the type of a tensor."""


def number_of(dtype: np.dtype[Any]) -> int:
    """The number of the element type.

    Raises:
        Refused: ONNX's operators take no such tensors.
    """
    found = _NUMBERS.get(dtype.name)
    if found is None:
        raise Refused(f"{dtype.name} tensors have no operators in ONNX")
    return found
