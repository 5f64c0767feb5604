"""Seeing passes at work: who asks is told of each step of every manager that runs meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from graphc.ir.program import Program

if TYPE_CHECKING:
    from graphc.passes.manager import PassRow

# (what a pass did, the program before it, the program after it)
Watcher = Callable[["PassRow", Program, Program], None]

_WATCHER: Final[ContextVar[Watcher | None]] = ContextVar("watcher", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Has `watcher` called after each pass that runs inside, in this thread, changed or not."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def tell(row: PassRow, before: Program, after: Program) -> None:
    """Tells whoever watches of one step."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(row, before, after)
