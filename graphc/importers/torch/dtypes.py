"""PyTorch's dtypes and tensors as those of NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from graphc.importers.torch.call import Refused
from graphc.ir.extras import importing


def torch() -> Any:
    """The package torch.

    Raises:
        MissingExtraError: it is not installed.
    """
    with importing("from_torch: the package torch is not installed", "torch"):
        import torch
    return torch


@cache
def _table() -> dict[Any, Any]:
    t = torch()
    found = {
        t.bool: np.bool_,
        t.uint8: np.uint8,
        t.int8: np.int8,
        t.int16: np.int16,
        t.int32: np.int32,
        t.int64: np.int64,
        t.float16: np.float16,
        t.bfloat16: ml_dtypes.bfloat16,
        t.float32: np.float32,
        t.float64: np.float64,
        t.complex64: np.complex64,
        t.complex128: np.complex128,
        t.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
        t.float8_e5m2: ml_dtypes.float8_e5m2,
    }
    for name in ("uint16", "uint32", "uint64"):
        if hasattr(t, name):
            found[getattr(t, name)] = getattr(np, name)
    return found


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """The dtype of graphc for one of PyTorch. Programs from files have those of graphc already.

    Raises:
        Refused: there is none.
    """
    if isinstance(dtype, np.dtype):
        return dtype
    found = _table().get(dtype)
    if found is None:
        raise Refused(f"uses {dtype}, which is not supported")
    own: np.dtype[Any] = np.dtype(found)
    return own


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """The value of a tensor, copied: an array that nobody can write to.

    Raises:
        Refused: its dtype or layout is not supported.
    """
    t = torch()
    if tensor.layout != t.strided or tensor.is_quantized:
        raise Refused("is a sparse or quantized tensor, which is not supported")
    dtype = dtype_of(tensor.dtype)
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if dtype.kind == "V" or dtype.name.startswith(("bfloat", "float8")):
        bits = {1: t.uint8, 2: t.int16}[dtype.itemsize]
        plain = plain.view(bits)
    array: np.ndarray[Any, Any] = plain.numpy()
    if not array.size:
        return np.zeros(array.shape, dtype)
    return np.frombuffer(array.tobytes(), dtype).reshape(array.shape)
