"""What runs on a version before it takes requests."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.artifacts.loading import open_model
from graphc.errors import DataError
from graphc.serving.config import ModelConfig
from graphc.serving.models.servable import Servable
from graphc.serving.models.warmup import FILES, recorded, zeros
from tests.serving.models.saved import X, put

pytest.importorskip("google.protobuf")


def log(x: np.ndarray, signature: str = "") -> bytes:
    from graphc.serving.protocol.messages import messages
    from graphc.serving.protocol.tensors import encode

    entry = messages().PredictionLog()
    request = entry.predict_log.request
    request.model_spec.signature_name = signature
    request.inputs["x"].ParseFromString(encode(x).SerializeToString())
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
        run(self, signature, inputs)

    monkeypatch.setattr(Servable, "run_everywhere", noting)
    return found


@pytest.mark.parametrize("name", FILES)
def test_recorded_requests_run_first(tmp_path: Path, managing, runs, name: str) -> None:
    put(tmp_path, 1, 1)
    write(tmp_path / "1", log(X), log(X[:3], "noisy"), name=name)
    manager = managing(ModelConfig("m", tmp_path))
    assert manager.is_ready()
    assert runs[:2] == [("predict", (4, 4)), ("noisy", (3, 4))]
    assert set(runs[2:]) == {("predict", (1, 4)), ("noisy", (1, 4))}  # never "train"


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
    write(folder, log(X, "train"))


def outside(folder: Path) -> None:
    path = write(folder, log(X))
    shutil.move(path, folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("spoil", [bad_record, bad_frame, bad_shape, bad_signature, outside])
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


def test_too_many_records(tmp_path: Path) -> None:
    write(tmp_path, *[log(X[:1])] * 1001)
    with pytest.raises(DataError, match="more than 1000"):
        list(recorded(str(tmp_path)))


def test_other_logs_are_ignored(tmp_path: Path) -> None:
    from graphc.serving.protocol.messages import messages

    entry = messages().PredictionLog()
    entry.classify_log.request.model_spec.name = "m"
    write(tmp_path, entry.SerializeToString())
    assert list(recorded(str(tmp_path))) == []


def test_zeros_of_each_size(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 3), name="x")
        n = gc.placeholder(("batch",), "int64", name="n")
        s = gc.placeholder((), name="s")
        y = gc.reduce_sum(x, axis=(1, 2)) * s + gc.cast(n, "float32")
        t = s + 1.0
    signatures = {
        "both": gc.Signature({"x": x, "n": n, "s": s}, {"y": y}),
        "fixed": gc.Signature({"s": s}, {"t": t}),
    }
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures=signatures, platforms=["cpu"])
    model = open_model(tmp_path / "m.gcx")
    shapes = [
        {name: (array.shape, str(array.dtype)) for name, array in request.inputs.items()}
        for request in zeros(model.signatures["both"], (1, 8))
    ]
    assert shapes == [
        {"x": ((b, 1, 3), "float32"), "n": ((b,), "int64"), "s": ((), "float32")} for b in (1, 8)
    ]
    assert len(list(zeros(model.signatures["fixed"], (1, 8)))) == 1
