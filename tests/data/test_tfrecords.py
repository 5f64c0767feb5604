"""TFRecord files: round trips, errors for damage, and exact positions."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.data.records import reader as reader_module
from graphc.errors import (
    AttributeValueError,
    CopyError,
    DataError,
    DTypeError,
    MissingExtraError,
    StateError,
)

pytest.importorskip("google_crc32c")

COMPRESSIONS = [None, "gzip", "zlib"]
RECORDS = [b"", b"one", b"\0" * 100, b"two" * 1000, b"", bytes(range(256))]


def write(path: Path, records: list[bytes] = RECORDS, compression: Any = None) -> Path:
    with gc.data.TFRecordWriter(path, compression) as file:
        for record in records:
            file.write(record)
    return path


def every_position(reader: Any) -> list[bytes]:
    """The records, after a check that an iterator can continue at each position."""
    want = list(reader)
    for taken in range(len(want) + 1):
        items = iter(reader)
        for _ in range(taken):
            next(items)
        state = json.loads(json.dumps(items.state()))
        again = iter(reader)
        again.restore(state)
        assert again.state() == state
        assert list(again) == want[taken:], taken
        items.close()
        again.close()
    return want


# -- round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("block", [12, 50, 1 << 18])
def test_what_is_written_is_read_at_every_position(
    tmp_path: Path, compression: Any, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_BLOCK", block)
    path = write(tmp_path / "a", compression=compression)
    assert every_position(gc.data.read_tfrecords(path)) == RECORDS
    if compression is not None:
        assert every_position(gc.data.read_tfrecords(path, compression=compression)) == RECORDS


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_larger_than_a_block(tmp_path: Path, compression: Any) -> None:
    records = [b"x" * 3_000_000, b"", np.random.default_rng(0).bytes(2_500_000), b"end"]
    path = write(tmp_path / "a", records, compression)
    assert every_position(gc.data.read_tfrecords(path)) == records


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_files_without_records(tmp_path: Path, compression: Any) -> None:
    path = write(tmp_path / "a", [], compression)
    assert every_position(gc.data.read_tfrecords(path)) == []
    empty = tmp_path / "b"
    empty.touch()
    assert every_position(gc.data.read_tfrecords([empty, path, empty])) == []


def test_several_files_of_any_compression(tmp_path: Path) -> None:
    paths = [write(tmp_path / str(c), RECORDS[:n], c) for n, c in enumerate(COMPRESSIONS, 1)]
    assert every_position(gc.data.read_tfrecords(paths)) == [
        *RECORDS[:1],
        *RECORDS[:2],
        *RECORDS[:3],
    ]


def test_concatenated_and_padded_compressed_files(tmp_path: Path) -> None:
    one = write(tmp_path / "a", compression="gzip").read_bytes()
    (tmp_path / "b").write_bytes(one + one + bytes(40))
    assert every_position(gc.data.read_tfrecords(tmp_path / "b")) == RECORDS * 2
    one = write(tmp_path / "a", compression="zlib").read_bytes()
    (tmp_path / "b").write_bytes(one + one)
    assert list(gc.data.read_tfrecords(tmp_path / "b")) == RECORDS * 2


def test_a_known_file(tmp_path: Path) -> None:
    """Exactly the bytes that TensorFlow writes for b"foo"."""
    want = bytes.fromhex("0300000000000000 b099490e 666f6f 618abefe")
    assert write(tmp_path / "a", [b"foo"]).read_bytes() == want


# -- damage ---------------------------------------------------------------------------------------


def error_of(path: Path, **options: Any) -> tuple[list[bytes], str]:
    """The records before an error, and the error, which is the same in each further call."""
    items = iter(gc.data.read_tfrecords(path, **options))
    found = []
    for _ in range(100):
        try:
            found.append(next(items))
        except DataError as error:
            with pytest.raises(DataError) as again:
                next(items)
            assert str(again.value) == str(error)
            assert str(path) in str(error) and "hint:" in str(error)
            items.close()
            return found, str(error)
    raise AssertionError("no error")


def starts(records: list[bytes]) -> list[int]:
    return np.cumsum([0, *(len(record) + 16 for record in records)]).tolist()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("number", [0, 1, 3, 5])
def test_flipped_bits_are_found(tmp_path: Path, number: int, compression: Any) -> None:
    plain = write(tmp_path / "a").read_bytes()
    start = starts(RECORDS)[number]
    end = start + 16 + len(RECORDS[number])
    pack = {None: bytes, "gzip": gzip.compress, "zlib": zlib.compress}[compression]
    for at in (start, start + 7, start + 8, start + 11, start + 12, end - 1):
        data = bytearray(plain)
        data[at] ^= 0x10
        path = tmp_path / "b"
        path.write_bytes(pack(bytes(data)))
        found, message = error_of(path, compression=compression or "")
        assert found == RECORDS[:number]
        unit = "byte of the decompressed data" if compression else "byte"
        assert f"record {number}, at {unit} {start}:" in message
        if at < start + 12:
            assert "CRC of the length" in message or "not a TFRecord file" in message
        else:
            assert f"CRC of the data ({len(RECORDS[number])} bytes) is wrong" in message


def test_every_cut_is_found(tmp_path: Path) -> None:
    records = [b"one", b"", b"three"]
    plain = write(tmp_path / "a", records).read_bytes()
    for cut in range(1, len(plain)):
        path = tmp_path / "b"
        path.write_bytes(plain[:cut])
        whole = [n for n, end in enumerate(starts(records)) if end <= cut][-1]
        if cut == starts(records)[whole]:
            assert list(gc.data.read_tfrecords(path)) == records[:whole]
            continue
        found, message = error_of(path)
        assert found == records[:whole]
        assert f"record {whole}, at byte {starts(records)[whole]}" in message
        assert "the file ends within the record" in message and "incomplete" in message


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_cut_and_changed_compressed_files(tmp_path: Path, compression: Any) -> None:
    records = [np.random.default_rng(n).bytes(50) for n in range(4)]
    data = write(tmp_path / "a", records, compression).read_bytes()
    path = tmp_path / "b"
    for cut in range(3, len(data)):
        path.write_bytes(data[:cut])
        found, message = error_of(path)
        assert found == records[: len(found)]
        assert "incomplete" in message
    wrong = 0
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x20
        path.write_bytes(changed)
        try:  # some bits of gzip's header mean nothing
            assert list(gc.data.read_tfrecords(path, compression=compression)) == records
        except DataError as error:
            assert str(path) in str(error)
            wrong += 1
    assert wrong > len(data) - 10


def test_lengths_with_a_right_crc_that_are_absurd(tmp_path: Path) -> None:
    """No memory is allocated for them."""
    from graphc.data.records.framing import Frames, import_crc32c

    checksum = import_crc32c("test")
    for length in (1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1):
        number = struct.pack("<Q", length)
        crc = checksum(number)
        head = number + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
        data = Frames(checksum).framed([b"one"]) + head + b"abc"
        for pack in (bytes, gzip.compress, zlib.compress):
            path = tmp_path / "a"
            path.write_bytes(pack(data))
            found, message = error_of(path)
            assert found == [b"one"]
            assert f"needs {length + 16} bytes, but 15 are left" in message
        path.write_bytes(data)
        with pytest.raises(DataError, match="at byte 19: the file ends within the record"):
            gc.data.IndexedRecords(path)


@pytest.mark.parametrize(
    "data",
    [b"a,b,c\n1,2,3\n4,5,6\n", b"\x89PNG\r\n\x1a\n" * 5, b"\xff" * 40, b"\x80\x04" + b"x" * 100],
    ids=["csv", "png", "ones", "pickle"],
)
def test_other_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    assert "this is not a TFRecord file" in error_of(path)[1]
    with pytest.raises(DataError, match="this is not a TFRecord file"):
        gc.data.IndexedRecords(path)
    for compression in ("gzip", "zlib"):
        assert f"the {compression} data are damaged" in error_of(path, compression=compression)[1]


def test_a_compressed_file_that_is_read_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a", compression="gzip")
    message = error_of(path, compression="")[1]
    assert "not a TFRecord file" in message and 'compression="gzip"' in message


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "a"
    whole = write(tmp_path / "b", [b"one", b"two"]).read_bytes()
    path.write_bytes(whole[:25])
    items = iter(gc.data.read_tfrecords(path))
    assert next(items) == b"one"
    with pytest.raises(DataError, match="ends within the record: it needs 12 bytes, but 6"):
        next(items)
    path.write_bytes(whole)
    assert list(items) == [b"two"]


# -- arguments and states -------------------------------------------------------------------------


def test_wrong_arguments(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    with pytest.raises(DataError, match=r"there is no file .*b.records") as caught:
        gc.data.read_tfrecords(tmp_path / "b.records")
    (tmp_path / "b.record").touch()
    with pytest.raises(DataError, match=r"did you mean 'b\.record'"):
        gc.data.read_tfrecords([path, tmp_path / "b.records"])
    assert "test_tfrecords.py" in str(caught.value)
    with pytest.raises(DataError, match="no regular file"):
        gc.data.read_tfrecords(tmp_path)
    with pytest.raises(DataError, match="no files"):
        gc.data.read_tfrecords([])
    with pytest.raises(AttributeValueError, match="no compression 'lz4'"):
        gc.data.read_tfrecords(path, compression="lz4")  # type: ignore[arg-type]
    for shard in ((1, 1), (-1, 2), (0, 0), (0.0, 2), "all", 3):
        with pytest.raises(AttributeValueError, match="shard must be"):
            gc.data.read_tfrecords(path, shard=shard)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tree",
    [None, {}, {"file": 0}, {"file": 0, "offset": -1, "record": 0, "total": 0}, [0], "state"],
    ids=str,
)
def test_states_that_are_refused(tmp_path: Path, tree: Any) -> None:
    items = iter(gc.data.read_tfrecords(write(tmp_path / "a")))
    with pytest.raises(StateError, match="not the state of a reader"):
        items.restore(tree)
    assert list(items) == RECORDS


def test_states_of_other_files(tmp_path: Path) -> None:
    items = iter(gc.data.read_tfrecords(write(tmp_path / "a")))
    good = {"file": 0, "offset": 0, "record": 0, "total": 0}
    with pytest.raises(StateError, match="file 2 of 1 files"):
        items.restore({**good, "file": 2})
    items.restore({**good, "offset": 10**6})
    with pytest.raises(StateError, match="byte 1000000, after the end of the file"):
        next(items)
    items.restore({**good, "offset": 3})
    with pytest.raises(DataError, match="at byte 3: the CRC of the length is wrong"):
        next(items)
    items.close()
    items = iter(gc.data.read_tfrecords(write(tmp_path / "b", compression="gzip")))
    items.restore({**good, "offset": 10**6})
    with pytest.raises(StateError, match="after the end"):
        next(items)
    items.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts bytes read by the kernel")
def test_restoring_reads_nothing_before_the_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphc.data.records.streams import Plain

    path = write(tmp_path / "a", [b"x" * 1000] * 2000)
    items = iter(gc.data.read_tfrecords(path))
    for _ in range(1900):
        next(items)
    offsets = []
    read = Plain._read
    monkeypatch.setattr(
        Plain, "_read", lambda self, at, n: (offsets.append((at, n)), read(self, at, n))[1]
    )
    again = iter(gc.data.read_tfrecords(path))
    again.restore(items.state())
    assert len(list(again)) == 100
    assert offsets[0] == (0, 16)  # detects the compression
    assert all(at >= 1900 * 1016 for at, _ in offsets[1:])
    items.close()


# -- shards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_shards_of_records(
    tmp_path: Path, count: int, compression: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_BLOCK", 40)
    records = [b"%d" % n for n in range(13)]
    path = write(tmp_path / "a", records, compression)
    parts = [
        every_position(gc.data.read_tfrecords(path, shard=(index, count))) for index in range(count)
    ]
    assert parts == [records[index::count] for index in range(count)]


def test_shards_of_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / str(n), [b"%d" % n, b"x"]) for n in range(5)]
    found = [gc.data.read_tfrecords(paths, shard=(index, 2)) for index in range(2)]
    assert every_position(found[0]) == [b"0", b"x", b"2", b"x", b"4", b"x"]
    assert found[1].paths == (str(paths[1]), str(paths[3]))
    # fewer files than shards: shards by records
    parts = [list(gc.data.read_tfrecords(paths[:2], shard=(index, 3))) for index in range(3)]
    assert parts == [[b"0", b"x"], [b"x"], [b"1"]]


def test_the_shard_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    path = write(tmp_path / "a", [b"0", b"1", b"2"])
    assert list(gc.data.read_tfrecords(path, shard="process")) == [b"0", b"1", b"2"]
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert list(gc.data.read_tfrecords(path, shard="process")) == [b"1"]


# -- random access --------------------------------------------------------------------------------


def test_random_access(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a"),
        write(tmp_path / "b", []),
        write(tmp_path / "c", [b"x" * 10**6]),
    ]
    records = gc.data.IndexedRecords(paths)
    want = [*RECORDS, b"x" * 10**6]
    assert len(records) == 7 and list(records) == want
    assert [records[n] for n in (3, -1, np.int64(0), 6)] == [want[n] for n in (3, -1, 0, 6)]
    for n in (7, -8):
        with pytest.raises(IndexError, match="of 7 records"):
            records[n]
    assert records.origin(6) == f"{paths[2]}, record 0"
    copy = pickle.loads(pickle.dumps(records))
    assert list(copy) == want
    copy.close()
    assert copy[1] == b"one"
    copy.close()
    records.close()


def test_random_access_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"one", b"two", b"three"])
    records = gc.data.IndexedRecords(path)
    data = bytearray(path.read_bytes())
    data[19 + 12] ^= 1
    path.write_bytes(data)
    assert records[0] == b"one"
    with pytest.raises(DataError, match=r"record 1, at byte 19: the CRC of the data \(3 bytes\)"):
        records[1]
    path.write_bytes(data[:40])
    with pytest.raises(DataError, match="record 2, at byte 38: the file ends within the record"):
        records[2]
    write(path, [b"one", b"longer", b"th"])
    with pytest.raises(DataError, match="has 6 bytes, but 3 in the index"):
        records[1]
    records.close()


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_have_no_random_access(tmp_path: Path, compression: Any) -> None:
    path = write(tmp_path / "a", compression=compression)
    with pytest.raises(DataError, match="is compressed, so its records have no random access"):
        gc.data.IndexedRecords(path)


def test_a_stored_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc.data.records import indexed

    scans = []
    scan = indexed._scanned
    monkeypatch.setattr(indexed, "_scanned", lambda *args: (scans.append(1), scan(*args))[1])
    path, index = write(tmp_path / "a"), tmp_path / "a.index"

    def opened() -> int:
        scans.clear()
        records = gc.data.IndexedRecords(path, store=True)
        assert list(records) == list(gc.data.read_tfrecords(path))
        records.close()
        return len(scans)

    assert opened() == 1 and index.exists()
    assert opened() == 0
    write(path, RECORDS[::-1])
    os.utime(path, ns=(1, 1))
    assert opened() == 1 and opened() == 0  # it belonged to the old file
    good = index.read_bytes()
    for at in range(0, len(good), 7):  # a damaged index is made again
        index.write_bytes(good[:at] + bytes((good[at] ^ 1,)) + good[at + 1 :])
        assert opened() == 1
        index.write_bytes(good[:at])
        assert opened() == 1
    assert opened() == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "a.index"]


def test_an_index_in_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphc.data.records import offsets

    def refuse(*args: Any, **options: Any) -> Any:
        raise PermissionError

    monkeypatch.setattr(offsets.tempfile, "mkstemp", refuse)
    path = write(tmp_path / "a")
    records = gc.data.IndexedRecords(path, store=True)
    assert list(records) == RECORDS
    records.close()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_random_access_from_threads_and_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphc.data.records import indexed

    monkeypatch.setattr(indexed, "_OPEN", 2)
    paths = [write(tmp_path / str(n), [b"%d" % n] * 20) for n in range(5)]
    records = gc.data.IndexedRecords(paths)
    found: list[list[bytes]] = []

    def read() -> None:
        found.append([records[n] for n in np.random.default_rng(0).permutation(100)])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[b"%d" % (n // 20) for n in np.random.default_rng(0).permutation(100)]] * 4
    assert len(records._files) == 2
    records.close()


# -- the writer -----------------------------------------------------------------------------------


def test_what_a_writer_refuses(tmp_path: Path) -> None:
    with gc.data.TFRecordWriter(tmp_path / "a") as file:
        with pytest.raises(DTypeError, match="a record is bytes, got str"):
            file.write("text")  # type: ignore[arg-type]
        file.write(bytearray(b"one"))
        file.write(memoryview(b"two"))
        assert file.count == 2
        with pytest.raises(CopyError, match="cannot be pickled"):
            pickle.dumps(file)
    with pytest.raises(StateError, match="is closed"):
        file.write(b"three")
    file.close()
    assert list(gc.data.read_tfrecords(tmp_path / "a")) == [b"one", b"two"]
    with pytest.raises(AttributeValueError, match="no compression 'bz2'"):
        gc.data.TFRecordWriter(tmp_path / "a", "bz2")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"cannot create .*none/a: No such file or directory"):
        gc.data.TFRecordWriter(tmp_path / "none" / "a")


def test_flush_makes_records_readable(tmp_path: Path) -> None:
    file = gc.data.TFRecordWriter(tmp_path / "a")
    file.write(b"one")
    assert list(gc.data.read_tfrecords(tmp_path / "a")) == []
    file.flush()
    assert list(gc.data.read_tfrecords(tmp_path / "a")) == [b"one"]
    del file  # closes the file


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_full_disk(compression: Any) -> None:
    file = gc.data.TFRecordWriter("/dev/full", compression, level=0)
    with pytest.raises(DataError, match="cannot write /dev/full: No space left on device"):
        for _ in range(10):
            file.write(b"x" * 1_000_000)
    with pytest.raises(StateError, match="failed before"):
        file.write(b"")
    file.close()


@pytest.mark.parametrize(("limit", "kept"), [(900_000, 17), (1_500_000, 29), (49_999, 0)])
def test_after_a_failure_the_file_has_every_record_that_fits(
    tmp_path: Path, limit: int, kept: int
) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = gc.data.TFRecordWriter(tmp_path / "a")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    records = [bytes([number]) * 50_000 for number in range(50)]
    try:
        with pytest.raises(
            DataError, match=rf"File too large\n  the file keeps its first {kept} r"
        ):
            for record in records:
                file.write(record)
        assert file.count == kept
        file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(gc.data.read_tfrecords(tmp_path / "a")) == records[:kept]


def test_several_threads_write(tmp_path: Path) -> None:
    with gc.data.TFRecordWriter(tmp_path / "a") as file:
        threads = [
            threading.Thread(target=lambda n=n: [file.write(b"%d" % n * 50) for _ in range(500)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(gc.data.read_tfrecords(tmp_path / "a")) == sorted(
        b"%d" % n * 50 for n in range(4) for _ in range(500)
    )


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_records_and_one_cut(tmp_path: Path) -> None:
    code = (
        "import sys, graphc as gc\n"
        "file = gc.data.TFRecordWriter(sys.argv[1])\n"
        "n = 0\n"
        "while True:\n"
        "    file.write(b'%d ' % n * 1000); n += 1\n"
        "    if n == 5000: print('ready', flush=True)\n"
    )
    path = tmp_path / "a"
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate()
    items = iter(gc.data.read_tfrecords(path))
    number = 0
    try:
        for record in items:
            assert record == b"%d " % number * 1000
            number += 1
    except DataError as error:
        assert "the file ends within the record" in str(error)
    assert number > 4000


# -- pipelines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_pipelines_of_files(tmp_path: Path, compression: Any) -> None:
    paths = [write(tmp_path / str(n), [b"%d" % n, b"x", b"y"], compression) for n in range(3)]
    pipeline = gc.data.from_records(paths).repeat(2).shuffle(4, seed=1).map(len, workers=2).batch(4)
    want = list(pipeline)
    assert np.concatenate(want).tolist() == [1] * 18
    records = gc.data.from_records(paths).shuffle(seed=3).repeat(2)
    order = list(records)
    assert sorted(order) == sorted(list(gc.data.read_tfrecords(paths)) * 2)
    assert order[:9] != order[9:]
    for taken in range(19):
        with iter(records) as items:
            got = [next(items) for _ in range(taken)]
            state = json.loads(json.dumps(items.state()))
        with iter(records) as again:
            again.restore(state)
            assert got + list(again) == order


def test_pipelines_of_a_reader_and_of_an_index(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"%d" % n for n in range(20)])
    reader = gc.data.from_records(gc.data.read_tfrecords(path, shard=(1, 2))).map(int)
    items = iter(reader)
    assert [next(items) for _ in range(4)] == [1, 3, 5, 7]
    again = iter(reader)
    again.restore(items.state())
    assert list(again) == [9, 11, 13, 15, 17, 19]
    items.close()
    indexed = gc.data.from_records(gc.data.IndexedRecords(path))
    assert indexed.count == 20
    shuffled = indexed.shuffle(seed=2).shard(0, 2).repeat(2)
    assert len(list(shuffled)) == 20
    with pytest.raises(ValueError, match="invalid literal") as caught:
        list(indexed.map(lambda record: int(record) if record != b"7" else int("x")))
    assert f"{path}, record 7" in caught.value.__notes__[0]


def test_a_damaged_file_in_a_pipeline(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a", [b"1", b"2"]), write(tmp_path / "b", [b"3", b"4"])
    data = bytearray(bad.read_bytes())
    data[-1] ^= 1
    bad.write_bytes(data)
    items = iter(gc.data.from_records([good, bad]).map(int, workers=2))
    assert [next(items) for _ in range(3)] == [1, 2, 3]
    for _ in range(2):
        with pytest.raises(DataError, match=r"b: record 1, at byte 17: the CRC of the data"):
            next(items)
    items.close()


@pytest.mark.slow
def test_processes_decode_records(tmp_path: Path) -> None:
    """The processes receive the records, and a pickled index opens its files again."""
    path = write(tmp_path / "a", [b"%d" % n for n in range(50)])
    pipeline = gc.data.from_records(gc.data.IndexedRecords(path)).shuffle(seed=1)
    with iter(pipeline.map(int, workers=2, processes=True)) as items:
        assert sorted(items) == list(range(50))


def test_without_google_crc32c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    for call in (gc.data.read_tfrecords, gc.data.IndexedRecords, gc.data.TFRecordWriter):
        with pytest.raises(MissingExtraError, match="not installed") as caught:
            call(path)
        assert "graphc[records]" in str(caught.value)
    with pytest.raises(MissingExtraError, match="needs google-crc32c"):
        next(iter(gc.data.from_records(path)))
    assert path.stat().st_size > 0
