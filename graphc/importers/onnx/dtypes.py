"""ONNX's element types as dtypes."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from graphc.importers.onnx.call import Refused

_TYPES: Final[dict[int, Any]] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    8: object,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
    12: np.uint32,
    13: np.uint64,
    14: np.complex64,
    15: np.complex128,
    16: ml_dtypes.bfloat16,
    17: ml_dtypes.float8_e4m3fn,
    18: ml_dtypes.float8_e4m3fnuz,
    19: ml_dtypes.float8_e5m2,
    20: ml_dtypes.float8_e5m2fnuz,
    21: ml_dtypes.uint4,
    22: ml_dtypes.int4,
}
STRING: Final = 8


def dtype_of(number: int) -> np.dtype[Any]:
    """The dtype of an element type.

    Raises:
        Refused: there is none.
    """
    found = _TYPES.get(number)
    if found is None:
        from onnx import TensorProto

        names = {value: name for name, value in TensorProto.DataType.items()}
        name = names.get(number, str(number))
        raise Refused(f"uses the element type {name}, which is not supported")
    dtype: np.dtype[Any] = np.dtype(found)
    return dtype
