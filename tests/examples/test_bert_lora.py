"""The script trains a BERT with peft adapters and writes it back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.examples.test_asynchronous import EXAMPLES


def test_bert_lora_as_a_script() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    command = [sys.executable, str(EXAMPLES / "bert_lora.py"), "--steps", "120"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)

    def figure(what: str) -> float:
        return float(done.stdout.split(f"{what}: ")[1].split()[0])

    before = figure("accuracy for the other modules before")
    assert figure("accuracy with adapters") > before + 0.1
    assert figure("difference between graphc and PyTorch") < 1e-4
    whole, adapters = done.stdout.split(" bytes, adapters and head ")
    assert 10 * int(adapters.split()[0]) < int(whole.split()[-1])
