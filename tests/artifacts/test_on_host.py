"""`EntryPoint.on_host`, the short path that the model server uses."""

from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.artifacts.entry_point import EntryPoint
from graphc.errors import FeedError, StateError
from tests.artifacts.models import linear


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    graph, signatures = linear()
    with graph:
        n = gc.placeholder(("batch",), "int64", name="n")
        signatures["same"] = gc.Signature({"n": n}, {"n": gc.identity(n), "twice": n * 2})
    found = tmp_path_factory.mktemp("on_host") / "model.gcx"
    gc.save(gc.Session(graph), found, signatures=signatures, platforms=["cpu"])
    return found


@pytest.fixture
def predict(path) -> EntryPoint:
    return gc.load(path).signatures["predict"]


def test_results_are_those_of_a_call(predict) -> None:
    x = np.float32([[1, 2], [0.1, -0.2]])
    expected = np.asarray(predict(x=x)["y"])
    for _ in range(2):
        found = predict.on_host({"x": x})
        assert list(found) == ["y"] and type(found["y"]) is np.ndarray
        assert found["y"].tobytes() == expected.tobytes()


def test_results_do_not_share_memory_with_inputs(path) -> None:
    same = gc.load(path).signatures["same"]
    for _ in range(2):
        n = np.arange(1000) + 2**40
        found = same.on_host({"n": n})
        n[:] = 0
        assert found["n"].dtype == np.int64 and found["n"][-1] == 2**40 + 999
        assert found["twice"][-1] == 2 * (2**40 + 999)


def test_inputs_are_checked_also_after_a_run(predict) -> None:
    predict.on_host({"x": np.ones((1, 2), np.float32)})
    assert predict.on_host({"x": [[1, 1]]})["y"].tolist() == [[3]]  # converted as in a call
    for wrong in (
        {},
        {"z": np.ones((1, 2), np.float32)},
        {"x": np.ones((1, 2), np.float32), "z": 1},
        {"x": np.ones((1, 3), np.float32)},
        {"x": np.ones((1, 2), np.complex64)},
    ):
        with pytest.raises(FeedError):
            predict.on_host(wrong)


def test_it_runs_again_after_release(predict) -> None:
    x = np.ones((1, 2), np.float32)
    for _ in range(2):
        assert predict.on_host({"x": x})["y"].tolist() == [[3]]
        predict.release()


def test_an_entry_point_with_state_is_refused(path) -> None:
    with pytest.raises(StateError, match="state"):
        gc.load(path).signatures["train"].on_host({"x": np.ones((1, 2), np.float32)})
