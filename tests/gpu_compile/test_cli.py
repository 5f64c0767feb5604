"""`graphc compile --machine`, `graphc plan`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphc.cli import main
from tests.cli.scripts import HELPER, SCRIPT

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys) -> Run:
    def call(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def script(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helper.py").write_text(HELPER)
    path = tmp_path / "regression.py"
    path.write_text(SCRIPT)
    return path


def test_compile_for_all_gpus_of_a_machine(run: Run, script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shipped"
    command = ("compile", script, "--machine", "8xh100", "--cache-dir", folder, "--json")
    code, out, _ = run(*command)
    facts = json.loads(out)
    assert code == 0 and facts["parallel"] == "pmap" and len(facts["devices"]) == 8
    assert facts["devices"][7] == {"name": "/device:GPU:7", "kind": "NVIDIA H100 80GB HBM3"}
    entries = json.loads(run("cache", "list", "--folder", folder, "--json")[1])["entries"]
    assert facts["cache_key"] in [entry["key"] for entry in entries]
    fewer = json.loads(run("compile", script, "--machine", "8xh100", "--devices", 1, "--json")[1])
    assert fewer["parallel"] is None and len(fewer["devices"]) == 1


def test_more_devices_than_the_machine_has(run: Run, script: Path) -> None:
    code, _, err = run("compile", script, "--machine", "h100", "--devices", 2)
    assert code == 2 and "2 devices requested, 1 available" in err


def test_plan_of_the_batch_of_the_job(run: Run, script: Path) -> None:
    code, out, err = run("plan", script, "--machine", "l4", "--json", "--no-progress")
    facts = json.loads(out)
    assert code == 0 and err == ""
    assert facts["batch"] == 16 and facts["bytes"] < facts["limit"] and not facts["recomputes"]
    text = run("plan", script, "--machine", "l4", "--no-progress")[1]
    assert text.startswith("regression fits") and "16, at most 16 a device" in text


def test_plan_of_the_largest_batch(run: Run, script: Path) -> None:
    code, out, err = run("plan", script, "--machine", "2xl4", "--largest-batch", "--json")
    facts = json.loads(out)
    assert code == 0 and "does not fit" in err
    assert facts["batch"] % 2 == 0 and 0.9 * facts["limit"] < facts["bytes"] <= facts["limit"]
    tried = {row["batch"]: row["fits"] for row in facts["tried"]}
    assert tried[facts["batch"]] and not all(tried.values())


def test_a_step_that_does_not_fit(run: Run, script: Path) -> None:
    shapes = ("--feed", "x=9000000000,3", "--feed", "t=9000000000,1")
    code, out, _ = run("plan", script, "--machine", "l4", *shapes, "--no-progress")
    assert code == 0 and "does not fit: a batch of 9000000000 takes at least" in out


def test_a_fixed_batch_is_planned_but_not_searched(run: Run, script: Path) -> None:
    script.write_text(SCRIPT.replace('"batch", 3', "16, 3").replace('"batch", 1', "16, 1"))
    code, out, _ = run("plan", script, "--machine", "l4", "--no-progress")
    assert code == 0 and "regression fits" in out and "none" in out
    code, _, err = run("plan", script, "--machine", "l4", "--largest-batch")
    assert code == 2 and "no feed has a batch axis" in err


def test_tune_for_a_machine(run: Run, script: Path) -> None:
    command = ("tune", script, "--machine", "2xh100", "--no-progress", "--seconds", 5)
    code, out, err = run(*command)
    assert code == 0, err
    assert "times are estimates from the compiled text: nothing has run" in out
    found = json.loads(run(*command, "--json")[1])
    assert found["estimated"] and not found["kept"]
