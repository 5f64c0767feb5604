"""An imported model compared with its own framework: the error names the node and its line."""

from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.cli import main
from graphc.errors import ModelImportError
from tests.divergence.plants import Plant, with_kernel

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small network as an ONNX file."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    weights = {"w": rng.normal(size=(4, 5)), "b": rng.normal(size=5), "v": rng.normal(size=(5, 3))}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["hb"]),
        helper.make_node("Gelu", ["hb"], ["g"]),
        helper.make_node("MatMul", ["g", "v"], ["z"]),
        helper.make_node("Softmax", ["z"], ["probs"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


def test_an_onnx_model_agrees_with_onnxruntime(path: Path) -> None:
    made = gc.from_onnx(path).to_graph()
    values = gc.original_values(path, made, {"x": X})
    assert len(values) == 5
    found = gc.compare(made, values, {"x": X})
    assert found.ok, found.text()
    assert [row.source for row in found.rows] == [f"small.onnx:{i}" for i in range(1, 6)]


def test_a_fault_of_the_import_is_named_with_its_line(path: Path) -> None:
    made = gc.from_onnx(path).to_graph()
    values = gc.original_values(path, made, {"x": X})
    node = next(n for n in made.graph.nodes if n.source and n.source.line == 4 and n.inputs)
    broken = gc.Run(passes=[Plant(node.name, with_kernel(lambda y: y * 1.0001))])
    found = gc.compare(made, values, {"x": X}, run=broken).first
    assert found is not None
    assert (found.source, found.blamed) == ("small.onnx:4", "plant")


def test_the_command(path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(path.parent)
    assert main(["compare", "small.onnx"]) == 0
    assert "rounding explains all 5 values" in capsys.readouterr().out
    assert main(["import", "small.onnx", "--validate", "--platforms", "cpu"]) == 0
    assert "against onnxruntime" in capsys.readouterr().out


def test_other_formats_are_refused(path: Path) -> None:
    made = gc.from_onnx(path).to_graph()
    path.with_suffix(".mlir").write_text("module {}")
    with pytest.raises(ModelImportError, match="ONNX files and modules"):
        gc.original_values(path.with_suffix(".mlir"), made, {"x": X})
