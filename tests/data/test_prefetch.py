"""`prefetch`: order, limit, errors, its end, and the devices of the batches."""

from __future__ import annotations

import gc as garbage
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.data import pump
from graphc.errors import (
    AttributeValueError,
    DeviceError,
    FeedError,
)

ROWS = 8


def until(true: Callable[[], bool]) -> None:
    """Waits until a thread has made the condition true."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def at_rest() -> int:
    """The number of live arrays, after garbage of other tests was collected."""
    garbage.collect()
    return alive()


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "graphc-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    if threads():
        garbage.collect()
        until(lambda: not threads())


class Source:
    """A generator of numbers as arrays, which records its calls."""

    def __init__(self, count: int, fails: bool = False) -> None:
        self.count, self.fails = count, fails
        self.read = 0
        self.closed_in = ""

    def __iter__(self) -> Iterator[Any]:
        try:
            for i in range(self.count):
                self.read += 1
                yield np.full(5, i, np.int32)
            if self.fails:
                raise OSError("the disk is gone")
        finally:
            self.closed_in = threading.current_thread().name


def first(arrays: Any) -> list[int]:
    return [int(array[0]) for array in arrays]


def alive(shape: tuple[int, ...] = (5,)) -> int:
    return sum(array.shape == shape for array in jax.live_arrays())


# -- order and limit ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 50])
def test_every_batch_comes_once_and_in_order(size: int) -> None:
    stream = gc.data.prefetch(Source(20), size=size)
    assert iter(stream) is stream
    assert first(stream) == list(range(20))
    with pytest.raises(StopIteration):
        next(stream)
    assert first(gc.data.prefetch([np.zeros(1), np.ones(1)])) == [0, 1]
    assert list(gc.data.prefetch([])) == []


@pytest.mark.parametrize("size", [1, 3])
def test_no_more_than_size_batches_are_read_and_not_taken(size: int) -> None:
    before = at_rest()
    source = Source(40)
    with gc.data.prefetch(source, size=size) as stream:
        for taken in range(12):
            until(lambda taken=taken: source.read == taken + size)
            time.sleep(0.002)
            assert source.read == taken + size
            assert alive() - before <= size
            next(stream)
    assert at_rest() == before


def test_several_consumers_share_the_batches() -> None:
    stream = gc.data.prefetch(Source(200, fails=True), size=3)
    taken: list[list[int]] = [[] for _ in range(4)]
    errors: list[BaseException] = []

    def consume(mine: list[int]) -> None:
        try:
            for batch in stream:
                mine.append(int(batch[0]))
        except OSError as error:
            errors.append(error)

    workers = [threading.Thread(target=consume, args=(mine,)) for mine in taken]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    assert sorted(i for mine in taken for i in mine) == list(range(200))
    assert all(mine == sorted(mine) for mine in taken)
    assert len(errors) == 1


# -- errors ---------------------------------------------------------------------------------


def test_an_error_of_the_source_comes_after_the_batches_before_it() -> None:
    source = Source(3, fails=True)
    stream = gc.data.prefetch(source, size=5)
    until(lambda: not threads())  # it has already failed
    assert first(islice(stream, 3)) == [0, 1, 2]
    with pytest.raises(OSError, match="disk is gone") as caught:
        next(stream)
    lines = [frame.line for frame in traceback.extract_tb(caught.tb)]
    assert 'raise OSError("the disk is gone")' in lines
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(stream)


def test_an_iterable_that_cannot_begin() -> None:
    class Broken:
        def __iter__(self) -> Iterator[Any]:
            raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        next(gc.data.prefetch(Broken()))


def test_wrong_arguments() -> None:
    for size in (0, -1, 1.5, "2", True):
        with pytest.raises(AttributeValueError, match="size must be an int of at least 1"):
            gc.data.prefetch([], size=size)
    with pytest.raises(AttributeValueError, match="steps must be an int"):
        gc.data.prefetch([], "/cpu:0", steps=0)
    with pytest.raises(AttributeValueError, match="stacked for a session"):
        gc.data.prefetch([], "/cpu:0", steps=2)
    with pytest.raises(DeviceError, match="no device '/gpu:77'"):
        gc.data.prefetch([], "/gpu:77")
    with pytest.raises(DeviceError, match="not a device name"):
        gc.data.prefetch([], "somewhere")
    with pytest.raises(AttributeValueError, match="a device to copy to, got 3"):
        gc.data.prefetch([], 3)
    for batches in (3, {"x": 1}, "abc"):
        with pytest.raises(FeedError, match="iterable of batches"):
            gc.data.prefetch(batches)
    assert not threads()


# -- the end --------------------------------------------------------------------------------


def test_close_ends_a_thread_that_waits_for_room() -> None:
    before = at_rest()
    source = Source(1000)
    stream = gc.data.prefetch(source, size=2)
    until(lambda: source.read == 2)
    (thread,) = threads()
    stream.close()
    assert not thread.is_alive()
    assert source.read == 2 and source.closed_in == "graphc-prefetch"
    assert at_rest() == before
    with pytest.raises(StopIteration):
        next(stream)
    stream.close()


def test_close_wakes_a_consumer() -> None:
    held = threading.Event()

    def source() -> Iterator[Any]:
        held.wait(20)
        yield np.zeros(5)

    stream = gc.data.prefetch(source())
    found: list[Any] = []
    consumer = threading.Thread(target=lambda: found.append(list(stream)))
    consumer.start()
    stream._pump.stop()  # as close does, but close waits for the source
    consumer.join(20)
    assert found == [[]]
    held.set()
    stream.close()


def test_leaving_the_with_ends_it_also_by_an_error() -> None:
    source = Source(1000)
    with pytest.raises(ZeroDivisionError), gc.data.prefetch(source) as stream:
        next(stream)
        1 / 0  # noqa: B018
    assert not threads() and source.closed_in == "graphc-prefetch"


def test_an_iterator_that_nobody_has_any_more() -> None:
    source = Source(1000)
    for batch in gc.data.prefetch(source):
        if batch[0] == 3:
            break
    garbage.collect()
    until(lambda: not threads())
    assert source.closed_in == "graphc-prefetch"


def test_an_iterator_that_is_garbage_in_a_cycle() -> None:
    source = Source(1000)
    cycle: list[Any] = [gc.data.prefetch(source)]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    garbage.collect()
    until(lambda: not threads())
    assert source.closed_in == "graphc-prefetch"


def test_what_closing_the_generator_raises_comes_from_close() -> None:
    def source() -> Iterator[Any]:
        try:
            while True:
                yield np.zeros(5)
        finally:
            raise OSError("cannot be closed")

    stream = gc.data.prefetch(source())
    next(stream)
    with pytest.raises(OSError, match="cannot be closed"):
        stream.close()
    stream.close()


def test_a_source_that_never_comes_back_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "PATIENCE", 0.05)
    release = threading.Event()

    def source() -> Iterator[Any]:
        release.wait(20)
        yield np.zeros(5)

    stream = gc.data.prefetch(source())
    (thread,) = threads()
    assert thread.daemon
    with pytest.warns(RuntimeWarning, match="keeps running"):
        stream.close()
    release.set()
    thread.join(20)
    assert not thread.is_alive()


SCRIPT = """
import itertools, threading
import numpy as np
from graphc.data import prefetch, pump

