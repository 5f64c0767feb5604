"""From the bytes of one feature in many records to arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

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
from graphc.data.records.wire import (
    PREFIXES,
    Malformed,
    OtherKind,
    decode_varints,
    elements,
    packed,
    usual_prefix,
)

Array: TypeAlias = np.ndarray[Any, Any]
Values: TypeAlias = Sequence[bytes | None]


class Wrong(Exception):
    """What is wrong with the feature of one record.

    Args:
        row: the number of the record.
        found: what the feature is.
        wanted: what it should be.
        hint: how to fix it.
    """

    def __init__(self, row: int, found: str, wanted: str, hint: str | None = None) -> None:
        super().__init__(found)
        self.row, self.found, self.wanted, self.hint = row, found, wanted, hint


class Flat(NamedTuple):
    """The values of one feature in all records.

    Attributes:
        values: one record after the other.
        counts: how many each record has.
        there: whether a record has the feature.
    """

    values: Array
    counts: Array
    there: Array


def column(spec: Spec, values: Values, flat: Flat | None = None) -> Any:
    """The feature of all records.

    Args:
        spec: of the feature.
        values: the bytes of each record's feature; None for records without it.
        flat: what `integers` made of the values.

    Raises:
        Wrong: a record does not fit the spec.
    """
    if isinstance(spec, Raw):
        return _raw(spec, values)
    kind = kind_of(spec)
    if kind == "bytes_list":
        flat = _bytes(spec, values)
    else:
        flat = _converted(spec, flat or _numbers(kind, values))
    return _fixed(spec, flat) if isinstance(spec, FixedLen) else _ragged(spec, flat)


def integers(columns: list[Values]) -> list[Flat]:
    """Features of integers, decoded together: for few records each call of NumPy costs more than
    the numbers.

    Raises:
        Wrong: one of them is no int64_list, or is damaged; the row is not that of the record.
    """
    parts = [_packed("int64_list", values) for values in columns]
    sizes = np.concatenate([sizes for _, sizes, _ in parts])
    numbers, counts = _integers(b"".join([data for data, _, _ in parts]), sizes)
    by_column = counts.reshape(len(columns), -1)
    each = np.split(numbers, np.cumsum(by_column.sum(1))[:-1])
    rows = zip(each, by_column, parts, strict=True)
    return [Flat(found, counts, there) for found, counts, (_, _, there) in rows]


def _numbers(kind: str, values: Values) -> Flat:
    data, sizes, there = _packed(kind, values)
    numbers, counts = (_floats if kind == "float_list" else _integers)(data, sizes)
    return Flat(numbers, counts, there)


def _packed(kind: str, values: Values) -> tuple[bytes, Array, Array]:
    """The packed numbers of all records, how many bytes each has, and who has the feature."""
    there = np.ones(len(values), bool)
    whole = _uniform(kind, values)
    if whole is None:
        bodies, sizes = _bodies(kind, values, there)
        return b"".join(bodies), sizes, there
    return whole[0], np.full(len(values), whole[1], np.int64), there


def _converted(spec: FixedLen | VarLen, flat: Flat) -> Flat:
    """With the dtype of the spec."""
    dtype: Any = spec.dtype
    try:
        return flat._replace(values=converted(flat.values, dtype))
    except Unfit:
        raise _out_of_range(dtype, flat.values, flat.counts) from None


def _uniform(kind: str, values: Values) -> tuple[bytes, int] | None:
    """The packed numbers of records that have equally many bytes of them, without a loop; and how
    many bytes each has. None if the records differ, or are not in the usual form."""
    if not values or None in values:
        return None
    given: Any = values
    sizes = set(map(len, given))
    prefix = usual_prefix(kind, min(sizes)) if len(sizes) == 1 else None
    if prefix is None:
        return None
    size = min(sizes)
    table = np.frombuffer(b"".join(given), np.uint8).reshape(len(values), size)
    start = len(prefix)
    if not (table[:, :start] == np.frombuffer(prefix, np.uint8)).all():
        return None
    return table[:, start:].tobytes(), size - start


def _bodies(kind: str, values: Values, there: Array) -> tuple[list[bytes], Array]:
    """The packed numbers of each record, and their sizes. `there` becomes False for records without
    the feature."""
    prefixes = PREFIXES[kind]
    given = [value or b"" for value in values]
    bodies = [value.removeprefix(prefixes[len(value)]) for value in given]
    sizes = _sizes(bodies)
    for row in np.flatnonzero(sizes == _sizes(given)).tolist():  # not in the usual form
        found = _body(kind, row, values[row])
        there[row] = found is not None
        bodies[row] = found or b""
        sizes[row] = len(bodies[row])
    return bodies, sizes


def _sizes(parts: list[bytes]) -> Array:
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _body(kind: str, row: int, value: bytes | None) -> bytes | None:
    """The packed numbers of one record; None if it does not have the feature."""
    if value is None:
        return None
    try:
        return packed(kind, value)
    except OtherKind as error:
        raise Wrong(row, f"is {_a(str(error))}", _a(kind), _kind_hint(str(error))) from None
    except Malformed as error:
        raise _damaged(row, error, kind) from None


def _damaged(row: int, error: Malformed, kind: str) -> Wrong:
    return Wrong(
        row,
        f"is damaged ({error})",
        _a(kind),
        "the record is no Example, or its bytes were changed",
    )


def _a(kind: str) -> str:
    return f"{'an' if kind[0] == 'i' else 'a'} {kind}"


def _kind_hint(kind: str) -> str:
    dtypes = {"bytes_list": "bytes", "float_list": "np.float32", "int64_list": "np.int64"}
    return f"its spec needs the dtype {dtypes[kind]}"


def _floats(data: bytes, sizes: Array) -> tuple[Array, Array]:
    if len(odd := np.flatnonzero(sizes % 4)):
        raise _damaged(int(odd[0]), Malformed("a float has less than 4 bytes"), "float_list")
    return np.frombuffer(data, "<f4").astype(np.float32), sizes // 4


def _integers(data: bytes, sizes: Array) -> tuple[Array, Array]:
    bounds = np.cumsum(sizes)
    rows = np.flatnonzero(sizes)
    last = np.frombuffer(data, np.uint8)[bounds[rows] - 1]
    if len(odd := np.flatnonzero(last >= 0x80)):
        raise _damaged(int(rows[odd[0]]), Malformed("a varint does not end"), "int64_list")
    try:
        numbers, ends = decode_varints(data)
    except Malformed as error:
        raise _damaged(_row_with_long_varint(data, bounds), error, "int64_list") from None
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


def _elements(values: Values) -> list[list[bytes] | None]:
    """The elements of each record; None for those without the feature."""
    prefixes = PREFIXES["bytes_list"]
    rows: list[list[bytes] | None] = []
    for row, value in enumerate(values):
        if value is None:
            rows.append(None)
            continue
        body = value.removeprefix(prefixes[len(value)])
        rows.append([body] if len(body) < len(value) else _unusual(row, value))
    return rows


def _unusual(row: int, value: bytes) -> list[bytes] | None:
    """The elements of a record that has not exactly one in the usual form."""
    try:
        return elements(value)
    except OtherKind as error:
        kind = str(error)
        raise Wrong(row, f"is {_a(kind)}", "a bytes_list", _kind_hint(kind)) from None
    except Malformed as error:
        raise _damaged(row, error, "bytes_list") from None


def _bytes(spec: FixedLen | VarLen, values: Values) -> Flat:
    rows = _elements(values)
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
    flat, counts, there = found
    size = math.prod(spec.shape)
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
    flat, counts, _ = given
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


def _raw(spec: Raw, values: Values) -> Array:
    dtype: Any = spec.dtype
    size = math.prod(spec.shape) * dtype.itemsize
    whole = _uniform("bytes_list", values)
    if whole is not None and whole[1] == size:
        return _native(np.frombuffer(whole[0], dtype), spec, len(values))
    rows = _elements(values)
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
    filled = np.empty((len(values), *spec.shape), known.dtype)
    filled[...] = spec.default
    filled[there] = known
    return filled


def _native(values: Array, spec: Raw, count: int) -> Array:
    """The values in the byte order of this machine, in memory of their own."""
    dtype: Any = spec.dtype
    return values.astype(dtype.newbyteorder("=")).reshape(count, *spec.shape)
