"""Sources of pipelines: their items, their positions, and errors that name the position."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import graphc as gc
from graphc.errors import AttributeValueError, DataError, DTypeError, FeedError, StateError


def every_position(pipeline: gc.data.Pipeline) -> list[Any]:
    """The items, after a check that iteration can continue at every position."""
    want = list(pipeline)
    for taken in range(len(want) + 1):
        items = iter(pipeline)
        for _ in range(taken):
            next(items)
        state = json.loads(json.dumps(items.state()))
        again = iter(pipeline)
        again.restore(state)
        assert repr(list(again)) == repr(want[taken:]), taken
        items.close()
    return want


# -- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int4", "int8", "bfloat16", "float8_e4m3fn", "complex64", "U3", "S3", "O", ">f4"],
)
def test_arrays_of_any_dtype(dtype: str) -> None:
    if dtype in ("int4", "float8_e4m3fn", "bfloat16"):
        import ml_dtypes

        dtype = getattr(ml_dtypes, dtype)
    x = np.array([[1], [0], [1]]).astype(dtype)
    (first, second) = gc.data.from_arrays(x).batch(2)
    assert first.dtype == x.dtype.newbyteorder("=") and first.shape == (2, 1)
    assert (first == x[:2]).all() and (second == x[2:]).all()


def test_arrays_of_odd_shapes() -> None:
    assert list(gc.data.from_arrays(np.zeros((0, 3))).batch(2)) == []
    assert list(gc.data.from_arrays(np.zeros((0, 3))).shuffle().repeat(3)) == []
    assert [b.shape for b in gc.data.from_arrays(np.zeros((3, 0))).batch(2)] == [(2, 0), (1, 0)]
    nest = {"a": [np.arange(2), (np.ones((2, 3)),)], "b": [4, 5]}
    (batch,) = gc.data.from_arrays(nest).batch(2)
    assert batch["a"][1][0].shape == (2, 3) and batch["b"].tolist() == [4, 5]
    record = next(iter(gc.data.from_arrays(nest)))
    assert record["a"][1][0].shape == (3,) and record["b"] == 4


def test_batches_do_not_share_memory_with_the_arrays() -> None:
    x = np.zeros((4, 3))
    for pipeline in (gc.data.from_arrays(x), gc.data.from_arrays(x).batch(2)):
        next(iter(pipeline))[...] = 7
    assert (x == 0).all()


def test_a_mapped_file_is_not_read_whole(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    pipeline = gc.data.from_arrays({"x": mapped})
    kept = pipeline._node.indexed._arrays[0]
    assert isinstance(kept.base, np.memmap)
    assert next(iter(pipeline.shuffle(seed=1).batch(6)))["x"].sum() == 66


def test_typed_keys_and_arrays_of_jax() -> None:
    import jax

    keys = jax.random.split(jax.random.key(0), 4)
    batch = next(iter(gc.data.from_arrays({"k": keys, "x": jax.numpy.arange(4)}).batch(3)))
    assert batch["k"].shape == (3, 2) and batch["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": np.ones(3), "y": np.ones(4)}, "the arrays must have one length"),
        ({}, "takes arrays, got dict without any"),
        (3, "not an array with a leading axis"),
        ({"x": np.ma.masked_array([1, 2], [0, 1])}, "would lose its mask"),
    ],
)
def test_arrays_that_are_refused(arrays: Any, text: str) -> None:
    with pytest.raises(FeedError, match=text) as caught:
        gc.data.from_arrays(arrays)
    assert "test_sources.py" in str(caught.value.source)


# -- text -----------------------------------------------------------------------------------------

LINES = ["one", "", "drei: äöü", "  four  ", "\u4e94"]


def write(path: Path, lines: list[str], encoding: str, end: str = "\n") -> Path:
    path.write_bytes(end.join([*lines, ""]).encode(encoding))
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "dos"])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le", "gb18030", "utf-7"]
)
def test_lines_in_any_encoding(encoding: str, end: str, tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}", LINES[i:], encoding, end) for i in range(3)]
    text = gc.data.from_text(paths, encoding=encoding)
    assert every_position(text) == LINES + LINES[1:] + LINES[2:]
    assert list(text.skip(6).take(2)) == LINES[2:4]


@pytest.mark.parametrize("module", [gzip, bz2, lzma], ids=["gz", "bz2", "xz"])
def test_lines_of_compressed_files(module: Any, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ {gzip: 'gz', bz2: 'bz2', lzma: 'xz'}[module] }"
    path.write_bytes(module.compress("\n".join(LINES).encode()))
    assert every_position(gc.data.from_text(path)) == LINES
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"a\.\w+, line \d+: "):
        list(gc.data.from_text(path))


def test_a_position_in_a_plain_file_is_an_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", LINES, "utf-8")
    items = iter(gc.data.from_text(path))
    next(items), next(items)
    assert items.state()["at"] == {"file": 0, "line": 2, "offset": 5}


def test_empty_files_and_files_without_an_end(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "a").write_bytes(b"x\ny")
    files = [tmp_path / name for name in ("empty", "a", "empty", "a", "empty")]
    assert every_position(gc.data.from_text(files)) == ["x", "y", "x", "y"]
    assert list(gc.data.from_text(files[0])) == []


def test_errors_of_text_name_the_file_and_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\n\xff\xfe\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2: the line is not utf-8") as caught:
        list(gc.data.from_text(path))
    assert "test_sources.py" in str(caught.value.source)
    with pytest.raises(DataError, match="there is no file") as caught:
        gc.data.from_text(tmp_path / "a.tx")
    assert "a.txt" in str(caught.value.hint)
    with pytest.raises(AttributeValueError, match="no encoding 'utf-9'"):
        gc.data.from_text(path, encoding="utf-9")
    with pytest.raises(DataError, match="no files"):
        gc.data.from_text([])
    path.write_bytes(b"1\nx\n")
    with pytest.raises(ValueError, match="invalid literal") as error:
        list(gc.data.from_text(path).map(int))
    assert f"{path}, line 2" in error.value.__notes__[0]


# -- CSV ------------------------------------------------------------------------------------------

TABLE = 'name,age,"height, cm",ok\nAda,36,1.5e2,true\n"Two\nlines",7,,0\n\n"A ""quote""",-1,3,1\n'


