"""A server that was killed and restarted finds its executables in the cache."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.serving.models.saved import put

CHILD = """
import os, signal, sys
import numpy as np
from graphc.artifacts import ways
from graphc.serving.config import BatchingConfig, ModelConfig
from graphc.serving.models.manager import Manager

compiled = []
compile = ways.compiled_program

def counting(key, *arguments):
    compiled.append(key["shapes"])
    return compile(key, *arguments)

ways.compiled_program = counting
manager = Manager([ModelConfig("m", sys.argv[1])], batching=BatchingConfig(4), poll_seconds=0)
manager.start()
with manager.use("m") as servable:
    y = servable.predict("predict", {"x": np.eye(4, dtype=np.float32)}).result(60)["y"]
print(len(compiled), float(y.sum()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def start(base: Path) -> tuple[int, float]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(base)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    count, total = done.stdout.split()
    return int(count), float(total)


def test_kill_and_restart(tmp_path: Path) -> None:
    put(tmp_path, 1, 1)
    first, total = start(tmp_path)
    assert first >= 3
    assert start(tmp_path) == (0, total)
    put(tmp_path, 2, 2)  # the same program with other weights
    assert start(tmp_path) == (0, 2 * total)
