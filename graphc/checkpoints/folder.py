"""The checkpoints in a folder: their names, how one appears complete or not at all, the lock.

A checkpoint is a folder `step-0000001200`. A second one of the same step is `step-0000001200.1`:
it replaces the first, which is removed afterwards. What is being written or removed has a name
that begins with `.writing-`.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import socket
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from graphc.checkpoints.manifest import MANIFEST
from graphc.errors import CheckpointError

_NAME = re.compile(r"step-(\d{10,19})(?:\.([1-9]\d{0,8}))?")
_WRITING = ".writing-"
_LOCK = ".lock"


class Found(NamedTuple):
    """A complete checkpoint in a folder."""

    step: int
    generation: int
    path: Path


def found(folder: Path) -> list[Found]:
    """The checkpoints in a folder, the latest step last; one for each step.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    latest: dict[int, Found] = {}
    for each in _all(folder):
        if each.step not in latest or latest[each.step].generation < each.generation:
            latest[each.step] = each
    return sorted(latest.values())


def _all(folder: Path) -> list[Found]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read {str(folder)!r}: {error.strerror or error}") from error
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    listed = [Found(int(m[1]), int(m[2] or 0), folder / m[0]) for m in matches]
    return [each for each in listed if (each.path / MANIFEST).is_file()]


def add(folder: Path, step: int, write: Callable[[Path], None]) -> Path:
    """Has a checkpoint written aside, and puts it into the folder when it is on the disk.

    Those of the same step are removed afterwards.

    Args:
        write: gets the folder to write into.

    Raises:
        OSError: it cannot be written. Nothing is left of it.
    """
    aside = folder / f"{_WRITING}{secrets.token_hex(8)}"
    try:
        aside.mkdir()
        write(aside)
        _flush(aside)
        replaced = [each for each in _all(folder) if each.step == step]
        generation = max((each.generation + 1 for each in replaced), default=0)
        path = folder / (f"step-{step:010d}" + (f".{generation}" if generation else ""))
        os.rename(aside, path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _flush(folder)
    for each in replaced:
        remove(each.path)
    return path


def remove(path: Path) -> None:
    """Removes a checkpoint; at no moment is a part of it seen as a checkpoint."""
    aside = path.with_name(f"{_WRITING}{secrets.token_hex(8)}")
    os.rename(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Removes what writers that were killed have left. The caller has the lock."""
    for path in folder.glob(f"{_WRITING}*"):
        shutil.rmtree(path, ignore_errors=True)


def make(folder: Path) -> None:
    """Makes the folder, and those above it.

    Raises:
        OSError: it cannot be made.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _flush(folder.parent)


def _flush(folder: Path) -> None:
    """Has the names in a folder written to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_HERE: weakref.WeakValueDictionary[tuple[int, str], Lock] = weakref.WeakValueDictionary()
_MAKING = threading.Lock()


class Lock:
    """The right to write to a folder, which one `Checkpointer` in one process has.

    The system releases the lock of a process that ends, however it ends. Child processes do not
    inherit it, so a worker process that outlives its parent does not keep it.

    Raises:
        CheckpointError: another one has it.
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        with _MAKING:
            self._take(folder)

    def _take(self, folder: Path) -> None:
        place = (os.getpid(), os.path.realpath(folder))
        if place in _HERE:  # the system would grant it: it knows only processes
            raise _taken(folder, "this process")
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._place = place
        self._close = weakref.finalize(self, os.close, handle)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = os.pread(handle, 300, 0).decode(errors="replace")
            self._close()
            raise _taken(folder, holder or "another process") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        _HERE[place] = self

    def release(self) -> None:
        """Lets others write."""
        _HERE.pop(self._place, None)
        self._close()


def _taken(folder: Path, holder: str) -> CheckpointError:
    return CheckpointError(
        f"another Checkpointer writes to {str(folder)!r}",
        details=[f"it belongs to {holder}"],
        hint="close() the other one, or give each job a folder of its own",
    )