def test_rows_of_csv_with_found_dtypes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    rows = every_position(gc.data.from_csv([path, path]))
    assert len(rows) == 6
    assert rows[1]["name"] == "Two\nlines" and rows[2]["name"] == 'A "quote"'
    assert [type(v).__name__ for v in rows[0].values()] == ["str", "int64", "float64", "str"]
    assert np.isnan(rows[4]["height, cm"])
    (batch,) = gc.data.from_csv(path).batch(3)
    assert batch["age"].dtype == np.int64 and batch["name"].dtype == object


def test_rows_of_csv_with_given_dtypes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    columns = {"ok": "bool", "height, cm": "bfloat16", "age": "int8"}
    rows = list(gc.data.from_csv(path, columns=columns, missing={"height, cm": 0}))
    assert [list(row) for row in rows] == [list(columns)] * 3
    assert [bool(row["ok"]) for row in rows] == [True, False, True]
    assert rows[1]["height, cm"] == 0 and type(rows[1]["height, cm"]) is bfloat16
    path.write_text("1;2\n3;4\n")
    pairs = gc.data.from_csv(path, header=("a", "b"), delimiter=";")
    assert [list(row.values()) for row in pairs] == [[1, 2], [3, 4]]
    assert list(next(iter(gc.data.from_csv(path, header=False, delimiter=";")))) == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n3\n", {}, r"a\.csv, line 3: 1 fields, expected 2"),
        ("a\n1\nx\n", {"columns": {"a": "int32"}}, r"line 3: column 'a': 'x' is not int32"),
        ("a\n300\n", {"columns": {"a": "int8"}}, r"line 2: column 'a': '300' is not int8"),
        ("a,b\n1,\n", {"columns": {"b": "int32"}}, r"line 2: column 'b': the field is empty"),
        ("a\nmaybe\n", {"columns": {"a": "bool"}}, r"'maybe' is not bool"),
        ('a\n"open\n', {"columns": {"a": "str"}}, r"a\.csv, line 2"),
    ],
)
def test_errors_of_csv_name_file_line_and_column(
    text: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        list(gc.data.from_csv(path, **options))
    assert "test_sources.py" in str(caught.value.source)


def test_arguments_of_csv_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,name\n1,x\n")
    with pytest.raises(DataError, match="has no column 'ages'"):
        gc.data.from_csv(path, columns={"ages": "int32"})
    with pytest.raises(DTypeError):
        gc.data.from_csv(path, columns={"age": "int33"})
    with pytest.raises(AttributeValueError, match="one character"):
        gc.data.from_csv(path, delimiter=", ")
    (tmp_path / "b.csv").touch()
    with pytest.raises(DataError, match="is empty"):
        gc.data.from_csv(tmp_path / "b.csv")


# -- generators, iterables, records ---------------------------------------------------------------


def test_a_generator_function_is_called_for_each_epoch() -> None:
    closed: list[int] = []

    def three() -> Iterator[int]:
        try:
            yield from range(3)
        finally:
            closed.append(1)

    assert every_position(gc.data.from_generator(three).repeat(2)) == [0, 1, 2, 0, 1, 2]
    with iter(gc.data.from_generator(three)) as items:
        next(items)
        before = len(closed)
    assert len(closed) == before + 1


def test_a_generator_that_runs_is_read_once() -> None:
    pipeline = gc.data.from_generator(iter([1, 2, 3]))
    items = iter(pipeline)
    assert next(items) == 1
    state = items.state()
    assert list(items) == [2, 3]
    with pytest.raises(DataError, match="has given 3 items already, and cannot begin anew"):
        next(iter(pipeline))
    fresh = iter(gc.data.from_generator(iter([1, 2, 3])))
    fresh.restore(state)
    assert list(fresh) == [2, 3]
    with pytest.raises(DataError, match="cannot begin anew"):
        list(gc.data.from_iterable(iter([1])).repeat(2))


def test_a_source_that_became_shorter_is_found() -> None:
    items = iter(gc.data.from_generator(lambda: iter(range(5))))
    [next(items) for _ in range(4)]
    again = iter(gc.data.from_generator(lambda: iter(range(2))))
    again.restore(items.state())
    with pytest.raises(StateError, match="ended 2 items before the position"):
        next(again)


class Resumable:
    """An iterable of bytes whose iterators have their own positions."""

    reads = 0

    def __iter__(self) -> Iterator[bytes]:
        return ResumableIterator()


class ResumableIterator:
    def __init__(self) -> None:
        self.next = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self.next == 6:
            raise StopIteration
        self.next += 1
        Resumable.reads += 1
        return b"%d" % self.next

    def state(self) -> dict[str, int]:
        return {"next": self.next}

    def restore(self, tree: dict[str, int]) -> None:
        self.next = tree["next"]


def test_iterators_with_positions_of_their_own_restore_themselves() -> None:
    records = gc.data.from_records(Resumable())
    assert every_position(records) == [b"%d" % i for i in range(1, 7)]
    items = iter(records)
    [next(items) for _ in range(4)]
    again = iter(records)
    again.restore(items.state())
    Resumable.reads = 0
    assert next(again) == b"5" and Resumable.reads == 1


def test_files_of_records_are_read_by_the_reader_of_tfrecords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contract needs only an iterable of bytes, here one without its own positions."""
    import sys
    from types import SimpleNamespace

    def read_tfrecords(path: str) -> Iterator[bytes]:
        yield from Path(path).read_bytes().split()

    fake = SimpleNamespace(read_tfrecords=read_tfrecords)
    monkeypatch.setitem(sys.modules, "graphc.data.records", fake)
    paths = [tmp_path / name for name in "abc"]
    for path, text in zip(paths, (b"1 2 3", b"", b"4 5"), strict=True):
        path.write_bytes(text)
    records = gc.data.from_records(paths)
    assert every_position(records.repeat(2)) == [b"1", b"2", b"3", b"4", b"5"] * 2
    with pytest.raises(ValueError, match="invalid literal") as caught:
        list(records.map(lambda record: int(record) + int(b"x" if record == b"5" else b"0")))
    assert f"{paths[2]}, record 1" in caught.value.__notes__[0]


def test_batches_and_pipelines_are_sources() -> None:
    batches = gc.data.Batches({"x": np.arange(6)}, 2, seed=4)
    want = [batch["x"].tolist() for batch, _ in zip(batches, range(8), strict=False)]
    pipeline = gc.data.from_iterable(batches).take(8)
    assert [item["x"].tolist() for item in every_position(pipeline)] == want
    inner = gc.data.from_arrays(np.arange(5)).shuffle(seed=1)
    assert every_position(gc.data.from_iterable(inner)) == list(inner)


def test_lists_of_records_and_bytes_with_zeros() -> None:
    records = [b"\0", b"a\0", b""]
    assert every_position(gc.data.from_records(records).shuffle(seed=1)) != []
    (batch,) = gc.data.from_records(records).batch(3)
    assert batch.tolist() == records
    (texts,) = gc.data.from_iterable([{"t": "a\0", "n": None}, {"t": "", "n": None}]).batch(2)
    assert texts["t"].tolist() == ["a\0", ""] and texts["n"].tolist() == [None, None]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: gc.data.from_generator([1, 2]), "takes a generator function, got list"),
        (lambda: gc.data.from_iterable({"x": 1}), "takes an iterable of items, got dict"),
        (lambda: gc.data.from_iterable("text"), "got str"),
        (lambda: gc.data.from_iterable(3), "int is not iterable"),
        (lambda: gc.data.from_records(3), "int is not iterable"),
    ],
)
def test_sources_that_are_refused(call: Any, text: str) -> None:
    with pytest.raises(FeedError, match=text):
        call()


def test_a_function_that_returns_no_iterator() -> None:
    with pytest.raises(DataError, match="the function returned int, not an iterator"):
        next(iter(gc.data.from_generator(lambda: 3)))
