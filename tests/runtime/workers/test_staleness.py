"""The protocol that bounds the staleness of updates, tested without threads."""

from __future__ import annotations

import random

import pytest

from graphc.runtime.workers.staleness import Staleness


@pytest.mark.parametrize("bound", [0, 1, 2, 3, 7, None])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_one_worker_can_always_continue_and_none_is_too_stale(
    bound: int | None, workers: int
) -> None:
    """Tries random orders of the operations that the protocol allows."""
    rng = random.Random(0)
    for _ in range(30):
        protocol = Staleness(bound)
        doing = ["away"] * workers
        worst, started = 0, dict.fromkeys(range(workers), 0)
        for _ in range(60):
            possible = [(w, "leave") for w in range(workers) if doing[w] == "reading"]
            if protocol.admits():
                possible += [(w, "read") for w in range(workers) if doing[w] == "away"]
            going_on = len(possible)
            applying = [w for w in range(workers) if doing[w] == "reading"]
            possible += [(w, "apply") for w in applying if protocol.may_apply(w)]
            if applying:
                assert len(possible) > going_on, "all wait to apply"
            weights = [1 if what == "leave" else 8 for _, what in possible]
            ((worker, what),) = rng.choices(possible, weights)
            if what == "read":
                protocol.read(worker)
                doing[worker], started[worker] = "reading", protocol.version
                continue
            doing[worker] = "away"
            if what == "leave":
                protocol.leave(worker)
                continue
            staleness = protocol.apply(worker)
            assert staleness == protocol.version - 1 - started[worker]
            worst = max(worst, staleness)
        assert bound is None or worst <= bound
    if workers > 1 and bound != 0:
        assert worst > 0  # workers do run concurrently


def test_with_enough_room_no_reader_waits() -> None:
    protocol = Staleness(2)
    for worker in range(3):
        assert protocol.admits()
        protocol.read(worker)
    assert not protocol.admits()
    assert [protocol.may_apply(worker) for worker in range(3)] == [True, True, True]
    assert protocol.apply(2) == 0
    assert [protocol.may_apply(worker) for worker in range(2)] == [True, True]
    protocol.read(2)
    assert not protocol.may_apply(2)  # otherwise worker 0 or worker 1 would exceed the bound
    assert protocol.apply(0) == 1 and protocol.apply(1) == 2
