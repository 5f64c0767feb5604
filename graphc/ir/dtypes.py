"""The list of dtypes, their short names, and promotion by JAX's lattice.

A dtype is a `numpy.dtype` (the narrow floats and 4-bit integers come from `ml_dtypes`, as in JAX).
64-bit dtypes have no special role: this module does not depend on JAX's global x64 flag.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import jax
import ml_dtypes
import numpy as np
from jax import numpy as jnp

from graphc.errors import DTypeError, nearest

DType = np.dtype
Array = np.ndarray[Any, Any]

_SHORT: Final[dict[str, Any]] = {
    "bool": np.bool_,
    "i4": ml_dtypes.int4,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u4": ml_dtypes.uint4,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
}
BY_SHORT: Final[dict[str, DType]] = {short: np.dtype(t) for short, t in _SHORT.items()}
SHORT: Final[dict[DType, str]] = {dtype: short for short, dtype in BY_SHORT.items()}
# In NumPy these names denote other types. Only the text form, which `BY_SHORT` reads, may contain
# them.
_AMBIGUOUS: Final = ("i4", "i8", "u4", "u8")
_BY_LONG: Final[dict[str, DType]] = {dtype.name: dtype for dtype in SHORT}

BOOL = np.dtype(np.bool_)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT32 = np.dtype(np.uint32)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
WIDE_FLOATS = (FLOAT32, FLOAT64)
COMPLEX64 = np.dtype(np.complex64)
COMPLEX128 = np.dtype(np.complex128)

# The dtype of a Python scalar when no array determines it (JAX's defaults without x64).
SCALAR_DEFAULTS: Final[dict[type, DType]] = {
    bool: BOOL,
    int: INT32,
    float: FLOAT32,
    complex: COMPLEX64,
}
KIND_RANKS: Final = {"bool": 0, "integer": 1, "floating": 2, "complex": 3}
_KIND_ORDER: Final[dict[type, int]] = {bool: 0, int: 1, float: 2, complex: 3}


@lru_cache(maxsize=1024)
def _as_dtype(value: Any) -> DType:
    if value in SCALAR_DEFAULTS:
        return SCALAR_DEFAULTS[value]
    if isinstance(value, str):
        if value in _AMBIGUOUS:
            raise DTypeError.here(
                f"{value!r} counts bits in the texts of graphc and bytes in NumPy",
                hint=f"write {BY_SHORT[value].name!r} or {np.dtype(value).name!r}",
            )
        found = BY_SHORT.get(value) or _BY_LONG.get(value)
        if found is not None:
            return found
    dtype: DType | None = None
    with suppress(TypeError):  # not a NumPy dtype either: rejected below
        dtype = np.dtype(value)
    if dtype is None or dtype not in SHORT:
        raise _no_dtype(value)
    # NumPy has two dtypes that equal uint64; JAX rejects scalars of one of them, np.ulonglong.
    return BY_SHORT[SHORT[dtype]]


def _no_dtype(value: Any) -> DTypeError:
    return DTypeError.here(
        f"{value!r} is not a dtype of graphc",
        details=[f"dtypes: {', '.join(sorted(_BY_LONG))}"],
        hint=_dtype_hint(value),
    )


def _dtype_hint(value: Any) -> str | None:
    if isinstance(value, (int, float, tuple, list)):
        return 'a dtype is a name such as "float32"; the sizes of a shape are one tuple: (3, 4)'
    if isinstance(value, str) and (found := nearest(value, _BY_LONG)):
        return found
    return "strings and objects live on the host only; pass numbers"


def as_dtype(value: Any) -> DType:
    """`value` (a dtype, a NumPy or JAX scalar type, a long or short name) as a dtype.

    >>> as_dtype("float32") == as_dtype("f32") == as_dtype(np.float32)
    True
    """
    # Short names come first, because NumPy reads the number in "f16" as bytes, not as bits.
    if type(value).__hash__ is None:  # a list
        raise _no_dtype(value)
    return _as_dtype(value)


def scalar_of(value: Any, dtype: DType) -> Any:
    """`value` as a NumPy scalar that JAX accepts.

    >>> type(scalar_of(3, np.dtype(np.ulonglong))) is np.uint64
    True
    """
    return as_dtype(dtype).type(value)


def short_name(dtype: DType) -> str:
    """The name used by the text form: `f32`, `i64`, `bf16`, `bool`. Strings, which no program has,
    are `string`: messages show the types of signatures too."""
    return "string" if dtype.kind == "O" else SHORT[dtype]


def is_floating(dtype: DType) -> bool:
    """Whether `dtype` is a real floating type, including the narrow ones."""
    return SHORT[dtype][0] == "f" or dtype == ml_dtypes.bfloat16


def is_complex(dtype: DType) -> bool:
    """Whether `dtype` is complex."""
    return dtype.kind == "c"


def is_inexact(dtype: DType) -> bool:
    """Whether `dtype` is floating or complex: the dtypes that carry gradients."""
    return is_floating(dtype) or is_complex(dtype)


def is_integer(dtype: DType) -> bool:
    """Whether `dtype` is a signed or unsigned integer. bool is not an integer."""
    return SHORT[dtype][0] in "iu"


def is_64bit(dtype: DType) -> bool:
    """Whether JAX needs `enable_x64` for this dtype."""
    return SHORT[dtype] in ("i64", "u64", "f64", "c128")


def kind_of(dtype: DType) -> str:
    """One of `bool`, `integer`, `floating`, `complex`: feeds are cast within a kind only."""
    if dtype == BOOL:
        return "bool"
    if is_integer(dtype):
        return "integer"
    return "complex" if is_complex(dtype) else "floating"


@lru_cache(maxsize=4096)
def promote(a: DType, b: DType) -> DType:
    """The dtype that JAX's lattice gives for two arrays of these dtypes (not weak types)."""
    if a == b:
        return a
    with jax.enable_x64(True):
        try:
            return np.dtype(jnp.promote_types(a, b))
        except (TypeError, ValueError) as error:  # the narrow types have no implicit promotion
            raise DTypeError(
                f"no implicit promotion between {a.name} and {b.name}",
                hint="cast one of them: gc.cast(t, dtype)",
            ) from error


@lru_cache(maxsize=4096)
def promote_scalar(dtype: DType, scalar: Any) -> DType:
    """The dtype of an array of `dtype` combined with a weak Python scalar of type `scalar`.

    A scalar of the same or a lower kind does not change the dtype. A scalar of a higher kind gives
    the default of that kind: a float with integers gives float32, a complex with float64 gives
    complex128.
    """
    kind = KIND_RANKS[kind_of(dtype)]
    if _KIND_ORDER[scalar] <= kind:
        return dtype
    if scalar is complex and kind == 2:
        return np.dtype(np.complex128) if dtype == np.float64 else COMPLEX64
    return SCALAR_DEFAULTS[scalar]


@lru_cache(maxsize=64)
def real_of(dtype: DType) -> DType:
    """The dtype of the real part: float32 for complex64; `dtype` itself if it is real."""
    if not is_complex(dtype):
        return dtype
    return np.dtype(np.float32 if dtype == np.complex64 else np.float64)


@lru_cache(maxsize=64)
def int_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of `dtype`."""
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


@lru_cache(maxsize=64)
def float_info(dtype: DType) -> Any:
    """`finfo` of a floating dtype, or of the real part of a complex dtype."""
    return ml_dtypes.finfo(real_of(dtype))  # type: ignore[no-untyped-call]
