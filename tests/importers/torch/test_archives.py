"""Files of `torch.export.save`, read without PyTorch, whose results are stored beside them."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ArgumentError, ModelFileError, ModelImportError
from tests.importers.torch.archive_results import HERE, NAMES, check
from tests.near import assert_near


@pytest.mark.parametrize("name", NAMES)
def test_results_equal_those_of_pytorch(name: str) -> None:
    check(name)


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch cannot be imported."""
    folder = tmp_path / "blocked"
    folder.mkdir()
    for name in ("torch", "sympy"):
        (folder / f"{name}.py").write_text("raise ImportError('blocked')")
    found = [str(folder), str(Path(__file__).parents[3])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(found),
        "JAX_PLATFORMS": "cpu",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


def run(arguments: list[str], environment: dict[str, str]) -> str:
    made = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_all_of_it_without_torch(without_torch: dict[str, str]) -> None:
    assert run(["-m", "tests.importers.torch.archive_results"], without_torch) == " ".join(NAMES)


_SERVED = "import graphc.importers.artifacts as a, sys; print(a.cached_artifact(sys.argv[1]))"


def test_the_command_line_without_torch(without_torch: dict[str, str], tmp_path: Path) -> None:
    path, target = HERE / "recurrent.pt2", tmp_path / "recurrent.gcx"
    run(["-m", "graphc", "import", str(path), "-o", str(target)], without_torch)
    served = run(["-c", _SERVED, str(path)], without_torch).strip()  # by `graphc serve`
    stored = np.load(HERE / "recurrent.npz")
    for each in (target, served):
        found: Any = gc.load(each).signatures["predict"](x=stored["x"])
        assert_near(found["output_0"], stored["output_0"], rtol=1e-5)


def test_inputs_weights_and_nests() -> None:
    layer = gc.from_torch(HERE / "train.pt2")
    spec = layer.inputs["x"]
    assert [str(d) for d in spec.shape[1:]] == ["2", "6", "6"] and not isinstance(
        spec.shape[0], int
    )
    with gc.Graph():
        nest: Any = layer(gc.ones((5, 2, 6, 6)))
        assert type(nest) is dict and list(nest) == ["a", "b"] and nest["b"][1].shape == (5, 72)
        trained = {v.name for v in layer.variables if v.trainable}
    assert trained == {f"{a}.{b}" for a in ("conv", "norm", "head") for b in ("weight", "bias")}
    assert {"norm.running_mean", "norm.num_batches_tracked", "scale"} < set(layer.weights)


def test_tied_weights_are_one_variable_and_dtypes_are_kept() -> None:
    layer = gc.from_torch(HERE / "dtypes.pt2")
    assert ("whole" in layer.weights) != ("tied" in layer.weights)
    assert layer.weights["of_bfloat16"].dtype.name == "bfloat16"
    assert layer.weights["of_complex64"].dtype == np.complex64
    assert np.array_equal(layer.weights["turned"], np.arange(6.0).reshape(2, 3).T)
    assert np.array_equal(layer.weights["part"], np.arange(4.0, 8.0))


def test_nodes_carry_the_lines_of_the_model() -> None:
    alone = gc.from_torch(HERE / "views.pt2").to_graph()
    assert any(str(n.source).startswith("make_archives.py:") for n in alone.graph.nodes)


def test_options_of_modules_are_refused() -> None:
    with pytest.raises(ArgumentError, match="exported already"):
        gc.from_torch(HERE / "views.pt2", training=True)


def test_patterns_choose_what_is_trained() -> None:
    layer = gc.import_model(HERE / "train.pt2", trainable="head.*", name="net")
    with gc.Graph():
        layer(gc.ones((5, 2, 6, 6)))
        assert {v.name for v in layer.variables if v.trainable} == {
            "net/head.weight",
            "net/head.bias",
        }


def changed(tmp_path: Path, name: str, change: Any) -> Path:
    """A copy of a file whose program `change` has changed."""
    target = tmp_path / "changed.pt2"
    with zipfile.ZipFile(HERE / f"{name}.pt2") as old, zipfile.ZipFile(target, "w") as new:
        for member in old.infolist():
            data = old.read(member)
            if member.filename.endswith("models/model.json"):
                program = json.loads(data)
                change(program)
                data = json.dumps(program).encode()
            new.writestr(member.filename, data)
    return target


def test_a_changed_weight_that_the_program_does_not_have(tmp_path: Path) -> None:
    def change(program: Any) -> None:
        specs = program["graph_module"]["signature"]["output_specs"]
        specs[0] = {"buffer_mutation": {"buffer_name": "none"}}

    with pytest.raises(ModelFileError, match="changes 'none', which it does not use"):
        gc.from_torch(changed(tmp_path, "train", change))


def nodes(program: Any) -> Any:
    return program["graph_module"]["graph"]["nodes"]


def test_all_operators_that_are_missing_are_named(tmp_path: Path) -> None:
    def change(program: Any) -> None:
        for node in nodes(program):
            for old, new in (("lift_fresh_copy", "first"), ("zeros", "second")):
                if node["target"] == f"torch.ops.aten.{old}.default":
                    node["target"] = f"torch.ops.mine.{new}.default"

    with pytest.raises(ModelImportError, match="2 operators") as caught:
        gc.from_torch(changed(tmp_path, "loops", change))
    text = str(caught.value)
    assert "mine.first.default is not imported  (make_archives.py:" in text
    assert "run_decompositions" in text


def test_changes_that_cannot_be_made_functional_are_refused(tmp_path: Path) -> None:
    def change(program: Any) -> None:
        first = next(n for n in nodes(program) if n["target"].endswith("mul.Tensor"))
        first["target"] = "torch.ops.aten.mul_.Tensor"  # of the input

    with pytest.raises(ModelImportError, match="changes an input or a constant"):
        gc.from_torch(changed(tmp_path, "views", change))

    def of_a_part(program: Any) -> None:  # sub_ of a part that split gives
        part = next(n for n in nodes(program) if n["target"].endswith("split.Tensor"))
        name = part["outputs"][0]["as_tensors"][0]["name"]
        for node in nodes(program):
            if node["target"].endswith("sub_.Tensor"):
                node["inputs"][0]["arg"] = {"as_tensor": {"name": name}}

    with pytest.raises(ModelImportError, match=r"a view that aten\.split\.Tensor makes"):
        gc.from_torch(changed(tmp_path, "views", of_a_part))


def test_sizes_inside_the_program_need_not_be_understood(tmp_path: Path) -> None:
    def change(program: Any) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        for name in ("flatten", "mean", "linear"):
            values[name]["sizes"][0] = {"as_expr": {"expr_str": "Mod(Symbol('s0'), Integer(2))"}}

    assert gc.from_torch(changed(tmp_path, "train", change)).outputs

    def of_the_input(program: Any) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        values["x"]["sizes"][0] = {"as_expr": {"expr_str": "Mod(Symbol('s0'), Integer(2))"}}

    with pytest.raises(ModelFileError, match="has the size Mod"):
        gc.from_torch(changed(tmp_path, "train", of_the_input))


def test_a_size_as_an_input_is_refused(tmp_path: Path) -> None:
    def change(program: Any) -> None:
        size = {"as_sym_int": {"as_name": "x"}}
        program["graph_module"]["graph"]["inputs"][-1] = size
        program["graph_module"]["signature"]["input_specs"][-1]["user_input"]["arg"] = size

    with pytest.raises(ModelFileError, match="takes a size as an argument"):
        gc.from_torch(changed(tmp_path, "train", change))


def test_another_version_of_the_schema(tmp_path: Path) -> None:
    def change(program: Any) -> None:
        program["schema_version"]["major"] = 9

    with pytest.raises(ModelFileError, match="version 9 of the schema, expected 8"):
        gc.from_torch(changed(tmp_path, "views", change))


def test_infinite_arguments(tmp_path: Path) -> None:
    def change(program: Any) -> None:
        clamp = next(n for n in nodes(program) if n["target"].endswith("clamp_.default"))
        clamp["inputs"][-1]["arg"] = {"as_float": "-Infinity"}

    layer = gc.from_torch(changed(tmp_path, "views", change))
    alone = layer.to_graph()
    with gc.Session(alone.graph) as session:
        (x,) = alone.inputs.values()
        found = session.run(alone.outputs["output_0"], {x: np.ones((3, 4), "float32")})
    assert np.isneginf(np.asarray(found)).sum() == 6


def test_graphs_inside_each_other(tmp_path: Path) -> None:
    def change(program: Any) -> None:
        inner = next(n for n in nodes(program) if "wrap_with_set_grad" in n["target"])
        place = next(i for i in inner["inputs"] if "as_graph" in i["arg"])
        for _ in range(60):
            body = copy.deepcopy(inner)
            body_graph = {**place["arg"]["as_graph"]["graph"], "nodes": [body]}
            place["arg"] = {"as_graph": {"name": "deep", "graph": body_graph}}

    with pytest.raises(ModelFileError, match="more than 50 deep"):
        gc.from_torch(changed(tmp_path, "loops", change))


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ({"serialized_exported_program.json": b"{}"}, "old version of PyTorch"),
        ({"m/models/model.json": b"{}", "m/data/weights/model.pt": b""}, "old version of PyTorch"),
        ({"m/data/aotinductor/model/a.so": b""}, "machine code of AOTInductor"),
        ({"m/models/a.json": b"{}", "m/models/b.json": b"{}"}, "holds 2 models"),
        ({"m/byteorder": b"big", "m/models/model.json": b"{}"}, "byte order"),
        ({"m/byteorder": b"little", "m/models/model.json": b"{"}, "is not JSON"),
        ({"m/byteorder": b"little", "m/models/model.json": b"[" * 9**6}, "is not JSON"),
        ({"m/byteorder": b"little", "m/models/model.json": b"{}"}, "is malformed"),
    ],
)
def test_files_that_are_not_read(tmp_path: Path, members: dict[str, bytes], match: str) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ModelFileError, match=match):
        gc.from_torch(path)


def test_compressed_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/models/model.json", b" " * (1 << 26))
    with pytest.raises(ModelFileError, match="compressed member"):
        gc.from_torch(path)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    shutil.copy(HERE / "views.pt2", path)
    with zipfile.ZipFile(HERE / "views.pt2") as old, zipfile.ZipFile(path, "w") as new:
        for member in old.infolist():
            data = old.read(member).replace(b'"use_pickle": false', b'"use_pickle": true')
            new.writestr(member.filename, data)
    with pytest.raises(ModelFileError, match="is pickled"):
        gc.from_torch(path)
