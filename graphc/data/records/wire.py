"""The bytes of one feature: protobuf's wire format, read within its bounds.

A feature is one of three lists, BytesList, FloatList or Int64List, as a field with tag 0x0A, 0x12
or 0x1A. The list has its values in field 1: for numbers packed (all in one) or each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

KINDS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
NUMBERS = {kind: number for number, kind in KINDS.items()}
_VARINT, _FIXED64, _BYTES, _START, _END, _FIXED32 = range(6)
FIRST, SECOND = (number << 3 | _BYTES for number in (1, 2))  # tags of fields of bytes
TAGS = {kind: number << 3 | _BYTES for kind, number in NUMBERS.items()}
LONGEST = 10  # bytes of a varint
_CACHED = 4096  # prefixes
UINT64 = (1 << 64) - 1
_DEEPEST = 100  # groups, which are unknown fields of protobuf's first version


class Malformed(Exception):
    """The bytes are not in protobuf's wire format."""


class OtherKind(Exception):
    """The feature has values of another kind; the argument names it."""


class Field(NamedTuple):
    """A field of a message: its number, its wire type and the bytes of its value."""

    number: int
    wire: int
    value: bytes


def varint(value: int) -> bytes:
    """A number from 0 to 2^64 - 1 as a varint."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    found = []
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def read_varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number that begins at position `at`, and the position after it.

    Raises:
        Malformed: it does not end before `end`.
    """
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise Malformed("a number ends behind its message")


def field(number: int, value: bytes) -> bytes:
    """A field of bytes."""
    size = len(value)
    if size < 0x80:
        return bytes((number << 3 | _BYTES, size)) + value
    return head(number, size) + value


def field_of(number: int, *parts: bytes) -> bytes:
    """A field of bytes that are in several parts, which are copied once."""
    return b"".join((head(number, sum(map(len, parts))), *parts))


def head(number: int, size: int) -> bytes:
    """What comes before the bytes of a field."""
    return bytes((number << 3 | _BYTES,)) + varint(size)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint and the position after it."""
    value = shift = 0
    for place in range(at, min(at + LONGEST, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & UINT64, place + 1
        shift += 7
    raise Malformed("a varint does not end")


def length_at(data: bytes, at: int) -> tuple[int, int]:
    """A length, which mostly takes one byte, and the position after it.

    Raises:
        Malformed: it does not end.
        IndexError: there is no such position.
    """
    byte = data[at]
    return (byte, at + 1) if byte < 0x80 else _read_varint(data, at)


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message, without unknown groups.

    Raises:
        Malformed: `data` is no message.
    """
    at, size = 0, len(data)
    groups: list[int] = []
    while at < size:
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise Malformed(f"there is no field number {number}")
        start = at
        if wire == _VARINT:
            _, at = _read_varint(data, at)
        elif wire == _BYTES:
            length, start = _read_varint(data, at)
            at = start + length
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        elif wire == _START and len(groups) < _DEEPEST:
            groups.append(number)
        elif wire != _END or not groups or groups.pop() != number:
            raise Malformed(f"wire type {wire} of field {number}")
        if at > size:
            raise Malformed(f"field {number} ends {at - size} bytes after the message")
        if not groups and wire not in (_START, _END):
            yield Field(number, wire, data[start:at])
    if groups:
        raise Malformed("a group does not end")


def list_of(feature: bytes) -> tuple[str | None, bytes]:
    """The kind of a feature and the bytes of its list; None if it has no list.

    Of several lists the last kind counts, and lists of one kind are joined, as in protobuf.
    """
    number = 0
    parts: list[bytes] = []
    for each in fields(feature):
        if each.number in KINDS and each.wire == _BYTES:
            if each.number != number:
                number, parts = each.number, []
            parts.append(each.value)
    return KINDS.get(number), b"".join(parts)


def usual_prefix(kind: str, size: int) -> bytes | None:
    """How a feature of `size` bytes begins that has one packed list, or one element of bytes; None
    if there is no such feature. The bytes after it are those of the numbers, or of the element."""
    outer = _content(size)
    inner = None if outer is None else _content(outer)
    if inner is None:
        return None
    return bytes((NUMBERS[kind] << 3 | _BYTES,)) + varint(outer or 0) + b"\x0a" + varint(inner)


class _Prefixes(dict[int, bytes]):
    """`usual_prefix` by the size of a feature; for other sizes, bytes with which none can begin."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, size: int) -> bytes:
        found = usual_prefix(self._kind, size)
        if found is None:
            return bytes(size + 1)
        if len(self) >= _CACHED:
            self.clear()
        self[size] = found
        return found


PREFIXES = {kind: _Prefixes(kind) for kind in NUMBERS}


def _content(size: int) -> int | None:
    """The length of the value of a field of bytes that takes `size` bytes in all."""
    for digits in range(1, 6):
        length = size - 1 - digits
        if length >= 0 and len(varint(length)) == digits:
            return length
    return None


def _list_of_kind(feature: bytes, kind: str) -> bytes | None:
    found, data = list_of(feature)
    if found is None:
        return None
    if found != kind:
        raise OtherKind(found)
    return data


def packed(kind: str, feature: bytes) -> bytes | None:
    """The numbers of a feature as one packed list; None if it has no list.

    Raises:
        Malformed: the feature is not in the wire format.
        OtherKind: it has another kind of list.
    """
    data = _list_of_kind(feature, kind)
    if data is None:
        return None
    alone = _FIXED32 if kind == "float_list" else _VARINT
    return b"".join(
        each.value for each in fields(data) if each.number == 1 and each.wire in (_BYTES, alone)
    )


def elements(feature: bytes) -> list[bytes] | None:
    """The elements of a feature of bytes; None if it has no list.

    Raises:
        Malformed: the feature is not in the wire format.
        OtherKind: it has another kind of list.
    """
    data = _list_of_kind(feature, "bytes_list")
    if data is None:
        return None
    return [each.value for each in fields(data) if each.number == 1 and each.wire == _BYTES]
