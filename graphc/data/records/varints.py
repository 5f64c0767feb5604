"""Packed varints to arrays of int64, and back."""

from __future__ import annotations

import numpy as np

from graphc.data.records.wire import LONGEST, UINT64, Malformed, varint
from graphc.ir.dtypes import Array

_FEW = 64  # numbers: for fewer, NumPy is slower than Python


def decode_varints(data: bytes) -> tuple[Array, Array]:
    """Packed varints as int64, and the positions of their last bytes.

    Raises:
        Malformed: a varint is longer than 10 bytes. One that does not end is left out.
    """
    digits = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(digits < 0x80)
    if len(ends) == len(digits):
        return digits.astype(np.int64), ends
    starts = np.empty_like(ends)
    starts[:1] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    more = ends - starts  # bytes after the first one
    longest = int(more.max(initial=0))
    if longest >= LONGEST:
        raise Malformed("a varint does not end")
    # The first bytes of each varint at once: a view in which a word begins at every byte. Its copy
    # is aligned, so that taking words from it is several times faster.
    kind = "<u4" if longest < 4 else "<u8"
    words = np.ndarray((len(data),), kind, data + bytes(8), strides=(1,)).copy()[starts]
    words &= _last(words) - 1
    values = _values(words, longest)
    for place in range(8, longest + 1):  # numbers above 2^56, and all negative ones
        rows = np.flatnonzero(more >= place)
        digit = (digits[starts[rows] + place] & 0x7F).astype(np.uint64)
        values[rows] |= digit << np.uint64(7 * place)
    return values.astype(np.int64, copy=False), ends


def decode_single(data: bytes, starts: Array, sizes: Array) -> Array | None:
    """The varints at some positions as int64; None if there is not exactly one varint, of at most 8
    bytes, in each of these sizes.

    Args:
        data: at least 8 bytes longer than the last varint.
        starts: where they begin.
        sizes: how many bytes each has.
    """
    if sizes.min(initial=1) < 1 or (longest := int(sizes.max(initial=1))) > 8:
        return None
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))[starts]
    last = _last(words)
    if (last != np.uint64(1) << (8 * sizes - 1).view(np.uint64)).any():
        return None
    words &= last - 1
    numbers: Array = _values(words, longest - 1).view(np.int64)
    return numbers


def _last(words: Array) -> Array:
    """The highest bit of the last byte of the varint with which each word begins; 0 if it does not
    end in the word. The bits below it are those of the varint."""
    last: Array = ~words & words.dtype.type(0x8080808080808080 >> 64 - 8 * words.itemsize)
    last &= ~last + 1
    return last


def _values(words: Array, longest: int) -> Array:
    """The numbers in words that begin with the bytes of a varint and then have zeros.

    Args:
        longest: how many bytes the longest varint has after its first one.
    """
    values = words & 0x7F
    for place in range(1, min(longest, 7) + 1):
        values |= words >> place & (0x7F << 7 * place)
    return values


def encode_varints(values: Array) -> bytes:
    """int64 numbers as packed varints."""
    if len(values) <= _FEW:
        return b"".join([varint(value & UINT64) for value in values.tolist()])
    rest = values.view(np.uint64)
    longest = len(varint(int(rest.max())))
    shifted = rest[:, None] >> np.arange(0, 7 * longest, 7, dtype=np.uint64)
    used = shifted != 0
    used[:, 0] = True
    digits = shifted.astype(np.uint8) | np.uint8(0x80)
    digits[np.arange(len(rest)), used.sum(1) - 1] &= 0x7F
    found: bytes = digits[used].tobytes()
    return found
