"""Forged bytes never crash or hang: graphc returns protobuf's values or raises its own errors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.data import FixedLen, RaggedArray, Raw, VarLen
from graphc.data.records.wire import field
from graphc.errors import DataError
from tests.data.test_examples import reference, values_of

pytest.importorskip("google_crc32c")

SPECS = {
    "a": VarLen(np.int64),
    "b": VarLen(np.float32),
    "c": VarLen(bytes),
}
FIXED = {
    "a": FixedLen((2,), np.int64, default=0),
    "b": FixedLen((), np.float32, default=0),
    "c": Raw((4,), np.uint8, default=0),
}

numbers = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    st.lists(st.integers(0, 300), max_size=5),
)
real = st.lists(st.floats(width=32, allow_nan=False), max_size=5)
texts = st.lists(st.binary(max_size=6), max_size=4)
values = st.one_of(numbers, real, texts)
rows = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def flipped(record: bytes, changes: list[tuple[int, int]]) -> bytes:
    data = bytearray(record)
    for at, byte in changes:
        if data:
            data[at % len(data)] = byte
    return bytes(data)


def parse(record: bytes, spec: Any) -> dict[str, Any] | None:
    try:
        return gc.data.parse_examples([record], spec)
    except DataError:
        return None


def as_protobuf_reads(record: bytes) -> dict[str, Any] | None:
    from google.protobuf.message import DecodeError

    try:
        found = reference()[0].FromString(record).features.feature
    except (DecodeError, UnicodeDecodeError):
        return None
    return {key: values_of(found[key]) for key in found}


changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3)


def check(record: bytes) -> None:
    """Protobuf reads everything that graphc reads; graphc reads matching records of protobuf."""
    want = as_protobuf_reads(record)
    for name, spec in SPECS.items():
        got = parse(record, {name: spec})
        if got is not None and want is not None:
            assert isinstance(got[name], RaggedArray)
            expected = want.get(name) or []
            found = got[name].values.tolist()
            assert repr(found) == repr(expected)
        if got is None and want is not None and want.get(name) is not None:
            kinds = {int: "a", float: "b", bytes: "c"}
            assert not want[name] or kinds[type(want[name][0])] != name
    parse(record, FIXED)
    with suppress(DataError):
        gc.data.parse_example(record)


@settings(deadline=None, max_examples=150)
@given(rows, changes)
def test_changed_examples(row: dict[str, Any], where: list[tuple[int, int]]) -> None:
    check(flipped(gc.data.example(row), where))


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=40))
def test_any_bytes(data: bytes) -> None:
    for record in (
        data,
        field(1, field(1, data)),
        field(1, field(1, field(1, b"a") + field(2, data))),
        field(1, field(1, field(1, b"b") + field(2, field(2, data)))),
        field(1, field(1, field(1, b"a") + field(2, field(3, data)))),
        field(1, field(1, field(1, b"a") + field(2, field(3, field(1, data))))),
    ):
        check(record)
    with suppress(DataError):
        gc.data.parse_sequence_examples(
            [data, field(2, field(1, field(1, b"a") + field(2, data)))], SPECS, SPECS
        )


@settings(deadline=None, max_examples=100)
@given(st.lists(rows, max_size=6))
def test_batches_are_the_records_one_by_one(batch: list[dict[str, Any]]) -> None:
    records = [gc.data.example(row) for row in batch]
    want = [as_protobuf_reads(record) for record in records]
    for name, kind in (("a", int), ("b", float), ("c", bytes)):
        good = [
            record
            for record, read in zip(records, want, strict=True)
            if all(isinstance(each, kind) for each in (read or {}).get(name) or [])
            and (read or {}).get(name) != []  # whose kind is unknown
        ]
        found = gc.data.parse_examples(good, {name: SPECS[name]})[name].rows()
        assert [row.tolist() for row in found] == [
            gc.data.parse_examples([record], {name: SPECS[name]})[name].values.tolist()
            for record in good
        ]


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.binary(max_size=30), max_size=5), changes, st.sampled_from([None, "gzip", "zlib"])
)
def test_changed_files(
    tmp_path: Path, records: list[bytes], where: list[tuple[int, int]], compression: Any
) -> None:
    """The records before the damage are returned, and no wrong records."""
    path = tmp_path / "a"
    with gc.data.TFRecordWriter(path, compression) as file:
        for record in records:
            file.write(record)
    data = path.read_bytes()
    changed = flipped(data, where)
    path.write_bytes(changed)
    found = []
    items = iter(gc.data.read_tfrecords(path, compression=compression or ""))
    try:
        found.extend(items)
    except DataError as error:
        assert changed != data and str(path) in str(error)
    items.close()
    assert found == records[: len(found)]


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=80))
def test_any_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    for compression in (None, "", "gzip", "zlib"):
        items = iter(gc.data.read_tfrecords(path, compression=compression))  # type: ignore[arg-type]
        try:
            list(items)
        except DataError as error:
            assert str(path) in str(error)
        items.close()
