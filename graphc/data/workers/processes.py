"""`ChildProcess`: a worker in a process of its own, started again if it dies."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from graphc.data.workers.channel import receive, send
from graphc.data.workers.child import Answer, serve
from graphc.data.workers.pool import closed
from graphc.errors import DataError
from graphc.ir.source import Source

_ATTEMPTS = 3  # for one record, before its death is an error
_GRACE = 2.0  # seconds from SIGTERM to SIGKILL


class ChildProcess:
    """Calls a pickled function in a process.

    If the process dies (out of memory, killed, a crash in native code), a new one does the same
    call again.

    Args:
        name: of the stage, for errors.
        function: the pickled function.
        made_at: the user's line.
    """

    def __init__(self, name: str, function: bytes, made_at: Source | None) -> None:
        self._name = name
        self._function = function
        self._made_at = made_at
        self._process: Any = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()  # of starting and stopping
        self._stopped = False

    def call(self, work: Any) -> Any:
        """The value of the function for a tuple of arguments.

        Raises:
            DataError: the process died repeatedly.
            Others: the error of the function, with the traceback of the process as a note.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._connection is None:
                    self._start()
                if self._connection is None:  # stopped
                    raise closed()
                send(self._connection, work)
                answer = receive(self._connection)
            except (EOFError, ConnectionError) as error:
                if self._stopped:
                    raise closed() from error
                code = self._bury()
                if attempt == _ATTEMPTS:
                    raise self._died(code) from error
            else:
                return _opened(answer)
        raise closed()

    def stop(self) -> None:
        """Ends the process."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.terminate()

    def end(self) -> None:
        """Ends the process, waits for it, and closes the pipe."""
        self.stop()
        self._bury()

    def _start(self) -> None:
        """Starts the process and waits until it is ready."""
        context = multiprocessing.get_context("spawn")
        own, other = context.Pipe()
        process = context.Process(
            target=serve, args=(other, self._function), name="graphc-data", daemon=True
        )
        with self._lock:
            if self._stopped:
                own.close()
                other.close()
                return
            with _interrupts_blocked():
                process.start()
            self._process, self._connection = process, own
        other.close()
        try:
            answer = receive(own)
        except (EOFError, ConnectionError) as error:
            if self._stopped:
                raise
            code = self._bury()
            if code is not None and code > 0:  # an error of Python's, not a signal
                raise self._no_start(code) from error
            raise
        _opened(answer)

    def _bury(self) -> int | None:
        """Ends the process, and returns its exit code."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is None:
            return None
        process.join(_GRACE)
        if process.is_alive():
            process.kill()
            process.join()
        code: int | None = process.exitcode
        process.close()
        return code

    def _died(self, code: int | None) -> DataError:
        how = f"exit code {code}" if code is None or code >= 0 else _signal(-code)
        return DataError(
            f"{self._name}: the worker process died {_ATTEMPTS} times while it computed one record",
            details=[f"the last time: {how}"],
            source=self._made_at,
            hint="run it with workers=0 to see the crash; a process that is killed by signal 9 "
            "often needs more memory than there is",
        )

    def _no_start(self, code: int) -> DataError:
        return DataError(
            f"{self._name}: the worker process did not start (exit code {code})",
            details=["its traceback is on standard error"],
            source=self._made_at,
            hint='a script whose pipeline has processes needs `if __name__ == "__main__":` around '
            "its main part, because each process imports the script",
        )


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _opened(answer: Answer) -> Any:
    if answer.error is not None:
        try:
            answer.error.add_note(f"in a worker process:\n{answer.trace}")
            raise answer.error
        finally:
            del answer
    return answer.value


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process that is started now never receives Ctrl-C: its parent ends it."""
    mask: Callable[..., Any] | None = getattr(signal, "pthread_sigmask", None)
    if mask is None:  # Windows
        yield
        return
    resource_tracker.ensure_running()  # at its start it allows the signals again
    before = mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        mask(signal.SIG_SETMASK, before)


def pickled(name: str, function: Any, made_at: Source | None) -> bytes:
    """The function as bytes for worker processes.

    Raises:
        DataError: it cannot be pickled.
    """
    try:
        return pickle.dumps(function)
    except Exception as error:
        raise DataError(
            f"{name}: {getattr(function, '__qualname__', type(function).__name__)} cannot be sent "
            "to a worker process",
            details=[f"{type(error).__name__}: {str(error)[:200]}"],
            source=made_at,
            hint="define the function at the top level of a module (no lambda, no function inside "
            "a function), or use threads: processes=False",
        ) from error
