"""Feeds are copied unless their memory can never be changed."""

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.ir.node import Tensor
from graphc.ir.program import Port
from graphc.ir.types import parse_type
from graphc.runtime.feeds import feeds
from graphc.runtime.feeds.feed_memory import aligned, cannot_change
from graphc.runtime.feeds.feeds import FeedSpec

N = 4096
ZEROS = np.zeros(N, np.float32)


def spec(text: str = f"f32[{N}]") -> FeedSpec:
    return FeedSpec(Port("x", "feed", Tensor(parse_type(text), "x")), None, copy=True)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


class Shared:
    """An object that shares its memory with NumPy, even if NumPy asks for a copy."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._array


def owner() -> tuple[Any, Callable[[], None]]:
    """A read-only array that owns its memory, and a function that makes it writeable and writes."""
    array = read_only(ZEROS.copy())

    def write() -> None:
        array.flags.writeable = True
        array[:] = 1

    return array, write


def over_bytes() -> tuple[Any, Callable[[], None]]:
    memory = bytearray(ZEROS.tobytes())

    def write() -> None:
        memory[:] = np.ones(N, np.float32).tobytes()

    return memory, write


def _writeable(folder: Path) -> tuple[Any, Callable[[], None]]:
    array = ZEROS.copy()
    return array, lambda: array.fill(1)


def _owned(folder: Path) -> tuple[Any, Callable[[], None]]:
    return owner()


def _view(folder: Path) -> tuple[Any, Callable[[], None]]:
    array, write = owner()
    return array.reshape(2, -1).reshape(-1)[::1], write


def _view_of_writeable(folder: Path) -> tuple[Any, Callable[[], None]]:
    array = ZEROS.copy()
    return read_only(array[:]), lambda: array.fill(1)


def _broadcast(folder: Path) -> tuple[Any, Callable[[], None]]:
    array = np.zeros((), np.float32)
    return np.broadcast_to(array, (N,)), lambda: array.fill(1)


def _bytearray(folder: Path) -> tuple[Any, Callable[[], None]]:
    memory, write = over_bytes()
    return read_only(np.frombuffer(memory, np.float32)), write


def _memoryview(folder: Path) -> tuple[Any, Callable[[], None]]:
    memory, write = over_bytes()
    return np.frombuffer(memoryview(memory).toreadonly(), np.float32), write


def _memoryview_of_array(folder: Path) -> tuple[Any, Callable[[], None]]:
    array, write = owner()
    return np.asarray(memoryview(array)), write


def _mapped_file(folder: Path) -> tuple[Any, Callable[[], None]]:
    path = folder / "mapped"
    path.write_bytes(ZEROS.tobytes())
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    array = np.frombuffer(memoryview(mapped).toreadonly(), np.float32)

    def write() -> None:
        mapped[:] = np.ones(N, np.float32).tobytes()

    return array, write


def _memmap(folder: Path) -> tuple[Any, Callable[[], None]]:
    path = folder / "memmap"
    path.write_bytes(ZEROS.tobytes())
    writer = np.memmap(path, np.float32, "r+")
    return np.memmap(path, np.float32, "r"), lambda: writer.fill(1)


def _view_of_memmap(folder: Path) -> tuple[Any, Callable[[], None]]:
    given, write = _memmap(folder)
    return np.asarray(given), write


def _array_protocol(folder: Path) -> tuple[Any, Callable[[], None]]:
    array = ZEROS.copy()
    return Shared(array), lambda: array.fill(1)


def _subclass(folder: Path) -> tuple[Any, Callable[[], None]]:
    array = ZEROS.copy()
    return array.view(np.recarray), lambda: array.fill(1)


def _dlpack(folder: Path) -> tuple[Any, Callable[[], None]]:
    array = ZEROS.copy()
    return read_only(np.from_dlpack(array)[:]), lambda: array.fill(1)


def aligned_ones(shape: tuple[int, ...]) -> Any:
    """An array with memory that JAX uses without a copy."""
    array = aligned(shape, np.dtype(np.float32))
    array.fill(1)
    return array


def _numpy_of_jax(folder: Path) -> tuple[Any, Callable[[], None]]:
    array = aligned_ones((N,))
    array.fill(0)
    return np.asarray(jax.dlpack.from_dlpack(array)), lambda: array.fill(1)


CHANGING = [
    _numpy_of_jax,
    _writeable,
    _owned,
    _view,
    _view_of_writeable,
    _broadcast,
    _bytearray,
    _memoryview,
    _memoryview_of_array,
    _mapped_file,
    _memmap,
    _view_of_memmap,
    _array_protocol,
    _subclass,
    _dlpack,
]


@pytest.mark.parametrize("make", CHANGING, ids=lambda make: make.__name__.strip("_"))
def test_what_can_change_is_copied(
    make: Callable[[Path], tuple[Any, Callable[[], None]]], tmp_path: Path
) -> None:
    value, write = make(tmp_path)
    got = spec().convert(value)
    write()
    assert np.asarray(value).any(), "the test must write to the memory that was fed"
    assert not got.any()


def test_what_cannot_change_is_not_copied() -> None:
    data = ZEROS.tobytes()
    for value in (
        np.frombuffer(data, np.float32),
        np.frombuffer(data, np.float32).reshape(2, -1)[0],
        np.frombuffer(memoryview(data)[16:], np.float32),
        np.ndarray((N,), np.float32, data),
    ):
        assert cannot_change(value)
        assert spec().convert(value) is value


def test_the_usual_feed_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed with the right dtype costs one copy, and a feed on a device costs nothing."""

    def scanned(*arguments: Any) -> Any:
        raise AssertionError("a feed of the right dtype was scanned")

    for name in ("fitted", "host_array", "fitted_on_device"):
        monkeypatch.setattr(feeds, name, scanned)
    take = spec("i4[2]")
    take.convert(np.zeros(2, ml_dtypes.int4))
    made = jax.device_put(np.zeros(2, ml_dtypes.int4))
    assert take.convert(made) is made


def test_results_do_not_follow_a_buffer_that_is_used_again() -> None:
    """The computation may still run after `run` returns, while the caller overwrites the buffer."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((N,), "float32", name="x")
        y = gc.reduce_sum(gc.sin(gc.cos(gc.exp(x))) * 0.0 + x)
    session = gc.Session(graph)
    memory = bytearray(4 * N + 64)
    for start in (0, 16, 32, 48):  # XLA uses aligned memory without a copy
        value = np.frombuffer(memory, np.float32, N, start)
        value.flags.writeable = False
        filled = np.frombuffer(memory, np.float32, N, start)
        for number in range(20):
            filled[:] = number
            got = session.run(y, {x: value})
            filled[:] = -1
            assert float(got) == number * N


@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("place", [jax.device_put, jax.dlpack.from_dlpack])
def test_a_variable_has_a_copy_of_a_jax_array_that_shares_memory(
    place: Callable[[Any], jax.Array], ran: bool
) -> None:
    graph = gc.Graph()
    with graph:
        v = gc.variable(np.zeros((64, 64), np.float32), name="v")
        step = v.assign_add(1.0)
    session = gc.Session(graph)
    if ran:
        session.run(step)
    memory = aligned_ones((64, 64))
    session.set("v", place(memory))
    memory.fill(9)
    assert (session.values()["v"] == 1).all()
    session.run(step)
    assert (session.values()["v"] == 2).all()
    assert (memory == 9).all()
