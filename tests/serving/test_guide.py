"""The curl commands of docs/guide/serving.md, run against a server."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.serving import ModelConfig, Server, ServerConfig
from tests.near import assert_near

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "serving.md"
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for line in block.splitlines()
]
KERNEL = np.float32([[1, 2], [3, 4], [5, 6]])


@pytest.fixture(scope="module")
def port(tmp_path_factory) -> Iterator[int]:
    """The port of a server with the model of the guide."""
    path = tmp_path_factory.mktemp("guide") / "flowers.gcx"
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 3), name="x")
        scores = gc.softmax(x @ gc.variable(KERNEL, name="kernel"))
    signature = gc.Signature({"x": x}, {"scores": scores})
    gc.save(gc.Session(graph), path, signatures={"predict": signature}, platforms=["cpu"])
    config = ServerConfig((ModelConfig("flowers", str(path)),), port=None, rest_port=0)
    with Server(config) as server:
        assert server.rest_port is not None
        yield server.rest_port


def answer(command: str, port: int) -> Any:
    line = shlex.split(command.replace("localhost:8501", f"127.0.0.1:{port}"))
    return json.loads(subprocess.run(line, capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_the_guide(port: int) -> None:
    status, metadata, rows, columns, version, classify, mistake = (
        answer(command, port) for command in COMMANDS
    )
    assert status["model_version_status"][0]["state"] == "AVAILABLE"
    assert "predict" in metadata["metadata"]["signature_def"]["signature_def"]
    exact = np.exp(KERNEL) / np.exp(KERNEL).sum(axis=1, keepdims=True)
    assert_near(rows["predictions"], exact[:2], rtol=1e-5)
    assert columns["outputs"] == rows["predictions"][:1] == version["predictions"]
    (classes,) = classify["result"]
    assert [label for label, _ in classes] == ["0", "1"]
    assert mistake == {"error": "instances[0][2]: expected f32, got 'a'"}
