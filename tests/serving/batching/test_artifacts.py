"""Batching of real files: each request gets the result that it would get alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.serving.batching.batcher import Batcher, BatchReport
from graphc.serving.batching.paddable import Paddable, paddable
from graphc.serving.config import BatchingConfig
from tests.near import assert_near


def saved(folder: Path, build, shape, dtype="float32") -> Any:
    """The entry point of a saved model."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(shape, dtype, name="x")
        signature = gc.Signature({"x": x}, {"y": build(x)})
    path = folder / "model.gcx"
    gc.save(gc.Session(graph), path, signatures={"predict": signature})
    return gc.load(path).signatures["predict"]


def run_of(entry):
    return lambda inputs: {name: np.asarray(value) for name, value in entry(**inputs).items()}


def mlp(x):
    return nn.Dense(3)(nn.Dense(16, activation="relu")(x))


def cnn(x):
    x = nn.BatchNorm()(nn.Conv2D(4, 3, activation="relu")(x), training=False)
    return gc.softmax(nn.Dense(2)(gc.flatten(nn.max_pool(x, 2), 1)), axis=-1)


def embedded(x):
    return gc.reduce_mean(nn.Embedding(10, 4)(x), axis=2)


MODELS = {
    "mlp": (mlp, ("batch", 6), "float32"),
    "cnn": (cnn, ("batch", 8, 8, 3), "float32"),
    "encoder": (lambda x: nn.TransformerBlock(8, 2)(x), ("batch", 5, 8), "float32"),
    "lstm": (lambda x: nn.LSTM(4)(x), ("batch", 5, 3), "float32"),
    "embedding": (embedded, ("batch", 5), "int32"),
}


@pytest.mark.parametrize("name", MODELS)
def test_batched_is_unbatched(tmp_path: Path, name: str) -> None:
    build, shape, dtype = MODELS[name]
    entry = saved(tmp_path, build, shape, dtype)
    axes = paddable(entry)
    assert axes.batch is not None and axes.batch.name == "batch"
    reports: list[BatchReport] = []
    config = BatchingConfig(max_batch_size=4)
    batcher = Batcher(run_of(entry), axes, config, reports.append, threads=0)
    rng = np.random.default_rng(0)
    requests = [rng.uniform(0, 9, (n, *shape[1:])).astype(dtype) for n in (1, 2, 6, 1, 3)]
    futures = [batcher.submit({"x": x}) for x in requests]
    batcher.close()
    for x, future in zip(requests, futures, strict=True):
        assert_near(future.result(0)["y"], np.asarray(entry(x=x)["y"]), rtol=1e-5)
    assert max(r.requests for r in reports) > 1
    assert {r.padded_to for r in reports} <= {1, 2, 4}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda x: gc.softmax(x, axis=0, name="wrong"),
            "Softmax 'wrong' at {} needs all rows",
        ),
        (
            lambda x: gc.cumsum(x, axis=0, name="wrong"),
            "CumSum 'wrong' at {} needs all rows",
        ),
        (
            lambda x: x - gc.reduce_mean(x, 0, name="wrong"),
            "'wrong' at {} adds up all rows",
        ),
    ],
)
def test_a_model_that_mixes_rows_is_not_batched(tmp_path: Path, build, words: str) -> None:
    entry = saved(tmp_path, build, ("batch", 3))
    axes = paddable(entry)
    line = build.__code__.co_firstlineno
    assert axes.batch is None and words.format(f"test_artifacts.py:{line}") in str(axes)
    batcher = Batcher(run_of(entry), axes, threads=0)
    requests = [np.random.default_rng(n).standard_normal((n, 3)).astype("f4") for n in (1, 3)]
    futures = [batcher.submit({"x": x}) for x in requests]
    batcher.close()
    for x, future in zip(requests, futures, strict=True):
        np.testing.assert_array_equal(future.result(0)["y"], np.asarray(entry(x=x)["y"]))


def test_the_program_of_an_entry_point_has_its_names(tmp_path: Path) -> None:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", 3), name="x")
        outputs = {"b": x * 2, "a": gc.exp(x), "c": x * 2}
        signature = gc.Signature({"given": x}, outputs)
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures={"predict": signature})
    entry = gc.load(tmp_path / "m.gcx").signatures["predict"]
    program = entry.program()
    assert program is not None
    assert [port.name for port in program.ports("fetch")] == list(entry.outputs)
    assert [port.name for port in program.ports("feed")] == ["given"]
    assert paddable(entry).sizes["batch"].outputs.keys() == outputs.keys()


def test_training_is_not_batched(tmp_path: Path) -> None:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", 3), name="x")
        count = gc.variable(np.float32(0), name="count")
        step = gc.assign(count, count + 1)
        signature = gc.Signature({"x": x}, {"y": x * 2}, updates=[step])
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures={"train": signature})
    axes = paddable(gc.load(tmp_path / "m.gcx").signatures["train"])
    assert axes.batch is None and "'count' is assigned" in str(axes)


def test_lengths_of_an_elementwise_model_are_padded(tmp_path: Path) -> None:
    entry = saved(tmp_path, mlp, ("batch", "time", 6))
    axes = paddable(entry)
    assert axes.sizes["time"].padded and axes.batch is axes.sizes["batch"]
    config = BatchingConfig(max_batch_size=4, pad_variable_length_inputs=True)
    reports: list[BatchReport] = []
    batcher = Batcher(run_of(entry), axes, config, reports.append, threads=0)
    rng = np.random.default_rng(0)
    requests = [rng.standard_normal((1, t, 6)).astype("f4") for t in (5, 7, 8)]
    futures = [batcher.submit({"x": x}) for x in requests]
    batcher.close()
    for x, future in zip(requests, futures, strict=True):
        assert_near(future.result(0)["y"], np.asarray(entry(x=x)["y"]), rtol=1e-5)
    assert [r.requests for r in reports] == [3]


def test_lengths_of_attention_are_not_padded(tmp_path: Path) -> None:
    entry = saved(tmp_path, lambda x: nn.TransformerBlock(8, 2)(x), ("batch", "time", 8))
    axes: Paddable = paddable(entry)
    assert axes.batch is axes.sizes["batch"]
    assert "Attention" in str(axes.sizes["time"].refusal) or "Softmax" in str(axes.sizes["time"])


def test_32_clients_of_a_file(tmp_path: Path) -> None:
    entry = saved(tmp_path, mlp, ("batch", 6))
    config = BatchingConfig(max_batch_size=8, batch_timeout_micros=500, max_enqueued_batches=256)
    batcher = Batcher(run_of(entry), paddable(entry), config)
    inputs = np.random.default_rng(0).standard_normal((64, 6)).astype("f4")
    expected = np.asarray(entry(x=inputs)["y"])
    wrong: list[BaseException] = []

    def client(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(10):
            start, count = int(rng.integers(40)), int(rng.integers(1, 20))
            try:
                got = batcher.submit({"x": inputs[start : start + count]}).result(60)["y"]
                assert_near(got, expected[start : start + count], rtol=1e-5)
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert not wrong
