"""`to_saved_model`: the graph in the file, its program, and errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("google.protobuf")

import graphc as gc
from graphc.errors import AttributeValueError, ModelExportError
from graphc.exporters.saved_model import entry
from graphc.train.tensorflow import sstable
from graphc.train.tensorflow.schema import messages
from graphc.train.tensorflow.tensors import array_of
from tests.near import assert_near

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def made() -> tuple[gc.Session, Any, Any]:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", 3), name="x")
        unused = gc.variable(np.float32(7), name="scope/other")
        y = gc.nn.Dense(2, name="dense")(x)
        small = gc.cast(y, "bfloat16") + gc.cast(unused, "bfloat16")
    return gc.Session(graph), x, (y, small)


def read(folder: Path) -> Any:
    (meta,) = messages().SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs
    return meta


def test_the_graph_in_the_file(tmp_path: Path) -> None:
    session, x, (y, small) = made()
    gc.to_saved_model(session, tmp_path / "m", gc.Signature({"x": x}, {"y": y, "small": small}))
    meta = read(tmp_path / "m")
    signature = meta.signature_def["serving_default"]
    assert [d.size for d in signature.inputs["x"].tensor_shape.dim] == [-1, 3]
    assert signature.outputs["small"].dtype == 14  # DT_BFLOAT16
    nodes = {node.name: node for node in meta.graph_def.node}
    assert nodes["dense/kernel"].op == "Const" and nodes["scope/other"].op == "Const"
    kernel = array_of(nodes["dense/kernel"].attr["value"].tensor, "kernel")
    np.testing.assert_array_equal(kernel, session.get("dense/kernel"))
    call = nodes["XlaCallModule"]
    assert set(call.input) == {"x", "dense/kernel", "dense/bias", "scope/other"}
    assert list(call.attr["platforms"].list.s) == [b"CPU"]


def test_the_program_computes_the_outputs(tmp_path: Path) -> None:
    session, x, (y, _) = made()
    signature = gc.Signature({"x": x}, {"y": y}, sizes={"batch": 5})
    gc.to_saved_model(session, tmp_path / "m", signature)
    nodes = {node.name: node for node in read(tmp_path / "m").graph_def.node}
    call = nodes["XlaCallModule"]
    program = gc.from_stablehlo(call.attr["module"].s).to_graph()
    values = [
        X if nodes[n].op == "Placeholder" else array_of(nodes[n].attr["value"].tensor, n)
        for n in call.input
    ]
    feeds = dict(zip(program.inputs.values(), values, strict=True))
    (got,) = gc.Session(program.graph).run(list(program.outputs.values()), feeds)
    assert_near(got, session.run(y, {x: X}), rtol=1e-6)


def test_an_input_of_which_only_the_size_is_used(tmp_path: Path) -> None:
    """The program takes this input too, so that its arguments match the signature."""
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 3), name="x")
        w = gc.variable(np.float32(2), name="w")
        y = w * gc.cast(gc.size(x, 0), "float32")
    signature = gc.Signature({"x": x}, {"y": y}, sizes={"batch": 5})
    gc.to_saved_model(gc.Session(graph), tmp_path / "m", signature)
    meta = read(tmp_path / "m")
    nodes = {node.name: node for node in meta.graph_def.node}
    assert list(nodes["XlaCallModule"].input) == ["w", "x"] and nodes["x"].op == "Placeholder"
    assert list(nodes["XlaCallModule"].attr["Tin"].list.type) == [1, 1]
    assert list(meta.signature_def["serving_default"].inputs) == ["x"]


def test_tensorflow_runs_it(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    session, x, (y, small) = made()
    signature = gc.Signature({"x": x}, {"y": y, "small": small})
    gc.to_saved_model(session, tmp_path / "m", signature, platforms=["cpu", "cuda"])
    function = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    for rows in (1, 5):
        got = function(x=tf.constant(X[:rows]))
        assert_near(got["y"].numpy(), session.run(y, {x: X[:rows]}), rtol=1e-6)
        assert got["small"].shape == (rows, 2)


def test_a_folder_is_replaced_and_others_are_left_alone(tmp_path: Path) -> None:
    session, x, (y, _) = made()
    signature = gc.Signature({"x": x}, {"y": y})
    for name in ("first", "second"):
        gc.to_saved_model(session, tmp_path / "m", signature, signature_name=name)
    assert list(read(tmp_path / "m").signature_def) == ["second"]
    (tmp_path / "m" / "variables").mkdir()
    with pytest.raises(ModelExportError, match="holds 'variables'"):
        gc.to_saved_model(session, tmp_path / "m", signature)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelExportError, match="is a file"):
        gc.to_saved_model(session, tmp_path / "file", signature)
    with pytest.raises(ModelExportError, match="cannot make the folder"):
        gc.to_saved_model(session, tmp_path / "file" / "m", signature)


def test_refusals(tmp_path: Path) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((2,), name="x")
        count = gc.variable(np.float32(0), name="count")
        added, noisy = count.assign_add(1.0), x + gc.random.normal((2,))
        double = x * 2
    session, path = gc.Session(graph), tmp_path / "m"
    with pytest.raises(AttributeValueError, match="no state"):
        gc.to_saved_model(session, path, gc.Signature({"x": x}, {"y": double}, updates=[added]))
    with pytest.raises(ModelExportError, match="assign the variable 'count'"):
        gc.to_saved_model(session, path, gc.Signature({}, {"y": added}))
    with pytest.raises(ModelExportError, match="random numbers"):
        gc.to_saved_model(session, path, gc.Signature({"x": x}, {"y": noisy}))
    for wrong in ("cpu", [], ["gpu"], None):
        with pytest.raises(AttributeValueError, match="platforms must be among"):
            gc.to_saved_model(session, path, gc.Signature({"x": x}, {"y": double}), platforms=wrong)
    with pytest.raises(AttributeValueError, match="signature_name"):
        gc.to_saved_model(session, path, gc.Signature({"x": x}, {"y": double}), signature_name=3)
    assert not path.exists()


def test_variables_are_in_their_own_files(tmp_path: Path) -> None:
    session, x, (y, _) = made()
    folder = tmp_path / "m"
    signature = gc.Signature({"x": x}, {"y": y}, sizes={"batch": 5})
    gc.to_saved_model(session, folder, signature, variables=True)
    meta = read(folder)
    nodes = {node.name: node for node in meta.graph_def.node}
    assert nodes["dense/kernel"].op == "VarHandleOp"
    assert set(nodes["XlaCallModule"].input) == {"dense/kernel/Read", "dense/bias/Read", "x"}
    assert meta.saver_def.restore_op_name in nodes
    assert len(meta.collection_def["variables"].bytes_list.value) == 2
    found = gc.train.read_tf_checkpoint(folder / "variables" / "variables")
    assert found.keys() == {"dense/kernel", "dense/bias"}
    np.testing.assert_array_equal(found["dense/kernel"], session.get("dense/kernel"))
    model = gc.from_saved_model(folder).to_graph()
    got = gc.Session(model.graph).run(model.outputs["y"], {model.inputs["x"]: X})
    assert_near(got, session.run(y, {x: X}), rtol=1e-6)


def test_large_models_have_files_of_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph of a model cannot have 2 GiB, its variables can."""
    session, x, (y, _) = made()
    signature = gc.Signature({"x": x}, {"y": y})
    monkeypatch.setattr(entry, "_IN_GRAPH", 10)
    gc.to_saved_model(session, tmp_path / "m", signature)
    assert (tmp_path / "m" / "variables" / "variables.data-00000-of-00001").stat().st_size == 32
    monkeypatch.setattr(entry, "_LARGEST", 20)
    with pytest.raises(ModelExportError, match="would have 32 bytes") as caught:
        gc.to_saved_model(session, tmp_path / "n", signature, variables=False)
    assert "variables=True" in str(caught.value)
    with pytest.raises(ModelExportError, match=r"saved_model\.pb would have"):
        gc.to_saved_model(session, tmp_path / "n", signature, variables=True)
    assert os.listdir(tmp_path) == ["m"]


