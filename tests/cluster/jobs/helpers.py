"""Queues in temporary folders whose jobs are small shell scripts, which start in milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphc.cluster.jobs.capacity import Capacity
from graphc.cluster.jobs.roots import Roots
from graphc.cluster.jobs.runs import RunFolder
from graphc.cluster.jobs.service import JobService
from graphc.cluster.jobs.spec import JobSpec, Need
from graphc.cluster.jobs.users import User, Users

ANN, BOB, ROOT = "a-token-of-ann-12", "a-token-of-bob-12", "a-token-of-root-1"
USERS = {User("ann"): ANN, User("bob"): BOB, User("root", admin=True): ROOT}


def use_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the `program` of a job be a shell script, without `graphc launch`."""

    def command(self: RunFolder, spec: JobSpec, program: Path, inputs: Any) -> list[str]:
        return ["/bin/sh", str(program), *spec.command_arguments]

    monkeypatch.setattr(RunFolder, "command", command)


def script(folder: Path, text: str, name: str = "job.py") -> str:
    """Writes the script of a job; its text is for the shell."""
    (folder / name).write_text(text)
    return name


def service_of(folder: Path, devices: int = 4, **more: Any) -> JobService:
    capacity = more.pop("capacity", Capacity(Need(devices, devices, 1 << 40)))
    return JobService(folder / "queue", Roots([folder]), capacity, **more)


@contextmanager
def serving(folder: Path, **more: Any) -> Iterator[JobService]:
    service = service_of(folder, **more)
    try:
        yield service
    finally:
        for record in service.store.active("running"):
            service.store.stop(record.id, time.time())
        until(service, lambda: not service.store.active("running"))
        service.close()


def until(service: JobService, condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Calls `tick` until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, [vars(record) for record in service.store.jobs()]
        service.tick()
        time.sleep(0.01)


def submit(service: JobService, user: str = "ann", **value: Any) -> int:
    spec = JobSpec.of({"script": "job.py", **value})
    return service.store.submit(user, spec, time.time())


def ended(service: JobService, number: int) -> Any:
    """Waits for the job to end, and returns it."""
    until(service, lambda: service.store.get(number).ended is not None)
    return service.store.get(number)


def users() -> Users:
    return Users(USERS)


def log_of(service: JobService, number: int) -> str:
    return RunFolder.of(service.folder, service.store.get(number)).log.read_text()
