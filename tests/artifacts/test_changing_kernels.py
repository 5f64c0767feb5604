"""JAX may change how it calls kernels: each file stores the calls of the JAX that wrote it."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from jax import lax

import graphc as gc
from tests.artifacts.forge import forge
from tests.near import assert_near

X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


def times_factor(x: jax.Array) -> jax.Array:
    raw, scales = jax.numpy.linalg.qr(x, mode="raw")
    return lax.linalg.ormqr(raw.T, scales, x, transpose=True)


@pytest.mark.parametrize(("version", "way"), [(jax.__version__, "stablehlo"), ("0.0.1", "graph")])
def test_another_version_of_jax_lowers_the_graph(tmp_path: Path, version: str, way: str) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((4, 3), name="x")
        y = gc.from_jax(times_factor)(x)
    path, forged = tmp_path / "saved.gcx", tmp_path / "forged.gcx"
    signature = gc.Signature({"x": x}, {"y": y})
    gc.save(gc.Session(graph), path, signatures={"run": signature}, platforms=["cpu"])
    forge(path, forged, lambda manifest: manifest.update(jax=version))
    point = gc.load(forged).signatures["run"]
    got = point(x=X)["y"]
    assert point.way == way
    assert_near(np.asarray(got), np.asarray(times_factor(X)), 1e-5)
