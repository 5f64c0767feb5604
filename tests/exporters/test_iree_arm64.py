"""Modules for Android, run by qemu and IREE's runtime for arm64: `make test-arm64`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("iree.compiler")

import graphc as gc
from graphc import nn
from graphc.nn.transformer.transformer import TransformerBlock
from tests.near import assert_near

QEMU = shutil.which("qemu-aarch64-static")
LIBRARIES = "/usr/aarch64-linux-gnu"
FOLDER = os.environ.get("GRAPHC_IREE_ARM64", "")
RNG = np.random.default_rng(0)

pytestmark = pytest.mark.skipif(
    not (QEMU and FOLDER and Path(LIBRARIES).is_dir()),
    reason="make test-arm64 runs this; needs qemu-user-static and libraries for arm64",
)


def run_on_arm64(module: Path, inputs: list[np.ndarray], outputs: int) -> list[np.ndarray]:
    """The results of a module's `main`, computed by a program for arm64."""
    folder = module.parent
    (program,) = Path(FOLDER).rglob("_runtime_libs/iree-run-module")
    program.chmod(0o755)
    command = [QEMU, "-L", LIBRARIES, program, f"--module={module}", "--device=local-sync"]
    command += ["--function=main"]
    for i, value in enumerate(inputs):
        np.save(folder / f"in{i}.npy", value)
        command.append(f"--input=@{folder}/in{i}.npy")
    files = [folder / f"out{i}.npy" for i in range(outputs)]
    command += [f"--output=@{file}" for file in files]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [np.load(file) for file in files]


def images() -> tuple[list[Any], list[Any]]:
    x = gc.placeholder((2, 16, 16, 3), name="x")
    h = nn.relu(nn.BatchNorm()(nn.Conv2D(8, 3, strides=2)(x), training=False))
    h = nn.relu(nn.DepthwiseConv2D(3)(h))
    y = nn.Dense(5)(gc.reduce_mean(h, axis=(1, 2)))
    return [x], [nn.softmax(y), gc.argmax(y, axis=-1)]


def text() -> tuple[list[Any], list[Any]]:
    ids = gc.placeholder((2, 7), "int32", name="ids")
    h = nn.Embedding(30, 16)(ids)
    h = TransformerBlock(16, 2, 32, causal=True)(h)
    return [ids], [nn.Dense(30)(nn.LayerNorm()(h))]


@pytest.mark.parametrize("build", [images, text])
def test_a_module_for_phones(build: Callable[[], Any], tmp_path: Path) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        inputs, outputs = build()
    session, path = gc.Session(graph), tmp_path / "m.vmfb"
    signature = gc.Signature(
        {f"x{i}": t for i, t in enumerate(inputs)}, {f"y{i}": t for i, t in enumerate(outputs)}
    )
    gc.to_iree(session, path, signature, target="android-arm64")
    values = [
        RNG.integers(0, 30, t.shape).astype("i") if t.dtype.kind == "i"
        else RNG.normal(size=t.shape).astype("f")
        for t in inputs
    ]  # fmt: skip
    want = session.run(outputs, dict(zip(inputs, values, strict=True)))
    for a, b in zip(run_on_arm64(path, values, len(outputs)), want, strict=True):
        assert_near(a, b, rtol=1e-5)
