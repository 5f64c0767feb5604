"""TensorFlow's dtypes, shapes and constant tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import ml_dtypes
import numpy as np

from graphc.errors import ModelFileError, UnknownNameError, nearest
from graphc.ir.dtypes import Array
from graphc.ir.mapped import MappedFile, array_in

STRING: Final = np.dtype(object)  # an array of bytes objects
DTYPES: Final[dict[int, np.dtype[Any]]] = {
    number: np.dtype(kind)
    for number, kind in {
        1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8, 7: object,
        8: np.complex64, 9: np.int64, 10: np.bool_, 11: np.int8, 12: np.uint8, 13: np.int32,
        14: ml_dtypes.bfloat16, 15: np.int16, 16: np.uint16, 17: np.uint16, 18: np.complex128,
        19: np.float16, 22: np.uint32, 23: np.uint64, 24: ml_dtypes.float8_e5m2,
        25: ml_dtypes.float8_e4m3fn, 29: ml_dtypes.int4, 30: ml_dtypes.uint4,
    }.items()
}  # fmt: skip
"""By the numbers of TensorFlow's DataType. Quantised dtypes are integers; RESOURCE and VARIANT have
no dtype here."""

_FIELDS: Final = {  # the field of a TensorProto that holds the numbers, by the dtype
    1: "float_val", 2: "double_val", 3: "int_val", 4: "int_val", 5: "int_val", 6: "int_val",
    7: "string_val", 8: "scomplex_val", 9: "int64_val", 10: "bool_val", 11: "int_val",
    12: "int_val", 13: "int_val", 14: "half_val", 15: "int_val", 16: "int_val", 17: "int_val",
    18: "dcomplex_val", 19: "half_val", 22: "uint32_val", 23: "uint64_val", 29: "int_val",
    30: "int_val",
}  # fmt: skip
_MOST_BYTES: Final = 1 << 31  # as in TensorFlow, whose protobufs are smaller than 2 GiB
_MOST_REPEATED: Final = 1 << 28  # of a value that fills a shape


def dtype_of(number: int, what: str) -> np.dtype[Any]:
    """The dtype of a DataType's number; references (of variables) have that of the value.

    Raises:
        ModelFileError: it has none.
    """
    found = DTYPES.get(number - 100 if number > 100 else number)
    if found is None:
        raise broken(f"{what} has the dtype number {number}, which is not of tensors")
    return found


def broken(text: str, *details: str) -> ModelFileError:
    """The error of a file that TensorFlow cannot have written."""
    return ModelFileError.here(text, details=details)


def shape_of(proto: Any) -> tuple[int | None, ...] | None:
    """The sizes of a TensorShapeProto, None where unknown; None if the rank is unknown."""
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)


def sizes_of(proto: Any, what: str) -> tuple[int, ...]:
    """The sizes of a TensorShapeProto.

    Raises:
        ModelFileError: one of them is unknown.
    """
    shape = shape_of(proto)
    if shape is None or None in shape:
        raise broken(f"{what} has an unknown shape")
    return tuple(int(size or 0) for size in shape)


def array_of(proto: Any, what: str, file: MappedFile | None = None) -> Array:
    """The array of a TensorProto. The last value fills what the proto does not list.

    Args:
        file: that of the proto, if contents of large tensors were left in it.

    Raises:
        ModelFileError: the values do not fit the shape and dtype.
    """
    dtype = dtype_of(proto.dtype, what)
    shape = shape_of(proto.tensor_shape)
    if shape is None or None in shape:
        raise broken(f"{what} is a constant of an unknown shape")
    sizes = tuple(int(size or 0) for size in shape)
    if len(sizes) > 32:
        raise broken(f"{what} is a constant of {len(sizes)} axes")
    count = math.prod(sizes)
    if proto.left_out_size and file is not None:
        return _in_file(file, proto, dtype, sizes, what)
    if proto.tensor_content and dtype.kind != "O":
        return _of_bytes(proto.tensor_content, dtype, sizes, what)
    values = _values(proto, dtype, what)
    if count > _MOST_REPEATED or count * dtype.itemsize > _MOST_BYTES or len(values) > count:
        raise broken(f"{what} has {len(values)} values for the shape {sizes}")
    if len(values) == count:
        return values.reshape(sizes)
    last = values[-1:] if len(values) else _zero(dtype)
    filled = np.empty(count, dtype)
    filled[: len(values)] = values
    filled[len(values) :] = last[0]
    return filled.reshape(sizes)


def _zero(dtype: np.dtype[Any]) -> Array:
    return _strings([b""]) if dtype.kind == "O" else np.zeros(1, dtype)


def _strings(values: Any) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _of_bytes(content: bytes, dtype: np.dtype[Any], sizes: tuple[int, ...], what: str) -> Array:
    if len(content) != math.prod(sizes) * dtype.itemsize:
        raise broken(f"{what} has {len(content)} bytes for {dtype.name}{list(sizes)}")
    little = dtype if dtype.kind == "V" or dtype.itemsize == 1 else dtype.newbyteorder("<")
    return np.frombuffer(content, little).astype(dtype).reshape(sizes)


def _in_file(
    file: MappedFile, proto: Any, dtype: np.dtype[Any], sizes: tuple[int, ...], what: str
) -> Array:
    offset, size = proto.left_out_offset, proto.left_out_size
    if size != math.prod(sizes) * dtype.itemsize or not 0 <= offset <= len(file) - size:
        raise broken(f"{what} has {size} bytes for {dtype.name}{list(sizes)}")
    return array_in(file, offset, sizes, dtype)


def _values(proto: Any, dtype: np.dtype[Any], what: str) -> Array:
    number = proto.dtype - 100 if proto.dtype > 100 else proto.dtype
    if number in (24, 25):
        return np.frombuffer(proto.float8_val, dtype)
    listed = getattr(proto, _FIELDS[number])
    if number == 7:
        return _strings(list(listed))
    if number in (14, 19):  # half_val: the bits of each number as an int
        return np.array(listed, np.int64).astype(np.uint16).view(dtype)
    if number in (8, 18):  # real and imaginary parts in turn
        if len(listed) % 2:
            raise broken(f"{what} has a complex number without imaginary part")
        return np.array(listed, np.float64).view(np.complex128).astype(dtype)
    with np.errstate(over="ignore"):
        wide = (
            np.int64 if (dtype.kind in "iu" and dtype.itemsize < 8) or number in (29, 30) else dtype
        )
        return np.array(listed, wide).astype(dtype)


class DTypeNumber(int):
    """The value of an attribute of type `type`: the number of a DataType."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype.

        Raises:
            ModelFileError: it has none.
        """
        return dtype_of(int(self), "an attribute")


class FunctionName(str):
    """The value of an attribute of type `func`: the name of a function of the library."""


def attribute(proto: Any, what: str, file: MappedFile | None = None) -> Any:
    """The value of an AttrValue: bytes, int, float, bool, `DTypeNumber`, a shape (a tuple, or None
    for an unknown rank), an array, `FunctionName`, a list of these, or None for a placeholder."""
    kind = proto.WhichOneof("value")
    if kind == "type":
        return DTypeNumber(proto.type)
    if kind == "shape":
        return shape_of(proto.shape)
    if kind == "tensor":
        return array_of(proto.tensor, what, file)
    if kind == "func":
        return FunctionName(proto.func.name)
    if kind == "list":
        return _list(proto.list, what, file)
    if kind in (None, "placeholder"):
        return None
    return getattr(proto, kind)


def _list(proto: Any, what: str, file: MappedFile | None) -> list[Any]:
    for field in ("s", "i", "f", "b"):
        if getattr(proto, field):
            return list(getattr(proto, field))
    if proto.type:
        return [DTypeNumber(number) for number in proto.type]
    if proto.shape:
        return [shape_of(shape) for shape in proto.shape]
    if proto.func:
        return [FunctionName(f.name) for f in proto.func]
    return [array_of(tensor, what, file) for tensor in proto.tensor]


def no_key(checkpoint: str, key: str, keys: Iterable[str]) -> UnknownNameError:
    """The error for a key that a checkpoint does not have."""
    return UnknownNameError.here(
        f"read_tf_checkpoint: {checkpoint} has no {key!r}", hint=nearest(key, keys)
    )
