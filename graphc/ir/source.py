"""The user's file and line. Every node has them, from the build to the last pass."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import weakref
from functools import cache
from types import FrameType
from typing import NamedTuple

import jax
import numpy as np

from graphc.errors import find_line_by

# Frames in these folders do not belong to the user. The user's line is the first one outside them.
# (`passes` and `devices` are reached through symlinks, so their real folders count too. Frames of
# JAX, NumPy and Optax occur in between: they call functions of the user, and methods of tensors.)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OWN = tuple(
    os.path.join(folder, "")
    for folder in {
        _PACKAGE,
        os.path.realpath(_PACKAGE),
        os.path.realpath(os.path.join(_PACKAGE, "passes")),
        os.path.realpath(os.path.join(_PACKAGE, "devices")),
        *(os.path.dirname(os.path.abspath(module.__file__ or "")) for module in (jax, np)),
        os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(jax.__file__))), "optax"),
    }
)

_BETWEEN = (contextlib.__file__, weakref.__file__)


class Source(NamedTuple):
    """A line of the user's program. `str` gives `train.py:12`.

    Attributes:
        turns: for a node that replaces several nodes, one in each iteration of a loop: their names
            and lines, in the order of the iterations.
    """

    file: str
    line: int
    turns: tuple[tuple[str, Source | None], ...] = ()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    @property
    def code(self) -> str:
        """The text of the line, or an empty string if it cannot be read.

        A program from a file names the files of its lines without their folders. A file of such a
        name here may be another one, so it is not read.
        """
        is_here = os.path.isabs(self.file) or self.file.startswith("<")
        return linecache.getline(self.file, self.line).strip() if is_here else ""


@cache
def _line(file: str, line: int) -> Source:
    """The same object for all nodes of a line: large graphs are built in loops."""
    return Source(file, line)


@cache
def is_own(filename: str) -> bool:
    """Whether a file belongs to graphc or JAX, not to a user."""
    # contextlib has frames between the user's `with` and the generators of our scopes, and weakref
    # between `close()` and what it ends. Python's own frozen modules start programs.
    return filename.startswith((*_OWN, "<frozen ")) or filename in _BETWEEN


def _is_generated(frame: FrameType) -> bool:
    """Whether the frame is the `__init__` that `dataclasses` wrote for a class of graphc."""
    return frame.f_code.co_filename == "<string>" and str(
        frame.f_globals.get("__name__")
    ).startswith("graphc.")


def current_source() -> Source | None:
    """The line of the innermost frame that is the user's (about a microsecond)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_own(frame.f_code.co_filename) or _is_generated(frame)):
        frame = frame.f_back
    return None if frame is None else _line(frame.f_code.co_filename, frame.f_lineno)


def source_of_error(error: BaseException) -> Source | None:
    """The innermost line of the user's from which an error was raised."""
    found, step = None, error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if not is_own(frame.f_code.co_filename) and not _is_generated(frame):
            found = _line(frame.f_code.co_filename, step.tb_lineno)
        step = step.tb_next
    return found


find_line_by(current_source)
