"""TensorFlow reads graphc's files and graphc reads TensorFlow's files (the extra `adapters`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.data import FixedLen, RaggedArray, VarLen

tf = pytest.importorskip("tensorflow")
pytest.importorskip("google_crc32c")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

KINDS = {None: "", "gzip": "GZIP", "zlib": "ZLIB"}
RECORDS = [b"", b"one", bytes(3_000_000), b"", np.random.default_rng(0).bytes(2_500_000), b"\xff"]


@pytest.mark.parametrize("compression", KINDS)
def test_files_in_both_directions(tmp_path: Path, compression: Any) -> None:
    path = str(tmp_path / "a")
    for records in (RECORDS, [], [b"%d" % n * (n % 50) for n in range(5000)]):
        with gc.data.TFRecordWriter(path, compression) as ours:
            for record in records:
                ours.write(record)
        data = tf.data.TFRecordDataset(path, KINDS[compression])
        assert list(data.as_numpy_iterator()) == records
        bytes_of_ours = Path(path).read_bytes()
        with tf.io.TFRecordWriter(path, KINDS[compression]) as theirs:
            for record in records:
                theirs.write(record)
        assert list(gc.data.read_tfrecords(path)) == records
        assert list(gc.data.read_tfrecords(path, compression=compression or "")) == records
        if compression is None:
            assert Path(path).read_bytes() == bytes_of_ours
            assert list(gc.data.IndexedRecords(path)) == records


def rows(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "label": int(rng.integers(-(2**63), 2**63 - 1) >> int(rng.integers(0, 63))),
            "x": rng.normal(size=(2, 3)).astype("float32"),
            "ids": rng.integers(-5, 10**6, int(rng.integers(0, 40))),
            "scores": rng.normal(size=int(rng.integers(0, 5))),
            "name": rng.bytes(int(rng.integers(0, 400))),
            "tags": [rng.bytes(3) for _ in range(int(rng.integers(0, 3)))],
        }
        for _ in range(count)
    ]


def as_messages(row: dict[str, Any]) -> dict[str, Any]:
    made = {}
    for key, value in row.items():
        if isinstance(value, bytes) or key == "tags":
            values = [value] if isinstance(value, bytes) else value
            made[key] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif key in ("x", "scores"):
            made[key] = tf.train.Feature(float_list=tf.train.FloatList(value=value.ravel()))
        else:
            values = np.ravel(value).tolist()
            made[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return made


def test_examples_in_both_directions() -> None:
    given = rows(300)
    ours = [gc.data.example(row) for row in given]
    theirs = [
        tf.train.Example(features=tf.train.Features(feature=as_messages(row))).SerializeToString()
        for row in given
    ]
    spec = {
        "label": tf.io.FixedLenFeature((), tf.int64),
        "x": tf.io.FixedLenFeature((2, 3), tf.float32),
        "ids": tf.io.RaggedFeature(tf.int64),
        "scores": tf.io.RaggedFeature(tf.float32),
        "name": tf.io.FixedLenFeature((), tf.string),
        "tags": tf.io.RaggedFeature(tf.string),
    }
    features = {
        "label": FixedLen((), np.int64),
        "x": FixedLen((2, 3), np.float32),
        "ids": VarLen(np.int64),
        "scores": VarLen(np.float32),
        "name": FixedLen((), bytes),
        "tags": VarLen(bytes),
    }
    for records in (ours, theirs):
        want = tf.io.parse_example(records, spec)
        got = gc.data.parse_examples(records, features)
        for key, value in got.items():
            if isinstance(value, RaggedArray):
                assert value.values.tolist() == want[key].values.numpy().tolist()
                assert value.lengths.tolist() == want[key].row_lengths().numpy().tolist()
            else:
                assert value.tolist() == want[key].numpy().tolist()


def test_sequence_examples_in_both_directions() -> None:
    given = [rows(n % 5) for n in range(40)]
    ours = [
        gc.data.sequence_example(
            {"n": len(steps)}, {key: [step[key] for step in steps] for key in ("x", "ids", "name")}
        )
        for steps in given
    ]
    theirs = []
    for steps in given:
        lists: dict[str, list[Any]] = {"x": [], "ids": [], "name": []}
        for step in map(as_messages, steps):
            for key in lists:
                lists[key].append(step[key])
        message = tf.train.SequenceExample(
            context=tf.train.Features(feature=as_messages({"n": len(steps)})),
            feature_lists=tf.train.FeatureLists(
                feature_list={key: tf.train.FeatureList(feature=row) for key, row in lists.items()}
            ),
        )
        theirs.append(message.SerializeToString())
    for records in (ours, theirs):
        context, want, lengths = tf.io.parse_sequence_example(
            records,
            {"n": tf.io.FixedLenFeature((), tf.int64)},
            {
                "x": tf.io.FixedLenSequenceFeature((2, 3), tf.float32),
                "ids": tf.io.RaggedFeature(tf.int64),
                "name": tf.io.FixedLenSequenceFeature((), tf.string),
            },
        )
        above, got = gc.data.parse_sequence_examples(
            records,
            {"n": FixedLen((), np.int64)},
            {
                "x": FixedLen((2, 3), np.float32),
                "ids": VarLen(np.int64),
                "name": FixedLen((), bytes),
            },
        )
        assert above["n"].tolist() == context["n"].numpy().tolist()
        assert got["x"].padded(0).tolist() == want["x"].numpy().tolist()
        assert got["x"].lengths.tolist() == lengths["x"].numpy().tolist()
        assert got["name"].padded(b"").tolist() == want["name"].numpy().tolist()
        assert [[step.tolist() for step in row.rows()] for row in got["ids"].rows()] == want[
            "ids"
        ].to_list()
