"""Makes the files in this folder with TensorFlow, and the values that TensorFlow reads from them.

    python tests/data/tensorflow_records/make.py    (tensorflow-cpu 2.21.0; not in the extra `test`)

`examples.*` contain the same Examples with each compression, `sequences.tfrecord` SequenceExamples.
Protobuf writes maps in any order, so each run makes other bytes with the same meaning.
`parsed.json` has the results of `tf.io.parse_example` and `tf.io.parse_sequence_example`.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

# pytest imports this file to collect doctests, also without TensorFlow.
tf: Any = importlib.import_module("tensorflow") if __name__ == "__main__" else None
HERE = Path(__file__).parent
UNKNOWN = b"\x9a\x06\x03abc"  # field 99, which no message has


def examples() -> list[bytes]:
    rows = [
        {"label": [3], "name": [b"one"], "ids": [1, 2, 300], "x": [0.5, -1.5]},
        {"label": [-1], "name": [b""], "ids": [], "x": [np.inf, 1e-42]},
        {"label": [2**63 - 1], "name": [b"\xff\0"], "ids": [-(2**63), -2, 0], "x": [1e30, 0.0]},
        {"label": [127], "name": [b"x" * 300], "x": [3.0, -0.0]},
        {"name": [b"no label"], "ids": [128, 16384], "x": [1.0, 2.0], "other": [b"ignored"]},
    ]
    made = [
        tf.train.Example(features=tf.train.Features(feature=row)) for row in map(messages, rows)
    ]
    found = [each.SerializeToString() for each in made]
    found.append(found[0] + UNKNOWN)
    found.append(found[1] + found[0])  # merged: the later entries of the map count
    found.append(unpacked())
    return found


def messages(row: dict) -> dict:
    return {key: feature(values) for key, values in row.items()}


def feature(values: list) -> Any:
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def field(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    return bytes((number << 3 | 2, len(value))) + value


def unpacked() -> bytes:
    """An Example with unpacked lists of numbers, as other writers make them."""
    ones = {
        b"label": field(3, b"\x08\x05"),
        b"name": field(1, field(1, b"unpacked")),
        b"ids": field(3, b"\x08\x05\x08\x06\x08\x80\x01"),
        b"x": field(2, b"\x0d" + np.float32(1.5).tobytes() + b"\x0d" + np.float32(2.5).tobytes()),
    }
    return field(1, b"".join(field(1, field(1, k) + field(2, v)) for k, v in ones.items()))


def sequences() -> list[bytes]:
    rows = [
        ({"label": [1]}, {"words": [[1.0, 2.0], [3.0, 4.0]], "ids": [[1, 2], [], [3]]}),
        ({"label": [2]}, {"words": [], "ids": [[-5]]}),
        ({"label": [3]}, {"words": [[5.0, 6.0]], "ids": []}),
    ]
    return [
        tf.train.SequenceExample(
            context=tf.train.Features(feature=messages(context)),
            feature_lists=tf.train.FeatureLists(
                feature_list={
                    key: tf.train.FeatureList(feature=[feature(step) for step in steps])
                    for key, steps in lists.items()
                }
            ),
        ).SerializeToString()
        for context, lists in rows
    ]


def write(name: str, records: list[bytes], compression: str) -> None:
    with tf.io.TFRecordWriter(str(HERE / name), compression) as file:
        for record in records:
            file.write(record)


def plain(values: object) -> list:
    """JSON values: floats as text, because of inf; bytes in Latin-1."""
    if isinstance(values, list):
        return [plain(each) for each in values]
    if isinstance(values, bytes):
        return values.decode("latin-1")
    return repr(values) if isinstance(values, float) else values


def parsed() -> dict:
    spec = {
        "label": tf.io.FixedLenFeature((), tf.int64, default_value=-7),
        "name": tf.io.FixedLenFeature((), tf.string),
        "ids": tf.io.RaggedFeature(tf.int64),
        "x": tf.io.FixedLenFeature((2,), tf.float32),
    }
    batch = tf.io.parse_example(examples(), spec)
    found = {key: plain(value.numpy().tolist()) for key, value in batch.items() if key != "ids"}
    found["ids"] = batch["ids"].to_list()
    context, steps, lengths = tf.io.parse_sequence_example(
        sequences(),
        {"label": tf.io.FixedLenFeature((), tf.int64)},
        {
            "words": tf.io.FixedLenSequenceFeature((2,), tf.float32),
            "ids": tf.io.RaggedFeature(tf.int64),
        },
    )
    found["context"] = context["label"].numpy().tolist()
    found["words"] = plain(steps["words"].numpy().tolist())
    found["lengths"] = lengths["words"].numpy().tolist()
    found["steps"] = steps["ids"].to_list()
    return found


if __name__ == "__main__":
    for name, kind in (("tfrecord", ""), ("tfrecord.gz", "GZIP"), ("tfrecord.zlib", "ZLIB")):
        write(f"examples.{name}", examples(), kind)
    write("sequences.tfrecord", sequences(), "")
    (HERE / "parsed.json").write_text(json.dumps(parsed(), indent=1) + "\n")
