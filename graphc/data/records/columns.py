"""From the bytes of one feature in many records to arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from graphc.data.records.spans import Spans
from graphc.data.records.specs import (
    FixedLen,
    RaggedArray,
    Raw,
    Spec,
    Unfit,
    VarLen,
    converted,
    kind_of,
)
from graphc.data.records.values import Lists, Wrong, damaged
from graphc.data.records.varints import decode_single, decode_varints
from graphc.data.records.wire import Malformed
from graphc.ir.dtypes import Array


class Flat(NamedTuple):
    """The values of one feature in all records.

    Attributes:
        values: one record after the other.
        counts: how many each record has.
        there: whether a record has the feature.
        single: every record has exactly one; False if that is not known.
    """

    values: Array
    counts: Array
    there: Array
    single: bool = False


def column(spec: Spec, lists: Lists, flat: Flat | None = None) -> Any:
    """The feature of all records.

    Args:
        spec: of the feature.
        lists: of each record.
        flat: what `integers` made of them.

    Raises:
        Wrong: a record does not fit the spec.
    """
    if isinstance(spec, Raw):
        return _raw(spec, lists)
    kind = kind_of(spec)
    if kind == "bytes_list":
        flat = _bytes(spec, lists)
    else:
        flat = _converted(spec, flat or _numbers(kind, lists))
    return _fixed(spec, flat) if isinstance(spec, FixedLen) else _ragged(spec, flat)


def integers(columns: list[Lists]) -> list[Flat]:
    """Features of integers, decoded together: for few records each call of NumPy costs more than
    the numbers.

    Raises:
        Wrong: one of them is no int64_list, or is damaged; the row is not that of the record.
    """
    single = _single(columns)
    if single is not None:
        return single
    parts = [lists.packed("int64_list") for lists in columns]
    sizes = np.concatenate([sizes for _, sizes, _ in parts])
    numbers, counts = _integers(b"".join([data for data, _, _ in parts]), sizes)
    by_column = counts.reshape(len(columns), -1)
    each = np.split(numbers, np.cumsum(by_column.sum(1))[:-1])
    rows = zip(each, by_column, parts, strict=True)
    return [Flat(found, counts, there) for found, counts, (_, _, there) in rows]


def _single(columns: list[Lists]) -> list[Flat] | None:
    """Features of one integer in every record; None if they are others, or some records are odd."""
    spans = [lists for lists in columns if isinstance(lists, Spans) and not lists.odd]
    if len(spans) < len(columns):
        return None
    starts = np.stack([each.starts for each in spans])
    numbers = decode_single(spans[0].data, starts, np.stack([each.sizes for each in spans]))
    if numbers is None:
        return None
    there = np.ones(starts.shape[1], bool)
    rows = zip(numbers, np.ones(starts.shape, np.int64), strict=True)
    return [Flat(values, counts, there, single=True) for values, counts in rows]


def _numbers(kind: str, lists: Lists) -> Flat:
    data, sizes, there = lists.packed(kind)
    numbers, counts = (_floats if kind == "float_list" else _integers)(data, sizes)
    return Flat(numbers, counts, there)


def _converted(spec: FixedLen | VarLen, flat: Flat) -> Flat:
    """With the dtype of the spec."""
    dtype: Any = spec.dtype
    if flat.values.dtype == dtype:
        return flat
    try:
        return flat._replace(values=converted(flat.values, dtype))
    except Unfit:
        raise _out_of_range(dtype, flat.values, flat.counts) from None


def _floats(data: bytes, sizes: Array) -> tuple[Array, Array]:
    if len(odd := np.flatnonzero(sizes % 4)):
        raise damaged(int(odd[0]), Malformed("a float has less than 4 bytes"), "float_list")
    return np.frombuffer(data, "<f4").astype(np.float32), sizes // 4


def _integers(data: bytes, sizes: Array) -> tuple[Array, Array]:
    bounds = np.cumsum(sizes)
    rows = np.flatnonzero(sizes)
    last = np.frombuffer(data, np.uint8)[bounds[rows] - 1]
    if len(odd := np.flatnonzero(last >= 0x80)):
        raise damaged(int(rows[odd[0]]), Malformed("a varint does not end"), "int64_list")
    try:
        numbers, ends = decode_varints(data)
    except Malformed as error:
        raise damaged(_row_with_long_varint(data, bounds), error, "int64_list") from None
    if len(numbers) == len(data):
        return numbers, sizes
    before = np.searchsorted(ends, bounds)  # how many numbers end before each bound
    before[1:] -= before[:-1].copy()
    return numbers, before


def _row_with_long_varint(data: bytes, bounds: Array) -> int:
    start = 0
    for row, end in enumerate(bounds.tolist()):
        try:
            decode_varints(data[start:end])
        except Malformed:
            return row
        start = end
    return 0


def _out_of_range(dtype: np.dtype[Any], numbers: Array, counts: Array) -> Wrong:
    start = 0
    for row, count in enumerate(counts.tolist()):
        try:
            converted(numbers[start : start + count], dtype)
        except Unfit as error:
            return Wrong(
                row,
                f"has the value {error.what.split()[0]}",
                f"a value in the range of {dtype}",
                "use a wider dtype",
            )
        start += count
    return Wrong(0, "is out of range", str(dtype))


def _bytes(spec: FixedLen | VarLen, lists: Lists) -> Flat:
    rows = lists.elements()
    there = np.array([row is not None for row in rows], bool)
    counts = np.array([len(row or ()) for row in rows], np.int64)
    found: list[Any] = [element for row in rows for element in row or ()]
    if spec.dtype is str:
        found = _texts(found, counts)
    flat = np.empty(len(found), object)
    flat[:] = found
    return Flat(flat, counts, there)


def _texts(found: list[bytes], counts: Array) -> list[str]:
    texts = []
    for number, element in enumerate(found):
        try:
            texts.append(element.decode())
        except UnicodeDecodeError as error:
            row = int(np.searchsorted(np.cumsum(counts), number, "right"))
            shown = element if len(element) <= 40 else element[:40] + b"..."
            raise Wrong(
                row, f"is not UTF-8 ({error.reason}): {shown!r}", "text", "read it as bytes"
            ) from None
    return texts


def _fixed(spec: FixedLen, found: Flat) -> Array:
    flat, counts, there, single = found
    size = math.prod(spec.shape)
    if single and size == 1:
        return flat.reshape((len(counts), *spec.shape))
    wrong = np.flatnonzero((counts != size) & there)
    if len(wrong):
        raise _wrong_count(int(wrong[0]), int(counts[wrong[0]]), size, spec.shape)
    shape = (len(counts), *spec.shape)
    if there.all():
        return flat.reshape(shape)
    if spec.default is None:
        raise _absent(int(np.argmin(there)))
    filled = np.empty(shape, flat.dtype)
    filled[...] = spec.default
    filled[there] = flat.reshape((int(there.sum()), *spec.shape))
    return filled


def _absent(row: int) -> Wrong:
    return Wrong(
        row, "is missing", "a value", "give the spec a default, or use VarLen if it may be absent"
    )


def _wrong_count(row: int, count: int, size: int, shape: tuple[int, ...]) -> Wrong:
    return Wrong(
        row,
        f"has {count} values",
        f"{size} for shape {shape}",
        "use VarLen if records have different numbers of values",
    )


def _ragged(spec: VarLen, given: Flat) -> RaggedArray | Array:
    flat, counts, *_ = given
    size = math.prod(spec.shape)
    if size != 1:
        wrong = np.flatnonzero(counts % size)
        if len(wrong):
            row = int(wrong[0])
            raise Wrong(row, f"has {int(counts[row])} values", f"rows of shape {spec.shape}")
        counts = counts // size
    found = RaggedArray(flat.reshape(-1, *spec.shape), counts)
    if spec.pad is None:
        return found
    if spec.length is not None and int(counts.max(initial=0)) > spec.length:
        row = int(counts.argmax())
        raise Wrong(
            row, f"has length {int(counts[row])}", f"at most {spec.length}", "increase `length`"
        )
    pad: Any = spec.pad
    return found.padded(pad, spec.length)


def _raw(spec: Raw, lists: Lists) -> Array:
    dtype: Any = spec.dtype
    size = math.prod(spec.shape) * dtype.itemsize
    whole = lists.joined(size)
    if whole is not None:
        return _native(np.frombuffer(whole, dtype), spec, len(lists))
    rows = lists.elements()
    there = [row is not None for row in rows]
    for row, found in enumerate(rows):
        if found is not None and (len(found) != 1 or len(found[0]) != size):
            what = f"{len(found)} elements" if len(found) != 1 else f"{len(found[0])} bytes"
            raise Wrong(
                row, f"has {what}", f"{size} bytes for {dtype} {spec.shape}", "check the dtype"
            )
    data = b"".join(row[0] for row in rows if row is not None)
    known = _native(np.frombuffer(data, dtype), spec, sum(there))
    if all(there):
        return known
    if spec.default is None:
        raise _absent(there.index(False))
    filled = np.empty((len(lists), *spec.shape), known.dtype)
    filled[...] = spec.default
    filled[there] = known
    return filled


def _native(values: Array, spec: Raw, count: int) -> Array:
    """The values in the byte order of this machine, in memory of their own."""
    dtype: Any = spec.dtype
    return values.astype(dtype.newbyteorder("=")).reshape(count, *spec.shape)
