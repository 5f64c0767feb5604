"""`graphc profile`, in this process."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphc.cli import main
from tests.cli.scripts import HELPER, SCRIPT

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys, monkeypatch, tmp_path) -> Run:
    """Runs `graphc profile` on a script; the files are written to the script's folder."""
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "regression.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: Any) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "argv", list(sys.argv))
            sys.modules.pop("helper", None)
            try:
                code = main(["profile", *map(str, arguments)])
            except SystemExit as stop:
                code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_tables_and_files(run: Run, tmp_path: Path) -> None:
    code, out, err = run(
        "regression.py", "--steps", 3, "--html", "p.html", "--trace", "t.json", "--", "0.05"
    )
    assert (code, err) == (0, "")
    assert "the mean of 3 steps on 1 device" in out
    assert "regression.py:" in out and "gc.minimize" in out and "backward pass of" in out
    assert out.endswith("wrote p.html\nwrote t.json\n")
    assert "gc.minimize" in (tmp_path / "p.html").read_text()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_json_on_several_devices(run: Run) -> None:
    code, out, err = run("regression.py", "--steps", 2, "--devices", 4, "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert (facts["graph"], facts["steps"], facts["devices"]) == ("regression", 2, 4)
    assert "exchange" in {node["phase"] for node in facts["nodes"].values()}


def test_other_fetches(run: Run) -> None:
    code, out, _ = run("regression.py", "--fetch", "y", "--steps", 2, "--json")
    assert code == 0
    assert {node["phase"] for node in json.loads(out)["nodes"].values()} == {"forward"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["none.py"], "does not exist", id="no script"),
        pytest.param(["regression.py", "--steps", "0"], "--steps", id="no steps"),
        pytest.param(["regression.py", "--html", "none/p.html"], "cannot write", id="no folder"),
        pytest.param(["regression.py", "--trace", "."], "cannot write", id="a folder"),
        pytest.param(["regression.py", "--fetch", "yy"], "did you mean 'y'", id="no such name"),
    ],
)
def test_refused(run: Run, arguments: list[str], text: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert text in err and len(err.splitlines()) == 1


def test_job_without_batches(run: Run, tmp_path: Path) -> None:
    text = SCRIPT.replace("gc.data.Batches(data, 16)", "[]")
    assert text != SCRIPT
    (tmp_path / "regression.py").write_text(text)
    code, _, err = run("regression.py")
    assert code == 2 and "gives no batches to profile" in err
