"""safetensors and GGUF files: values, restoring by name, and damaged files."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.errors import CheckpointError, ModelFileError, UnknownNameError

GGUF = Path(__file__).with_name("small.gguf")  # written by the package gguf
EXPECTED = Path(__file__).with_name("small.npz")  # read by the package gguf


def write_safetensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes a file as the package safetensors does."""
    names = {"float32": "F32", "bfloat16": "BF16", "int64": "I64", "bool": "BOOL"}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, value in arrays.items():
        offsets = [at, at + value.nbytes]
        header[name] = {
            "dtype": names[value.dtype.name], "shape": list(value.shape), "data_offsets": offsets,
        }  # fmt: skip
        at += value.nbytes
    text = json.dumps(header).encode()
    data = b"".join(value.tobytes() for value in arrays.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


ARRAYS = {
    "layer.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "layer.0.bias": np.array([1, 2], ml_dtypes.bfloat16),
    "count": np.array(7, np.int64),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_safetensors(tmp_path / "model.safetensors", ARRAYS)
    return tmp_path / "model.safetensors"


def test_safetensors(file: Path) -> None:
    weights = gc.read_safetensors(file)
    assert list(weights) == list(ARRAYS) and weights.metadata == {"format": "pt"}
    for name, value in ARRAYS.items():
        assert weights[name].dtype == value.dtype
        np.testing.assert_array_equal(weights[name], value)
    assert len(list(weights.values())) == 4
    with pytest.raises(UnknownNameError, match=r"no array 'layer\.0\.wait'"):
        weights["layer.0.wait"]


def test_files_of_the_package_safetensors(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {name: ARRAYS[name] for name in ("layer.0.weight", "count")}
    numpy.save_file(arrays, tmp_path / "m.safetensors")
    for name, value in gc.read_safetensors(tmp_path / "m.safetensors").items():
        np.testing.assert_array_equal(value, arrays[name])


def test_an_index_of_several_files(tmp_path: Path, file: Path) -> None:
    write_safetensors(tmp_path / "b.safetensors", {"head": np.ones(2, np.float32)})
    index = tmp_path / "model.safetensors.index.json"
    names = {"head": "b.safetensors", "count": "model.safetensors"}
    index.write_text(json.dumps({"weight_map": names}))
    assert sorted(gc.read_safetensors(index)) == ["count", "head"]
    for wrong in ({"head": "../b.safetensors"}, {"neck": "b.safetensors"}, ["x"]):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(ModelFileError):
            gc.read_safetensors(index)


@pytest.mark.parametrize("suffix", ["safetensors", "gguf"])
def test_weights_are_restored_by_name_and_by_mapping(suffix: str, file: Path) -> None:
    path = file if suffix == "safetensors" else GGUF
    old, shape = ("layer.0.weight", (2, 3)) if suffix == "safetensors" else ("f32", (2, 3))
    graph = gc.Graph()
    with graph:
        kernel = gc.variable(np.zeros(shape, np.float32), name="dense/kernel")
        other = gc.variable(5.0, name="other")
    session = gc.Session(graph)
    report = gc.train.restore(session, path, include=kernel, rename={old: "dense/kernel"})
    assert "took 1 of 2" in str(report)
    read = gc.read_safetensors if suffix == "safetensors" else gc.read_gguf
    np.testing.assert_array_equal(session.get(kernel), read(path)[old])
    assert session.get(other) == 5.0
    with pytest.raises(CheckpointError, match="other"):
        gc.train.restore(session, path, rename={old: "dense/kernel"})


def test_gguf_is_read_as_its_package_reads_it() -> None:
    weights = gc.read_gguf(GGUF)
    with np.load(EXPECTED) as expected:
        assert sorted(weights) == sorted(expected)
        for name in expected:
            value = weights[name]
            assert value.shape == expected[name].shape
            np.testing.assert_array_equal(value.astype(np.float64), expected[name])
    assert weights["bf16"].dtype == ml_dtypes.bfloat16
    assert weights.metadata["test.words"] == ["a", "bc"]


@pytest.mark.one_jax
@pytest.mark.parametrize("suffix", ["safetensors", "gguf"])
def test_damaged_files_give_errors(suffix: str, file: Path, tmp_path: Path) -> None:
    good = (file if suffix == "safetensors" else GGUF).read_bytes()
    read = gc.read_safetensors if suffix == "safetensors" else gc.read_gguf
    path = tmp_path / f"bad.{suffix}"
    rng = np.random.default_rng(0)
    refused = 0
    for number in range(2000):
        data = bytearray(good[: int(rng.integers(len(good)))] if number % 4 == 0 else good)
        for _ in range(int(rng.integers(1, 4))):
            if data:  # mostly in the header
                data[int(rng.integers(min(len(data), 500)))] = int(rng.integers(256))
        path.write_bytes(data)
        try:
            for value in read(path).values():
                assert value.nbytes <= 1 << 20
        except ModelFileError:
            refused += 1
    assert refused > 500
    for data in (b"", b"GGUF", b"\xff" * 64, (1 << 62).to_bytes(8, "little") * 4):
        path.write_bytes(data)
        with pytest.raises(ModelFileError):
            read(path)
    with pytest.raises(ModelFileError, match="cannot be read"):
        read(tmp_path / "missing")
