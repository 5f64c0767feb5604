"""TFRecord files and Examples: rates of writing, reading and parsing, compared in one run with
TensorFlow, if it is installed. All files are in the page cache.

TensorFlow reads batches of 1024 records, which is its fastest way: "in Python" by
`as_numpy_iterator`, and "in C++" by counting them with `Dataset.reduce`, which creates no Python
object.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from graphc.data import FixedLen, Raw, VarLen

Row = tuple[str, str, str]
BATCH = 128
ROUNDS = 5
TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


def rows() -> Iterator[Row]:
    """Rows: files by the size of their records, then Examples by their contents."""
    if TENSORFLOW:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    else:
        print("tensorflow is not installed: no ratios", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "records")
        for size, count in ((100, 100_000), (800, 50_000), (20_000, 3_000)):
            for compression in ("", "gzip") if size == 800 else ("",):
                yield from file_rows(path, size, count, compression)
        for name, make, features, count in KINDS:
            yield from example_rows(path, name, make, features, count)


def medians(forms: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median seconds of each form. They run in turn, so that noise affects all of them."""
    found: dict[str, list[float]] = {name: [] for name in forms}
    for number in range(ROUNDS + 1):
        for name, function in forms.items():
            start = time.perf_counter()
            function()
            if number:
                found[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in found.items()}


def row(what: str, size: int, times: dict[str, float], target: str) -> Row:
    own = times.pop("graphc")
    peers = "".join(f"; TensorFlow{name} {s / own:.1f}x as long" for name, s in times.items())
    return what, f"{size / own / 1e6:.0f} MB/s{peers}", target


# -- files ----------------------------------------------------------------------------------------


def file_rows(path: str, size: int, count: int, compression: Any) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    records = [rng.integers(0, 50, size, dtype=np.uint8).tobytes() for _ in range(count)]
    name = f"records of {size} bytes{', ' + compression if compression else ''}"

    def write() -> None:
        with gc.data.TFRecordWriter(path, compression) as file:
            for record in records:
                file.write(record)

    writers: dict[str, Callable[[], Any]] = {"graphc": write}
    readers: dict[str, Callable[[], Any]] = {
        "graphc": lambda: sum(1 for _ in gc.data.read_tfrecords(path))
    }
    if TENSORFLOW:
        import tensorflow as tf

        kind = compression.upper()

        def write_theirs() -> None:
            with tf.io.TFRecordWriter(path, kind) as file:
                for record in records:
                    file.write(record)

        data = tf.data.TFRecordDataset(path, kind, buffer_size=1 << 20)
        batches = data.batch(1024)
        writers[""] = write_theirs
        readers[" in Python"] = lambda: sum(map(len, batches.as_numpy_iterator()))
        readers[" in C++"] = lambda: batches.reduce(np.int64(0), lambda n, _: n + 1).numpy()
    yield row(f"writing {name}", size * count, medians(writers), "")
    yield row(f"reading {name}", size * count, medians(readers), "at least 200 MB/s")
    if not compression:
        indexed = gc.data.IndexedRecords(path)
        order = np.random.default_rng(0).permutation(count).tolist()
        times = medians({"graphc": lambda: [indexed[n] for n in order]})
        yield row(f"reading {name}, in random order", size * count, times, "")


# -- Examples -------------------------------------------------------------------------------------


def image(rng: np.random.Generator) -> dict[str, Any]:
    return {"image": rng.bytes(784), "label": int(rng.integers(10))}


def encoded(rng: np.random.Generator) -> dict[str, Any]:
    return {"image": rng.bytes(int(rng.integers(5000, 30000))), "label": int(rng.integers(1000))}


def floats(rng: np.random.Generator) -> dict[str, Any]:
    return {"x": rng.normal(size=256).astype(np.float32), "y": float(rng.normal())}


def tokens(rng: np.random.Generator) -> dict[str, Any]:
    return {"ids": rng.integers(0, 50000, int(rng.integers(20, 200)))}


