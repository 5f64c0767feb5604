"""Values of attributes: their equality, and their text form.

There are two forms. `write_attr` is short; reading it back needs the attribute's kind.
`write_value` includes the kind, and is used where no kind is declared (attributes of kind `attrs`,
fields of initializers, fingerprints). The text of a Python function cannot be read back.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.errors import TextError
from graphc.ir.dims import DimExpr
from graphc.ir.dtypes import BOOL, SHORT, Array, DType, is_complex, is_integer

READABLE = 64  # arrays up to this number of elements are written as a list
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")


def same_value(a: Any, b: Any) -> bool:
    """Whether two values of attributes have the same type and the same bits.

    `1`, `1.0` and `True` differ. A NaN is the same as itself. Arrays are the same if dtype, shape
    and bytes are equal.
    """
    if a is b:
        return True
    if type(a) is not type(b):
        return isinstance(a, Mapping) and isinstance(b, Mapping) and _same_mapping(a, b)
    if isinstance(a, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and bytes_of(a) == bytes_of(b)
        return bool(same)
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)  # 0.0 is not -0.0, and nan is nan
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, Mapping):
        return _same_mapping(a, b)
    return bool(a == b)


def _same_mapping(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)


def write_attr(kind: str, value: Any, *, elide: bool = False) -> str:
    """An attribute of a declared kind: `true`, `[2, batch]`, `f32`, `f32[2] [0.5, 1.0]`.

    Raises:
        TextError: the value has no written form.
    """
    if value is None:
        return "none"
    if kind == "array":
        return write_array(value, elide=elide)
    if kind == "dtype":
        return _short(value)
    if kind == "dim":
        text = str(value)
        return "(none)" if text == "none" else text  # a size may have the name "none"
    if kind in ("ints", "dims"):
        return f"[{', '.join(map(str, value))}]"
    if kind == "pairs":
        return f"[{', '.join([write_attr('dims', pair) for pair in value])}]"
    if kind == "float":
        return repr(value)
    if kind == "function":
        return f"function({json.dumps(getattr(value, '__qualname__', type(value).__name__))})"
    return write_value(value, array=lambda a: write_array(a, elide=elide))


def write_value(value: Any, *, array: Callable[[Array], str] | None = None) -> str:
    """A value with its kind: `3`, `dim(2*batch)`, `dtype(f32)`, `{axis=1, name="a"}`.

    `array` writes arrays; by default as `write_array` does.

    Raises:
        TextError: the value has no written form.
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({value!r})"
    if type(value) is str:
        return json.dumps(value)
    if isinstance(value, DimExpr):
        return f"dim({value})"
    if isinstance(value, np.dtype):
        return f"dtype({_short(value)})"
    if type(value) is complex:
        return f"complex({value.real!r}, {value.imag!r})"
    if type(value) is tuple:
        return f"[{', '.join([write_value(v, array=array) for v in value])}]"
    if isinstance(value, (np.ndarray, np.generic)):
        return (array or write_array)(np.asarray(value))
    if isinstance(value, Mapping):
        pairs = [
            f"{write_key(key)}={write_value(value[key], array=array)}" for key in sorted(value)
        ]
        return f"{{{', '.join(pairs)}}}"
    raise TextError(
        f"a value of type {type(value).__name__} cannot be written: {value!r:.80}",
        hint="use numbers, strings, dtypes, dims, arrays, tuples and mappings of these",
    )


def write_key(key: Any) -> str:
    """A key of a mapping: without quotes if it is an identifier."""
    if not isinstance(key, str):
        raise TextError(f"a key of a mapping must be a string to be written, got {key!r:.80}")
    return key if _IDENTIFIER.match(key) else json.dumps(key)


def _short(dtype: DType) -> str:
    short = SHORT.get(dtype)
    if short is None:
        raise TextError(f"dtype {dtype} is not one of graphc's, so it cannot be written")
    return short


