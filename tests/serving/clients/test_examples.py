"""The examples of the guide, run against `graphc serve`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from tests.near import assert_near
from tests.serving.clients.toolchains import cpp, java

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guide" / "serving-clients.md"
EXAMPLES = {
    "js": ROOT / "clients" / "javascript" / "example.mjs",
    "java": ROOT / "clients" / "java" / "Example.java",
    "cpp": ROOT / "clients" / "cpp" / "example.cpp",
}
KERNEL = np.float32([[1, 2], [3, 4], [5, 6]])


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """The address of `graphc serve` with the model of the guide."""
    path = tmp_path_factory.mktemp("guide") / "flowers.gcx"
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 3), name="x")
        scores = gc.softmax(x @ gc.variable(KERNEL, name="kernel"))
    signature = gc.Signature({"x": x}, {"scores": scores})
    gc.save(gc.Session(graph), path, signatures={"predict": signature}, platforms=["cpu"])
    command = [sys.executable, "-m", "graphc", "serve", str(path)]
    command += ["--port", "0", "--rest_api_port", "0"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            (found,) = [line for line in lines if line.startswith("REST: ")]
            yield found.removeprefix("REST: ").strip().removesuffix("/v1/models/")
        finally:
            process.send_signal(signal.SIGTERM)


def check(command: list[str], address: str) -> None:
    done = subprocess.run([*command, address], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    numbers, mistake = done.stdout.splitlines()
    exact = np.exp(KERNEL) / np.exp(KERNEL).sum(axis=1, keepdims=True)
    assert_near(np.float32(numbers.split()), exact[:2].reshape(-1), rtol=1e-4)
    expected = "400 INVALID_ARGUMENT: input 'x': shape [1, 4], expected f32[batch, 3]"
    assert mistake == expected


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_javascript(address: str) -> None:
    check(["node", str(EXAMPLES["js"])], address)


@pytest.mark.slow
@pytest.mark.one_jax
@java.needed
def test_java(address: str, tmp_path: Path) -> None:
    check(java.build(EXAMPLES["java"], tmp_path), address)


@pytest.mark.slow
@pytest.mark.one_jax
@cpp.needed
def test_cpp(address: str, tmp_path: Path) -> None:
    check(cpp.build(EXAMPLES["cpp"], tmp_path), address)


@pytest.mark.parametrize("language", EXAMPLES)
def test_the_guide_has_the_example(language: str) -> None:
    (block,) = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert block == EXAMPLES[language].read_text()
