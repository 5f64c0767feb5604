"""`example` and `sequence_example`: values to serialized protobuf messages."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphc.data.records.specs import Numbers, is_real
from graphc.data.records.varints import encode_varints
from graphc.data.records.wire import NUMBERS, field, field_of, head, varint
from graphc.errors import DTypeError, FeedError
from graphc.ir.calls import explained
from graphc.ir.dtypes import is_integer
from graphc.ir.host_values import read

FeatureValue: TypeAlias = bytes | str | Numbers | Sequence[bytes] | Sequence[str] | None
"""What a feature may be made of."""

_SMALL = 4096  # bytes: copying them again costs less than keeping them in parts
_FLOAT = struct.Struct("<f")
_FLOAT32 = 3.4028234e38  # a bit less than the greatest float32
_LIST_OF_FEATURES = "sequences: a list of values, or an array [steps, ...]"


@explained
def example(features: Mapping[str, FeatureValue]) -> bytes:
    """A serialized `tf.train.Example`.

    Args:
        features: a value for each name. Integers and bool become an int64_list, floats a float_list
            (float32), bytes and text (as UTF-8) a bytes_list. Arrays lose their shape: write it
            as a feature of its own, if records differ in it. None and `[]` make a feature without
            values.

    Raises:
        DTypeError: a value is none of these, or is out of range.

    Examples:
        >>> record = gc.data.example({"name": "Ada", "age": 36, "size": [1.5, 2.5]})
        >>> gc.data.parse_example(record)
        {'age': array([36]), 'name': [b'Ada'], 'size': array([1.5, 2.5], dtype=float32)}
    """
    return field_of(1, *_features("example", features))


@explained
def sequence_example(
    context: Mapping[str, FeatureValue], sequences: Mapping[str, Iterable[FeatureValue]]
) -> bytes:
    """A serialized `tf.train.SequenceExample`.

    Args:
        context: a value for each name; see `example`.
        sequences: for each name one value for each step.

    Raises:
        DTypeError: a value cannot be represented.

    Examples:
        >>> record = gc.data.sequence_example({"label": 1}, {"words": ["to", "be"]})
        >>> spec = gc.data.FixedLen((), str)
        >>> _, steps = gc.data.parse_sequence_examples([record], sequences={"words": spec})
        >>> steps["words"].rows()
        [array(['to', 'be'], dtype=object)]
    """
    name = "sequence_example"
    lists = []
    for key, steps in _checked(name, sequences):
        if steps is None or isinstance(steps, (bytes, str)) or not hasattr(steps, "__iter__"):
            raise DTypeError.here(
                f"{name}: the sequence {key!r} is {type(steps).__name__}, expected one value for "
                "each step",
                hint=_LIST_OF_FEATURES,
            )
        body = [
            field(1, _feature(name, f"step {number} of {key!r}", value))
            for number, value in enumerate(steps)
        ]
        lists.append(_named(key, b"".join(body)))
    return field_of(1, *_features(name, context)) + field_of(2, *lists)


def _features(name: str, features: Any) -> list[bytes]:
    return [_named(key, _feature(name, repr(key), each)) for key, each in _checked(name, features)]


def _named(key: str, value: bytes) -> bytes:
    """An entry of a map."""
    name = field(1, key.encode())
    if len(value) < _SMALL:
        return field(1, name + field(2, value))
    return field_of(1, name, head(2, len(value)), value)


def _checked(name: str, values: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(values, Mapping):
        raise FeedError.here(
            f"{name}: takes a dict of names and values, got {type(values).__name__}"
        )
    for key in values:
        if not isinstance(key, str):
            raise DTypeError.here(f"{name}: the name {key!r} is {type(key).__name__}, expected str")
        _element(name, "a name", key)
    return values.items()


def _feature(name: str, where: str, value: Any) -> bytes:
    """A Feature: one of three lists, or none."""
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return b""
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        element = _element(name, where, value)
        if len(element) < _SMALL:
            return field(1, field(1, element))
        return field_of(1, head(1, len(element)), element)
    if type(value) is int and -(1 << 63) <= value < 1 << 63:  # without an array, 5 times faster
        return _list("int64_list", field(1, varint(value & (1 << 64) - 1)))
    if type(value) is float and (abs(value) < _FLOAT32 or value - value != 0):
        return _list("float_list", field(1, _FLOAT.pack(value)))
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSUT":
        value = value.ravel().tolist()
    if isinstance(value, (list, tuple)) and (
        not value or isinstance(value[0], (bytes, bytearray, memoryview, str))
    ):
        parts = (field(1, _element(name, where, each)) for each in value)
        return _list("bytes_list", b"".join(parts))
    try:
        array = np.ravel(value if type(value) is np.ndarray else read(value))
    except DTypeError as error:
        raise _no_feature(name, where, value) from error
    if array.dtype == np.bool_ or array.dtype.kind in "iu":
        return _list("int64_list", _packed(encode_varints(_int64(name, where, array))))
    if not is_real(array.dtype):
        raise _no_feature(name, where, value)
    if array.dtype.kind != "f" and is_integer(array.dtype):  # int4 and the like
        return _list("int64_list", _packed(encode_varints(array.astype(np.int64))))
    return _list("float_list", _packed(_float32(name, where, array).tobytes()))


def _packed(data: bytes) -> bytes:
    return field(1, data) if data else b""


def _list(kind: str, data: bytes) -> bytes:
    return field(NUMBERS[kind], data)


def _element(name: str, where: str, value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise DTypeError.here(
                f"{name}: {where}: {value!r:.80} cannot be encoded as UTF-8 ({error.reason})"
            ) from None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise DTypeError.here(
        f"{name}: {where}: the elements are not all bytes or text: {type(value).__name__}"
    )


def _int64(name: str, where: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DTypeError.here(
            f"{name}: {where}: {int(array.max())} does not fit int64",
            hint="array.view(np.int64) keeps the bits",
        )
    return array.astype(np.int64)


def _float32(name: str, where: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.itemsize <= 4:  # no float of these is out of range
        return array.astype("<f4", copy=False)
    with np.errstate(over="ignore"):
        found = array.astype("<f4")
    lost = np.isinf(found) & np.isfinite(array)
    if lost.any():
        raise DTypeError.here(
            f"{name}: {where}: {array[lost][0]} does not fit float32",
            hint="write array.tobytes(), and read it by gc.data.Raw",
        )
    return found


def _no_feature(name: str, where: str, value: Any) -> DTypeError:
    return DTypeError.here(
        f"{name}: {where}: no feature can be made of {type(value).__name__}: {value!r:.80}",
        hint="bytes, text, integers, floats, or lists and arrays of one of these",
    )
