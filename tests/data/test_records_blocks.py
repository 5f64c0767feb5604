"""Records that are read in blocks equal those that a plain loop over the bytes finds."""

from __future__ import annotations

import struct
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.data.records.framing import Frames
from graphc.errors import AttributeValueError, DataError

google_crc32c = pytest.importorskip("google_crc32c")


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def by_a_loop(data: bytes) -> tuple[list[bytes], list[int]]:
    """The valid records at the start, and where each one ends."""
    records: list[bytes] = []
    ends: list[int] = []
    at = 0
    while at + 16 <= len(data):
        head = data[at : at + 8]
        end = at + 12 + struct.unpack("<Q", head)[0]
        whole = end + 4 <= len(data) and masked(head) == data[at + 8 : at + 12]
        if not whole or masked(data[at + 12 : end]) != data[end : end + 4]:
            break
        records.append(data[at + 12 : end])
        at = end + 4
        ends.append(at)
    return records, ends


def found(data: bytes) -> tuple[list[bytes], list[int]]:
    records, ends = Frames(google_crc32c.value).split(data)
    return records, ends.tolist()


lists = st.one_of(
    st.lists(st.binary(max_size=20), max_size=20),
    st.integers(0, 20).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=8, max_size=30)
    ),
    st.lists(st.sampled_from([b"", b"a", b"equal", b"other"]), min_size=8, max_size=30),
).map(lambda records: records * (1 + 100 // max(8, len(records))))  # enough for `Frames._alike`
changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=2)


@settings(deadline=None, max_examples=300)
@given(lists, changes, st.integers(0, 40))
def test_blocks_with_damage(records: list[bytes], where: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(Frames(google_crc32c.value).framed(records))
    assert found(bytes(data)) == by_a_loop(bytes(data))
    assert found(bytes(data))[0] == records
    del data[len(data) - cut :]
    for at, bits in where:
        if data:
            data[at % len(data)] ^= bits
    assert found(bytes(data)) == by_a_loop(bytes(data))


def test_every_bit_of_equally_long_records() -> None:
    records = [b"%05d" % n for n in range(110)]
    data = Frames(google_crc32c.value).framed(records)
    for at in [*range(63), *range(63, len(data) - 63, 31), *range(len(data) - 63, len(data))]:
        for bit in range(8):
            changed = data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]
            assert found(changed)[0] == records[: at // 21]


@pytest.mark.parametrize("shard", [None, (0, 3), (2, 3)])
@pytest.mark.parametrize("size", [lambda n: 1000, lambda n: n % 900])
def test_runs_and_single_records_in_any_order(tmp_path: Path, size: Any, shard: Any) -> None:
    """Several blocks; each position continues there."""
    path = tmp_path / "a"
    records = [bytes([n % 256]) * size(n) for n in range(1500)]
    with gc.data.TFRecordWriter(path) as file:
        for record in records:
            file.write(record)
    reader = gc.data.read_tfrecords(path, shard=shard)
    want = records if shard is None else records[shard[0] :: shard[1]]
    items = iter(reader)
    got: list[bytes] = []
    wanted = [1, 7, 400, 100_000]
    while True:
        n = wanted[len(got) % len(wanted)]
        some = items.read_some(n)
        assert len(some) <= n
        if not some:
            break
        got += some
        again = iter(reader)
        again.restore(items.state())
        rest = want[len(got) :]
        assert next(again, None) == (rest[0] if rest else None)
        again.close()
        got += islice(items, 1)
    assert got == want
    assert items.read_some(5) == []


def test_read_some_takes_at_least_one_and_loses_none(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with gc.data.TFRecordWriter(path) as file:
        for n in range(20):
            file.write(b"%d" % n)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    items = iter(gc.data.read_tfrecords(path))
    for wrong in (0, -1, True, 1.0):
        with pytest.raises(AttributeValueError, match="read_some: n must be an int"):
            items.read_some(wrong)  # type: ignore[arg-type]
    assert items.read_some(100) == [b"%d" % n for n in range(19)]
    with pytest.raises(DataError, match=r"record 19, at byte \d+: the CRC of the data"):
        items.read_some(1)
    assert items.state()["record"] == 19
