"""Which jobs start: a pure function of the queue, the running jobs and the limits.

A job starts when all of its processes, devices and memory are free at once (gang scheduling). Jobs
stand in the order of `rank`: one point of priority counts as much as ten minutes of waiting, so
each job becomes the first in the end. The first job that does not fit is the head. Jobs behind it
start only if they do not delay it:

- Either they leave room for it. The head and all jobs that have passed it fit together, so it
  starts at the latest when the jobs have ended that ran when it was queued or stood before it.
- Or it is known when it can start, and they have a time limit and end before that.

A job that its user's quota does not allow now waits without delaying other users. Later jobs of the
same user wait behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from graphc.cluster.jobs.spec import NOTHING, Need

AGING: Final = 600.0
"""Seconds of waiting that count as much as one point of priority."""


@dataclass(frozen=True)
class Quota:
    """What the running jobs of one user may take together; None is no limit.

    Attributes:
        jobs: how many may run.
        waiting: how many may wait.
    """

    processes: int | None = None
    devices: int | None = None
    memory: int | None = None
    jobs: int | None = None
    waiting: int | None = None

    def allows(self, need: Need, jobs: int = 1) -> bool:
        """Whether jobs that need so much together may run."""
        limits = (self.processes, self.devices, self.memory, self.jobs)
        return all(
            limit is None or value <= limit
            for limit, value in zip(limits, (*need, jobs), strict=True)
        )


@dataclass(frozen=True)
class Waiting:
    """A job of the queue.

    Attributes:
        since: when it was queued, in seconds.
        time_limit: how many seconds it may run; None is no limit.
    """

    id: int
    user: str
    need: Need
    since: float
    priority: int = 0
    time_limit: float | None = None

    @property
    def order(self) -> tuple[float, int]:
        """The first in this order starts first. It does not change while jobs wait."""
        return -rank(self.priority, self.since), self.id


@dataclass(frozen=True)
class Running:
    """A job that runs.

    Attributes:
        job: as it stood in the queue.
        started: when, in seconds.
    """

    job: Waiting
    started: float

    @property
    def ends(self) -> float:
        """When it will have ended at the latest; infinity if it has no time limit."""
        return math.inf if self.job.time_limit is None else self.started + self.job.time_limit


@dataclass(frozen=True)
class Limits:
    """What there is, and who may take how much of it."""

    capacity: Need
    quotas: Mapping[str, Quota] = field(default_factory=dict)

    def quota(self, user: str) -> Quota:
        """The quota of a user."""
        return self.quotas.get(user, _NO_QUOTA)


_NO_QUOTA: Final = Quota()


def rank(priority: int, since: float) -> float:
    """The place in the queue: a higher one starts earlier.

    Examples:
        >>> from graphc.cluster.jobs.scheduling import rank
        >>> rank(1, since=599.0) > rank(0, since=0.0), rank(1, since=601.0) > rank(0, since=0.0)
        (True, False)
    """
    return priority * AGING - since


def to_start(
    waiting: Iterable[Waiting], running: Sequence[Running], limits: Limits, now: float
) -> list[int]:
    """The jobs that start now, in order.

    Examples:
        >>> from graphc.cluster.jobs.scheduling import Limits, Waiting, to_start
        >>> from graphc.cluster.jobs.spec import Need
        >>> jobs = [Waiting(1, "ann", Need(2, 2, 0), 0.0), Waiting(2, "bob", Need(3, 3, 0), 1.0)]
        >>> to_start(jobs, [], Limits(Need(4, 4, 0)), now=2.0)
        [1]
    """
    active = list(running)
    free = limits.capacity - _total(active)
    head: Waiting | None = None
    taken: dict[str, list[Need]] = {}
    for each in active:
        taken.setdefault(each.job.user, []).append(each.job.need)
    held: set[str] = set()  # users that wait for their quotas
    found = []
    for job in sorted(waiting, key=lambda job: job.order):
        if free.processes < 1 or free.devices < 1:
            break  # each job needs one of both
        if job.user in held:
            continue
        own = [*taken.get(job.user, ()), job.need]
        if not limits.quota(job.user).allows(_sum(own), len(own)):
            held.add(job.user)
        elif not job.need.fits(free):
            head = head or job
        elif head is None or _is_harmless(job, head, active, limits.capacity, now):
            active.append(Running(job, now))
            taken[job.user] = own
            free = free - job.need
            found.append(job.id)
    return found


def refusal(need: Need, quota: Quota, capacity: Need) -> str | None:
    """Why a job can never start, or None."""
    names = {"processes": "processes", "devices": "devices", "memory": "bytes of memory"}
    for place, (key, name) in enumerate(names.items()):
        if need[place] > capacity[place]:
            return f"it needs {need[place]} {name}, and the service has {capacity[place]}"
        allowed = getattr(quota, key)
        if allowed is not None and need[place] > allowed:
            return f"it needs {need[place]} {name}, and the quota is {allowed}"
    return "the quota is 0 jobs" if quota.jobs == 0 else None


def _total(jobs: Iterable[Running]) -> Need:
    return _sum(each.job.need for each in jobs)


def _sum(needs: Iterable[Need]) -> Need:
    return sum(needs, start=NOTHING)


def _is_harmless(
    job: Waiting, head: Waiting, active: Sequence[Running], capacity: Need, now: float
) -> bool:
    """Whether the head starts in time though this job starts before it."""
    passed = [r for r in active if r.started >= head.since and r.job.order > head.order]
    if (_total(passed) + job.need + head.need).fits(capacity):
        return True
    start = _start_of(head, active, capacity)
    return job.time_limit is not None and now + job.time_limit <= start < math.inf


def _start_of(head: Waiting, active: Sequence[Running], capacity: Need) -> float:
    """When the head can start, at the latest; infinity if jobs without a time limit are in its
    way."""
    free = capacity - _total(active)
    for each in sorted(active, key=lambda each: each.ends):
        free = free + each.job.need
        if head.need.fits(free):
            return each.ends
    return math.inf
