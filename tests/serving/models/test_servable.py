"""One loaded version: its results and its errors."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.artifacts import ways
from graphc.artifacts.loading import Loading, open_model
from graphc.artifacts.sharing import Sharing
from graphc.errors import ExecutionError
from graphc.serving.models.servable import Servable
from graphc.web.failures import Failure
from tests.serving.models.saved import X, expected, put


@pytest.fixture
def servable(tmp_path: Path):
    with ThreadPoolExecutor(1) as pool:
        yield Servable("m", 3, [open_model(put(tmp_path, 3, 1))], pool)


def failure(servable: Servable, signature: str, inputs: dict) -> Failure:
    with pytest.raises(Failure) as info:
        servable.run(signature, inputs)
    future = servable.predict(signature, inputs).exception(60)
    assert isinstance(future, Failure) and str(future) == str(info.value)
    return info.value


def test_it_answers(servable: Servable) -> None:
    assert servable.default == "predict"
    for size in (1, 4):
        y = servable.predict("predict", {"x": X[:size]}).result(60)["y"]
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, expected(1)[:size])


@pytest.mark.parametrize(
    ("signature", "inputs", "code", "text"),
    [
        ("predict", {}, "INVALID_ARGUMENT", "input 'x' is missing"),
        ("predict", {"x": X, "z": X}, "INVALID_ARGUMENT", "has no input 'z'"),
        ("predict", {"x": X[:, :3]}, "INVALID_ARGUMENT", "x"),
        ("predict", {"x": X[:0]}, "INVALID_ARGUMENT", "is 0"),
        ("predict", {"x": X.astype("U3")}, "INVALID_ARGUMENT", "x"),
        (
            "nothing",
            {},
            "FAILED_PRECONDITION",
            'Serving signature key "nothing" not found; there are: ',
        ),
        ("train", {}, "FAILED_PRECONDITION", "updates variables (body)"),
    ],
)
def test_it_refuses(
    servable: Servable, tmp_path: Path, signature: str, inputs: dict, code: str, text: str
) -> None:
    found = failure(servable, signature, inputs)
    assert found.code == code and text in found.message
    assert str(tmp_path) not in found.message and ".py" not in found.message


def test_a_failing_run_is_internal(servable: Servable, monkeypatch) -> None:
    def fail(*_, **__):
        raise ExecutionError("the run failed: out of memory")

    monkeypatch.setattr(servable._replicas[0], "call", fail)
    assert failure(servable, "predict", {"x": X}).code == "INTERNAL"


def test_an_altered_file_names_no_path(tmp_path: Path) -> None:
    path = put(tmp_path, 3, 1)
    servable = Servable("m", 3, [open_model(path)], ThreadPoolExecutor(1))
    path.write_bytes(b"")  # the first run reads the weights
    found = failure(servable, "predict", {"x": X})
    assert found.code == "INTERNAL" and str(tmp_path) not in found.message


def test_random_numbers_differ_from_run_to_run(servable: Servable) -> None:
    """Many threads draw at once: each gets its own part of the random stream."""
    noise = []
    threads = [
        threading.Thread(target=lambda: noise.append(servable.run("noisy", {"x": X})["y"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({array.tobytes() for array in noise}) == 8


def test_the_stream_survives_a_bad_request(servable: Servable, tmp_path: Path) -> None:
    first = servable.run("noisy", {"x": X})["y"]
    failure(servable, "noisy", {"x": X[:, :3]})
    second = servable.run("noisy", {"x": X})["y"]
    model = open_model(put(tmp_path, 4, 1))
    state = model.state()
    for drawn in (first, second):
        outputs, state = model.signatures["noisy"](state, x=X)
        np.testing.assert_array_equal(drawn, outputs["y"])


def test_a_deadline_that_has_passed(servable: Servable) -> None:
    late = servable.predict("predict", {"x": X}, deadline=time.monotonic() - 1)
    error = late.exception(60)
    assert isinstance(error, Failure) and error.code == "DEADLINE_EXCEEDED"


def test_a_cancelled_request_does_not_run(servable: Servable, monkeypatch) -> None:
    gate, ran = threading.Event(), []
    servable._executor.submit(gate.wait)
    monkeypatch.setattr(servable, "run", lambda *_: ran.append(1))
    future = servable.predict("predict", {"x": X})
    assert future.cancel()
    gate.set()
    assert servable.close(60) and not ran


def test_closing_waits_for_what_it_was_given(servable: Servable) -> None:
    gate = threading.Event()
    servable._executor.submit(gate.wait)
    future = servable.predict("predict", {"x": X})
    assert not servable.close(0)
    gate.set()
    assert servable.close(60)
    np.testing.assert_array_equal(future.result(60)["y"], expected(1))
    with pytest.raises(Failure, match="not found"):
        servable.run("predict", {"x": X})


class Recorder:
    """Replaces a batcher."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def inputs_of_all_sizes(self, examples):
        return iter([{"x": 1}, {"x": 2}])

    def submit(self, inputs, deadline) -> Future:
        self.calls.append((list(inputs), deadline))
        future: Future = Future()
        future.set_result({"y": "batched"})
        return future

    def close(self) -> None:
        self.calls.append("closed")


