"""TensorProto <-> NumPy, for every dtype of graphc, and strings (arrays of bytes objects)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from graphc.ir.dtypes import Array, DType, short_name
from graphc.serving.protocol.messages import messages
from graphc.web.failures import Failure

STRING: Final = np.dtype(object)
"""The dtype of strings: an array of `bytes` objects."""

LARGEST_TENSOR: Final = 256 << 20
"""The most bytes of one decoded tensor: a few bytes can ask for any size by repeating a value."""

# name, number (tensorflow/core/framework/types.proto), the field of its values
_TYPES: Final[dict[DType, tuple[str, int, str]]] = {
    np.dtype(np.float32): ("DT_FLOAT", 1, "float_val"),
    np.dtype(np.float64): ("DT_DOUBLE", 2, "double_val"),
    np.dtype(np.int32): ("DT_INT32", 3, "int_val"),
    np.dtype(np.uint8): ("DT_UINT8", 4, "int_val"),
    np.dtype(np.int16): ("DT_INT16", 5, "int_val"),
    np.dtype(np.int8): ("DT_INT8", 6, "int_val"),
    STRING: ("DT_STRING", 7, "string_val"),
    np.dtype(np.complex64): ("DT_COMPLEX64", 8, "scomplex_val"),
    np.dtype(np.int64): ("DT_INT64", 9, "int64_val"),
    np.dtype(np.bool_): ("DT_BOOL", 10, "bool_val"),
    np.dtype(ml_dtypes.bfloat16): ("DT_BFLOAT16", 14, "half_val"),
    np.dtype(np.uint16): ("DT_UINT16", 17, "int_val"),
    np.dtype(np.complex128): ("DT_COMPLEX128", 18, "dcomplex_val"),
    np.dtype(np.float16): ("DT_HALF", 19, "half_val"),
    np.dtype(np.uint32): ("DT_UINT32", 22, "uint32_val"),
    np.dtype(np.uint64): ("DT_UINT64", 23, "uint64_val"),
    np.dtype(ml_dtypes.float8_e5m2): ("DT_FLOAT8_E5M2", 24, "float8_val"),
    np.dtype(ml_dtypes.float8_e4m3fn): ("DT_FLOAT8_E4M3FN", 25, "float8_val"),
    np.dtype(ml_dtypes.float8_e4m3fnuz): ("DT_FLOAT8_E4M3FNUZ", 26, "float8_val"),
    np.dtype(ml_dtypes.float8_e4m3b11fnuz): ("DT_FLOAT8_E4M3B11FNUZ", 27, "float8_val"),
    np.dtype(ml_dtypes.float8_e5m2fnuz): ("DT_FLOAT8_E5M2FNUZ", 28, "float8_val"),
    np.dtype(ml_dtypes.int4): ("DT_INT4", 29, "int_val"),
    np.dtype(ml_dtypes.uint4): ("DT_UINT4", 30, "int_val"),
}
_BY_NUMBER: Final = {number: dtype for dtype, (_, number, _) in _TYPES.items()}
_NIBBLES: Final = {np.dtype(ml_dtypes.int4): np.int8, np.dtype(ml_dtypes.uint4): np.uint8}
# Fields whose packed form is the memory of a little-endian array.
_PACKED: Final = ("float_val", "double_val", "scomplex_val", "dcomplex_val", "bool_val")


def number_of(dtype: DType) -> int:
    """The DataType of a dtype: 1 for float32."""
    return _TYPES[dtype][1]


def name_of(dtype: DType) -> str:
    """The name of a DataType: DT_FLOAT for float32."""
    return _TYPES[dtype][0]


def shown(dtype: DType) -> str:
    """A dtype as messages show it: f32, or string."""
    return "string" if dtype == STRING else short_name(dtype)


def decode(proto: Any, name: str, limit: int = LARGEST_TENSOR) -> Array:
    """The array of a TensorProto, which may be read-only.

    `tensor_content` and the fields of values are read. As in TensorFlow, the last value is repeated
    where there are fewer values than elements, and no value means zeros.

    Args:
        name: of the input, for errors.
        limit: the most bytes of the array.

    Raises:
        Failure: INVALID_ARGUMENT: a dtype that graphc does not have, a wrong number of values or
            bytes, a value out of range, or a shape beyond the limit.
    """
    dtype = _BY_NUMBER.get(proto.dtype)
    if dtype is None:
        raise _wrong(name, f"dtype {proto.dtype} is not supported")
    shape = _shape(proto.tensor_shape, name)
    count = math.prod(shape)
    # NumPy's arrays without elements have a bound too, without the sizes that are 0.
    if math.prod([size or 1 for size in shape]) * dtype.itemsize > limit:
        raise _wrong(name, f"shape {list(shape)} needs more than {limit} bytes")
    content = proto.tensor_content
    if content and dtype != STRING:
        return _from_content(content, dtype, count, name).reshape(shape)
    field = _TYPES[dtype][2]
    read = _packed if field in _PACKED else _unpacked
    values = read(proto, field, dtype, name)
    if len(values) > count:
        raise _wrong(name, f"{len(values)} values for shape {list(shape)}")
    if len(values) < count:
        values = _filled(values, count, dtype)
    return values.reshape(shape)


def _shape(proto: Any, name: str) -> tuple[int, ...]:
    if proto.unknown_rank:
        raise _wrong(name, "the shape has no rank")
    shape = tuple([dim.size for dim in proto.dim])
    if any(size < 0 for size in shape):
        raise _wrong(name, f"shape {list(shape)} has a negative size")
    if len(shape) > 32:
        raise _wrong(name, f"the shape has {len(shape)} axes, at most 32 are supported")
    return shape


def _from_content(content: bytes, dtype: DType, count: int, name: str) -> Array:
    if len(content) != count * dtype.itemsize:
        raise _wrong(
            name,
            f"tensor_content has {len(content)} bytes, expected {count * dtype.itemsize} for "
            f"{count} elements of {shown(dtype)}",
        )
    if dtype.kind == "b" and max(content) > 1:
        raise _wrong(name, "tensor_content of bool has a byte that is neither 0 nor 1")
    if dtype in _NIBBLES:
        return _in_range(np.frombuffer(content, _NIBBLES[dtype]), dtype, name)
    return np.frombuffer(content, dtype)


def _packed(proto: Any, field: str, dtype: DType, name: str) -> Array:
    """The values of a field whose packed form is the memory of an array: written and read again as
    bytes, which is faster than each value as an object of Python."""
    content = getattr(messages().PackedTensor.FromString(proto.SerializeToString()), field)
    if len(content) % dtype.itemsize:
        count = 2 * len(content) // dtype.itemsize
        raise _wrong(name, f"{field} has {count} values, expected pairs")
    return np.frombuffer(content, dtype)


def _unpacked(proto: Any, field: str, dtype: DType, name: str) -> Array:
    """The values of another field."""
    values = getattr(proto, field)
    if field == "string_val":
        found = np.empty(len(values), STRING)
        found[:] = list(values)
        return found
    if field == "float8_val":
        return np.frombuffer(values, dtype)
    if field == "half_val":
        bits = np.array(values, np.int32)
        if bits.size and (bits.min() < 0 or bits.max() > 0xFFFF):
            raise _wrong(name, "half_val has a value that is not in 0 to 65535")
        return bits.astype(np.uint16).view(dtype)
    if field == "int_val":
        return _in_range(np.array(values, np.int32), dtype, name)
    return np.array(values, dtype)


def _in_range(values: Array, dtype: DType, name: str) -> Array:
    if values.dtype == dtype:
        return values
    low, high = range_of(dtype)
    if values.size and (values.min() < low or values.max() > high):
        raise _wrong(name, f"a value is not in {low} to {high}, the range of {shown(dtype)}")
    return values.astype(dtype)


@lru_cache(maxsize=64)
def range_of(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer dtype."""
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _filled(values: Array, count: int, dtype: DType) -> Array:
    if dtype == STRING:
        last: Any = values[-1] if len(values) else b""
    else:
        last = values[-1] if len(values) else np.zeros((), dtype)
    filled = np.full(count, last, dtype)
    filled[: len(values)] = values
    return filled


