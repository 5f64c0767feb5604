"""JSON values <-> arrays of one dtype, with strict checks that name the failing place."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from graphc.ir.dtypes import Array, DType, is_complex, is_floating
from graphc.serving.protocol.tensors import STRING, range_of, shown
from graphc.web.failures import Failure

_FLOAT64: Final = np.dtype(np.float64)
_DEEPEST: Final = 32


def to_array(value: Any, dtype: DType, where: str, *, careful: bool = True) -> Array:
    """The array of a JSON value: nested lists of numbers, bools, strings or `{"b64": text}`.

    Args:
        where: the place in the request, such as `instances[3]`, for errors.
        careful: check each element. False is faster, and right if the value contains no bool and
            no text: NumPy takes the one for a number, and all texts for as long as the longest.

    Raises:
        Failure: INVALID_ARGUMENT: the lists are ragged, an element has another type or is out of
            the range of the dtype. The error names the element.
    """
    if dtype != STRING and is_complex(dtype):
        raise invalid(f"{where}: JSON has no {shown(dtype)}; use gRPC or a protobuf body")
    if dtype == STRING:
        return _strings(value, where)
    found = None if careful else _at_once(value, dtype)
    if found is None:
        found = _element_by_element(value, dtype, where)
    return _cast(found, dtype, where)


def _at_once(value: Any, dtype: DType) -> Array | None:
    """The array as NumPy reads it, or None if an element may be wrong."""
    try:
        found = np.array(value)
    except (ValueError, TypeError, OverflowError, RecursionError):  # ragged, for example
        return None
    if not found.size or dtype == np.bool_:
        return None
    return found if found.dtype.kind in ("fiu" if is_floating(dtype) else "iu") else None


def _element_by_element(value: Any, dtype: DType, where: str) -> Array:
    """The array, or the error with the exact place."""
    shape = _shape(value, where)
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    flat = []
    for place, element in _elements(value, shape, where):
        if not _is_element(element, dtype):
            raise invalid(f"{place}: expected {shown(dtype)}, got {_text(element)}")
        flat.append(element)
    if dtype != np.bool_ and not is_floating(dtype):
        found = np.empty(len(flat), object)  # integers of any size; `_cast` checks the range
        found[:] = flat
        return found.reshape(shape)
    try:
        return np.array(flat, bool if dtype == np.bool_ else _FLOAT64).reshape(shape)
    except OverflowError:
        raise invalid(f"{where}: an integer is not in the range of {shown(dtype)}") from None


def _is_element(element: Any, dtype: DType) -> bool:
    if dtype == np.bool_:
        return type(element) is bool
    return type(element) is int or (type(element) is float and is_floating(dtype))


def _shape(value: Any, where: str) -> tuple[int, ...]:
    """The shape of nested lists, by their first elements."""
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        if len(shape) > _DEEPEST:
            raise invalid(f"{where}: lists are nested deeper than {_DEEPEST}")
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _elements(value: Any, shape: tuple[int, ...], where: str) -> Iterator[tuple[str, Any]]:
    """Each element with its place.

    Raises:
        Failure: a list has another length than those before it, or is no list.
    """
    if not shape:
        yield where, value
        return
    if not isinstance(value, list):
        raise invalid(f"{where}: expected a list of {shape[0]}, got {_text(value)}")
    if len(value) != shape[0]:
        raise invalid(
            f"{where}: expected {shape[0]} elements as in the first list, got {len(value)}"
        )
    for number, each in enumerate(value):
        yield from _elements(each, shape[1:], f"{where}[{number}]")


def _cast(found: Array, dtype: DType, where: str) -> Array:
    """`found` with the dtype. Values out of its range are errors."""
    if found.dtype == dtype or not found.size:
        return found.astype(dtype, copy=False)
    if is_floating(dtype):
        with np.errstate(over="ignore", invalid="ignore"):
            cast = found.astype(dtype)
            if dtype.kind == "f" and np.isfinite(cast).all():
                return cast
            wrong = ~np.isfinite(cast.astype(_FLOAT64)) & np.isfinite(found.astype(_FLOAT64))
    else:
        low, high = range_of(dtype)
        wrong = np.asarray((found < low) | (found > high), np.bool_)
        cast = found if wrong.any() else found.astype(dtype)
    if wrong.any():
        at = np.unravel_index(int(np.argmax(wrong)), found.shape)
        place = where + "".join(f"[{index}]" for index in at)
        value = found[at] if found.dtype == object else found[at].item()
        raise invalid(f"{place}: {_text(value)} is not in the range of {shown(dtype)}")
    return cast


def _strings(value: Any, where: str) -> Array:
    shape = _shape(value, where)
    found = np.empty(math.prod(shape), STRING)
    if found.size:
        for number, (place, element) in enumerate(_elements(value, shape, where)):
            if isinstance(element, str):
                found[number] = element.encode("utf-8", "surrogatepass")
            elif (raw := b64_of(element, place)) is not None:
                found[number] = raw
            else:
                raise invalid(f"{place}: expected a string, got {_text(element)}")
    return found.reshape(shape)


def b64_of(value: Any, where: str) -> bytes | None:
    """The bytes of `{"b64": text}`; None for another value.

    Raises:
        Failure: the text is not base64.
    """
    if not isinstance(value, dict) or value.keys() != {"b64"}:
        return None
    text = value["b64"]
    try:
        if not isinstance(text, str):
            raise ValueError
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{where}: b64 must be base64 text, got {_text(text)}") from None


def from_array(array: Array, *, b64: bool = False) -> Any:
    """The JSON value of an array. NaN and infinities stay floats, which JSON writes as NaN,
    Infinity and -Infinity.

    Args:
        b64: write strings as `{"b64": text}`, as for outputs whose names end in `_bytes`.

    Raises:
        Failure: UNIMPLEMENTED: JSON has no complex numbers.
    """
    dtype = array.dtype
    if dtype.kind in "OSU":
        return _text_of(array.tolist(), b64)
    if is_complex(dtype):
        raise Failure("UNIMPLEMENTED", f"JSON has no {shown(dtype)}; use gRPC or a protobuf body")
    if dtype.kind not in "fiub":  # a dtype of ml_dtypes
        array = array.astype(np.float32 if is_floating(dtype) else np.int16)
    return array.tolist()


def _text_of(value: Any, b64: bool) -> Any:
    if isinstance(value, list):
        return [_text_of(each, b64) for each in value]
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
    if b64:
        return {"b64": base64.b64encode(raw).decode()}
    return raw.decode("utf-8", "replace")


def invalid(message: str) -> Failure:
    """A failure of the request itself."""
    return Failure("INVALID_ARGUMENT", message)


def _text(value: Any) -> str:
    """A JSON value in an error: short, and safe for values of any size and depth."""
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return f"an integer of {value.bit_length()} bits"
    return "null" if value is None else f"{value!r:.60}"
