"""`graphc compare`, in this process."""

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
    """Runs `graphc compare` on a script; the files are written to the script's folder."""
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "regression.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: Any) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "argv", list(sys.argv))
            sys.modules.pop("helper", None)
            try:
                code = main(["compare", *map(str, arguments)])
            except SystemExit as stop:
                code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_rounding_ends_with_code_0(run: Run) -> None:
    code, out, err = run("regression.py", "--", "0.05")
    assert (code, err) == (0, "")
    assert out.startswith("rounding explains all") and "regression.py:" in out


def test_a_record_and_a_fault(run: Run, tmp_path: Path) -> None:
    code, out, err = run("regression.py", "--record", "a.record", "--", "0.05")
    assert (code, err) == (0, "") and "wrote a.record" in out
    code, out, _ = run("regression.py", "--against", "a.record", "--json", "--", "0.05")
    found = json.loads(out)
    assert code == 0 and found["ok"] and "jax" in found["runs"][1]
    # An error in the record: one value is scaled, and its checksum is adjusted.
    _scale_a_value(tmp_path / "a.record")
    code, out, _ = run("regression.py", "--against", "a.record", "--json", "--", "0.05")
    found = json.loads(out)
    assert code == 1 and not found["ok"]
    assert "regression.py" in found["first"]["source"] and found["first"]["op"] == "MatMul"


def _scale_a_value(path: Path) -> None:
    import hashlib

    import numpy as np

    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])
    row = next(row for row in header["values"] if "MatMul" in row["name"])
    start, end = row["offset"], row["offset"] + row["bytes"]
    value = np.frombuffer(bytes(body[start:end]), np.float32) * np.float32(1.01)
    body[start:end] = value.tobytes()
    row["sha256"] = hashlib.sha256(value.tobytes()).hexdigest()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--against", "after:nothing"], "no pass 'nothing' ran"),
        (["--against", "missing.record"], "cannot be read"),
        (["--record", "a", "--against", "O0"], "exclude each other"),
        (["--device", "/gpu:7"], "gpu"),
        (["--fetch", "nothing"], "nothing"),
    ],
)
def test_wrong_arguments_end_with_code_2(run: Run, arguments: list[str], text: str) -> None:
    code, _, err = run("regression.py", *arguments, "--", "0.05")
    assert code == 2 and text in err and len(err.splitlines()) == 1
