"""The script that compares asynchronous and synchronous workers: all of them learn."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import digits
import pytest

EXAMPLES = Path(digits.__file__).parent


@pytest.mark.one_jax
def test_asynchronous_as_a_script(tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    command = [sys.executable, str(EXAMPLES / "asynchronous.py"), "--plot", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES.parent)
    assert done.returncode == 0, done.stderr
    lines = {line[:14].strip(): line for line in done.stdout.splitlines()}
    for name in ("synchronous", "one at a time", "asynchronous"):
        words = lines[name].split()
        assert float(words[words.index("accuracy") + 1]) > 0.93
    assert "300 updates" in lines["synchronous"] and "1200 updates" in lines["asynchronous"]
    after = done.stdout.split("asynchronous  ")[-1].splitlines()
    rows = [line.split() for line in after if line.startswith("  staleness")]
    assert sum(int(row[2]) for row in rows) == 1200
    assert 0 < max(int(row[1]) for row in rows) <= 8
    if importlib.util.find_spec("matplotlib") is None:
        assert 'pip install "graphc[examples]"' in done.stdout and not picture.exists()
    else:
        assert picture.read_bytes().startswith(b"\x89PNG")
