"""Where the features of many Examples lie, found for all records at once.

A writer makes all records in one form: the same features in the same order, each as

    0A length | 0A length, name | 12 length | tag of the kind, length | 0A length | the list

So the names in one record tell how to read the others: the lengths say where each part begins, in
arrays for all records. Every byte around the lists is compared with this form. Records that
differ in one of them are left to protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from graphc.data.records.alike import alike
from graphc.data.records.spans import Spans
from graphc.data.records.wire import FIRST, SECOND, TAGS, Malformed, length_at, varint
from graphc.ir.dtypes import Array

_Wanted: TypeAlias = tuple[tuple[bytes, int], ...]  # names of features and tags of their lists
_Lengths: TypeAlias = Callable[[Array], tuple[Array, Any]]

_FEW = 4  # records: for fewer, NumPy is slower than protobuf
_LARGE = 8192  # bytes of a record: joining larger ones takes longer than protobuf does
_FORMS = 4  # of the records of a batch: more are left to protobuf
_MOST = 1000  # features of a record: more are left to protobuf, since the arrays would be large
_LONGEST = 255  # bytes of a name
_MARGIN = 2 * _LONGEST  # zeros after the last record: what is read beyond it before that is seen
_PAIR = 1 << 14
_TOO_LONG = np.int64(1 << 40)  # a length that no record has


def found(
    records: list[bytes], kinds: Mapping[str, str]
) -> tuple[dict[str, Spans], list[int]] | None:
    """Where the lists of features are.

    Args:
        records: serialized Examples.
        kinds: the names of features, and the names of the lists that they should have.

    Returns:
        The features by name, and the numbers of the records in which nothing was found: `odd` of
        the features is to be filled. None if nothing was found at all.
    """
    count = len(records)
    lengths = np.fromiter(map(len, records), np.int64, count)
    if count < _FEW or not kinds or int(lengths.sum()) > _LARGE * count:
        return None
    wanted = tuple((name.encode(), TAGS[kind]) for name, kind in kinds.items())
    data = b"".join([*records, bytes(_MARGIN)])
    ends = np.cumsum(lengths)
    starts = ends - lengths
    same = alike(records, data, dict(wanted)) if (lengths == lengths[0]).all() else None
    if same is not None:
        places = np.array(same)[..., None]
        begins, left = starts + places[:, 0], np.empty(0, np.intp)
        sizes = np.broadcast_to(places[:, 1] - places[:, 0], begins.shape)
    else:
        begins, sizes, left = _by_forms(records, data, wanted, starts, ends)
    if len(left) == count:
        return None
    lists = zip(kinds, begins, np.maximum(sizes, 0), sizes >= 0, strict=True)
    spans = {name: Spans(data, start, size, there, {}) for name, start, size, there in lists}
    return spans, left.tolist()


def _by_forms(
    records: list[bytes], data: bytes, wanted: _Wanted, starts: Array, ends: Array
) -> tuple[Array, Array, Array]:
    """Where the lists of features begin and how long they are (-1: there is none), both [features,
    records]; and the numbers of the records that are left."""
    begins = np.zeros((len(wanted), len(records)), np.int64)
    sizes = np.full(begins.shape, -1)
    view = _Bytes(data)
    left = np.arange(len(records))
    unusual = 0  # records at the beginning of `left`, which have been tried
    for _ in range(_FORMS):
        if unusual == len(left):
            break
        names = _names(records[left[unusual]])
        if not names:
            unusual += 1
            continue
        form = _form(names, wanted)
        good, at, inside = form.match(view, starts[left], ends[left])
        if len(left) == len(records) and len(form.places) == len(wanted) and good.all():
            return at, inside, left[:0]
        where = np.ix_(form.places, left[good])
        begins[where], sizes[where] = at[:, good], inside[:, good]
        unusual += not good[unusual]
        left = left[~good]
    return begins, sizes, left


def _names(record: bytes) -> tuple[bytes, ...]:
    """The names of the features in the order of a record; none if it is in another form."""
    names: list[bytes] = []
    try:
        size, at = length_at(record, 1)
        end = at + size
        if end != len(record):
            return ()
        while at < end:
            size, at = length_at(record, at + 1)
            length, start = length_at(record, at + 1)
            names.append(record[start : start + length])
            at += size
    except (Malformed, IndexError):
        return ()
    usual = (
        len(names) <= _MOST
        and len(set(names)) == len(names)
        and max(map(len, names), default=0) <= _LONGEST
    )
    return tuple(names) if usual else ()


class _Bytes:
    """The bytes of all records, for reading at many positions at once.

    `digit`, `pair` and `four` read lengths that are varints: below 128, 2^14 and 2^28. They return
    the lengths and how many bytes these take. Another varint gives a length that is no record's.
    """

    def __init__(self, data: bytes) -> None:
        self.digits = np.frombuffer(data, np.uint8)
        # Views in which a word begins at every byte.
        self.words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self._short = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))

    def digit(self, at: Array) -> tuple[Array, int]:
        return self.digits[at], 1

    def pair(self, at: Array) -> tuple[Array, Array]:
        low = self.digits[at]
        more = low >> 7
        high = self.digits[at + 1] * more
        size = high.astype(np.int64) << 7  # a third byte makes it at least 2^14
        size += low & 0x7F
        more += 1
        return size, more

    def four(self, at: Array) -> tuple[Array, Array]:
        word = self._short[at]
        last = ~word & 0x80808080
        last &= ~last + np.uint32(1)  # the top bit of the last byte of the varint
        word &= last - np.uint32(1)
        value = word & 0x7F
        value |= word >> 1 & 0x3F80
        value |= word >> 2 & 0x1FC000
        value |= word >> 3 & 0xFE00000
        size = np.where(last, value, _TOO_LONG)
        return size, (last > 0x80).astype(np.int64) + (last > 0x8000) + (last > 0x800000) + 1


class _Form:
    """The names of the features of a record, in their order.

    Args:
        names: of all features.
        wanted: the names and the tags of the lists of features to find.

    Attributes:
        places: which of the wanted features are in the records.
    """

    def __init__(self, names: tuple[bytes, ...], wanted: _Wanted) -> None:
        self.places = np.array([n for n, (name, _) in enumerate(wanted) if name in names], np.intp)
        rows = np.array([names.index(wanted[n][0]) for n in self.places], np.intp)
        self._rows = slice(None) if rows.tolist() == [*range(len(names))] else rows
        self._tags = np.array([wanted[n][1] for n in self.places], np.uint8)[:, None]
        heads = [bytes((FIRST,)) + varint(len(name)) + name + bytes((SECOND,)) for name in names]
        self._sizes = np.array([len(head) for head in heads])[:, None]
        self._heads = _as_words(heads)
        self._within = _as_words([b"\xff" * len(head) for head in heads])

    def match(self, data: _Bytes, starts: Array, ends: Array) -> tuple[Array, Array, Array]:
        """Which records have this form, and where the lists of their features begin and how long
        they are (-1: there is none): [records], [features, records] and [features, records]."""
        longest = int((ends - starts).max())
        read: _Lengths = data.pair if longest < _PAIR else data.four
        size, digits = read(starts + 1)
        first = starts + 1 + digits
        good = (data.digits[starts] == FIRST) & (first + size == ends)
        entries, inner = self._entries(data.digit, first, ends)
        if (data.digits[entries[:-1] + 1] < 0x80).all():
            read = data.digit
        else:
            entries, inner = self._entries(read, first, ends)
        good &= entries[-1] == ends
        fits = data.digits[entries[:-1]] == FIRST
        value = inner + self._sizes
        for head, within in zip(self._heads, self._within, strict=True):
            fits &= data.words[inner] & within == head
            inner += 8
        size, digits = read(value)
        value += digits
        fits &= value + size == entries[1:]
        good &= fits.all(0)
        rows = self._rows
        lists, sizes, fits = self._lists(data, read, value[rows], entries[1:][rows])
        return good & fits.all(0), lists, sizes

    def _entries(self, read: _Lengths, at: Array, ends: Array) -> tuple[Array, Array]:
        """Where each entry begins and the last one ends: [features + 1, records]; and where what is
        in each begins. Positions after the end of a record are the first one after it."""
        entries = np.empty((len(self._sizes) + 1, len(at)), np.int64)
        inner = np.empty((len(self._sizes), len(at)), np.int64)
        beyond = ends + 1
        entries[0] = at
        for number in range(len(inner)):
            at = at + 1
            size, digits = read(at)
            at += digits
            inner[number] = at
            at += size
            np.minimum(at, beyond, out=at)
            entries[number + 1] = at
        return entries, inner

    def _lists(
        self, data: _Bytes, read: _Lengths, at: Array, ends: Array
    ) -> tuple[Array, Array, Array]:
        """Where the lists of features begin, how long they are (-1 for a feature without a list),
        and whether they are in the usual form, for features that lie between some positions."""
        size, digits = read(at + 1)
        inner = at + 1 + digits
        fits = (data.digits[at] == self._tags) & (inner + size == ends)
        length, digits = read(inner + 1)
        lists = inner + 1 + digits
        full = (data.digits[inner] == FIRST) & (lists + length == ends)
        if not full.all():
            empty = (inner == ends) & (self._tags != TAGS["bytes_list"])  # no numbers
            lists = np.where(empty, ends, lists)
            absent = at == ends
            lists = np.where(absent, ends + 1, lists)
            fits = fits & (full | empty) | absent
        return lists, ends - lists, fits


_form = lru_cache(maxsize=256)(_Form)


def _as_words(parts: list[bytes]) -> Array:
    """Bytes as words of 8 bytes with zeros at the end: [words, parts, 1]."""
    width = -(-max(map(len, parts)) // 8) * 8
    joined = b"".join(part.ljust(width, b"\0") for part in parts)
    return np.frombuffer(joined, "<u8").reshape(len(parts), -1).T[..., None]
