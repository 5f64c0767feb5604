"""Runs work of estimators in a process that can use devices.

A process that was forked after its parent had used devices cannot use them (see
`graphc.runtime.core.forking`), and joblib's multiprocessing backend forks. Such a process starts a
helper, a fresh interpreter, and sends it the work. The helper ends with the process that started
it: the end of its input tells it.
"""

from __future__ import annotations

import atexit
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, ParamSpec, TypeVar

from graphc.errors import ExecutionError
from graphc.runtime.core.forking import FORKING, SharedLock
from graphc.sklearn.carried import cloudpickle

P = ParamSpec("P")
T = TypeVar("T")

_LENGTH = struct.Struct("<Q")
_MAIN = "from graphc.sklearn.apart import serve; serve()"


def with_devices(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function of graphc, computed where devices can be used.

    Raises:
        ExecutionError: the helper process ended.
    """
    if not FORKING.child:
        return function(*args, **kwargs)
    result: T = _HELPER.call(function, args, kwargs)
    return result


class _Helper:
    """The helper process of this process, which starts at the first call."""

    def __init__(self) -> None:
        self.lock = SharedLock()
        self.process: subprocess.Popen[bytes] | None = None
        FORKING.watch(self)

    def forked(self) -> None:
        """Called in a child process: the helper belongs to the parent."""
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    os.close(pipe.fileno())  # the helper's input must end with the parent
            self.process.returncode = 0  # not this process's child: nothing to wait for
        self.process = None

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The result of the function in the helper."""
        data = cloudpickle().dumps((function, args, kwargs))
        with self.lock.lock:
            try:
                process = self._started()
                _send(process.stdin, data)
                answer = _receive(process.stdout)
            except BaseException:  # also Ctrl-C: an answer that comes later would be out of step
                self.close()
                raise
            if answer is None:
                code = process.wait()
                self.close()
                raise ExecutionError(
                    f"the helper process of an estimator ended with exit code {code}",
                    hint="it may have run out of memory; or use joblib's backend 'loky' instead of "
                    "'multiprocessing', whose processes need no helpers",
                )
        is_result, value = pickle.loads(answer)
        if not is_result:
            raise value
        return value

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            paths = [path or os.getcwd() for path in sys.path]
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        return self.process

    def close(self) -> None:
        """Ends the helper, if there is one."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()


_HELPER = _Helper()
atexit.register(_HELPER.close)


def _send(pipe: IO[bytes] | None, data: bytes) -> None:
    if pipe is not None:
        pipe.write(_LENGTH.pack(len(data)))
        pipe.write(data)
        pipe.flush()


def _receive(pipe: IO[bytes] | None) -> bytes | None:
    """The next message, or None at the end."""
    head = b"" if pipe is None else pipe.read(_LENGTH.size)
    if pipe is None or len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return data if len(data) == length else None


def serve() -> None:
    """The helper's loop. What the user's functions print goes to the standard error."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    while (request := _receive(requests)) is not None:
        _send(answers, _answer(request))


def _answer(request: bytes) -> bytes:
    pickler: Any = cloudpickle()
    try:
        function, args, kwargs = pickle.loads(request)
        return bytes(pickler.dumps((True, function(*args, **kwargs))))
    except Exception as error:
        try:
            return bytes(pickler.dumps((False, error)))
        except Exception:  # an error that cannot be pickled: its text
            said = ExecutionError(f"{type(error).__name__}: {error}")
            return bytes(pickler.dumps((False, said)))
