"""Error messages: one line for most errors, and a traceback for errors of the user's own code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from graphc.errors import GraphcError, ModelExportError, ModelImportError


class ScriptError(GraphcError):
    """The user's script raised an exception.

    Attributes:
        traceback: the script's own, without the frames of the command line.
    """

    def __init__(self, script: str, error: BaseException) -> None:
        name = Path(script).name
        super().__init__(f"{name} raised {type(error).__name__}, see above")
        self.traceback = "".join(
            traceback.format_exception(type(error), error, _users_part(error.__traceback__))
        )


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the point where it leaves graphc and Python's import code."""
    from graphc.ir.source import is_own  # imports JAX, which `graphc --help` does not need

    while trace is not None and is_own(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


_LISTED = 3  # operators of a model


@contextmanager
def code_of(script: str) -> Iterator[None]:
    """A context for the user's code. An exception in it becomes a `ScriptError`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise ScriptError(script, error) from error


@contextmanager
def running(script: str) -> Iterator[None]:
    """A context for functions of graphc that call the user's code. Exceptions of that code become a
    `ScriptError`. SystemExit passes: that is how SIGTERM ends a training loop."""
    try:
        yield
    except GraphcError:
        raise
    except Exception as error:
        if _users_part(error.__traceback__) is None:  # an error of graphc itself
            raise
        raise ScriptError(script, error) from error


def one_line(error: GraphcError, launcher: str = "") -> str:
    """The error, its location, and how to fix it (or the first detail, if there is no hint). For
    models, what cannot be converted is in the details.

    Args:
        launcher: the file that started the command line, whose lines are not the user's.
    """
    ours = getattr(error.source, "file", None) == launcher
    where = f" (at {error.source})" if error.source is not None and not ours else ""
    what, advice = error.what, error.hint or next(iter(error.details), "")
    if isinstance(error, (ModelImportError, ModelExportError)) and error.hint:
        what = ": ".join([what, "; ".join(error.details[:_LISTED])] if error.details else [what])
    hint = f"; {advice}" if advice else ""
    return " ".join(f"{what}{where}{hint}".split())
