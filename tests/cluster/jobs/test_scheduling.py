"""Which jobs start: gangs, priorities, quotas, and that no job waits forever."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.cluster.jobs.scheduling import (
    AGING,
    Limits,
    Quota,
    Running,
    Waiting,
    refusal,
    to_start,
)
from graphc.cluster.jobs.spec import NOTHING, Need

FOUR = Limits(Need(4, 4, 100))


def job(id: int, size: int = 1, since: float = 0.0, **more) -> Waiting:
    return Waiting(id, more.pop("user", "ann"), Need(size, size, 0), since, **more)


def runs(id: int, size: int, started: float = -1.0, limit: float | None = None, **more) -> Running:
    waited = job(id, size, more.pop("since", -5.0), user=more.pop("user", "bob"), time_limit=limit)
    return Running(waited, started)


def test_a_job_starts_only_as_a_whole() -> None:
    assert to_start([job(1, 3)], [runs(9, 2)], FOUR, 0.0) == []
    assert to_start([job(1, 2)], [runs(9, 2)], FOUR, 0.0) == [1]


def test_each_resource_limits() -> None:
    for need in (Need(5, 1, 0), Need(1, 5, 0), Need(1, 1, 101)):
        assert to_start([Waiting(1, "ann", need, 0.0)], [], FOUR, 0.0) == []


def test_the_order_is_that_of_submission_and_priority() -> None:
    queue = [job(1), job(2), job(3, priority=1), job(4, since=-1.0)]
    assert to_start(queue, [], FOUR, 0.0) == [3, 4, 1, 2]


def test_waiting_counts_like_priority() -> None:
    queue = [job(1, 4, since=0.0), job(2, 4, since=AGING - 1, priority=1)]
    assert to_start(queue, [], FOUR, AGING) == [2]
    queue[1] = replace(queue[1], since=AGING + 1)
    assert to_start(queue, [], FOUR, AGING + 1) == [1]


def test_small_jobs_do_not_pass_a_large_one_forever() -> None:
    queue = [job(1, 4, since=0.0), job(2, 1, since=1.0)]
    assert to_start(queue, [runs(9, 2)], FOUR, 2.0) == []


def test_small_jobs_pass_a_large_one_where_they_leave_it_room() -> None:
    queue = [job(1, 3, since=0.0), job(2, 1, since=1.0), job(3, 1, since=2.0)]
    assert to_start(queue, [runs(9, 2)], FOUR, 3.0) == [2]
    assert (
        to_start(queue[:1] + queue[2:], [runs(9, 2), runs(2, 1, 3.0, since=1.0)], FOUR, 4.0) == []
    )
    assert to_start(queue[:1], [runs(2, 1, 3.0, since=1.0)], FOUR, 5.0) == [1]


def test_jobs_that_stood_before_the_head_have_not_passed_it() -> None:
    ahead = runs(9, 3, started=5.0, since=-1.0)
    assert to_start([job(1, 2, since=0.0), job(2, 1, since=1.0)], [ahead], FOUR, 6.0) == [2]


def test_short_jobs_pass_a_large_one_that_cannot_start_yet() -> None:
    running = [runs(9, 2, started=0.0, limit=100.0)]
    short, long = job(2, time_limit=50.0), job(3, time_limit=120.0)
    assert to_start([job(1, 4, since=-0.5), short, long], running, FOUR, 10.0) == [2]
    unlimited = [runs(9, 2)]  # its end is unknown, so any start may delay job 1
    assert to_start([job(1, 4, since=-0.5), short], unlimited, FOUR, 10.0) == []
    assert to_start([job(1, 4, since=-0.5), job(2)], unlimited, FOUR, 10.0) == []


def test_quotas() -> None:
    limits = Limits(FOUR.capacity, {"ann": Quota(devices=2), "bob": Quota(jobs=1)})
    queue = [job(1), job(2), job(3), *(job(i, user="bob") for i in (4, 5))]
    assert to_start(queue, [], limits, 0.0) == [1, 2, 4]
    assert to_start(queue, [runs(9, 2, user="ann")], limits, 0.0) == [4]


def test_a_quota_delays_nobody_else_and_is_kept_in_order() -> None:
    limits = Limits(FOUR.capacity, {"ann": Quota(devices=2)})
    queue = [job(1, 2), job(2, 1), job(3, 1, user="bob")]
    assert to_start(queue, [runs(9, 1, user="ann")], limits, 0.0) == [3]


def test_what_can_never_start() -> None:
    capacity = FOUR.capacity
    assert refusal(Need(4, 4, 100), Quota(), capacity) is None
    assert "needs 5 devices, and the service has 4" in str(
        refusal(Need(1, 5, 0), Quota(), capacity)
    )
    assert "the quota is 1" in str(refusal(Need(2, 2, 0), Quota(processes=1), capacity))
    assert "quota is 0 jobs" in str(refusal(Need(1, 1, 0), Quota(jobs=0), capacity))


# -- a simulation of random days -------------------------------------------------------------------


@dataclass
class Day:
    """A queue over time. Started jobs end after their durations."""

    limits: Limits
    durations: dict[int, float]
    waiting: list[Waiting] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    started: dict[int, float] = field(default_factory=dict)

    def at(self, now: float) -> None:
        self.running = [r for r in self.running if r.started + self.durations[r.job.id] > now]
        found = to_start(self.waiting, self.running, self.limits, now)
        assert len(set(found)) == len(found)
        by_id = {each.id: each for each in self.waiting}
        for number in found:
            each = by_id[number]
            self.waiting.remove(each)
            self.started[number] = now
            self.running.append(Running(each, now))
        self.check()
        self.check_order(now)

    def check(self) -> None:
        """Checks that the limits hold."""
        assert total(self.running).fits(self.limits.capacity)
        for user, quota in self.limits.quotas.items():
            own = [r for r in self.running if r.job.user == user]
            assert quota.allows(total(own), len(own))

    def check_order(self, now: float) -> None:
        """Checks that the first job waits only if it does not fit or its quota forbids it."""
        if self.waiting:
            first = min(self.waiting, key=lambda each: each.order)
            own = [r for r in self.running if r.job.user == first.user]
            allowed = self.limits.quota(first.user).allows(total(own) + first.need, len(own) + 1)
            free = self.limits.capacity - total(self.running)
            assert not (first.need.fits(free) and allowed)


def total(jobs: list[Running]) -> Need:
    return sum((each.job.need for each in jobs), start=NOTHING)


@st.composite
def days(draw) -> tuple[Limits, list[tuple[Waiting, float]]]:
    capacity = Need(draw(st.integers(1, 6)), draw(st.integers(1, 8)), 100)
    quota = st.builds(
        Quota, devices=st.none() | st.integers(1, 4), jobs=st.none() | st.integers(1, 3)
    )
    limits = Limits(capacity, {"ann": draw(quota), "bob": draw(quota)})
    jobs = []
    for number in range(draw(st.integers(1, 25))):
        user = draw(st.sampled_from(["ann", "bob", "eve"]))
        need = Need(
            draw(st.integers(1, capacity.processes)), draw(st.integers(1, capacity.devices)),
            draw(st.sampled_from([0, 0, 50, 100])),
        )  # fmt: skip
        duration = draw(st.integers(1, 50))
        limit = draw(st.none() | st.just(float(duration)) | st.just(2.0 * duration))
        waiting = Waiting(
            number, user, need, draw(st.integers(0, 60)), draw(st.integers(-2, 2)), limit
        )
        if refusal(need, limits.quota(user), capacity) is None:
            jobs.append((waiting, float(duration)))
    return limits, jobs


@settings(max_examples=50, deadline=None)
@given(days())
def test_random_days(day) -> None:
    """Limits and order hold at every moment, and every job starts."""
    limits, jobs = day
    simulated = Day(limits, {each.id: duration for each, duration in jobs})
    now = 0.0
    while len(simulated.started) < len(jobs):
        simulated.waiting += [each for each, _ in jobs if each.since == now]
        simulated.at(now)
        now += 1.0
        assert now < 100 + sum(duration for _, duration in jobs), "a job waits forever"


@pytest.mark.parametrize("limit", [None, 10.0])
def test_a_large_job_starts_under_a_stream_of_small_ones(limit: float | None) -> None:
    """Every second brings small jobs with a higher priority, more than the machine can run."""
    durations = dict.fromkeys(range(100_000), 10.0) | {0: 5.0}
    day = Day(FOUR, durations, [job(0, 4, since=0.0, time_limit=limit)])
    for second in range(3000):
        now = float(second)
        # The rule costs time for each waiting job, so the stream is only as long as necessary.
        if len(day.waiting) < 40:
            base = second * 2 + 1
            day.waiting += [job(base + i, 1, since=now, priority=2, time_limit=limit)
                            for i in range(2)]  # fmt: skip
        day.at(now)
        if 0 in day.started:
            break
    assert day.started[0] <= 2 * AGING + 200
    assert len(day.started) > 300  # the small ones ran before
