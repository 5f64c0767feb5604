"""`gc.to_stablehlo`: the module parses and names its arguments and results in order."""

import numpy as np
import pytest
from jax.extend import mlir
from jax.extend.mlir import ir

import graphc as gc
from graphc.errors import AttributeValueError, FeedError


def step():
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 3), name="x")
        w = gc.variable(np.ones((3, 2), "float32"), name="w")
        n = gc.variable(0, name="n")
        y = gc.matmul(x, w)
        update = gc.assign(n, n + 1)
    return gc.Session(graph), gc.Signature({"x": x}, {"y": y, "same": y}, updates=[update])


def main_type(module):
    text = str(module)
    return text[text.index("@main") :].splitlines()[0]


def test_text_and_bytecode_are_the_same_module(tmp_path):
    session, signature = step()
    gc.to_stablehlo(session, tmp_path / "text", signature)
    gc.to_stablehlo(session, tmp_path / "code", signature, text=False)
    text = (tmp_path / "text").read_text()
    assert text.splitlines()[:2] == [
        '// arguments: "n", "w", "x"',
        '// results: "n", "y = same"',
    ]
    with ir.Context():
        code = mlir.deserialize_portable_artifact((tmp_path / "code").read_bytes())
        line = main_type(code)  # this context knows the dialects
        assert main_type(ir.Module.parse(text)) == line
    order = [line.index(t) for t in ("tensor<i32>", "tensor<3x2xf32>", "tensor<?x3xf32>")]
    assert order == sorted(order) and "tensor<?x2xf32>" in line
    assert session.values()["n"] == 0


def test_refusals_write_nothing(tmp_path):
    session, signature = step()
    with pytest.raises(AttributeValueError, match=r"gc\.Signature"):
        gc.to_stablehlo(session, tmp_path / "f", {"x": 1})
    x = signature.inputs["x"]
    with pytest.raises(FeedError, match="same tensor"):
        gc.to_stablehlo(session, tmp_path / "f", gc.Signature({"a": x, "b": x}, {"y": x}))
    assert not list(tmp_path.iterdir())
