"""Damaged and forged files: graphc raises an error, executes nothing and allocates little."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ArgumentError, ModelFileError, ModelImportError, UnknownNameError
from graphc.train.tensorflow import checkpoint, single_file, sstable
from graphc.train.tensorflow.schema import messages
from tests.importers.tensorflow.cases import read
from tests.importers.tensorflow.mutations import mutated, mutated_graphs
from tests.importers.tensorflow.test_old_operators import const, node, placeholder

HERE = Path(__file__).parent
EXPECTED = (ModelFileError, ModelImportError, ArgumentError, UnknownNameError)


def survives(action: Callable[[], Any]) -> bool:
    """Whether a damaged file is read. Errors other than the expected ones are raised."""
    try:
        action()
    except EXPECTED:
        return False
    return True


@pytest.fixture
def lstm(tmp_path: Path) -> Path:
    with zipfile.ZipFile(HERE / "models.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "lstm"


@pytest.mark.slow
@pytest.mark.one_jax
def test_damaged_graphs() -> None:
    cases = read()[::10]
    refused = 0
    for i, case in enumerate(cases):
        outputs, variables = list(case.outputs), case.variables
        for damage in (mutated, mutated_graphs):
            for data in damage(case.graph, 2, i):
                refused += not survives(
                    partial(gc.from_graphdef, data, outputs, checkpoint=variables)
                )
    assert refused > 0


@pytest.mark.slow
@pytest.mark.one_jax
def test_damaged_saved_models_and_meta_graphs(lstm: Path) -> None:
    refused = 0
    path = lstm.parent / "images" / "saved_model.pb"
    for data in mutated(path.read_bytes(), 40):
        path.write_bytes(data)
        refused += not survives(lambda: gc.from_saved_model(path.parent))
    path = lstm / "model.ckpt.meta"
    for data in mutated(path.read_bytes(), 40):
        path.write_bytes(data)
        refused += not survives(lambda: gc.from_meta_graph(path, outputs="loss"))
    assert refused > 0


@pytest.mark.parametrize("name", ["model.ckpt.index", "model.ckpt.data-00000-of-00001"])
def test_a_damaged_checkpoint_is_always_found(lstm: Path, name: str) -> None:
    path = lstm / name
    good = path.read_bytes()
    wanted = gc.train.read_tf_checkpoint(lstm / "model.ckpt")
    for data in mutated(good, 100):
        path.write_bytes(data)
        if survives(lambda: gc.train.read_tf_checkpoint(lstm / "model.ckpt")):
            got = gc.train.read_tf_checkpoint(lstm / "model.ckpt")  # damage between the arrays
            assert got.keys() == wanted.keys()
            assert all(np.array_equal(got[key], wanted[key]) for key in wanted)


def test_a_damaged_checkpoint_of_version_1(lstm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lstm.parent / "partitioned" / "single"
    good = path.read_bytes()
    wanted = gc.train.read_tf_checkpoint(path)
    for data in mutated(good, 100):
        path.write_bytes(data)
        if survives(lambda: gc.train.read_tf_checkpoint(path)):
            got = gc.train.read_tf_checkpoint(path)  # damage between the blocks
            assert all(np.array_equal(got[key], wanted[key]) for key in wanted)
    monkeypatch.setattr(single_file, "import_crc32c", lambda *names: lambda data: 0)
    monkeypatch.setattr(sstable, "unmasked", lambda crc: 0)
    refused = 0
    for data in mutated(good, 200):
        path.write_bytes(data)
        refused += not survives(lambda: gc.train.read_tf_checkpoint(path))
    assert refused > 0


def test_a_forged_checkpoint_with_right_checksums(
    lstm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "import_crc32c", lambda *names: lambda data: 0)
    for module in (checkpoint, sstable):
        monkeypatch.setattr(module, "unmasked", lambda crc: 0)
    path = lstm / "model.ckpt.index"
    refused = 0
    for data in mutated(path.read_bytes(), 200):
        path.write_bytes(data)
        refused += not survives(lambda: gc.train.read_tf_checkpoint(lstm / "model.ckpt"))
    assert refused > 0


def test_cycles_and_missing_nodes() -> None:
    graph = messages().GraphDef()
    node(graph, "Neg", "b", name="a")
    node(graph, "Neg", "a", name="b")
    with pytest.raises(ModelFileError, match="need each other"):
        gc.from_graphdef(graph, "b")
    with pytest.raises(ModelFileError, match="'gone', which it does not have"):
        lost = messages().GraphDef()
        node(lost, "Neg", "gone", name="a")
        gc.from_graphdef(lost, "a")


def test_a_function_that_calls_itself() -> None:
    graph = messages().GraphDef()
    node(graph, "f", placeholder(graph, 2), name="y")
    function = graph.library.function.add()
    function.signature.name = "f"
    function.signature.input_arg.add(name="x", type=1)
    function.signature.output_arg.add(name="y", type=1)
    function.node_def.add(name="again", op="f", input=["x"])
    function.ret["y"] = "again:y:0"
    with pytest.raises(ModelImportError, match="nested more than"):
        _imported(graph)


def test_functions_that_expand_to_very_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.importers.tensorflow.evaluation._MOST_NODES", 2000)
    graph = messages().GraphDef()
    node(graph, "f15", placeholder(graph, 2), name="y")
    for i in range(16):
        function = graph.library.function.add()
        function.signature.name = f"f{i}"
        function.signature.input_arg.add(name="x", type=1)
        function.signature.output_arg.add(name="y", type=1)
        op = f"f{i - 1}" if i else "Neg"
        function.node_def.add(name="a", op=op, input=["x"])
        function.node_def.add(name="b", op=op, input=["a:y:0"])
        function.ret["y"] = "b:y:0"
    with pytest.raises(ModelImportError, match="expand to more than"):
        _imported(graph)


def _imported(graph: Any) -> Any:
    return gc.from_graphdef(graph, "y")


def test_sizes_that_no_machine_has() -> None:
    graph = messages().GraphDef()
    sizes = const(graph, "sizes", np.array([2**30, 2**30], np.int32))
    value = const(graph, "value", np.float32(1))
    node(graph, "Fill", sizes, value, name="y")
    survives(lambda: _imported(graph))
    constant = messages().GraphDef()
    const(constant, "y", np.ones(2, np.float32))
    tensor = constant.node[0].attr["value"].tensor
    tensor.tensor_content = b""
    tensor.tensor_shape.dim[0].size = 2**50
    with pytest.raises(ModelFileError, match="values for the shape"):
        node(constant, "Neg", "y", name="z")
        gc.from_graphdef(constant, "z")


def test_a_deep_graph_needs_no_recursion() -> None:
    graph = messages().GraphDef()
    name = placeholder(graph, 2)
    for i in range(3000):
        name = node(graph, "Neg", name, name=f"n{i}")
    assert gc.from_graphdef(graph, name).outputs == (name,)
