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


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """The names of the threads that rested, and for how long."""
    found: list[tuple[str, float]] = []

    class Clock:
        """`time`, in which a rest takes no time."""

        monotonic, thread_time = time.monotonic, time.thread_time

        @staticmethod
        def sleep(seconds: float) -> None:
            found.append((threading.current_thread().name, seconds))

    monkeypatch.setattr(pacing, "time", Clock)
    return found


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_it_rests_as_long_as_it_worked(rests) -> None:
    pace = Pace()
    pace.requested()
    with pace.loading():
        work(0.003)
        pace()
        pace()  # nothing was done since
    assert len(rests) == 1
    assert 0.003 <= rests[0][1] < 0.006


def test_long_work_does_not_lead_to_long_rests(rests) -> None:
    pace = Pace()
    pace.requested()
    with pace.loading():
        work(0.03)
        pace()
    assert [seconds for _, seconds in rests] == [0.01]


def test_it_does_not_rest_without_requests(rests) -> None:
    pace = Pace()
    with pace.loading():
        work(0.001)
        pace()
        assert rests == []
        pace.requested()
        time.sleep(0.11)  # the last request was long ago
        work(0.001)
        pace()
    assert rests == []


def test_only_the_thread_that_loads_rests(rests) -> None:
    pace = Pace()
    pace.requested()
    with pace.loading():
        other = threading.Thread(target=lambda: (work(0.001), pace()))
        other.start()
        other.join()
    work(0.001)
    pace()
    assert rests == []


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
