"""`to_iree`: modules run without JAX, and errors name what IREE does not compile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("iree.compiler")

import graphc as gc
from graphc.errors import AttributeValueError, ModelExportError
from tests.near import assert_near

IMAGE = np.random.default_rng(0).normal(size=(2, 6, 6, 3)).astype(np.float32)


def test_a_module_computes_the_outputs(tmp_path: Path) -> None:
    runtime = pytest.importorskip("iree.runtime")
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", 6, 6, 3), name="x")
        h = gc.nn.relu(gc.nn.Conv2D(4, 3, name="conv")(x))
        y = gc.nn.Dense(3, name="out")(gc.reduce_mean(h, axis=(1, 2)))
        place = gc.argmax(y, axis=-1)
    session, path = gc.Session(graph), tmp_path / "m.vmfb"
    gc.to_iree(session, path, gc.Signature({"x": x}, {"y": y, "p": place}, sizes={"batch": 2}))
    module = runtime.load_vm_flatbuffer_file(str(path), driver="local-task")
    got = [np.asarray(value) for value in module["main"](IMAGE)]
    for a, b in zip(got, session.run([y, place], {x: IMAGE}), strict=True):
        assert_near(a, b, rtol=1e-5)


def test_a_module_for_phones(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((4,), name="x")
        y = gc.exp(x)
    path = tmp_path / "m.vmfb"
    gc.to_iree(gc.Session(graph), path, gc.Signature({"x": x}, {"y": y}), target="android-arm64")
    machine = path.read_bytes().split(b"\x7fELF", 1)[1][14:15]
    assert machine == b"\xb7"  # EM_AARCH64


def test_refusals(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("n", 2, 2), name="x")
        y = gc.linalg.cholesky(x)
        z = x + gc.random.normal((2, 2))
    session, path = gc.Session(graph), tmp_path / "m.vmfb"
    with pytest.raises(ModelExportError, match="sizes n are open"):
        gc.to_iree(session, path, gc.Signature({"x": x}, {"y": y}))
    with pytest.raises(ModelExportError, match=r"Cholesky 'Cholesky'\s+test_iree.py"):
        gc.to_iree(session, path, gc.Signature({"x": x}, {"y": y}, sizes={"n": 1}))
    with pytest.raises(ModelExportError, match="random numbers"):
        gc.to_iree(session, path, gc.Signature({"x": x}, {"z": z}, sizes={"n": 1}))
    with pytest.raises(AttributeValueError, match="no target 'ios'"):
        gc.to_iree(session, path, gc.Signature({"x": x}, {"y": y}), target="ios")
    assert not path.exists()