def clicks(rng: np.random.Generator) -> dict[str, Any]:
    return {f"f{n}": int(rng.integers(0, 10**6)) for n in range(20)}


_LABEL = {"label": FixedLen((), np.int64)}
KINDS: list[tuple[str, Any, dict[str, Any], int]] = [
    ("28x28 bytes and a label", image, {"image": Raw((28, 28), np.uint8), **_LABEL}, 10_000),
    ("images of 5 to 30 kB", encoded, {"image": FixedLen((), bytes), **_LABEL}, 3_000),
    (
        "256 floats",
        floats,
        {"x": FixedLen((256,), np.float32), "y": FixedLen((), np.float32)},
        10_000,
    ),
    ("20 to 200 tokens", tokens, {"ids": VarLen(np.int64)}, 10_000),
    ("20 numbers", clicks, {f"f{n}": FixedLen((), np.int64) for n in range(20)}, 5_000),
]


def example_rows(
    path: str, name: str, make: Any, features: dict[str, Any], count: int
) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    given = [make(rng) for _ in range(count)]
    records = [gc.data.example(each) for each in given]
    size = sum(map(len, records))
    with gc.data.TFRecordWriter(path) as file:
        for record in records:
            file.write(record)

    def parse() -> None:
        for start in range(0, count, BATCH):
            gc.data.parse_examples(records[start : start + BATCH], features)

    pipeline = gc.data.from_records(path).batch(BATCH)
    parsed = pipeline.map(lambda batch: gc.data.parse_examples(batch, features))
    parsers: dict[str, Callable[[], Any]] = {"graphc": parse}
    loaders: dict[str, Callable[[], Any]] = {"graphc": lambda: sum(1 for _ in parsed)}
    makers: dict[str, Callable[[], Any]] = {
        "graphc": lambda: [gc.data.example(each) for each in given]
    }
    if TENSORFLOW:
        parsers[""], loaders[""], makers[""] = peers(path, records, given, features)
    yield row(f"parsing Examples of {name}", size, medians(parsers), "")
    yield row("the same from a file, by a pipeline", size, medians(loaders), "at least 200 MB/s")
    yield row(f"making Examples of {name}", size, medians(makers), "")


def peers(
    path: str, records: list[bytes], given: list[dict[str, Any]], features: dict[str, Any]
) -> list[Callable[[], Any]]:
    """The same operations in TensorFlow: parsing, loading and making."""
    import tensorflow as tf

    specs = {key: _spec(tf, spec) for key, spec in features.items()}
    raw = [key for key, spec in features.items() if isinstance(spec, Raw)]

    @tf.function
    def parse(batch: Any) -> Any:
        found = tf.io.parse_example(batch, specs)
        return found | {key: tf.io.decode_raw(found[key], tf.uint8) for key in raw}

    def parse_all() -> None:
        for start in range(0, len(records), BATCH):
            batch = parse(tf.constant(records[start : start + BATCH]))
            tf.nest.map_structure(lambda t: t.numpy(), batch, expand_composites=True)

    data = tf.data.TFRecordDataset(path).batch(BATCH).map(parse)

    def load() -> None:
        for batch in data:
            tf.nest.map_structure(lambda t: t.numpy(), batch, expand_composites=True)

    def feature(value: Any) -> Any:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        values = np.ravel(value)
        if values.dtype.kind == "f":
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def make() -> None:
        for each in given:
            made = {key: feature(value) for key, value in each.items()}
            tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()

    return [parse_all, load, make]


def _spec(tf: Any, spec: Any) -> Any:
    if isinstance(spec, VarLen):
        return tf.io.RaggedFeature(tf.int64)
    if isinstance(spec, Raw) or spec.dtype is bytes:
        return tf.io.FixedLenFeature((), tf.string)
    return tf.io.FixedLenFeature(spec.shape, tf.as_dtype(spec.dtype))


if __name__ == "__main__":
    for what, measured, target in rows():
        print(f"| {what} | {measured} | {target} |", flush=True)