def test_variables_of_all_ranks_and_dtypes_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than one block of an index holds, and names that other nodes would have."""
    monkeypatch.setattr(sstable, "_BLOCK", 100)
    rng = np.random.default_rng(1)
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        values = [
            gc.variable(rng.normal(size=(2,) * (i % 4)).astype(np.float32), name=f"v{i}")
            for i in range(40)
        ]
        others = [
            gc.variable(np.array([0, 1], dtype), name=dtype)
            for dtype in ("bfloat16", "int8", "bool", "int64", "complex64")
        ]
        kept = gc.variable(np.float32(3), name="graphc_save/save")
        y = x + kept + gc.add_n([gc.sum(value) for value in values])
        outputs = {"y": y, **{f"o{i}": gc.identity(v) for i, v in enumerate(others)}}
    session = gc.Session(graph)
    gc.to_saved_model(session, tmp_path / "m", gc.Signature({"x": x}, outputs), variables=True)
    found = gc.train.read_tf_checkpoint(tmp_path / "m" / "variables" / "variables")
    wanted = session.values()
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        assert (array.dtype, array.shape) == (wanted[name].dtype, wanted[name].shape)
        np.testing.assert_array_equal(array, wanted[name])
    model = gc.from_saved_model(tmp_path / "m").to_graph()
    got = gc.Session(model.graph).run(model.outputs["y"], {model.inputs["x"]: np.float32(1)})
    assert_near(got, session.run(y, {x: np.float32(1)}), rtol=1e-5)


def test_a_model_with_variables_is_replaced_and_others_are_left_alone(tmp_path: Path) -> None:
    session, x, (y, _) = made()
    signature, folder = gc.Signature({"x": x}, {"y": y}), tmp_path / "m"
    for variables in (False, True, True, False):
        gc.to_saved_model(session, folder, signature, variables=variables)
        assert (folder / "variables").exists() == variables
        assert [p.name for p in tmp_path.iterdir()] == ["m"]
    gc.to_saved_model(session, folder, signature, variables=True)
    (folder / "variables" / "notes").write_text("")
    with pytest.raises(ModelExportError, match="holds 'variables'"):
        gc.to_saved_model(session, folder, signature, variables=True)
    with pytest.raises(AttributeValueError, match="variables must be a bool"):
        gc.to_saved_model(session, folder, signature, variables=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", ["before", "after the old", "after the new"])
def test_an_interrupt_leaves_one_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Also one just after a folder was renamed. The mode of the folder stays."""
    session, x, (y, _) = made()
    signature, rename = gc.Signature({"x": x}, {"y": y}), Path.rename
    (tmp_path / "m").mkdir(mode=0o700)
    gc.to_saved_model(session, tmp_path / "m", signature, variables=True)
    before = (tmp_path / "m" / "saved_model.pb").read_bytes()
    renames = []

    def interrupted(self: Path, target: Path) -> Path:
        renames.append(target)
        at = {"before": 1, "after the old": 1, "after the new": 2}[moment]
        if moment == "before":
            raise KeyboardInterrupt
        made = rename(self, target)
        if len(renames) == at:
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gc.to_saved_model(session, tmp_path / "m", signature, variables=True, signature_name="new")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    is_new = (tmp_path / "m" / "saved_model.pb").read_bytes() != before
    assert is_new == (moment == "after the new")
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700