def test_a_batcher_takes_the_requests_of_its_signature(servable: Servable) -> None:
    batcher = Recorder()
    servable.batch("predict", batcher)
    assert list(servable.inputs_of_all_sizes("predict", [])) == [{"x": 1}, {"x": 2}]
    (zeros,) = servable.inputs_of_all_sizes("noisy", [])
    np.testing.assert_array_equal(zeros["x"], np.zeros((1, 4), np.float32))
    assert list(servable.inputs_of_all_sizes("noisy", [{"x": X}])) == [{"x": X}]
    assert servable.predict("predict", {"x": X}, 5.0).result(60) == {"y": "batched"}
    servable.predict("noisy", {"x": X}).result(60)
    assert servable.close(60)
    assert batcher.calls == [(["x"], 5.0), "closed"]


def test_replicas_take_turns_and_have_their_own_weights(tmp_path: Path) -> None:
    shared, path = Sharing(), put(tmp_path, 1, 1)
    devices = jax.local_devices()[:2]
    models = [open_model(path, Loading(device), shared) for device in devices]
    servable = Servable("m", 1, models, ThreadPoolExecutor(1))
    servable.run_everywhere("predict", {"x": X})
    placed = {next(iter(model.state()["body"].devices())) for model in models}
    assert placed == set(devices)
    with servable._turn:
        servable._replicas[0].busy += 1  # a request in progress
    assert servable._replica("predict") is servable._replicas[1]
    assert servable._replica("noisy") is servable._replicas[0]  # one stream of random numbers
    np.testing.assert_array_equal(servable.run("predict", {"x": X})["y"], expected(1))


@pytest.mark.parametrize(
    ("names", "default"),
    [
        (("predict", "serving_default"), "serving_default"),
        (("other", "predict"), "predict"),
        (("only",), "only"),
        (("a", "b"), "serving_default"),
    ],
)
def test_the_default_signature(tmp_path: Path, names: tuple[str, ...], default: str) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        y = x + 1.0
    signatures = {name: gc.Signature({"x": x}, {"y": y}) for name in names}
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures=signatures, platforms=["cpu"])
    servable = Servable("m", 1, [open_model(tmp_path / "m.gcx")], ThreadPoolExecutor(1))
    assert servable.default == default


def test_a_new_size_does_not_hold_up_the_others(servable: Servable, monkeypatch) -> None:
    """While one request compiles, requests of a compiled size proceed."""
    servable.run("predict", {"x": X})
    compiling, go_on = threading.Event(), threading.Event()
    compile = ways.compiled_program

    def slow(key, *arguments):
        compiling.set()
        assert go_on.wait(60)
        return compile(key, *arguments)

    monkeypatch.setattr(ways, "compiled_program", slow)
    with ThreadPoolExecutor(2) as pool:
        new = pool.submit(servable.run, "predict", {"x": X[:1]})
        assert compiling.wait(60)
        try:
            old = pool.submit(servable.run, "predict", {"x": X}).result(60)
            np.testing.assert_array_equal(old["y"], expected(1))
            assert not new.done()
        finally:
            go_on.set()
        np.testing.assert_array_equal(new.result(60)["y"], expected(1)[:1])
