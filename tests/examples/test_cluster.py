"""One of two processes is killed: the parameters at the end equal those of an undisturbed run."""

import os
import subprocess
import sys
from pathlib import Path

import cluster
import pytest


@pytest.mark.slow
@pytest.mark.one_jax
def test_a_process_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, cluster.__file__, "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert lines["same parameters"] == "True"
    assert float(lines["test accuracy of the undisturbed job"]) > 0.97
    assert "restart 1 of 2" in done.stderr
    assert list((tmp_path / "killed" / "logs").glob("**/*tfevents*"))
