"""The memory of fed values. graphc copies a value unless its memory can never change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir.dtypes import Array

_ALIGNMENT = 64  # bytes. JAX (0.10 to 0.12) on CPUs aliases arrays that begin at a multiple of it.
_LARGE = 1 << 18  # bytes: from this size on, a copy takes longer than allocating aligned memory


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialised array whose memory XLA uses directly. XLA copies arrays without this
    alignment."""
    count = math.prod(shape) * dtype.itemsize
    memory = np.empty(count + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    array: Array = memory[start : start + count].view(dtype).reshape(shape)
    return array


def is_aligned(array: Array) -> bool:
    """Whether JAX on CPUs uses the memory of an array directly."""
    return bool(array.ctypes.data % _ALIGNMENT == 0)


def own(array: Array) -> Array:
    """The array if its memory cannot change, and otherwise a copy of it."""
    if not array.flags.writeable and cannot_change(array):
        return array
    return array.copy() if array.nbytes < _LARGE else _aligned_copy(array)


def _aligned_copy(array: Array) -> Array:
    copy = aligned(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def cannot_change(array: Any) -> bool:
    """Whether it is certain that an array's memory cannot be written to.

    A read-only array proves nothing: the owner of its memory can make it writeable again, and a
    read-only view shows what is written to a bytearray, to a mapped file or to the array behind it.
    A buffer of JAX may be the memory of a NumPy array, since `jax.device_put` and
    `jax.dlpack.from_dlpack` do not copy aligned memory. Only the memory of `bytes` is certain.
    """
    while isinstance(array, (np.ndarray, memoryview)):
        if isinstance(array, np.ndarray):
            if array.flags.writeable:
                return False
            array = array.base
        else:
            if not array.readonly:
                return False
            array = array.obj
    return isinstance(array, bytes)
