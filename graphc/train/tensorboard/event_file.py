"""`EventFile`: one event file, and the thread that writes it.

Writers of one process that log to the same folder share a file, because TensorBoard follows only
the latest file of a folder while training runs.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from graphc.data.records.framing import Frames, import_crc32c
from graphc.errors import GraphcError
from graphc.train.tensorboard.protos import protos

_DELAY = 0.1  # seconds that an event may wait for others
_MOST_WAITING = 1000  # events
_MOST_BYTES = 256 << 20  # of their arrays; a caller that is faster than the disk waits
_FILES: dict[str, EventFile] = {}  # real path of the folder -> the file that this process writes
_LOCK = threading.RLock()  # of `_FILES`; a forgotten writer may be collected while it is held
_NUMBERS = itertools.count()


class Pending(NamedTuple):
    """An event that waits for the thread: `encode` gives it in serialised form."""

    encode: Callable[[], bytes]
    size: int  # bytes that it holds until it is written, roughly


class EventFile:
    """An event file that is open for writing. Any number of threads may call it.

    A write that fails is raised by the next call, and by each one after it.

    Args:
        folder: must exist.
        threaded: whether a thread writes. Without one, `put` writes.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, folder: str, *, threaded: bool) -> None:
        # An event file is framed as a TFRecord file is.
        self._frames = Frames(import_crc32c("an event file", "tensorboard"))
        self.path = os.path.join(folder, _file_name())
        self.pid = os.getpid()
        self.users = 0  # writers that share it
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(self.path, flags | getattr(os, "O_BINARY", 0), 0o666)
        self._end = 0  # of the last complete record
        self._threaded = threaded
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[Pending] = deque()
        self._bytes = 0  # that the waiting events hold
        self._busy = False
        self._hurried = False  # whether a caller waits for what was handed over
        self._closing = False
        self._error: BaseException | None = None
        self._reported = False
        version = protos().event.Event(wall_time=time.time(), file_version="brain.Event:2")
        self._write([self._frames.framed([version.SerializeToString()])])

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def put(self, event: Pending) -> None:
        """Hands an event to the thread. It waits if very many events are not yet written.

        Raises:
            GraphcError: an earlier write has failed.
        """
        with self._changed:
            self._check()
            if not self._is_running():
                self._process([event])
                self._check()
                return
            while self._waiting and (
                len(self._waiting) >= _MOST_WAITING or self._bytes + event.size > _MOST_BYTES
            ):
                self._changed.wait()
                self._check()
            self._waiting.append(event)
            self._bytes += event.size
            if len(self._waiting) == 1 or self._is_crowded():
                self._changed.notify_all()

    def _is_crowded(self) -> bool:
        return 2 * len(self._waiting) > _MOST_WAITING or 2 * self._bytes > _MOST_BYTES

    def _is_running(self) -> bool:
        """Starts the thread, unless it runs or there is to be none."""
        if self._threaded and self._thread is None:
            thread = threading.Thread(target=self._work, name="graphc-event-file", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # there are too many threads, or Python is about to end
                self._threaded = False
            else:
                self._thread = thread
        return self._thread is not None

    def flush(self) -> None:
        """Waits until every event is in the file.

        Raises:
            GraphcError: a write has failed.
        """
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            while (self._waiting or self._busy) and self._error is None:
                self._changed.wait()
            self._check()

    def close(self) -> None:
        """Writes what waits and closes the file.

        Raises:
            GraphcError: a write has failed, and no call has raised that yet.
        """
        with self._changed:
            first, self._closing = not self._closing, True
            self._changed.notify_all()
            thread = self._thread
        if thread is threading.current_thread():  # it has collected a forgotten writer
            return
        if thread is not None:
            thread.join()
        elif first:
            os.close(self._file)
        with self._changed:
            if not self._reported:
                self._check()

    def _check(self) -> None:
        if self._error is None:
            return
        self._reported = True
        reason = getattr(self._error, "strerror", None) or str(self._error)
        raise GraphcError.here(
            f"SummaryWriter: cannot write {self.path!r}: {reason}",
            hint="the file holds the events before it; nothing more is written. Close the writer, "
            "and open another where there is space",
        ) from self._error

    def _work(self) -> None:
        """What the thread does until the file is closed."""
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                # The callers' thread is not disturbed after each event.
                self._changed.wait_for(
                    lambda: self._hurried or self._closing or self._is_crowded(), _DELAY
                )
                events = list(self._waiting)
                self._waiting.clear()
                self._bytes = 0
                self._hurried = False
                self._busy = True
                self._changed.notify_all()
            if not events:
                os.close(self._file)
                return
            self._process(events)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _process(self, events: Sequence[Pending]) -> None:
        """Writes the events. After an error nothing more is written."""
        if self._error is not None:
            return
        records = []
        try:
            try:
                for event in events:
                    records.append(self._frames.framed([event.encode()]))
            finally:
                self._write(records)
        except Exception as error:
            self._error = error

    def _write(self, records: Sequence[bytes]) -> None:
        """Appends records. If not all fit, half a record is removed: TensorBoard would wait for the
        other half."""
        written = 0
        try:
            if os.fstat(self._file).st_nlink == 0:
                raise FileNotFoundError(0, "the file was deleted")
            rest = memoryview(b"".join(records))
            while rest:
                count = os.write(self._file, rest)
                written += count
                rest = rest[count:]
        finally:
            ends = itertools.accumulate(map(len, records), initial=self._end)
            whole = max(end for end in ends if end <= self._end + written)
            if self._end + written > whole:
                os.ftruncate(self._file, whole)
            self._end = whole


def _file_name() -> str:
    """A name that no other file has. TensorBoard reads the files of a folder in the order of their
    names, so the time comes first, with all digits."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    host = "".join(c if c.isalnum() or c in "-." else "_" for c in socket.gethostname())
    return (
        f"events.out.tfevents.{seconds:010d}.{nanoseconds:09d}.{host[:100]}."
        f"{os.getpid()}.{next(_NUMBERS)}"
    )


def open_event_file(folder: str, *, threaded: bool) -> EventFile:
    """The event file of this process in a folder. The folder is made if it is absent.

    Raises:
        GraphcError: the folder or the file cannot be made.
    """
    with _LOCK:
        try:
            real = os.path.realpath(folder)
            file = _FILES.get(real)
            if file is None or file.has_failed:
                Path(real).mkdir(parents=True, exist_ok=True)
                file = _FILES[real] = EventFile(real, threaded=threaded)
            file.users += 1
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            raise GraphcError.here(
                f"SummaryWriter: cannot make an event file in {folder!r}: "
                f"{getattr(error, 'strerror', None) or error}",
                hint="give a folder that you may write to",
            ) from error
        return file


def release(file: EventFile) -> None:
    """Called once by each writer that has opened the file. The last one closes it."""
    if file.pid != os.getpid():  # a child process: the file and its thread are the parent's
        return
    with _LOCK:
        file.users -= 1
        if file.users:
            return
        for folder in [folder for folder, known in _FILES.items() if known is file]:
            del _FILES[folder]
    file.close()


def _after_fork_in_child() -> None:
    global _LOCK
    _LOCK = threading.RLock()  # another thread may have held it
    _FILES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
