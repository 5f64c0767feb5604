"""`graphc import`, `gc.import_model`, and `graphc serve` of a model file."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphc as gc
from graphc.cli import main
from graphc.errors import AttributeValueError, ModelFileError
from graphc.importers.artifacts import cached_artifact, save_model
from tests.near import assert_near

WEIGHTS = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:  # type: ignore[no-untyped-def]
    """A folder with a model, which is the working directory and the home of caches."""
    function = jax.jit(lambda x: {"probs": jax.nn.softmax(x @ jnp.asarray(WEIGHTS))})
    exported = jax.export.export(function)(jax.ShapeDtypeStruct((2, 4), "float32"))
    (tmp_path / "model.mlir").write_text(exported.mlir_module())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def run(*arguments: str) -> int:
    try:
        return main(["import", *arguments])
    except SystemExit as stop:
        return int(stop.code or 0)


def test_import_writes_an_artifact(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    assert run("model.mlir", "--validate", "--platforms", "cpu", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["artifact"] == "model.gcx" and facts["format"] == "StableHLO"
    assert facts["variables"] == facts["trainable"] == 1
    assert facts["validation"]["outputs"]["probs"]["ok"]
    x = np.ones((2, 4), np.float32)
    probs = gc.load("model.gcx").signatures["predict"](x=x)["probs"]
    assert_near(probs, jax.nn.softmax(x @ WEIGHTS), rtol=1e-6)


def test_strings(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    """Both sides get the same words."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("LabelEncoder", inputs, outputs, domain="ai.onnx.ml", **attributes)
        for inputs, outputs, attributes in (
            (["x"], ["i"], {"keys_strings": ["a", "größer"], "values_int64s": [5, 1]}),
            (["i"], ["t"], {"keys_int64s": [5, 1], "values_strings": ["A", "G"]}),
        )
    ]
    kinds = {"x": TensorProto.STRING, "i": TensorProto.INT64, "t": TensorProto.STRING}
    x, i, t = (helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in kinds.items())
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph(nodes, "words", [x], [i, t])
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    (folder / "words.onnx").write_bytes(proto.SerializeToString())
    assert run("words.onnx", "--validate", "--platforms", "cpu", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["inputs"] == {"x": "string[n]"}
    assert facts["outputs"] == {"i": "i64[n]", "t": "string[n]"}
    outputs = facts["validation"]["outputs"].values()
    assert [row["max_abs"] for row in outputs] == [0, 0]
    found = gc.load("words.gcx").signatures["predict"](x=["größer", "?"])
    assert found["t"].tolist() == [b"G", b"_Unused"]


def test_options_reach_the_importer(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    assert run("model.mlir", "-o", "m.gcx", "--trainable", "none", "--platforms", "cpu") == 0
    assert "1 variables (0 trainable)" in capsys.readouterr().out
    assert run("model.mlir", "--validate", "--tolerance", "0", "--platforms", "cpu") in (0, 1)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("m.pth", b"x", "executes code"),
        ("m.safetensors", b"x", "read_safetensors"),
        ("m.gguf", b"x", "read_gguf"),
        ("m.gcx", b"x", "gc.load"),
        ("m.what", b"x", "no format that is known"),
        ("m.mlir", b"nothing", "not a program"),
    ],
)
@pytest.mark.one_jax
def test_other_files_are_refused(folder, capsys, name, content, text) -> None:  # type: ignore[no-untyped-def]
    (folder / name).write_bytes(content)
    assert run(name) == 2
    error = capsys.readouterr().err
    assert text in error and len(error.splitlines()) == 1


@pytest.mark.one_jax
def test_missing_files_and_options(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    assert run("nothing.onnx") == 2
    assert "cannot be read" in capsys.readouterr().err
    assert run("model.mlir", "--signature", "s") == 2
    assert "no option 'signature'" in capsys.readouterr().err
    assert run("model.mlir", "--tolerance", "1") == 2
    with pytest.raises(ModelFileError, match="without saved_model"):
        gc.import_model(folder)
    with pytest.raises(AttributeValueError, match="no option 'outputs'"):
        gc.import_model(folder / "model.mlir", outputs=["x"])


def test_the_format_is_found_by_content(folder) -> None:  # type: ignore[no-untyped-def]
    (folder / "model.mlir").rename(folder / "model.txt")
    assert gc.import_model("model.txt").outputs == ("probs",)


def test_a_served_model_is_imported_once(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    from graphc.cli.arguments import parse
    from graphc.cli.serve import config_of

    options = parse(["serve", "model.mlir"])
    (model,) = config_of(options).models
    assert model.name == "model" and model.base_path.endswith(".gcx")
    assert "reading model.mlir" in capsys.readouterr().err
    made = Path(model.base_path).stat().st_mtime_ns
    assert cached_artifact("model.mlir") == Path(model.base_path)
    assert Path(model.base_path).stat().st_mtime_ns == made
    text = (folder / "model.mlir").read_text()
    (folder / "model.mlir").write_text(text + "\n")
    assert cached_artifact("model.mlir") != Path(model.base_path)


def test_named_sizes_of_a_served_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc.cli.arguments import parse
    from graphc.cli.serve import config_of

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    x = jax.ShapeDtypeStruct(jax.export.symbolic_shape("batch, 4"), np.float32)
    exported = jax.export.export(jax.jit(jnp.tanh))(x)
    (tmp_path / "model.stablehlo").write_bytes(exported.serialize())
    (model,) = config_of(parse(["serve", "model.stablehlo", "--size", "batch=3"])).models
    (value,) = gc.load(model.base_path).signatures["predict"].inputs.values()
    assert value.shape == (3, 4)
    (tmp_path / "own.gcx").touch()
    with pytest.raises(AttributeValueError, match="--size is for model files"):
        config_of(parse(["serve", "own.gcx", "--size", "batch=3"]))


def test_what_is_served_is_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    weights = np.arange(20, dtype=np.float32).reshape(4, 5)

    def program(x):
        return x @ jnp.asarray(weights)

    x = np.ones((2, 4), np.float32)
    path = tmp_path / "model.stablehlo"
    path.write_bytes(jax.export.export(jax.jit(program))(x).serialize())
    plain = tmp_path / "plain.gcx"
    save_model(gc.from_stablehlo(path), plain, ("cpu",))
    assert list(gc.load(plain).variables) == ["constant_0"]
    served = gc.load(cached_artifact(path))
    assert not served.variables
    assert_near(*served.signatures["predict"](x=x).values(), x @ weights, rtol=1e-6)