pump.PATIENCE = 0.2

def endless():
    try:
        while True:
            yield np.zeros(3)
    finally:
        print("closed", flush=True)

stream, stuck = prefetch(endless()), prefetch(iter(threading.Event().wait, True))
print(next(stream).shape)
"""


@pytest.mark.slow
def test_the_end_of_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(3,)\nclosed\n", "")


# -- without a session ------------------------------------------------------------------------


def test_a_nest_of_arrays_goes_to_a_device() -> None:
    nest = {
        "wide": np.array([1, 2**40]),
        "more": [np.float64(1e-300), (np.zeros(2, np.float32), np.uint64(2**63))],
        "rest": ["text", 3, None, np.array(["a"]), np.array([{}], object)],
    }
    for to in ("/cpu:2", jax.devices()[2], jax.sharding.SingleDeviceSharding(jax.devices()[2])):
        (got,) = gc.data.prefetch([nest], to)
        assert jax.tree.structure(got) == jax.tree.structure(nest)
        arrays = [got["wide"], got["more"][0], *got["more"][1]]
        assert all(array.devices() == {jax.devices()[2]} for array in arrays)
        assert [str(a.dtype) for a in arrays] == ["int64", "float64", "float32", "uint64"]
        assert int(got["wide"][1]) == 2**40 and float(got["more"][0]) == 1e-300
        assert got["rest"][:3] == ["text", 3, None]
        assert all(got["rest"][i] is nest["rest"][i] for i in (3, 4))
    (got,) = gc.data.prefetch([nest])
    assert got["wide"].dtype == np.int64


def test_the_source_runs_under_the_callers_jax_settings() -> None:
    def source() -> Iterator[Any]:
        yield jax.numpy.arange(3)

    with jax.enable_x64(True):
        (got,) = gc.data.prefetch(source())
    assert got.dtype == np.int64
    (got,) = gc.data.prefetch(source())
    assert got.dtype == np.int32
