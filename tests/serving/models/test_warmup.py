"""The requests that run on a version before it takes requests."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.errors import DataError
from graphc.serving.config import BatchingConfig, ModelConfig
from graphc.serving.models.servable import Servable
from graphc.serving.models.warmup import FILES, recorded
from graphc.web.failures import Failure
from tests.serving import decoder
from tests.serving.models.saved import X, put

pytest.importorskip("google.protobuf")


def log(x: np.ndarray, signature: str = "", name: str = "x") -> bytes:
    from graphc.serving.protocol.messages import messages
    from graphc.serving.protocol.tensors import encode

    entry = messages().PredictionLog()
    request = entry.predict_log.request
    request.model_spec.signature_name = signature
    request.inputs[name].ParseFromString(encode(x).SerializeToString())
    return entry.SerializeToString()


def write(folder: Path, *records: bytes, name: str = FILES[0]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with gc.data.TFRecordWriter(path) as file:
        for record in records:
            file.write(record)
    return path


@pytest.fixture
def runs(monkeypatch) -> list[tuple[str, tuple[int, ...]]]:
    """The signature and the shape of `x` of each run on all replicas."""
    found: list[tuple[str, tuple[int, ...]]] = []
    run = Servable.run_everywhere

    def noting(self, signature, inputs):
        found.append((signature, inputs["x"].shape))
        return run(self, signature, inputs)

    monkeypatch.setattr(Servable, "run_everywhere", noting)
    return found


@pytest.mark.parametrize("name", FILES)
def test_recorded_requests_run(tmp_path: Path, managing, runs, name: str) -> None:
    put(tmp_path, 1, 1)
    write(tmp_path / "1", log(X), log(X[:3]), name=name)
    manager = managing(ModelConfig("m", tmp_path))
    assert manager.is_ready()
    assert [run for run in runs if run[0] != "noisy"] == [("predict", (4, 4)), ("predict", (3, 4))]
    assert ("noisy", (1, 4)) in runs


def test_recorded_requests_run_at_each_size_of_a_batch(tmp_path: Path, managing, runs) -> None:
    put(tmp_path, 1, 1)
    write(tmp_path / "1", log(X[:3]), log(X[:1]))
    manager = managing(ModelConfig("m", tmp_path), batching=BatchingConfig(4))
    assert manager.is_ready()
    predict = [shape[0] for name, shape in runs if name == "predict"]
    assert predict == [1, 2, 4, 1]


def test_recorded_requests_of_a_session_run(tmp_path: Path, managing, monkeypatch) -> None:
    """The requests compile the signature. The variables of the model do not change."""
    given = []
    run = Servable.run_everywhere

    def noting(self, signature, inputs):
        given.append(signature)
        return run(self, signature, inputs)

    monkeypatch.setattr(Servable, "run_everywhere", noting)
    decoder.put(tmp_path)
    write(tmp_path / "1", log(np.int32([3]), "step", name="token"))
    manager = managing(ModelConfig("m", tmp_path))
    assert manager.is_ready(), manager.status("m")
    assert sorted(given) == ["logits", "look", "step"]  # `draw` has no request
    with manager.use("m") as servable:
        assert not servable.run("look", {})["hidden"].any()


def one_of_each() -> dict[str, bytes]:
    """A record of each method, for a model with one number per example."""
    from graphc.serving.protocol.messages import messages

    example = gc.data.example({"x": X[0]})
    logs = {name: messages().PredictionLog() for name in ("classify", "regress", "multi")}
    logs["classify"].classify_log.request.input.example_list.examples.append(example)
    logs["regress"].regress_log.request.input.example_list.examples.append(example)
    multi = logs["multi"].multi_inference_log.request
    multi.input.example_list.examples.append(example)
    multi.tasks.add(method_name="tensorflow/serving/classify")
    return {name: log.SerializeToString() for name, log in logs.items()}


@pytest.mark.parametrize("name", ["classify", "multi"])
def test_records_of_other_methods_run(tmp_path: Path, managing, runs, name: str) -> None:
    put(tmp_path, 1, 1)
    write(tmp_path / "1", one_of_each()[name])
    assert managing(ModelConfig("m", tmp_path)).is_ready()
    assert ("predict", (1, 4)) in runs


def test_a_record_of_a_method_that_the_signature_does_not_suit(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)  # two numbers per example
    write(tmp_path / "1", one_of_each()["regress"])
    (status,) = managing(ModelConfig("m", tmp_path)).status("m")
    assert status.error_code == "INVALID_ARGUMENT" and "does not suit regress" in (
        status.error_message
    )


def session_run(folder: Path) -> None:
    write(folder, b"\x2a\x00")  # field 5


def test_without_warm_up_nothing_runs(tmp_path: Path, managing, runs) -> None:
    put(tmp_path, 1, 1)
    managing(ModelConfig("m", tmp_path), warm_up=False)
    assert runs == []


def bad_record(folder: Path) -> None:
    write(folder, b"\xff\xff\xff")


def bad_frame(folder: Path) -> None:
    path = write(folder, log(X))
    path.write_bytes(path.read_bytes()[:-3])


def bad_shape(folder: Path) -> None:
    write(folder, log(X[:, :2]))


def bad_signature(folder: Path) -> None:
    write(folder, log(X, "missing"))


def outside(folder: Path) -> None:
    path = write(folder, log(X))
    shutil.move(path, folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")


SPOILED = {
    bad_record: "requests, record 0: ",
    bad_frame: "",
    bad_shape: "requests, record 0: input 'x': shape [4, 2], expected f32[batch, 4]",
    bad_signature: 'requests, record 0: Serving signature key "missing" not found',
    outside: "outside the folder",
    session_run: "unsupported log_type for warm-up: session_run_log",
}


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_version_that_fails_its_recorded_requests_is_not_served(
    tmp_path: Path, managing, spoil
) -> None:
    put(tmp_path, 1, 1)
    put(tmp_path, 2, 2)
    spoil(tmp_path / "2")
    manager = managing(ModelConfig("m", tmp_path))
    assert {s.version: s.state for s in manager.status("m")} == {1: "AVAILABLE", 2: "END"}
    (status,) = manager.status("m", 2)
    assert status.error_code != "OK" and str(tmp_path) not in status.error_message
    assert SPOILED[spoil] in status.error_message


def test_too_many_records(tmp_path: Path) -> None:
    write(tmp_path, *[log(X[:1])] * 1001)
    with pytest.raises(DataError, match="more than 1000"):
        list(recorded(str(tmp_path)))


def test_an_empty_record_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, b"")
    assert list(recorded(str(tmp_path))) == []


def saved(folder: Path, **more) -> Path:
    """A version whose `predict` doubles numbers at each step of a sequence."""
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 3), name="x")
        n = gc.placeholder(("batch",), "int64", name="n")
        s = gc.placeholder((), name="s")
        y = x * s + gc.cast(n, "float32")[:, None, None]
    signature = gc.Signature({"x": x, "n": n, "s": s}, {"y": y}, **more)
    path = folder / "1" / "model.gcx"
    path.parent.mkdir()
    gc.save(gc.Session(graph), path, signatures={"predict": signature}, platforms=["cpu"])
    return folder


def example(batch: int, time: int) -> dict[str, np.ndarray]:
    x = np.arange(batch * time * 3, dtype=np.float32).reshape(batch, time, 3)
    return {"x": x, "n": np.arange(batch), "s": np.float32(2)}


def shapes(runs) -> list[tuple[int, ...]]:
    return [shape for _, shape in runs]


def test_without_examples_zeros_of_each_size_run(tmp_path: Path, managing, runs) -> None:
    assert managing(ModelConfig("m", saved(tmp_path)), batching=BatchingConfig(2)).is_ready()
    assert shapes(runs) == [(1, 1, 3), (2, 1, 3)]


def test_examples_of_the_file_run(tmp_path: Path, managing, runs) -> None:
    folder = saved(tmp_path, examples=[example(3, 5)])
    assert managing(ModelConfig("m", folder)).is_ready()
    assert shapes(runs) == [(3, 5, 3)]


def test_examples_are_repeated_at_each_size(tmp_path: Path, managing, monkeypatch) -> None:
    given = []
    run = Servable.run_everywhere

    def noting(self, signature, inputs):
        given.append(inputs)
        return run(self, signature, inputs)

    monkeypatch.setattr(Servable, "run_everywhere", noting)
    folder = saved(tmp_path, examples=[example(3, 5)])
    assert managing(ModelConfig("m", folder), batching=BatchingConfig(4)).is_ready()
    assert [len(inputs["x"]) for inputs in given] == [1, 2, 4]
    wide = given[-1]
    np.testing.assert_array_equal(wide["n"], [0, 1, 2, 0])
    np.testing.assert_array_equal(wide["x"], example(3, 5)["x"][[0, 1, 2, 0]])


def test_buckets_are_warm(tmp_path: Path, managing, runs) -> None:
    """After the warm-up, no request causes a compilation, whatever its length."""
    folder = saved(tmp_path, buckets={"time": [4, 8], "batch": [2]}, examples=[example(1, 3)])
    manager = managing(ModelConfig("m", folder), batching=BatchingConfig())
    assert shapes(runs) == [(2, 4, 3), (2, 8, 3)]
    with manager.use("m") as servable:
        steps = servable.signatures["predict"]._chain._steps
        before = set(steps)
        for length in (1, 4, 5):
            feeds = example(3, length)
            y = servable.predict("predict", feeds).result(60)["y"]
            np.testing.assert_array_equal(y, feeds["x"] * 2 + feeds["n"][:, None, None])
        assert set(steps) == before
        with pytest.raises(Failure, match="size 'time' is 9, but its largest bucket is 8"):
            servable.predict("predict", example(1, 9)).result(60)


def test_buckets_without_batches_are_noted(tmp_path: Path, managing, runs, caplog) -> None:
    folder = saved(tmp_path, buckets={"time": [4]})
    assert managing(ModelConfig("m", folder)).is_ready()
    assert shapes(runs) == [(1, 1, 3)]  # not padded
    assert "m version 1: the buckets of 'predict' need batching" in caplog.text


def test_an_example_that_exceeds_the_buckets(tmp_path: Path, managing) -> None:
    folder = saved(tmp_path, buckets={"time": [4]}, examples=[example(1, 5)])
    (status,) = managing(ModelConfig("m", folder), batching=BatchingConfig()).status("m")
    assert status.error_message == "size 'time' is 5, but its largest bucket is 4"


def test_buckets_that_the_configuration_adds(tmp_path: Path, managing, runs) -> None:
    batching = BatchingConfig(1, buckets={"time": (6,), "unknown": (1,)})
    assert managing(ModelConfig("m", saved(tmp_path)), batching=batching).is_ready()
    assert shapes(runs) == [(1, 6, 3)]


MIXING = {
    "mean": lambda x: x - gc.reduce_mean(x, 1, keepdims=True, name="wrong"),
    "cumulative sum": lambda x: gc.cumsum(x, axis=1, name="wrong"),
    "number of steps": lambda x: x / x.shape[1],
}


@pytest.mark.parametrize("name", MIXING)
def test_a_configuration_that_would_change_results_is_refused(
    tmp_path: Path, managing, name: str
) -> None:
    build = MIXING[name]
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 3), name="x")
        signature = gc.Signature({"x": x}, {"y": build(x)})
    (tmp_path / "1").mkdir()
    gc.save(gc.Session(graph), tmp_path / "1" / "model.gcx", signatures={"predict": signature},
            platforms=["cpu"])  # fmt: skip
    batching = BatchingConfig(1, buckets={"time": (8,)})
    (status,) = managing(ModelConfig("m", tmp_path), batching=batching).status("m")
    assert (status.state, status.error_code) == ("END", "FAILED_PRECONDITION")
    message = status.error_message
    assert message.startswith("signature 'predict': it has buckets, but 'time' cannot be padded: ")
    assert f"at test_warmup.py:{build.__code__.co_firstlineno}" in message
