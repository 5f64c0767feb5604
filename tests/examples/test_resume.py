"""A job that is killed resumes with the same bits."""

import subprocess
import sys
from pathlib import Path

import pytest
import resume


@pytest.mark.slow
@pytest.mark.one_jax
def test_kills_do_not_change_the_result():
    command = [sys.executable, resume.__file__, "--kills", "4"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    last = found.stdout.splitlines()[-1]
    assert last == "killed 4 times; same parameters: True; same log: True"


@pytest.mark.slow
@pytest.mark.one_jax
def test_the_job_learns(tmp_path: Path):
    job = resume.build()
    history = resume.gc.train.fit(resume.gc.Session(job.graph), job, progress=False)
    first, *_, last = history.validation["accuracy"][1]  # with dropout
    assert first < 0.5 and last > 0.7
