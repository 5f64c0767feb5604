"""`EventWriter`: what a writer of summaries has to do with its file."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import Any, Self

from graphc.copying import Uncopied
from graphc.errors import AttributeValueError, StateError
from graphc.ir.calls import explain_methods
from graphc.ir.members import Helpful
from graphc.train.tensorboard.event_file import EventFile, Pending, open_event_file, release
from graphc.train.tensorboard.hparams import session_end
from graphc.train.tensorboard.protos import protos
from graphc.train.tensorboard.summaries import event
from graphc.train.tensorboard.values import checked_folder, checked_step, checked_tag


class EventWriter(Helpful, Uncopied):
    """Opens the event file of a folder, hands events to it and closes it; see `SummaryWriter`."""

    instead = "make a writer with the same folder in the other process"

    def __init__(self, log_dir: str | os.PathLike[str], *, purge_step: int | None = None) -> None:
        protos()
        self.log_dir = checked_folder("SummaryWriter", log_dir)
        self._hparams = False  # whether the run's hyperparameters were given, so that it ends
        self._closed = False
        self._nonfinite: set[str] = set()  # tags of histograms that had such elements
        self._measured: set[str] = set()  # tags of run metadata
        self._kinds: dict[str, str] = {}  # tag -> the method that logged it
        start = None if purge_step is None else checked_step("purge_step", purge_step)
        self._open(threaded=True)
        if start is not None:
            self._restart(start)

    def _open(self, *, threaded: bool) -> None:
        self._file: EventFile = open_event_file(self.log_dir, threaded=threaded)
        self._pid = os.getpid()
        self._release = weakref.finalize(self, release, self._file)

    def flush(self) -> None:
        """Waits until all events are in the file.

        Raises:
            GraphcError: an event was not written.

        Examples:
            >>> import tempfile
            >>> writer = gc.train.SummaryWriter(tempfile.mkdtemp())
            >>> writer.scalar("loss", 0.5, step=10)
            >>> writer.flush()
            >>> writer.close()
        """
        self._own_file("flush").flush()

    def close(self) -> None:
        """Writes what waits and closes the file. A second call does nothing.

        Raises:
            GraphcError: an event was not written, and no call has said so.

        Examples:
            >>> import tempfile
            >>> writer = gc.train.SummaryWriter(tempfile.mkdtemp())
            >>> writer.close()
        """
        self.end(success=True)

    def end(self, *, success: bool | None) -> None:
        """Closes the file and says in the HParams view whether the run has succeeded.

        Args:
            success: whether; None if the run was interrupted and may go on later. TensorBoard shows
                the first answer in a folder. It matters only if `hparams` was called.

        Raises:
            GraphcError: an event was not written, and no call has said so.

        Examples:
            >>> import tempfile
            >>> writer = gc.train.SummaryWriter(tempfile.mkdtemp())
            >>> writer.hparams({"rate": 0.1})
            >>> writer.end(success=True)
        """
        if self._closed:
            return
        try:
            if self._hparams and success is not None:
                now = time.time()
                self._own_file("close").put(Pending(lambda: event(now, 0, session_end(success)), 0))
        finally:
            self._closed = True
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.end(success=success_of(error))
        except Exception:
            if error is None:  # else the user's own exception is the one to see
                raise

    def _put(self, method: str, tag: str, step: int, size: int, encode: Callable[[], Any]) -> None:
        """Hands a summary to the thread; `encode` makes it there."""
        kind = self._kinds.setdefault(checked_tag(method, tag), method)
        if kind != method:
            raise AttributeValueError.here(
                f"SummaryWriter.{method}: the tag {tag!r} is in use for {kind}",
                hint="TensorBoard shows one kind of values under a tag: give another tag",
            )
        number = checked_step(method, step)
        now = time.time()
        self._put_event(method, size, lambda: event(now, number, encode()))

    def _put_event(self, method: str, size: int, encode: Callable[[], bytes]) -> None:
        self._own_file(method).put(Pending(encode, size))

    def _own_file(self, method: str) -> EventFile:
        if self._closed:
            raise StateError.here(
                f"SummaryWriter.{method}: the writer for {self.log_dir!r} is closed",
                hint="make another one; it appends to the run",
            )
        if self._pid != os.getpid():
            # A thread would be lost: children often end without waiting for any.
            self._release.detach()
            self._open(threaded=False)
        return self._file

    def _restart(self, step: int) -> None:
        """Makes TensorBoard drop what was logged at `step` and later. It ignores the first mark of
        a run's start that it reads, which may be this one, so there are two."""
        log = protos().event.SessionLog(status=protos().event.SessionLog.START)
        mark = protos().event.Event(wall_time=time.time(), step=step, session_log=log)
        for _ in range(2):
            self._put_event("purge_step", 0, mark.SerializeToString)

    def __repr__(self) -> str:
        return f"<SummaryWriter {self.log_dir}{': closed' if self._closed else ''}>"


explain_methods(EventWriter)


def success_of(error: BaseException | None) -> bool | None:
    """Whether a run that ends with this exception has succeeded; None after an interruption."""
    return None if isinstance(error, KeyboardInterrupt | SystemExit) else error is None
