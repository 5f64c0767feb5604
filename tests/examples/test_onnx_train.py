"""The script trains an ONNX model further."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_asynchronous import EXAMPLES


@pytest.mark.one_jax
def test_onnx_train_as_a_script(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    command = [sys.executable, str(EXAMPLES / "onnx_train.py"), "--out", str(tmp_path / "d.gcx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    accuracy = float(done.stdout.split("test accuracy ")[1].split()[0])
    assert accuracy > 0.95
    assert "the same results: True" in done.stdout
