"""Large messages of protocol buffers without their large fields, which stay in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from graphc.data.records.wire import Malformed, read_varint, varint

CUT: Final = "*"
Inside = Mapping[tuple[str, int], str]
"""(message, number of a field) -> the message that the field is, or `CUT` for one to leave out."""


class NotAMessage(ValueError):
    """The bytes are not a message of protocol buffers."""


def without_large_fields(
    data: memoryview, kind: str, inside: Inside, least: int, instead: Callable[[int, int], bytes]
) -> bytes:
    """The message in `data` without the fields of at least `least` bytes that `inside` leaves out.

    Args:
        kind: the name of the message.
        instead: (offset in `data`, size) -> the fields that stand in place of one left out.

    Raises:
        NotAMessage: the bytes are not a message.
    """

    def copied(start: int, end: int, kind: str) -> bytes:
        out: list[bytes] = []
        at = start
        while at < end:
            begin = at
            tag, at = _varint(data, at, end)
            if tag & 7 != 2:
                at = _after(data, at, end, tag & 7)
                out.append(bytes(data[begin:at]))
                continue
            size, at = _varint(data, at, end)
            own, at = at, at + size
            if at > end:
                raise NotAMessage("a field ends behind its message")
            inner = inside.get((kind, tag >> 3)) if size >= least else None
            if inner is None:
                out.append(bytes(data[begin:at]))
            elif inner == CUT:
                out.append(instead(own, size))
            else:
                content = copied(own, at, inner)
                out += [varint(tag), varint(len(content)), content]
        return b"".join(out)

    return copied(0, len(data), kind)


def field(number: int, value: int | bytes) -> bytes:
    """A field of a message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def _after(data: memoryview, at: int, end: int, kind: int) -> int:
    """The position after a field that is a number."""
    if kind == 0:
        return _varint(data, at, end)[1]
    at += {1: 8, 5: 4}.get(kind, end + 1)
    if at > end:
        raise NotAMessage("a field is of an unknown type, or ends behind its message")
    return at


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    try:
        return read_varint(data, at, end)
    except Malformed as error:
        raise NotAMessage(str(error)) from None
