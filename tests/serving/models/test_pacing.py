"""A thread that loads leaves the cores to requests, while there are any."""

import threading
import time
from pathlib import Path

import pytest

from graphc.serving.config import ModelConfig
from graphc.serving.models import pacing
from graphc.serving.models.pacing import Pace
from tests.serving.models.asked import check
from tests.serving.models.saved import put


class Clock:
    """`time` for the pace: it stands still, except for the work of a test. A rest takes no time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rests: list[tuple[str, float]] = []

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.rests.append((threading.current_thread().name, seconds))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pacing, "time", made)
    return made


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """The names of the threads that rested, and for how long, by the time of the machine."""
    made = Clock()
    monkeypatch.setattr(made, "monotonic", time.monotonic)
    monkeypatch.setattr(made, "thread_time", time.thread_time)
    monkeypatch.setattr(pacing, "time", made)
    return made.rests


def test_it_rests_as_long_as_it_worked(clock: Clock) -> None:
    pace = Pace()
    pace.requested()
    with pace.loading():
        clock.now += 0.003
        pace()
        pace()  # nothing was done since
    assert clock.rests == [(threading.current_thread().name, 0.003)]


def test_long_work_does_not_lead_to_long_rests(clock: Clock) -> None:
    pace = Pace()
    pace.requested()
    with pace.loading():
        clock.now += 0.03
        pace()
    assert [seconds for _, seconds in clock.rests] == [0.01]


def test_it_does_not_rest_without_requests(clock: Clock) -> None:
    pace = Pace()
    with pace.loading():
        clock.now += 0.001
        pace()
        assert clock.rests == []
        pace.requested()
        clock.now += 0.11  # the last request was long ago
        pace()
    assert clock.rests == []


def test_only_the_thread_that_loads_rests(clock: Clock) -> None:
    pace = Pace()
    pace.requested()

    def work() -> None:
        clock.now += 0.001
        pace()

    with pace.loading():
        other = threading.Thread(target=work)
        other.start()
        other.join()
    work()
    assert clock.rests == []


def test_the_manager_rests_at_a_reload_between_requests(
    tmp_path: Path, managing, rests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "_SHORTEST", 0.0)  # the files are small
    monkeypatch.setattr(pacing, "_RECENT", 60.0)
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    assert rests == []
    check(manager, 1)
    put(tmp_path, 2, 2)
    manager.poll()
    check(manager, 2)
    assert len(rests) >= 3  # the manifest, the program and the weights
    assert all(name.startswith("graphc-load") for name, _ in rests)
