"""XLA programs inside SavedModels: those of `gc.to_saved_model`, and changed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.extend import mlir
from jax.extend.mlir.dialects import stablehlo

pytest.importorskip("google.protobuf")

import graphc as gc
from graphc.cli import main
from graphc.errors import ModelImportError, UnknownNameError
from graphc.importers.stablehlo.calls import call_program
from graphc.train.tensorflow.schema import messages
from graphc.untrusted.reader import parse_module
from tests.near import assert_near

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@pytest.fixture(params=[None, 5], ids=["open", "fixed"])
def model(request, tmp_path: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """A SavedModel for any batch size or for 5 rows, and its result for `X`."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", 3), name="x")
        h = gc.nn.Dense(4, activation=gc.tanh, name="dense")(x)
        y, _ = gc.scan(lambda c, _: (gc.sin(c) + 1.0, None), h, length=3)
    session = gc.Session(graph)
    sizes = {} if request.param is None else {"batch": request.param}
    signature = gc.Signature({"x": x}, {"y": y}, sizes=sizes)
    gc.to_saved_model(session, tmp_path / "m", signature)
    return tmp_path / "m", np.asarray(session.run(y, {x: X}))


def test_a_model_comes_back_and_has_gradients(model) -> None:
    folder, wanted = model
    alone = gc.from_saved_model(folder, sizes={"batch": 5}).to_graph()
    assert {"While", "Scan"} & {node.op.name for node in alone.graph.nodes}
    assert "dense/kernel" in alone.graph.variables or not alone.graph.variables
    with alone.graph:
        slope = gc.gradients(gc.reduce_sum(alone.outputs["y"]), alone.inputs["x"])
    got, slopes = gc.Session(alone.graph).run([alone.outputs["y"], slope], {"x:0": X})
    assert_near(got, wanted, rtol=1e-5)
    assert np.abs(np.asarray(slopes)).min() > 0


def changed(folder: Path, change: Any) -> None:
    """Changes the node that contains the program in the file."""
    path = folder / "saved_model.pb"
    saved = messages().SavedModel.FromString(path.read_bytes())
    for node in saved.meta_graphs[0].graph_def.node:
        if node.op == "XlaCallModule":
            change(node.attr)
    path.write_bytes(saved.SerializeToString())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a["module"].__setattr__("s", a["module"].s[:200]), "is not a program"),
        (lambda a: a["module"].__setattr__("s", b""), "is not a program"),
        (lambda a: a["platforms"].list.__setattr__("s", [b"TPU"]), "is for TPU"),
        (lambda a: a["has_token_input_output"].__setattr__("b", True), "has tokens"),
        (lambda a: a["function_list"].list.func.add(), "calls functions of TensorFlow"),
    ],
)
def test_what_is_refused(model, change: Any, says: str) -> None:
    folder, _ = model

    def apply(attributes: Any) -> None:
        if says == "is for TPU":
            attributes["platforms"].list.s[:] = [b"TPU"]
        else:
            change(attributes)

    changed(folder, apply)
    with pytest.raises(ModelImportError, match=f"(?s)XlaCallModule .*{says}"):
        gc.from_saved_model(folder, sizes={"batch": 5})


def test_sizes(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 3), name="x")
        y = x * 2.0
    gc.to_saved_model(gc.Session(graph), tmp_path / "m", gc.Signature({"x": x}, {"y": y}))
    with pytest.raises(ModelImportError, match=r"open sizes \[batch, 3\].*sizes=\{'batch': 8\}"):
        gc.from_saved_model(tmp_path / "m")
    with pytest.raises(UnknownNameError, match="'rows'"):
        gc.from_saved_model(tmp_path / "m", sizes={"rows": 3})


def test_the_number_of_the_platform() -> None:
    """Programs for several platforms take the platform's number as their first argument."""
    text = """
module {
  func.func public @main(%p: tensor<i32>, %x: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<i32>) {
    %y = stablehlo.add %x, %x : tensor<?x3xf32>
    return %y, %p : tensor<?x3xf32>, tensor<i32>
  }
}
"""
    data = mlir.serialize_portable_artifact(
        parse_module(text.encode()), stablehlo.get_minimum_version()
    )
    with gc.Graph() as graph:
        x = gc.placeholder((5, 3), name="x")
        twice, platform = call_program(data, [x], platform=1)
    got, number = gc.Session(graph).run([twice, platform], {x: X})
    assert_near(got, 2 * X, rtol=1e-6)
    assert int(number) == 1


def test_the_command_says_which_size_is_missing(tmp_path: Path, capsys) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 3), name="x")
        y = x * 2.0
    folder, made = tmp_path / "m", tmp_path / "m.gcx"
    gc.to_saved_model(gc.Session(graph), folder, gc.Signature({"x": x}, {"y": y}))
    assert main(["import", str(folder), "-o", str(made)]) == 2
    error = capsys.readouterr().err
    assert "XlaCallModule has an operand of the open sizes" in error and "--size batch=8" in error
    assert main(["import", str(folder), "--size", "batch=5", "-o", str(made)]) == 0
    assert_near(gc.load(made).signatures["predict"](x=X)["y"], 2 * X, rtol=1e-6)


def test_operands_that_do_not_fit(model) -> None:
    folder, _ = model
    path = folder / "saved_model.pb"
    saved = messages().SavedModel.FromString(path.read_bytes())
    for node in saved.meta_graphs[0].graph_def.node:
        if node.op == "XlaCallModule":
            del node.input[0]
    path.write_bytes(saved.SerializeToString())
    with pytest.raises(ModelImportError, match=r"(?s)XlaCallModule .*(does not take|takes)"):
        gc.from_saved_model(folder, sizes={"batch": 5})
