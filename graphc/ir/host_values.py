"""Converts the values that users pass into arrays, by the same rule for every container and
without loss.

A value may be a number, nested lists, an array of NumPy or JAX, or anything that NumPy or DLPack
can read. Its numbers must survive the conversion to the wanted dtype: an integer out of range
would wrap around, a float out of range would become an infinity, and a mask would be dropped. Each
of these is an error. Only the rounding of floats is allowed.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import jax
import numpy as np
from jax import numpy as jnp

from graphc.errors import DTypeError, GraphcError
from graphc.ir.dtypes import (
    SCALAR_DEFAULTS,
    SHORT,
    Array,
    DType,
    as_dtype,
    float_info,
    int_range,
    is_complex,
    is_floating,
    is_integer,
    real_of,
)

_UNMASKED = (np.ndarray, np.generic, jax.Array)  # a masked array has another type
_DEEPEST: Final = 64  # nested lists: the maximum number of axes of NumPy's arrays
_KINDS: Final = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def host_array(value: Any, wanted: DType | None = None) -> Array:
    """`value` as an array of numbers in the byte order of this machine.

    The array may share its memory with `value`. NumPy determines its dtype: int64 or float64 for
    Python's numbers.

    Args:
        value: a number, nested lists, or anything that NumPy or DLPack can read.
        wanted: the dtype that the array will be converted to, if that is known.

    Raises:
        DTypeError: `value` is masked, is not numeric or cannot be read (the cause is then the error
            of reading it), or it has a Python integer that is out of range for `wanted`.
    """
    array = read(value)
    if wanted is not None and array.dtype.kind in ("Of" if is_integer(wanted) else "O"):
        found = _integers(value, wanted)
        if found is not None:
            return found
    if array.dtype.kind in "OSUT":
        raise DTypeError(f"{_text(value)} is not numeric", hint=_advice(value))
    as_dtype(array.dtype)
    return array


def _advice(value: Any) -> str:
    """The hint for a value that is not numeric."""
    numbers = "pass a tensor, a variable, a number or an array of numbers"
    if value is None:
        return f"{numbers}; a function without `return` gives None"
    if isinstance(value, str) and value in {dtype.name for dtype in SHORT}:
        return f'{numbers}; the tensor comes first, as in gc.cast(x, "{value}")'
    if isinstance(value, type):
        return f"make one and call it: {value.__name__}(...)(x)"
    if callable(value):
        return "call it, and pass what it returns: f(x)"
    if isinstance(value, Mapping):
        return "pass one of its values, or list(x.values())"
    return numbers


def number(value: Any, dtype: DType) -> Array | None:
    """A Python number as an array, if it certainly fits the dtype; None for any other value.

    A shortcut for the numbers in expressions, such as `x * 2.0`.
    """
    kind: Any = type(value)
    limits = _safe_range(kind, dtype)
    if limits is None or not limits[0] <= value <= limits[1]:
        return None
    return np.asarray(value, dtype)


def python_kind(value: Any, array: Array) -> type | None:
    """The type of the Python numbers that `value` consists of, or None if it has a dtype.

    Args:
        value: any value.
        array: `host_array(value)`.
    """
    if type(value) in SCALAR_DEFAULTS or isinstance(value, (list, tuple)):
        return _KINDS.get(array.dtype.kind)
    return None


def _integers(value: Any, dtype: DType) -> Array | None:
    """Python integers as an array of an integer dtype, or of float64 if `dtype` is floating or
    complex; None if `value` is anything else.

    NumPy reads a list with a number of 2**63 or more as floats or as objects.

    Raises:
        DTypeError: a number does not fit.
    """
    if not isinstance(value, (int, list, tuple)):
        return None
    try:
        array = np.array(value, object)
    except ValueError:  # rows of different lengths
        return None
    numbers = array.reshape(-1).tolist()
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in numbers):
        return None
    if dtype.kind == "b":
        return None
    limit = int(_greatest(np.dtype(np.float64)))
    low, high = int_range(dtype) if is_integer(dtype) else (-limit, limit)
    if numbers and (min(numbers) < low or max(numbers) > high):
        raise _misfit(dtype, min(numbers), max(numbers))
    return np.array(numbers, dtype if is_integer(dtype) else np.float64).reshape(array.shape)


def fitted(array: Array, dtype: DType) -> Array:
    """`array` in another dtype. All values are preserved, except for the rounding of floats.

    The result is `array` itself if it has the dtype, and a new array otherwise.

    Raises:
        DTypeError: an integer or a float is out of range, a float that is not whole would become
            an integer, an imaginary part would be dropped, or a number other than 0 and 1 would
            become a bool.
    """
    if array.dtype == dtype:
        # The type tells uint64 from np.ulonglong, which equals it, and whose scalars JAX rejects.
        return array if array.dtype.type is dtype.type else array.astype(dtype)
    if is_complex(array.dtype) and not is_complex(dtype):
        array = _real(array, dtype)
    if dtype.kind == "b":
        _check_bools(array)
    if is_integer(dtype):
        _check_integers(array, dtype)
        return array.astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(dtype)
    if array.size and can_overflow(array.dtype, dtype):
        _check_finite(array, result)
    return result


@lru_cache(maxsize=1024)
def can_overflow(source: DType, dtype: DType) -> bool:
    """Whether `dtype` cannot represent the range of `source`."""
    if source == dtype or source.kind == "b" or dtype.kind == "b":
        return False
    if is_integer(dtype):
        low, high = int_range(dtype)
        return not is_integer(source) or int_range(source)[0] < low or int_range(source)[1] > high
    most = _greatest(dtype)
    if is_integer(source):
        return int_range(source)[1] > most
    # Some narrow floats have no infinity, or no NaN.
    return _greatest(source) > most or (_has_infinity(source) and not _has_infinity(dtype))


def shown(value: Any) -> str:
    """The type of a value and the beginning of its text, whatever the value is."""
    return f"{type(value).__name__} {_text(value)}"


def _text(value: Any) -> str:
    try:
        return reprlib.repr(value)[:60]
    except Exception:  # a __repr__ of the user's, or an int of too many digits
        return "..."


def read(value: Any) -> Array:
    """`value` as an array of its own dtype, in the byte order of this machine. The array may share
    its memory with `value`.

    Raises:
        DTypeError: `value` is masked, or cannot be read.
    """
    array = value if type(value) is np.ndarray else _read(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _read(value: Any) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise _masked()
    if isinstance(value, (list, tuple)):
        _check_nest(value, 1)
    if is_typed_key(value):
        value = jax.random.key_data(value)
    try:
        array = np.asanyarray(value)
        if isinstance(array, np.ma.MaskedArray):  # the result of another object's `__array__`
            raise _masked()
        return _by_dlpack(value) if array.dtype.kind == "O" else np.asarray(array)
    except (MemoryError, GraphcError):  # a tensor, which has no value, raises GraphcError
        raise
    except Exception as error:
        if isinstance(value, jax.Array) or not hasattr(value, "__dlpack__"):
            raise _unreadable(value, error) from error
        try:  # NumPy may not know its dtype or device
            return _by_dlpack(value)
        except Exception:
            raise _unreadable(value, error) from error


def is_typed_key(value: Any) -> bool:
    """Whether `value` is an array of keys of `jax.random.key`. Graphs hold the words of keys."""
    dtype = value.dtype if isinstance(value, jax.Array) else None
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _by_dlpack(value: Any) -> Array:
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    with jax.enable_x64(True):
        return np.array(jax.dlpack.from_dlpack(value))


def _check_nest(value: list[Any] | tuple[Any, ...], depth: int) -> None:
    """Rejects lists that are nested too deeply, and masked arrays in them."""
    if depth > _DEEPEST:
        raise DTypeError(
            f"{type(value).__name__}s are nested more than {_DEEPEST} deep",
            hint="pass an array, or lists as deep as the shape is long",
        )
    kinds = set(map(type, value))
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        raise _masked()
    own = [k for k in kinds if hasattr(k, "__array__") and not issubclass(k, _UNMASKED)]
    if own and any(_becomes_masked(item) for item in value if type(item) in own):
        raise _masked()
    if any(issubclass(kind, (list, tuple)) for kind in kinds):
        for item in value:
            if isinstance(item, (list, tuple)):
                _check_nest(item, depth + 1)


def _becomes_masked(value: Any) -> bool:
    try:
        return isinstance(np.asanyarray(value), np.ma.MaskedArray)
    except GraphcError:  # a tensor has no value
        raise
    except Exception:  # raised again when the list is read
        return False


def _masked() -> DTypeError:
    return DTypeError(
        "a masked array would lose its mask",
        hint="pass value.filled(...), or its data and its mask as two arrays",
    )


def _unreadable(value: Any, error: Exception) -> DTypeError:
    lines = str(error).splitlines() or [""]
    return DTypeError(
        f"{shown(value)} cannot be read as an array",
        details=[f"{type(error).__name__}: {lines[0][:200]}"],
        hint="pass an array, or lists of numbers of one length",
    )


def _real(array: Array, dtype: DType) -> Array:
    if array.imag.any():
        raise DTypeError(
            f"{array.dtype} values with an imaginary part do not fit {dtype.name}",
            hint="take the real part, or request a complex dtype",
        )
    return array.real


def _check_bools(array: Array) -> None:
    other = (array != 0) & (array != 1)
    if other.any():
        raise DTypeError(
            f"{array.dtype} values other than 0 and 1 do not fit bool",
            details=[f"{array[other][0]} is one"],
            hint="compare them, as in value != 0",
        )


def _check_integers(array: Array, dtype: DType) -> None:
    if not array.size or not can_overflow(array.dtype, dtype):
        return
    low, high = int_range(dtype)
    if is_floating(array.dtype):
        wide = array.astype(np.float64)
        whole = np.isfinite(wide).all() and np.array_equal(wide, np.trunc(wide))
        if not whole:
            raise DTypeError(
                f"{array.dtype} values that are not whole do not fit {dtype.name}",
                hint="round them first",
            )
        least, most = int(wide.min()), int(wide.max())
    else:
        least, most = int(array.min()), int(array.max())
    if least < low or most > high:
        raise _misfit(dtype, least, most)


def _check_finite(array: Array, result: Array) -> None:
    """Rejects a conversion that produced infinities or NaNs that `array` does not have."""
    if np.isfinite(result).all():
        return
    lost = np.isnan(result) != np.isnan(array)
    lost |= np.isinf(result) != np.isinf(array)
    if lost.any():
        first = array[lost][0]
        raise DTypeError(
            f"{array.dtype} values do not fit {result.dtype}",
            details=[f"{first} would become {result[lost][0]}"],
            hint="request a wider dtype, or scale the values",
        )


def _misfit(dtype: DType, least: int, most: int) -> DTypeError:
    given = _text(least) if least == most else f"{_text(least)} to {_text(most)}"
    return DTypeError(
        f"{given} is out of range for {dtype.name}",
        details=[f"its values run from {_text(least)} to {_text(most)}"],
        hint='request a wider dtype, as in gc.constant(value, "int64")',
    )


@lru_cache(maxsize=256)
def _safe_range(kind: Any, dtype: DType) -> tuple[float, float] | None:
    """The numbers of a Python type that certainly fit a dtype; None if each must be checked."""
    if kind not in (int, float) or dtype.kind == "b":
        return None
    if is_integer(dtype):
        return int_range(dtype) if kind is int else None
    return -_greatest(dtype), _greatest(dtype)


def _greatest(dtype: DType) -> float:
    return float(float_info(dtype).max)


@lru_cache(maxsize=64)
def _has_infinity(dtype: DType) -> bool:
    return math.isinf(float(np.array(np.inf, real_of(dtype))))
