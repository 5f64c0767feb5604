"""Lowered JAX programs inside the graphs of artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.artifacts import container
from graphc.errors import GraphcError
from graphc.ir.serial import dump_program, from_bytes, load_program, to_bytes
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.structure import lowered
from tests.artifacts.forge import entry, forge
from tests.near import assert_near

X = np.linspace(-1, 1, 6, dtype="float32").reshape(3, 2)


def without_stablehlo(manifest: dict[str, Any]) -> None:
    entry(manifest, "run")["convention"] = 10**6  # no JAX reads this version


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with gc.Graph() as graph:
        x = gc.placeholder((3, 2), name="x")
        y = gc.from_jax(lambda x: x.at[1].apply(jax.numpy.exp))(x)
    path = tmp_path / "whole.gcx"
    signature = gc.Signature({"x": x}, {"y": y})
    gc.save(gc.Session(graph), path, signatures={"run": signature}, platforms=["cpu"])
    monkeypatch.setattr(lowered, "_accepted", set())  # as in another process
    return path


@pytest.mark.parametrize("way", ["stablehlo", "graph"])
def test_it_runs_from_a_file(saved: Path, tmp_path: Path, way: str) -> None:
    path = saved
    if way == "graph":
        path = tmp_path / "graph.gcx"
        forge(saved, path, without_stablehlo)
    point = gc.load(path).signatures["run"]
    got = np.asarray(point(x=X)["y"])
    assert point.way == way
    assert_near(got[1], np.exp(X[1]), 1e-6)
    np.testing.assert_array_equal(got[[0, 2]], X[[0, 2]])


def hostile() -> lowered.Array:
    """A program that calls code by a name, as programs that call Python do."""
    call = jax.ffi.ffi_call("xla_ffi_python_cpu_callback", jax.ShapeDtypeStruct((3, 2), "float32"))
    skipped = [jax.export.DisabledSafetyCheck.custom_call("xla_ffi_python_cpu_callback")]
    exported = jax.export.export(
        jax.jit(lambda x: [call(x)]), platforms=["cpu"], disabled_checks=skipped
    )(jax.ShapeDtypeStruct((3, 2), "float32"))
    return np.frombuffer(bytes(exported.serialize()), np.uint8)


@pytest.mark.parametrize("made", [hostile, lambda: np.arange(100, dtype="uint8")])
def test_a_forged_one_does_not_run(saved: Path, tmp_path: Path, made: Any) -> None:
    _, members = container.read(saved)
    (name,) = [name for name in members if "graph" in name]
    program = load_program(*from_bytes(bytes(members[name])), CATALOGUE)
    nodes = [
        node.replace(attrs={**node.attrs, "program": made()}) if node.op.name == "Lowered" else node
        for node in program.nodes
    ]
    assert any(node.op.name == "Lowered" for node in nodes)
    data = to_bytes(*dump_program(program.replace(nodes=tuple(nodes))))
    path = tmp_path / "forged.gcx"
    forge(saved, path, without_stablehlo, {name: data})
    with pytest.raises(GraphcError, match="cannot be read by this graphc"):
        gc.load(path).signatures["run"](x=X)
    assert not lowered._accepted