def encode(array: Array, into: Any = None) -> Any:
    """The PackedTensor of an array; its bytes are those of a TensorProto.

    Values are in the fields that clients read (`float_val` and so on), as TensorFlow Serving
    writes them.

    Args:
        into: an empty PackedTensor to fill; by default a new one.
    """
    proto = messages().PackedTensor() if into is None else into
    array = np.asarray(array)
    if array.dtype.kind in "US":
        array = array.astype(STRING)
    _, proto.dtype, field = _TYPES[array.dtype]
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    flat = np.ascontiguousarray(array).reshape(-1)
    if field == "string_val":
        proto.string_val.extend(map(_bytes, flat.tolist()))
    elif field in _PACKED or field == "float8_val":
        setattr(proto, field, flat.tobytes())
    elif field == "half_val":
        proto.half_val.extend(flat.view(np.uint16).tolist())
    elif array.dtype in _NIBBLES:
        proto.int_val.extend(flat.astype(np.int8).tolist())
    else:
        getattr(proto, field).extend(flat.tolist())
    return proto


def _bytes(word: Any) -> bytes:
    if isinstance(word, str):
        return word.encode("utf-8", "surrogatepass")
    if isinstance(word, bytes):
        return bytes(word)
    raise TypeError(f"an array of objects must contain str or bytes, got {word!r:.80}")


def decode_all(protos: Mapping[str, Any], limit: int = LARGEST_TENSOR) -> dict[str, Array]:
    """The arrays of a map of TensorProtos; `limit` is for all of them together.

    Raises:
        Failure: see `decode`.
    """
    arrays: dict[str, Array] = {}
    for name in protos:
        arrays[name] = decode(protos[name], name, limit)
        limit -= arrays[name].nbytes
    return arrays


def _wrong(name: str, what: str) -> Failure:
    return Failure("INVALID_ARGUMENT", f"input {name!r}: {what}")
