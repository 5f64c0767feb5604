"""The writer: threads, failures, forks and refused values."""

import errno
import gc as garbage
import os
import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.errors import (
    CopyError,
    GraphcError,
    StateError,
)
from graphc.train.tensorboard import event_file
from tests.train.tensorboard.events import events, files, scalars, values

Writer = gc.train.SummaryWriter


def test_the_file_begins_with_its_version(tmp_path: Path) -> None:
    Writer(tmp_path / "new" / "folder").close()
    [event] = events(tmp_path / "new" / "folder")
    assert event.file_version == "brain.Event:2"


def test_flush_makes_events_visible(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.scalar("x", 1.0, 0)
        writer.flush()
        assert scalars(tmp_path, "x") == [(0, 1.0)]


@pytest.mark.parametrize(
    "value",
    [1, 1.0, True, np.float16(1), np.array(1, "int8"), jnp.float32(1), jnp.bfloat16(1),
     np.array(1, ml_dtypes.float8_e4m3fn), np.array(1, ml_dtypes.int4)],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')}",
)  # fmt: skip
def test_scalars_of_any_dtype(tmp_path: Path, value: Any) -> None:
    with Writer(tmp_path) as writer:
        writer.scalar("x", value, 3)
    assert scalars(tmp_path, "x") == [(3, 1.0)]


def test_the_caller_may_change_an_array_afterwards(tmp_path: Path) -> None:
    array = np.zeros(10_000)
    with Writer(tmp_path) as writer:
        for step in range(50):
            array[:] = step
            writer.histogram("h", array, step)
    assert [rows[0, 0] for _, _, rows in values(tmp_path)] == list(range(50))


def test_many_threads(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:

        def work(number: int) -> None:
            for step in range(100):
                writer.scalar(f"t{number}", step, step)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number in range(8):
        assert scalars(tmp_path, f"t{number}") == [(s, s) for s in range(100)]


def test_no_thread_is_left(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.scalar("x", 1.0, 0)
    assert "graphc-event-file" in {t.name for t in threading.enumerate()}
    writer.close()
    assert "graphc-event-file" not in {t.name for t in threading.enumerate()}


def test_a_forgotten_writer_writes(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.scalar("x", 1.0, 0)
    del writer
    garbage.collect()
    assert scalars(tmp_path, "x") == [(0, 1.0)]
    assert "graphc-event-file" not in {t.name for t in threading.enumerate()}


def test_a_forgotten_writer_may_be_collected_by_its_own_thread(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    cycle: list[Any] = [writer]
    cycle.append(cycle)
    writer.scalar("x", 1.0, 0)
    file = writer._file

    def collect() -> bytes:
        garbage.collect()
        return b""

    file.put(event_file.Pending(collect, 0))
    garbage.disable()
    try:
        del writer, cycle
        assert file._thread is not None
        file._thread.join(10)
        assert not file._thread.is_alive()
    finally:
        garbage.enable()
    assert scalars(tmp_path, "x") == [(0, 1.0)]


def test_writers_of_one_folder_share_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with Writer(tmp_path / "run") as one, Writer(tmp_path / "link") as other:
        one.scalar("x", 1.0, 0)
        other.scalar("x", 2.0, 1)
    assert len(files(tmp_path / "run")) == 1
    assert scalars(tmp_path / "run", "x") == [(0, 1.0), (1, 2.0)]
    Writer(tmp_path / "run").close()
    assert len(files(tmp_path / "run")) == 2  # the first one was closed


def test_a_slow_disk_holds_callers_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "_MOST_WAITING", 3)
    monkeypatch.setattr(event_file, "_MOST_BYTES", 1)
    with Writer(tmp_path) as writer:
        for step in range(40):
            writer.histogram("h", np.ones(10), step)
    assert [step for step, _, _ in values(tmp_path)] == list(range(40))


# -- closed writers -------------------------------------------------------------------------------


def test_a_closed_writer_refuses(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.close()
    writer.close()
    with pytest.raises(StateError, match=r"scalar: the writer for .* is closed"):
        writer.scalar("x", 1.0, 0)
    with pytest.raises(StateError, match="flush: the writer"):
        writer.flush()
    assert repr(writer).endswith(": closed>")


def test_writers_are_not_copied(tmp_path: Path) -> None:
    import pickle

    with Writer(tmp_path) as writer, pytest.raises(CopyError, match="SummaryWriter"):
        pickle.dumps(writer)


# -- failures -------------------------------------------------------------------------------------


def full_disk(after: int) -> Any:
    """Replaces `os.write` by that of a disk with room for `after` bytes."""
    room = after

    def write(file: int, data: Any) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = min(room, len(data))
        room -= count
        return real(file, data[:count])

    real = os.write
    return write


def test_a_full_disk_fails_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path)
    writer.scalar("x", 1.0, 0)
    writer.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk(after=20))
        writer.scalar("x", 2.0, 1)
        with pytest.raises(GraphcError, match=r"cannot write .*tfevents.*: No space left"):
            writer.flush()
    with pytest.raises(GraphcError, match="No space left") as error:
        writer.scalar("x", 3.0, 2)
    assert error.value.source is not None
    assert error.value.source.file == __file__
    writer.close()  # the error was already raised
    # The partial record was removed, so the file is valid, and a new writer can continue.
    assert scalars(tmp_path, "x") == [(0, 1.0)]
    with Writer(tmp_path) as writer:
        writer.scalar("x", 2.0, 1)
    assert scalars(tmp_path, "x") == [(0, 1.0), (1, 2.0)]


def test_what_fits_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many events are written at once; the disk has room for only some of them."""
    writer = Writer(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk(after=1000))
        for step in range(100):
            writer.scalar("x", step, step)
        with pytest.raises(GraphcError, match="No space left"):
            writer.close()
    points = scalars(tmp_path, "x")
    assert 5 < len(points) < 100
    assert points == [(step, step) for step in range(len(points))]
    assert 900 < files(tmp_path)[0].stat().st_size - 40 <= 1000


def test_close_says_that_a_write_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path)
    monkeypatch.setattr(os, "write", full_disk(after=0))
    writer.scalar("x", 2.0, 1)
    with pytest.raises(GraphcError, match="No space left") as caught:
        writer.close()
    assert os.path.basename(__file__) in str(caught.value.source)
    writer.close()


def test_the_exception_of_the_block_is_the_one_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyError, match="mine"), Writer(tmp_path) as writer:
        monkeypatch.setattr(os, "write", full_disk(after=0))
        writer.scalar("x", 2.0, 1)
        raise KeyError("mine")


def test_a_deleted_file_is_an_error(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    files(tmp_path)[0].unlink()
    writer.scalar("x", 1.0, 0)
    with pytest.raises(GraphcError, match="the file was deleted"):
        writer.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphcError, match=r"cannot make an event file in .*file/run"):
        Writer(tmp_path / "file" / "run")


# -- purging --------------------------------------------------------------------------------------


def seen(folder: Path, tag: str) -> list[int]:
    """The steps that TensorBoard shows."""
    from tensorboard.backend.event_processing import plugin_event_accumulator as reader

    accumulator = reader.EventAccumulator(str(folder), {reader.TENSORS: 1000})
    accumulator.Reload()
    return [event.step for event in accumulator.Tensors(tag)]


def test_a_resumed_run_replaces_later_points(tmp_path: Path) -> None:
    for first, last in ((1, 8), (5, 7), (4, 6)):
        with Writer(tmp_path, purge_step=None if first == 1 else first) as writer:
            for step in range(first, last + 1):
                writer.scalar("x", step, step)
    assert seen(tmp_path, "x") == [1, 2, 3, 4, 5, 6]
    Writer(tmp_path).close()  # without a step nothing is dropped
    assert seen(tmp_path, "x") == [1, 2, 3, 4, 5, 6]
