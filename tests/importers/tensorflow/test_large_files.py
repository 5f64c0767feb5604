"""Large files: weights stay in them until a session needs them. Here every file is large."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphcError, ModelFileError
from graphc.ir.mapped import MappedFile, is_constant
from graphc.train.tensorflow import checkpoint, schema
from graphc.train.tensorflow.schema import messages
from tests.importers.tensorflow.test_old_operators import node, placeholder
from tests.near import assert_near

W = np.arange(12, dtype=np.float32).reshape(3, 4)
X = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def all_files_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (checkpoint, schema):
        monkeypatch.setattr(module, "LARGE_FILE", 1)
        monkeypatch.setattr(module, "LARGE_ARRAY", 40)


def constant(graph: Any, name: str, value: Any) -> None:
    """Adds a constant as TensorFlow writes large ones."""
    made = graph.add(name=name, op="Const")
    made.attr["dtype"].type = made.attr["value"].tensor.dtype = 1
    tensor = made.attr["value"].tensor
    for size in value.shape:
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = value.tobytes()


def graph_def() -> Any:
    graph = messages().GraphDef()
    placeholder(graph, -1, 3)
    constant(graph.node, "w", W)
    node(graph, "MatMul", "x", "w", name="y")
    return graph


def in_file(array: Any) -> bool:
    """Whether an array is memory of a mapped file."""
    base = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return isinstance(base, MappedFile)


def result(model: Any, x: Any = X) -> Any:
    graph = model.to_graph()
    (y,), (fed,) = graph.outputs.values(), graph.inputs.values()
    return gc.Session(graph.graph).run(y, {fed: x})


def test_constants_of_a_frozen_graph(tmp_path: Path) -> None:
    path = tmp_path / "frozen.pb"
    path.write_bytes(graph_def().SerializeToString())
    model = gc.from_graphdef(path)
    assert in_file(model.weights["w"])
    graph = model.to_graph()
    (variable,) = graph.variables.values()
    assert in_file(variable.initial) and is_constant(variable.initial)  # not copied
    np.testing.assert_array_equal(result(model), X @ W)
    path.unlink()  # the mapping keeps its content
    np.testing.assert_array_equal(result(model), X @ W)


def test_constants_in_functions_and_small_ones(tmp_path: Path) -> None:
    graph = messages().GraphDef()
    placeholder(graph, -1, 3)
    node(graph, "f", "x", name="y")
    function = graph.library.function.add()
    function.signature.name = "f"
    function.signature.input_arg.add(name="a", type=1)
    function.signature.output_arg.add(name="r", type=1)
    constant(function.node_def, "w", W)
    constant(function.node_def, "bias", np.array([1, 2, 3, 4], np.float32))
    function.node_def.add(name="p", op="MatMul", input=["a", "w:output:0"])
    function.node_def.add(name="q", op="AddV2", input=["p:product:0", "bias:output:0"])
    function.ret["r"] = "q:z:0"
    path = tmp_path / "frozen.pb"
    path.write_bytes(graph.SerializeToString())
    np.testing.assert_array_equal(result(gc.from_graphdef(path)), X @ W + [1, 2, 3, 4])


def test_the_text_form(tmp_path: Path) -> None:
    path = tmp_path / "frozen.pbtxt"
    path.write_text(str(graph_def()))
    np.testing.assert_array_equal(result(gc.from_graphdef(path)), X @ W)


def test_truncated_and_forged_files(tmp_path: Path) -> None:
    path, data = tmp_path / "frozen.pb", graph_def().SerializeToString()
    for end in range(1, len(data)):
        path.write_bytes(data[:end])
        try:
            gc.from_graphdef(path, outputs="y")
        except GraphcError:
            continue
    for offset, size in ((1 << 40, 48), (-5, 48), (0, 1 << 40), (0, 47)):
        forged = graph_def()
        tensor = forged.node[1].attr["value"].tensor
        tensor.tensor_content = b""
        tensor.left_out_offset, tensor.left_out_size = offset, size
        path.write_bytes(forged.SerializeToString())
        with pytest.raises(ModelFileError, match=r"has \d+ bytes for"):
            gc.from_graphdef(path)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    with zipfile.ZipFile(Path(__file__).parent / "models.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_variables_of_a_saved_model(models: Path) -> None:
    folder = models / "transformer"
    model, wanted = gc.from_saved_model(folder), np.load(folder / "results.npz")
    large = {name: array for name, array in model.weights.items() if array.nbytes >= 40}
    assert large and all(in_file(array) for array in large.values())
    found = gc.train.read_tf_checkpoint(folder / "variables" / "variables")
    for name, array in large.items():
        np.testing.assert_array_equal(array, found[name])
        assert found[name].flags.writeable
    got = result(model, wanted["x"])
    assert_near(got, wanted["y"], 1e-4)


def test_altered_variables(models: Path) -> None:
    (path,) = (models / "transformer" / "variables").glob("*.data*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="checksum does not match"):
        gc.from_saved_model(models / "transformer")


def test_training_does_not_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "frozen.pb"
    path.write_bytes(graph_def().SerializeToString())
    before = path.read_bytes()
    graph = gc.from_graphdef(path, trainable=True).to_graph()
    (w,) = graph.variables.values()
    with graph.graph:
        added = w.assign_add(np.ones_like(W))
    session = gc.Session(graph.graph)
    np.testing.assert_array_equal(session.run(added), W + 1)
    np.testing.assert_array_equal(gc.Session(graph.graph).get(w), W)
    assert path.read_bytes() == before
