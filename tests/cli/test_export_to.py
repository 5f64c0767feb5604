"""`graphc export --to`: formats, validation, model files, and errors before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


from graphc.cli import main

SCRIPT = """
import graphc as gc, numpy as np, optax

def build():
    g = gc.Graph(seed=0)
    with g:
        x = gc.placeholder(("batch", 3), name="x")
        y = gc.nn.Dense(2, name="dense")(x)
        z = y * 2
        train = gc.minimize(gc.reduce_mean(y**2), optax.sgd(0.1))
    feeds = [{"x": np.ones((4, 3), "float32")}] * 5
    predict, other = gc.Signature({"x": x}, {"y": y}), gc.Signature({"x": x}, {"z": z})
    signatures = {"predict": predict, "other": other}
    return gc.train.Job(g, train, feeds, steps=5, signatures=signatures)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(SCRIPT)
    return "script.py"


def export(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    code = 0
    try:
        code = main(["export", *arguments]) or 0
    except SystemExit as end:
        code = int(end.code or 0)
    found = capsys.readouterr()
    return code, found.out, found.err


def test_a_trained_script_as_onnx(script: str, capsys: Any) -> None:
    code, out, err = export(
        capsys,
        *(script, "m.onnx", "--to", "onnx", "--signature", "predict", "--opset", "18"),
        *("--steps", "3", "--validate", "--json", "--no-progress"),
    )
    assert code == 0, err
    facts = json.loads(out)
    assert facts["format"] == "onnx" and facts["bytes"] == Path("m.onnx").stat().st_size
    found = facts["validation"]
    assert found["against"].startswith("onnxruntime")
    assert found["inputs"] == {"x": "float32[4, 3]"}  # as in the first batch
    assert found["outputs"]["y"]["ok"] and set(found["latency_ms"]) == {"graph", "file"}


@pytest.mark.parametrize(
    ("kind", "more"), [("safetensors", ()), ("stablehlo", ("--size", "batch=2")), ("onnx", ())]
)
def test_each_format_is_validated(
    kind: str, more: tuple[str, ...], script: str, capsys: Any
) -> None:
    arguments = (script, "m", "--to", kind, "--signature", "other", *more, "--validate")
    code, out, err = export(capsys, *arguments)
    assert code == 0, err
    assert "against" in out and ("dense/kernel" if kind == "safetensors" else "z") in out


def test_a_model_file_in_another_format(script: str, capsys: Any) -> None:
    assert export(capsys, script, "m.onnx", "--to", "onnx", "--signature", "predict")[0] == 0
    code, out, _ = export(capsys, "m.onnx", "m.mlir", "--to", "stablehlo", "--size", "batch=3")
    assert code == 0 and "predict" in out
    assert "tensor<3x3xf32>" in Path("m.mlir").read_text()
    code, out, err = export(capsys, "m.onnx", "again.onnx", "--to", "onnx", "--validate")
    assert code == 0, err
    code, _, err = export(capsys, "m.onnx", "again.onnx", "--to", "onnx", "--steps", "3")
    assert code == 2 and "does not say how to train it" in err


def test_a_difference_is_an_error(
    script: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphc.cli import export_to

    def wrong(path: str) -> Any:
        return "something else", lambda inputs: {"y": np.zeros((4, 2), np.float32)}

    monkeypatch.setattr(export_to.peers, "onnx_peer", wrong)
    arguments = (script, "m.onnx", "--to", "onnx", "--signature", "predict", "--validate")
    code, out, err = export(capsys, *arguments)
    assert code == 1 and "m.onnx differs: y: 1 of its largest value" in err
    assert "something else" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("m", "--to", "onnx"), ["has the signatures predict, other", "--signature predict"]),
        (("m", "--to", "onnx", "--signature", "predit"), ["'predit'", "did you mean 'predict'"]),
        (("m", "--to", "iree", "--opset", "20"), ["--opset is for --to onnx"]),
        (("m", "--to", "onnx", "--target", "host"), ["--target is for --to iree"]),
        (
            ("m", "--to", "iree", "--target", "android-arm64", "--validate"),
            ["cannot run a module for android-arm64 here"],
        ),
        (("m.gcx", "--signature", "predict"), ["--signature is for --to"]),
        (("m.gcx", "--size", "batch=2"), ["--size is for --to"]),
        (("none/m", "--to", "onnx", "--signature", "predict"), ["cannot write", "must exist"]),
        (("m", "--to", "onnx", "--signature", "predict", "--opset", "3"), ["from 16 to"]),
        (
            ("m", "--to", "onnx", "--signature", "predict", "--size", "rows=2"),
            ["rows", "batch"],
        ),
    ],
)
def test_errors(arguments: tuple[str, ...], words: list[str], script: str, capsys: Any) -> None:
    code, _, err = export(capsys, script, *arguments)
    assert code == 2
    for word in words:
        assert word in err
    assert [p.name for p in Path().iterdir() if p.name.startswith("m")] == []


def test_help_names_the_formats(capsys: Any) -> None:
    code, out, _ = export(capsys, "--help")
    assert code == 0
    assert "{onnx,saved-model,safetensors,iree,stablehlo}" in out
