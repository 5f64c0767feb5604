"""`map` with threads and processes: order, exact counts, errors, deaths, and shutdown."""

from __future__ import annotations

import contextlib
import gc as garbage
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, DataError, StateError
from tests.data import workers_functions as functions

ROOT = Path(__file__).parents[2]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def left() -> list[Any]:
    names = ("graphc-data", "graphc-prefetch")
    threads = [t for t in threading.enumerate() if t.name in names]
    return [*threads, *multiprocessing.active_children()]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    if left():
        garbage.collect()
        until(lambda: not left())


def numbers(n: int = 20) -> gc.data.Pipeline:
    return gc.data.from_iterable(list(range(n)))


# -- threads --------------------------------------------------------------------------------------


def test_results_come_in_order_whatever_the_threads_take() -> None:
    def slow(x: int) -> int:
        time.sleep(0.002 * (x % 3))
        return x

    assert list(numbers().map(slow, workers=4)) == list(range(20))


def test_threads_work_at_the_same_time_and_stay_within_their_window() -> None:
    lock, running, most = threading.Lock(), 0, 0
    begun: list[int] = []
    together = threading.Barrier(3, timeout=120)

    def watched(x: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            begun.append(x)
        if x < 3:
            together.wait()  # waits for two other calls
        with lock:
            running -= 1
        return x

    with iter(numbers(100).map(watched, workers=3)) as items:
        assert next(items) == 0
        until(lambda: len(begun) >= 6 and running == 0)
        time.sleep(0.05)  # time for calls that must not start
        assert most == 3
        assert max(begun) < 7  # each worker reads two items ahead


def test_random_numbers_do_not_depend_on_the_workers() -> None:
    plain = numbers().shuffle(seed=2).map(functions.add_noise, seed=7).repeat(2)
    threads = numbers().shuffle(seed=2).map(functions.add_noise, seed=7, workers=3).repeat(2)
    values = list(plain)
    assert list(threads) == values
    assert len(set(values)) == 40  # each epoch has other numbers


def test_an_error_comes_after_the_items_before_it_and_again() -> None:
    pipeline = numbers().map(functions.fails_at_5, workers=3)
    items = iter(pipeline)
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    position = items.state()
    for _ in range(2):
        with pytest.raises(ValueError, match="five is odd") as caught:
            next(items)
        notes = "\n".join(caught.value.__notes__)
        assert "in map(fails_at_5) of a pipeline at test_workers.py:" in notes
        assert "item 5: record 5 of from_iterable" in notes
    assert items.state() == position
    items.close()


def test_an_error_of_the_source_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield from range(3)
        raise OSError("the disk is gone")

    items = iter(gc.data.from_generator(broken).map(functions.square, workers=4))
    assert [next(items) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    items.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stop_iteration_of_the_users_does_not_end_the_pipeline(workers: int) -> None:
    empty: Iterator[int] = iter(())
    with pytest.raises(DataError, match="raised StopIteration"):
        list(numbers().map(lambda x: next(empty), workers=workers))


def test_a_state_does_not_depend_on_the_workers() -> None:
    inline, threads = (numbers().map(functions.square, workers=n) for n in (0, 3))
    for first, second in ((inline, threads), (threads, inline)):
        with iter(first) as items:
            taken = [next(items) for _ in range(7)]
            state = json.loads(json.dumps(items.state()))
        with iter(second) as items:
            items.restore(state)
            assert taken + list(items) == [x * x for x in range(20)]


def test_an_iterator_that_nobody_has_any_more_ends_its_threads() -> None:
    items = iter(numbers().map(functions.square, workers=2).prefetch("/cpu:0").repeat())
    next(items)
    assert left()
    del items
    garbage.collect()
    until(lambda: not left())


def test_several_threads_share_an_iterator() -> None:
    items = iter(numbers(200).map(functions.square, workers=2))
    found: list[int] = []

    def read() -> None:
        for item in items:
            found.append(item)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(found) == [x * x for x in range(200)]


def test_an_interrupt_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def interrupted(x: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return x

    for pipeline in (
        numbers().map(interrupted),
        numbers().shuffle(5).map(interrupted).batch(2),
        numbers().map(interrupted, workers=2).prefetch("/cpu:0"),
    ):
        calls = 10
        want = [np.asarray(item).tolist() for item in pipeline]
        calls = 0
        found: list[Any] = []
        with iter(pipeline) as items:
            while True:
                try:
                    item = next(items, None)
                except KeyboardInterrupt:
                    assert not left()  # nothing runs until the next call
                    continue
                if item is None:
                    break
                found.append(np.asarray(item).tolist())
        assert found == want


def test_wrong_arguments() -> None:
    with pytest.raises(AttributeValueError, match="map: workers must be an int"):
        numbers().map(functions.square, workers=-1)
    with pytest.raises(AttributeValueError, match="processes=True without workers"):
        numbers().map(functions.square, processes=True)
    with pytest.raises(AttributeValueError, match="map takes a function, got int"):
        numbers().map(3)
    with pytest.raises(DataError, match="cannot be sent to a worker process") as caught:
        numbers().map(lambda x: x, workers=1, processes=True)
    assert "top level of a module" in str(caught.value) and "test_workers.py" in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_forked_child_is_told_that_it_has_no_threads() -> None:
    with iter(numbers().map(functions.square, workers=2)) as items:
        next(items)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                next(items)
            except StateError as error:
                os.write(writing, error.what.encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert b"before this process was forked" in os.read(reading, 1000)
        os.close(reading)
        assert next(items) == 1


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_work_in_order_and_their_number_does_not_matter() -> None:
    with iter(numbers(10).map(functions.process_of, workers=2, processes=True)) as items:
        found = list(items)
    assert len(set(found)) <= 2 and os.getpid() not in found
    noisy = numbers(10).map(functions.add_noise, seed=3)
    in_processes = numbers(10).map(functions.add_noise, seed=3, workers=2, processes=True)
    assert list(in_processes) == list(noisy)


@pytest.mark.slow
def test_positions_with_processes_are_those_without() -> None:
    pipeline = numbers().shuffle(6, seed=1)
    plain = pipeline.map(functions.add_noise, seed=3).batch(3)
    processes = pipeline.map(functions.add_noise, seed=3, workers=2, processes=True).batch(3)
    want = [batch.tolist() for batch in plain]
    with iter(processes.prefetch("/cpu:0")) as items:
        next(items), next(items)
        state = json.loads(json.dumps(items.state()))
    for again in (plain, processes):
        with iter(again) as items:
            items.restore(state)
            assert [batch.tolist() for batch in items] == want[2:]


@pytest.mark.slow
def test_arrays_travel_whole() -> None:
    for x, item in enumerate(numbers(4).map(functions.large, workers=2, processes=True)):
        np.testing.assert_array_equal(item["a"], np.full((300, 300), x))
        assert item["b"].tolist() == [0, 1, 2] and item["c"].shape == (0,)
        item["a"][0] = 7  # the reader owns this memory


@pytest.mark.slow
def test_a_dead_process_is_replaced_and_no_record_is_lost(tmp_path: Path) -> None:
    dies = functions.DiesAt(6, 2, tmp_path)
    assert list(numbers().map(dies, workers=2, processes=True)) == [10 * x for x in range(20)]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_processes_that_are_killed_from_outside_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    with iter(numbers(300).map(functions.square, workers=2, processes=True)) as items:
        found = [next(items)]
        for _ in range(6):
            found += [next(items) for _ in range(20)]
            children = multiprocessing.active_children()
            os.kill(children[rng.integers(len(children))].pid, signal.SIGKILL)
        found += list(items)
    assert found == [x * x for x in range(300)]


@pytest.mark.slow
def test_a_record_that_kills_every_process_is_an_error_with_its_name(tmp_path: Path) -> None:
    items = iter(numbers().map(functions.DiesAt(3, 99, tmp_path), workers=2, processes=True))
    assert [next(items) for _ in range(3)] == [0, 10, 20]
    with pytest.raises(DataError, match="died 3 times while it computed one record") as caught:
        next(items)
    assert "signal 9 (SIGKILL)" in str(caught.value)
    assert "item 3: record 3 of from_iterable" in caught.value.__notes__[0]
    assert not left()
    items.close()


@pytest.mark.slow
def test_errors_of_processes() -> None:
    items = iter(numbers().map(functions.fails_at_5, workers=2, processes=True))
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five is odd") as caught:
        next(items)
    assert any("in fails_at_5" in note for note in caught.value.__notes__)  # the workers' traceback
    for function, text in (
        (functions.raises_unpicklable, "Unpicklable: two arguments"),
        (functions.returns_a_generator, "cannot pickle 'generator' object"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=text):
            next(iter(numbers().map(function, workers=1, processes=True)))
    items.close()


@pytest.mark.slow
def test_closing_does_not_wait_for_a_process_that_sleeps() -> None:
    items = iter(numbers().map(functions.sleeps, workers=2, processes=True))

    def wait() -> None:
        with contextlib.suppress(Exception):
            next(items)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    until(lambda: len(multiprocessing.active_children()) == 2)
    start = time.monotonic()
    items._open.close()  # `close` waits for the call in the other thread
    assert time.monotonic() - start < 300  # the function sleeps for 600 seconds
    thread.join(120)
    assert not thread.is_alive()