def test_files_of_others_that_have_the_names_of_ours(tmp_path: Path) -> None:
    session, x, (y, _) = made()
    signature, folder = gc.Signature({"x": x}, {"y": y}), tmp_path / "m"
    gc.to_saved_model(session, folder, signature)
    (folder / "variables").write_text("a file")
    with pytest.raises(ModelExportError, match="holds 'variables'"):
        gc.to_saved_model(session, folder, signature)
    (folder / "variables").unlink()
    (folder / "variables" / "variables.index").mkdir(parents=True)
    with pytest.raises(ModelExportError, match="holds 'variables'"):
        gc.to_saved_model(session, folder, signature, variables=True)


def test_a_failure_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, x, (y, _) = made()
    signature, rename = gc.Signature({"x": x}, {"y": y}), Path.rename
    gc.to_saved_model(session, tmp_path / "m", signature, variables=True)
    before = (tmp_path / "m" / "saved_model.pb").read_bytes()

    def interrupted(self: Path, target: Path) -> Path:
        if target.name == "m" and not self.name.endswith(".old"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gc.to_saved_model(session, tmp_path / "m", signature, variables=True, signature_name="new")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    assert (tmp_path / "m" / "saved_model.pb").read_bytes() == before


def test_tensorflow_runs_it_with_variables(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    session, x, (y, _) = made()
    path = str(tmp_path / "m")
    gc.to_saved_model(session, path, gc.Signature({"x": x}, {"y": y}), variables=True)
    loaded = tf.saved_model.load(path)
    assert {v.name for v in loaded.variables} == {"dense/kernel:0", "dense/bias:0"}
    got = loaded.signatures["serving_default"](x=tf.constant(X))
    assert_near(got["y"].numpy(), session.run(y, {x: X}), rtol=1e-6)
    tf.saved_model.save(loaded, path + "2", signatures=loaded.signatures["serving_default"])
    again = tf.saved_model.load(path + "2").signatures["serving_default"]
    assert_near(again(x=tf.constant(X))["y"].numpy(), session.run(y, {x: X}), rtol=1e-6)
