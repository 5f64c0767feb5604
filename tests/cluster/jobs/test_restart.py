"""A real service and real training: after killed services, lost processes, stops and resumes, a job
ends with the parameters of the undisturbed job, bit by bit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphc.cluster.jobs.clients import LocalQueue
from graphc.cluster.jobs.processes import members
from graphc.cluster.jobs.runs import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jobs")]
pytest.importorskip("uvicorn")

REPOSITORY = Path(__file__).parents[3]
SCRIPTS = Path(__file__).parent / "scripts"
ENVIRONMENT = {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").replace(
        "--xla_force_host_platform_device_count=4", ""
    ),
    "PYTHONPATH": str(REPOSITORY),
}
PATIENCE = 240  # seconds
STEPS = 40


class Tried:
    """A queue and its service, which can be started and killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "queue"
        self.queue = LocalQueue(self.folder)
        self.service: subprocess.Popen[str] | None = None

    def graphc(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "graphc", *map(str, arguments)]
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)

    def serve(self) -> None:
        command = [sys.executable, "-m", "graphc", "jobs", "serve", "--queue", self.folder,
                   "--root", SCRIPTS, "--port", "0", "--max-devices", "4"]  # fmt: skip
        self.service = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.service.stdout is not None
        assert self.service.stdout.readline().startswith("queue ")
        assert "#token=" in self.service.stdout.readline()

    def end(self, number: int) -> int:
        assert self.service is not None and self.service.stdout is not None
        self.service.send_signal(number)
        status = self.service.wait(60)
        self.service.stdout.close()
        return status

    def submit(self, restarts: int = 0, pause: float = 0.05) -> int:
        done = self.graphc("submit", SCRIPTS / "train.py", "-n", 2, "--restarts", restarts,
                           "--queue", self.folder, "--", STEPS, pause)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return int(re.findall(r"job (\d+) ", done.stdout)[0])

    def job(self, number: int) -> dict[str, Any]:
        return self.queue.details(number)

    def log(self, number: int) -> str:
        return self.queue.log(number, 0)[0].decode()

    def until(self, number: int, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, (self.job(number), self.log(number))
            time.sleep(0.05)

    def until_step(self, number: int, step: int) -> None:
        self.until(number, lambda: f"step {step}\n" in self.log(number))

    def result(self, number: int) -> tuple[int, str]:
        """The step from which the job continued last, and its parameters."""
        self.until(number, lambda: self.job(number)["ended"] is not None)
        assert self.job(number)["state"] == "succeeded", (self.job(number), self.log(number))
        start, digest = re.findall(r"result from (\d+) (\w+)", self.log(number))[-1]
        return int(start), digest


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    found = Tried(tmp_path_factory.mktemp("jobs"))
    found.serve()
    yield found
    assert found.end(signal.SIGTERM) == 0


@pytest.fixture(scope="module")
def killed(tried: Tried) -> tuple[int, str, int]:
    """A job whose service is killed. This does not disturb the job's processes."""
    number = tried.submit()
    tried.until_step(number, 5)
    assert tried.end(signal.SIGKILL) == -signal.SIGKILL
    assert tried.job(number)["state"] == "running" and not tried.queue.is_served()
    seen = len(tried.log(number))
    tried.until(number, lambda: len(tried.log(number)) > seen)
    tried.serve()
    return number, *tried.result(number)[::-1]


@pytest.fixture(scope="module")
def undisturbed(killed: tuple[int, str, int]) -> str:
    return killed[1]


def test_the_next_service_finds_the_jobs(tried: Tried, killed: tuple[int, str, int]) -> None:
    number, _, start = killed
    assert start == 0 and tried.job(number)["starts"] == 1
    steps = re.findall(r"worker 0\] step (\d+)", tried.log(number))
    assert steps == [str(step) for step in range(1, STEPS + 1)]


def test_the_processes_are_lost_while_no_service_runs(tried: Tried, undisturbed: str) -> None:
    """After a restart of the machine, for example, a job continues from its last checkpoint."""
    number = tried.submit(restarts=1)
    tried.until_step(number, 15)
    tried.end(signal.SIGKILL)
    token = f"{RunFolder(tried.folder.resolve(), number, 1).path}:1"
    pids = members([token])[token]
    assert len(pids) >= 4  # shell, launcher and two workers
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    tried.serve()
    start, digest = tried.result(number)
    assert start >= 10 and digest == undisturbed
    assert tried.job(number)["starts"] == 2


def test_a_job_is_stopped_and_resumed(tried: Tried, undisturbed: str) -> None:
    number = tried.submit(pause=0.2)  # the command must start before the job ends
    tried.until_step(number, 5)
    done = tried.graphc("jobs", "stop", number, "--queue", tried.folder)
    assert done.returncode == 0 and "stopping" in done.stdout
    tried.until(number, lambda: tried.job(number)["state"] == "stopped")
    tried.queue.act(number, "resume")
    start, digest = tried.result(number)
    assert start >= 5 and digest == undisturbed


def test_a_job_of_graphc_train_and_its_restart(tried: Tried, tmp_path: Path) -> None:
    """A script with `build()` gets checkpoints, curves and the saved model without further code."""
    file = tmp_path / "job.yaml"
    file.write_text(f"train: {SCRIPTS / 'line.py'}\nsave: true\narguments: [7]\n")
    done = tried.graphc("submit", file, "--queue", tried.folder, "--wait")
    assert done.returncode == 0 and "7 steps" in done.stdout, done.stderr
    number = int(re.findall(r"job (\d+) ", done.stdout)[0])
    folder = Path(tried.job(number)["folder"])
    assert len((folder / "logs/log.csv").read_text().splitlines()) == 8
    assert (folder / "outputs/model.gcx").exists() and list((folder / "checkpoints").iterdir())
    tried.queue.act(number, "restart")
    tried.until(number, lambda: tried.job(number)["ended"] is not None)
    assert tried.job(number)["state"] == "succeeded"
    assert Path(tried.job(number)["folder"]).name == "run-2"
    model = folder / "outputs/model.gcx"
    refused = tried.graphc("submit", model, "--queue", tried.folder, "--wait")
    assert refused.returncode != 0 and "no file" in refused.stderr  # the file is in no root
