"""Batched versions: results do not change, and no request is lost when a version is unloaded."""

import threading
from pathlib import Path

import numpy as np
import pytest

from graphc.serving.config import BatchingConfig, ModelConfig
from graphc.web.failures import Failure
from tests.serving.models.saved import X, expected, put

CONFIG = BatchingConfig(max_batch_size=4, num_batch_threads=1)


def test_each_allowed_size_is_warm(tmp_path: Path, managing) -> None:
    """After the warm-up, no request causes a compilation."""
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path), batching=CONFIG)
    with manager.use("m") as servable:
        steps = servable.signatures["predict"]._chain._steps
        before = set(steps)
        assert before == {((1, 4),), ((2, 4),), ((4, 4),)}
        for size in (1, 2, 3, 4):
            y = servable.predict("predict", {"x": X[:size]}).result(60)["y"]
            np.testing.assert_array_equal(y, expected(1)[:size])
        assert set(steps) == before


def test_requests_are_joined_and_reported(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    reports = []
    manager = managing(
        ModelConfig("m", tmp_path), batching=CONFIG, observe=lambda *args: reports.append(args)
    )
    with manager.use("m") as servable:
        futures = [servable.predict("predict", {"x": X[i : i + 1]}) for i in range(4)]
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(60)["y"], expected(1)[i : i + 1])
    assert manager.close(60)
    assert {(model, signature) for model, signature, _ in reports} == {("m", "predict")}
    assert sum(report.rows for *_, report in reports) == 4


def test_a_bad_request_fails_alone(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path), batching=CONFIG)
    with manager.use("m") as servable:
        good = servable.predict("predict", {"x": X})
        bad = servable.predict("predict", {"x": X[:, :2]})
        assert isinstance(error := bad.exception(60), Failure) and error.code == "INVALID_ARGUMENT"
        np.testing.assert_array_equal(good.result(60)["y"], expected(1))


@pytest.mark.parametrize("signature", ["noisy", "predict"])
def test_threads_of_a_version_end_with_it(tmp_path: Path, managing, signature: str) -> None:
    before = set(threading.enumerate())
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path), batching=CONFIG)
    with manager.use("m") as servable:
        servable.predict(signature, {"x": X}).result(60)
    assert manager.close(60)
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if name.startswith("graphc-batch")}


def test_a_version_that_fails_leaves_no_threads(tmp_path: Path, managing) -> None:
    before = set(threading.enumerate())
    path = put(tmp_path, 1, 1)
    data = path.read_bytes()
    head = np.full((4, 2), 1, np.float32).tobytes()
    path.write_bytes(data.replace(head, bytes(len(head))))
    manager = managing(ModelConfig("m", tmp_path), batching=CONFIG)
    assert not manager.is_ready()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if name.startswith("graphc-batch")}