def write_array(value: Array, *, elide: bool = False) -> str:
    """`f32[2, 2] [[0.0, 1.0], [2.0, 3.0]]`; large arrays as base64 of their raw bytes.

    With `elide`, a large array becomes `f32[1000] ...`, which cannot be read back.
    """
    head = f"{_short(value.dtype)}[{', '.join(map(str, value.shape))}]"
    if value.size <= READABLE:
        numbers = _numbers(value)
        # A NaN may have other bits than the NaN that "nan" denotes.
        if array_of(numbers, value.dtype, value.shape).tobytes() == bytes_of(value):
            texts = iter([_number_text(n, value.dtype) for n in numbers])
            return f"{head} {_nested(texts, value.shape)}"
    elif elide:
        return f"{head} ..."
    return f'{head} "{base64.b64encode(bytes_of(value)).decode("ascii")}"'


def _numbers(value: Array) -> list[Any]:
    """The elements as bools, ints, floats, or (real, imaginary) pairs."""
    if is_complex(value.dtype):
        return [(_float(z.real), _float(z.imag)) for z in value.ravel()]
    kind = bool if value.dtype == BOOL else int if is_integer(value.dtype) else _float
    return [kind(x) for x in value.ravel()]


def _float(x: Any) -> float:
    return math.nan if x != x else float(x)  # the NaN that "nan" denotes


def _number_text(number: Any, dtype: DType) -> str:
    if isinstance(number, tuple):
        return f"({', '.join(map(repr, number))})"
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, float) and dtype in (np.float16, np.float32):
        shortest = str(dtype.type(number))  # 0.1, where repr gives 0.10000000149011612
        return shortest if dtype.type(float(shortest)) == number else repr(number)
    return repr(number)


def _nested(texts: Any, shape: Sequence[int]) -> str:
    if not shape:
        return str(next(texts))
    return f"[{', '.join([_nested(texts, shape[1:]) for _ in range(shape[0])])}]"


def array_of(numbers: Sequence[Any], dtype: DType, shape: Sequence[int]) -> Array:
    """The array with these elements in row-major order: see `_numbers` for their form.

    Raises:
        ValueError: an element does not fit the kind or the range of the dtype.
    """
    if is_complex(dtype):
        parts = _floats([x for pair in numbers for x in pair], np.empty(0, dtype).real.dtype)
        return parts.view(dtype).reshape(shape)
    if dtype == BOOL:
        _require(all(type(n) is bool for n in numbers), "true or false")
        return np.array(numbers, dtype).reshape(shape)
    if is_integer(dtype):
        bits, signed = int(SHORT[dtype][1:]), SHORT[dtype][0] == "i"
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        # In NumPy, 4-bit integers wrap around.
        _require(all(type(n) is int and low <= n <= high for n in numbers), f"{low} to {high}")
        return np.array(numbers, dtype).reshape(shape)
    return _floats(numbers, dtype).reshape(shape)


def _floats(numbers: Sequence[Any], dtype: DType) -> Array:
    _require(all(type(n) in (int, float) for n in numbers), "a number")
    try:
        wide = np.array([float(n) for n in numbers], np.float64)
    except OverflowError:
        wide = np.array([math.inf])
        _require(False, f"a number that {dtype.name} holds")
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = wide.astype(dtype)
    lost = np.isfinite(wide) & ~np.isfinite(narrow.astype(np.float64))
    _require(not lost.any(), f"a number that {dtype.name} holds")
    return narrow


def _require(condition: bool, expected: str) -> None:
    if not condition:
        raise ValueError(expected)


def bytes_of(value: Array) -> bytes:
    """The raw bytes in row-major order, without the bits a bool or 4-bit element leaves unused."""
    if SHORT.get(value.dtype) == "bool":
        return np.not_equal(value.view(np.uint8), 0).tobytes()
    if SHORT.get(value.dtype) in ("i4", "u4"):
        return np.bitwise_and(value.view(np.uint8), 15).tobytes()
    return value.tobytes()


def array_of_bytes(data: bytes, dtype: DType, shape: Sequence[int]) -> Array:
    """The array with these raw bytes.

    Raises:
        ValueError: the number of bytes is wrong, or a bool or 4-bit element has stray bits.
    """
    count = math.prod(shape) * dtype.itemsize
    _require(len(data) == count, f"{count} bytes, got {len(data)}")
    value = np.frombuffer(data, dtype).reshape(shape).copy()
    _require(bytes_of(value) == data, f"bytes of {SHORT[dtype]}")
    return value
