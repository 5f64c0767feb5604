"""The script trains a torchvision module and writes it back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.examples.test_asynchronous import EXAMPLES


def test_torch_fine_tune_as_a_script() -> None:
    pytest.importorskip("torchvision")
    command = [sys.executable, str(EXAMPLES / "torch_fine_tune.py"), "--steps", "40"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    accuracy = float(done.stdout.split("test accuracy of the module: ")[1].split()[0])
    assert accuracy > 0.8
    away = float(done.stdout.split("between graphc and PyTorch: ")[1])
    assert away < 1e-4
