"""`Record`: a job as it stands in the store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from graphc.cluster.jobs.spec import JobSpec

QUEUED: Final = "queued"
RUNNING: Final = "running"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
STOPPED: Final = "stopped"

STATES: Final = (QUEUED, RUNNING, SUCCEEDED, FAILED, STOPPED)
ENDED: Final = (SUCCEEDED, FAILED, STOPPED)

STOP: Final = "stop"
"""The value of `Record.wanted` after its user has stopped it; others are reasons of the service."""


@dataclass(frozen=True)
class Record:
    """A job and what has become of it. Times are seconds since 1970.

    Attributes:
        state: one of `STATES`.
        reason: why it is in this state, for people.
        wanted: "" or why a running job is to end.
        queued: when it was queued last.
        run: 1, and one more after each restart from the beginning. Each run has its own folder.
        starts: how often this run was started. Each start has files of its own.
        losses: how often its processes were lost since it was submitted, restarted or resumed.
        exit: the exit status of the last start.
        gpus: the GPUs that a running job has, by number.
        rank: the place in the queue; see `scheduling.rank`.
    """

    id: int
    user: str
    name: str
    text: str  # the JobSpec as JSON
    state: str
    reason: str
    wanted: str
    submitted: float
    queued: float
    started: float | None
    ended: float | None
    run: int
    starts: int
    losses: int
    exit: int | None
    gpus: str
    rank: float

    @cached_property
    def spec(self) -> JobSpec:
        """The job itself."""
        return JobSpec.of(json.loads(self.text))

    @property
    def need_memory(self) -> int:
        """The bytes that all processes of the job may use together."""
        return self.spec.need.memory

    @property
    def deadline(self) -> float | None:
        """When the job must have ended."""
        return None if self.spec.deadline is None else self.submitted + self.spec.deadline

    def as_dict(self) -> dict[str, Any]:
        """What clients see of it."""
        spec = self.spec
        return {
            "id": self.id, "user": self.user, "name": self.name, "state": self.state,
            "reason": self.reason, "stopping": bool(self.wanted), "submitted": self.submitted,
            "queued": self.queued, "started": self.started, "ended": self.ended, "run": self.run,
            "starts": self.starts, "exit": self.exit, "priority": spec.priority,
            "processes": spec.processes, "devices": spec.devices, "memory": spec.memory,
            "deadline": self.deadline,
        }  # fmt: skip
