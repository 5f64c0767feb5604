"""What users do with jobs: submit, look, stop, restart, resume. Who may do what is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from graphc._version import __version__
from graphc.cluster.jobs.records import STATES, Record
from graphc.cluster.jobs.runs import RunFolder
from graphc.cluster.jobs.scheduling import refusal
from graphc.cluster.jobs.service import JobService
from graphc.cluster.jobs.spec import JobSpec
from graphc.cluster.jobs.users import User
from graphc.errors import AttributeValueError

MOST_LISTED: Final = 200


class Actions:
    """The actions of one user. They see their own jobs, and an administrator sees all.

    Args:
        service: that runs the jobs.
        user: who acts.
    """

    def __init__(self, service: JobService, user: User) -> None:
        self._service, self._store, self._user = service, service.store, user
        self.owner = None if user.admin else user.name

    def submit(self, value: object, now: float) -> Record:
        """Queues a job.

        Raises:
            AttributeValueError: the job is not valid, names a file that the service may not use, or
                can never start.
            ClusterError: too many jobs of the user wait.
        """
        spec = JobSpec.of(value)
        self._service.roots.files_of(spec)
        quota = self._service.quota(self._user.name)
        why = refusal(spec.need, quota, self._service.capacity.total)
        if why is not None:
            raise AttributeValueError(f"the job can never start: {why}")
        number = self._store.submit(self._user.name, spec, now, quota.waiting)
        return self._store.get(number)

    def get(self, number: int) -> Record:
        """A job.

        Raises:
            UnknownNameError: there is none, or it belongs to somebody else.
        """
        return self._store.get(number, self.owner)

    def act(self, number: int, action: str, now: float) -> Record:
        """`stop`, `restart` (from the beginning) or `resume` (from the last checkpoint).

        Raises:
            UnknownNameError: there is no such job, or it belongs to somebody else.
            ClusterError: the job has already ended, or has not ended.
        """
        record = self.get(number)
        if action == "stop":
            self._store.stop(number, now)
        else:
            most = self._service.quota(record.user).waiting
            self._store.again(number, now, fresh=action == "restart", most=most)
        return self._store.get(number)

    def listed(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Jobs and their numbers.

        Args:
            query: `state` (names with commas), `before` (a job), `limit`.

        Raises:
            AttributeValueError: one of these is not valid.
        """
        states = [name for name in query.get("state", "").split(",") if name]
        for name in states:
            if name not in STATES:
                raise AttributeValueError(f"state must be one of {', '.join(STATES)}")
        before, limit = number_of(query, "before"), number_of(query, "limit") or 100
        jobs = self._store.jobs(self.owner, states, before, min(limit, MOST_LISTED))
        return {
            "jobs": [record.as_dict() for record in jobs],
            "counts": {state: 0 for state in STATES} | self._store.counts(self.owner),
        }

    def about(self) -> dict[str, Any]:
        """What the service is, and what this user may do."""
        quota = self._service.quota(self._user.name)
        return {
            "version": __version__,
            "user": self._user.name,
            "admin": self._user.admin,
            "capacity": self._service.capacity.total._asdict(),
            "gpus": len(self._service.capacity.gpus),
            "quota": {name: value for name, value in vars(quota).items() if value is not None},
            "problem": self._service.problem,
            "programs": self._service.roots.programs(),
        }

    def details(self, number: int) -> dict[str, Any]:
        """A job with all that it is.

        Raises:
            UnknownNameError: there is none, or it belongs to somebody else.
        """
        record = self.get(number)
        folder = self.folder(record)
        return record.as_dict() | {
            "spec": record.spec.as_dict(),
            "folder": str(folder.path),
            "tensorboard": f"tensorboard --logdir {folder.places.logs}",
        }

    def folder(self, record: Record) -> RunFolder:
        """The folder of the present run of a job."""
        return RunFolder.of(self._service.folder, record)


ACTIONS: Final[tuple[str, ...]] = ("stop", "restart", "resume")


def number_of(query: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """A number of a query, or None if it is not there.

    Raises:
        AttributeValueError: it is not a number.
    """
    text = query.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-") if least < 0 else text
    if not (digits.isascii() and digits.isdecimal()) or len(text) > 18:
        raise AttributeValueError(f"{name} must be a number, got {text[:40]!r}")
    return int(text)
