"""What a worker process runs: it applies one function to the values that it receives."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from graphc.data.workers.channel import receive, send


class Answer(NamedTuple):
    """The result of one call in a worker process."""

    value: Any
    error: BaseException | None
    trace: str = ""


def serve(connection: Connection, function: bytes) -> None:
    """Calls the pickled function for each argument that arrives, until the pipe is closed.

    The first answer says that the process is ready.
    """
    with suppress(EOFError, OSError):  # the pipe is closed
        try:
            call = pickle.loads(function)
        except BaseException as error:
            send(connection, _failed(error))
            return
        send(connection, Answer(None, None))
        while True:
            _answer(connection, call, receive(connection))


def _answer(connection: Connection, call: Callable[..., Any], arguments: Any) -> None:
    try:
        answer = Answer(call(*arguments), None)
    except BaseException as error:
        answer = _failed(error)
    try:
        send(connection, answer)
    except OSError:  # the pipe is closed
        raise
    except BaseException as error:  # of pickling the result
        send(connection, _failed(error))


def _failed(error: BaseException) -> Answer:
    trace = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except BaseException:  # an error of the user's that cannot be pickled
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return Answer(None, error.with_traceback(None), trace)
