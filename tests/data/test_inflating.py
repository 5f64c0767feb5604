"""All decompression libraries read, and refuse, the same compressed files."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.data.records import streams
from graphc.data.records.inflating import Library, inflating
from graphc.errors import DataError

pytest.importorskip("google_crc32c")

RECORDS = [np.random.default_rng(n).bytes(n % 50) + b"a" * n for n in range(200)]


@pytest.fixture(params=["zlib", "isal"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Library(zlib.decompressobj, zlib.error)
    if request.param == "isal":
        isal = pytest.importorskip("isal.isal_zlib")
        found = Library(isal.decompressobj, isal.error)
    monkeypatch.setattr(streams, "inflating", lambda: found)


def written(path: Path, compression: Any) -> bytes:
    with gc.data.TFRecordWriter(path, compression) as file:
        for record in RECORDS:
            file.write(record)
    return path.read_bytes()


def test_the_faster_library_is_taken() -> None:
    isal = pytest.importorskip("isal.isal_zlib")
    assert inflating().stream is isal.decompressobj


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.usefixtures("library")
def test_cut_files_are_refused(tmp_path: Path, compression: Any) -> None:
    path = tmp_path / "a"
    data = written(path, compression)
    assert list(gc.data.read_tfrecords(path)) == RECORDS
    for size in [*range(2, 40), *range(40, len(data) - 40, 97), *range(len(data) - 40, len(data))]:
        path.write_bytes(data[:size])
        with pytest.raises(DataError, match="incomplete"):
            list(gc.data.read_tfrecords(path, compression=compression))


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.usefixtures("library")
def test_changed_files_are_refused(tmp_path: Path, compression: Any) -> None:
    """A changed bit of the data, or of the checksum after the data."""
    path = tmp_path / "a"
    data = written(path, compression)
    for at in [*range(12, len(data) - 8, 89), *range(len(data) - 4, len(data))]:
        for bit in (1, 0x40):
            path.write_bytes(data[:at] + bytes((data[at] ^ bit,)) + data[at + 1 :])
            with pytest.raises(DataError):
                list(gc.data.read_tfrecords(path, compression=compression))


@pytest.mark.usefixtures("library")
def test_joined_and_padded_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = written(path, "gzip")
    path.write_bytes(data + data + bytes(100) + data + bytes(3))
    assert list(gc.data.read_tfrecords(path)) == RECORDS * 3
    path.write_bytes(data + b"this is not compressed by gzip")
    with pytest.raises(DataError, match="damaged"):
        list(gc.data.read_tfrecords(path))


@pytest.mark.usefixtures("library")
def test_a_long_file_with_a_header(tmp_path: Path) -> None:
    """Longer than one read from the file, with names in the gzip header."""
    path, plain = tmp_path / "a", tmp_path / "b"
    record = np.random.default_rng(0).bytes(700_000)
    with gc.data.TFRecordWriter(plain) as file:
        for _ in range(3):
            file.write(record)
    with open(path, "wb") as raw, gzip.GzipFile("a name", "wb", fileobj=raw) as packed:
        packed.write(plain.read_bytes())
    with iter(gc.data.read_tfrecords(path)) as items:
        assert next(items) == record
        state = items.state()
        assert list(items) == [record, record]
        items.restore(state)
        assert list(items) == [record, record]
