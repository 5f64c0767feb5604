"""Converts the error for Python's limit on nested calls into an error for the user."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from graphc.errors import ExecutionError, GraphcError

P = ParamSpec("P")
T = TypeVar("T")


def within_stack(function: Callable[P, T]) -> Callable[P, T]:
    """Makes a function raise `ExecutionError` instead of `RecursionError` if Python's stack is too
    small for it. The function must not call code of the user."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (RecursionError, GraphcError) as error:
            if not _ran_out(error):
                raise
            raise ExecutionError.here(
                "Python's stack is too small to compile the program",
                details=[f"its limit is {sys.getrecursionlimit():,} nested calls"],
                hint="call graphc from fewer nested functions, nest fewer bodies of gc.cond, "
                "gc.scan and the like in each other, or raise sys.setrecursionlimit",
            ) from error

    return call


def _ran_out(error: BaseException | None) -> bool:
    """Whether an error is a `RecursionError`, or the error of a pass or node that raised one."""
    while error is not None:
        if isinstance(error, RecursionError):
            return True
        error = error.__cause__
    return False
