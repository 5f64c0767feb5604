"""Finds the line of an equation in the user's JAX code, and its origin in a library."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import jax

from graphc.ir.source import Source


def _folders(*paths: str) -> tuple[str, ...]:
    return tuple({os.path.join(os.path.realpath(path), "") for path in paths})


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PATHS = sysconfig.get_paths()
_JAX = _folders(os.path.dirname(jax.__file__))
_INSTALLED = _folders(
    _PATHS["stdlib"], _PATHS["platstdlib"], _PATHS["purelib"], _PATHS["platlib"], _PACKAGE, *_JAX
)


@cache
def _is_installed(file: str) -> bool:
    """Whether a file belongs to Python, to an installed package or to graphc."""
    return os.path.realpath(file).startswith(_INSTALLED) or file.startswith("<")


@cache
def _is_jax_or_python(file: str) -> bool:
    path = os.path.realpath(file)
    inside = path.startswith(_INSTALLED) and "site-packages" not in path
    return inside or path.startswith(_JAX) or file.startswith("<")


def _traceback(eqn: Any) -> Any:
    # The record of an equation is public, but the content of its source is not. If it is absent,
    # there is no line.
    return getattr(eqn.source_info, "traceback", None)


def _frames(traceback: Any) -> Sequence[Any]:
    return getattr(traceback, "frames", None) or ()


def user_line(eqn: Any) -> Source | None:
    """The innermost line of the equation's traceback that is not in a library, or None."""
    return _user_line(_traceback(eqn))


@lru_cache(maxsize=512)  # many are equal: those of each layer
def _user_line(traceback: Any) -> Source | None:
    for frame in _frames(traceback):
        if not _is_installed(frame.file_name):
            return Source(frame.file_name, frame.line_num)
    return None


def origin(eqn: Any) -> str | None:
    """The innermost function outside JAX: `apply_if_finite.<locals>.update, _cond.py:253`."""
    for frame in _frames(_traceback(eqn)):
        if not _is_jax_or_python(frame.file_name):
            line = Source(frame.file_name, frame.line_num)
            return f"{frame.function_name}, {line}"
    return None


def is_users(jaxpr: Any) -> bool:
    """Whether a nested jaxpr is the user's own function.

    JAX caches the jaxprs of its own functions, with the lines of the first call.
    """
    file = getattr(getattr(jaxpr, "debug_info", None), "func_filename", None)
    return isinstance(file, str) and not _is_installed(file)
