"""When batches are released, and the result of each request."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from graphc.serving.batching.batcher import Batcher, BatchReport
from graphc.serving.config import BatchingConfig
from graphc.web.failures import Failure
from tests.serving.batching.rig import AXES, Rig, rows, values


def test_idle() -> None:
    rig = Rig()
    first, second = rig.submit(rows(1, 2)), rig.submit(rows(3))
    rig.now = 0.25
    assert rig.batcher.run_ready() and not rig.batcher.run_ready()
    assert values(first) == [10, 20] and values(second) == [30]
    assert first.result()["one"] == 1
    assert rig.last() == (3, 4, 2, "idle")
    assert rig.reports[0].waited == 0.25 and not rig.reports[0].failed
    np.testing.assert_array_equal(rig.given[0]["x"][:, 0], [1, 2, 3, 0])


def test_full() -> None:
    rig = Rig()

    def while_busy() -> None:
        futures = [rig.submit(rows(i)) for i in range(3)]
        assert not rig.batcher.run_ready()
        futures.append(rig.submit(rows(3)))
        assert rig.batcher.run_ready()
        assert [values(f) for f in futures] == [[0], [10], [20], [30]]

    rig.busy(while_busy)
    assert rig.last() == (4, 4, 4, "full")


def test_full_because_the_next_does_not_fit() -> None:
    rig = Rig()
    found = []

    def while_busy() -> None:
        rig.submit(rows(1, 2, 3))
        assert not rig.batcher.run_ready()
        rig.submit(rows(4, 5))
        assert rig.batcher.run_ready()
        found.append(rig.last())
        assert not rig.batcher.run_ready()

    rig.busy(while_busy)
    assert found == [(3, 4, 1, "full")]
    assert rig.batcher.run_ready() and rig.last() == (2, 2, 1, "idle")


def test_timeout_of_the_oldest() -> None:
    rig = Rig()
    found = []

    def while_busy() -> None:
        rig.submit(rows(1))
        rig.now = 0.9
        rig.submit(rows(2))
        assert not rig.batcher.run_ready()
        rig.now = 1.0
        assert rig.batcher.run_ready()
        found.append(rig.last())

    rig.busy(while_busy)
    assert found == [(2, 2, 2, "timeout")]


def test_a_deadline_releases_a_batch_halfway() -> None:
    rig = Rig()
    found = []

    def while_busy() -> None:
        rig.submit(rows(1))
        rig.submit(rows(2), deadline=0.5)
        rig.now = 0.24
        assert not rig.batcher.run_ready()
        rig.now = 0.25
        assert rig.batcher.run_ready()
        found.append(rig.last())

    rig.busy(while_busy)
    assert found == [(2, 2, 2, "timeout")]


def test_closing() -> None:
    rig = Rig()
    future = rig.submit(rows(1))
    rig.batcher.close()
    assert values(future) == [10] and rig.last() == (1, 1, 1, "closing")
    with pytest.raises(Failure, match="UNAVAILABLE"):
        rig.submit(rows(1))


def test_too_many_batches() -> None:
    rig = Rig(max_enqueued_batches=2)
    for _ in range(8):
        rig.submit(rows(1))
    with pytest.raises(Failure, match="2 of at most 2 batches wait") as caught:
        rig.submit(rows(1))
    assert caught.value.code == "UNAVAILABLE"
    rig.batcher.run_ready()
    rig.submit(rows(1, 2))
    with pytest.raises(Failure):  # a request succeeds or fails as a whole
        rig.submit(rows(*range(6)))
    assert len(rig.batcher._waiting) == 2


def test_a_cancelled_request_makes_room() -> None:
    rig = Rig(max_enqueued_batches=1)
    gone, kept = rig.submit(rows(1, 2, 3)), rig.submit(rows(4))
    assert gone.cancel()
    more = rig.submit(rows(5))
    with pytest.raises(CancelledError):
        gone.result(0)
    assert rig.batcher.run_ready() and rig.last() == (2, 2, 2, "idle")
    assert values(kept) == [40] and values(more) == [50]


def test_only_cancelled_requests() -> None:
    rig = Rig()
    rig.submit(rows(1)).cancel()
    assert not rig.batcher.run_ready() and not rig.reports


def test_a_request_that_runs_cannot_be_cancelled() -> None:
    rig = Rig()
    futures = []
    rig.then.append(lambda: futures.append(futures[0].cancel()))
    futures.append(rig.submit(rows(1)))
    rig.batcher.run_ready()
    assert futures[1] is False and values(futures[0]) == [10]


def test_arrays_are_free_when_the_result_is_there() -> None:
    """Reference counts free the arrays: a busy server must not wait for the garbage collector."""
    rig = Rig()
    rig.batcher._run = lambda inputs: {"y": inputs["x"] * 10, "one": 1}
    gc.collect()
    gc.disable()
    try:
        for count in (1, 3, 9):
            inputs = rows(*range(count))
            seen = weakref.ref(inputs["x"])
            future = rig.submit(inputs)
            del inputs
            while rig.batcher.run_ready():
                pass
            assert len(values(future)) == count and seen() is None
    finally:
        gc.enable()


def test_deadlines() -> None:
    rig = Rig()
    late, good = rig.submit(rows(1), deadline=1.0), rig.submit(rows(2), deadline=3.0)
    rig.now = 1.0
    rig.batcher.run_ready()
    with pytest.raises(Failure, match="DEADLINE_EXCEEDED"):
        late.result(0)
    assert values(good) == [20] and rig.last()[0] == 1
    with pytest.raises(Failure, match="DEADLINE_EXCEEDED"):
        rig.submit(rows(1), deadline=0.5)


@pytest.mark.parametrize("error", [Failure("RESOURCE_EXHAUSTED", "memory"), ValueError("/secret")])
def test_a_failing_batch_fails_its_own_requests_only(error: Exception) -> None:
    rig = Rig()

    def fail() -> None:
        raise error

    rig.then.append(fail)
    bad = [rig.submit(rows(1, 2)), rig.submit(rows(3, 4))]
    good = rig.submit(rows(5))
    while rig.batcher.run_ready():
        pass
    for future in bad:
        caught = future.exception(0)
        assert isinstance(caught, Failure) and "/secret" not in str(caught)
        assert caught.code == (error.code if isinstance(error, Failure) else "INTERNAL")
    assert values(good) == [50]
    assert [r.failed for r in rig.reports] == [True, False]


def test_a_failing_piece_drops_the_others() -> None:
    rig = Rig()

    def fail() -> None:
        raise Failure("INTERNAL", "broken")

    rig.then.append(fail)
    bad, good = rig.submit(rows(*range(9))), rig.submit(rows(5))
    while rig.batcher.run_ready():
        pass
    assert isinstance(bad.exception(0), Failure) and values(good) == [50]
    assert [(r.rows, r.failed) for r in rig.reports] == [(4, True), (1, False)]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'x' is missing"),
        (rows(1) | {"z": np.zeros(1)}, "'z' is not an input"),
        ({"x": np.zeros((1, 2))}, "must be float32, got float64"),
        ({"x": np.zeros((1, 3), np.float32)}, "3"),
        ({"x": np.zeros(2, np.float32)}, "rank 2, got rank 1"),
        ({"x": np.zeros((0, 2), np.float32)}, "'n' is 0"),
    ],
)
def test_invalid_requests_join_nothing(inputs, message: str) -> None:
    rig = Rig()
    good = rig.submit(rows(1))
    with pytest.raises(Failure, match="INVALID_ARGUMENT") as caught:
        rig.submit(inputs)
    assert message in caught.value.message
    rig.batcher.run_ready()
    assert values(good) == [10]


def test_a_failing_observer_loses_no_result() -> None:
    rig = Rig()

    def broken(report: BatchReport) -> None:
        raise ValueError("observer")

    rig.batcher._observe = broken
    future = rig.submit(rows(1))
    with pytest.raises(ValueError, match="observer"):
        rig.batcher.run_ready()
    assert values(future) == [10] and rig.batcher._running == 0


def test_threads() -> None:
    """32 threads submit requests of random sizes; each gets the results of its own rows."""
    reports: list[BatchReport] = []
    batcher = Batcher(
        lambda inputs: {"y": inputs["x"] * 10, "one": np.float32(1)},
        AXES,
        BatchingConfig(max_batch_size=8, max_enqueued_batches=1000, batch_timeout_micros=500),
        reports.append,
    )
    wrong: list[Any] = []

    def client(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            x = rng.standard_normal((int(rng.integers(1, 20)), 2)).astype(np.float32)
            future = batcher.submit({"x": x})
            if rng.random() < 0.1 and future.cancel():
                continue
            try:
                np.testing.assert_array_equal(future.result(60)["y"], x * 10)
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert not wrong
    assert all(1 <= r.rows <= r.padded_to <= 8 for r in reports)
    assert not len(batcher._waiting) and batcher._running == 0
