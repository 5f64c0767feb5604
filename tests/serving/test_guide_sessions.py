"""The curl commands of docs/guide/serving-sessions.md, run against a server with its model."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphc.serving import ModelConfig, Server, ServerConfig

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "serving-sessions.md").read_text()


@pytest.fixture
def port(tmp_path, monkeypatch) -> Iterator[int]:
    """The port of a server with the model of the page, trained for one step."""
    monkeypatch.chdir(tmp_path)
    block = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    assert "range(100)" in block
    exec(compile(block.replace("range(100)", "range(1)"), "page", "exec"), {})
    config = ServerConfig((ModelConfig("writer", "writer.gcx"),), port=None, rest_port=0)
    with Server(config) as server:
        assert server.rest_port is not None
        yield server.rest_port


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_the_guide(port: int) -> None:
    id = "ID"

    def answer(command: str) -> str:
        command = command.replace("localhost:8501", f"127.0.0.1:{port}").replace("/ID", f"/{id}")
        line = shlex.split(command)
        return subprocess.run(line, capture_output=True, check=True, timeout=120, text=True).stdout

    create, predict, generate, look, delete = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[
        0
    ].splitlines()
    created = json.loads(answer(create))
    id = created["session_id"]
    assert created["signature_name"] == "write" and created["bytes"] == 2 * 256 * 64 * 4 + 4
    outputs = json.loads(answer(predict))["outputs"]
    assert outputs["left"] == 248 and 0 <= outputs["next"][0][0] < 128
    *steps, end, rest = answer(generate).split("\n\n")
    assert rest == "" and end == 'event: end\ndata: {"steps": 3, "reason": "steps"}'
    assert len(steps) == 3
    assert all(re.fullmatch(r'data: \{"outputs": \[\[\d+\]\]\}', step) for step in steps)
    assert json.loads(answer(look))["steps"] == 4
    assert answer(delete) == "{}"
    assert "it was closed" in answer(look)
