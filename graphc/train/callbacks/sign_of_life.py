"""`SignOfLife`: tells the supervisor of a cluster which step this process has reached."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from graphc.train.callbacks.base import Callback

if TYPE_CHECKING:
    from graphc.train.run import Run

VARIABLE: Final = "GRAPHC_PROGRESS"
"""The file for the number of the step. `graphc launch --silence` sets it."""

_SECONDS = 0.5


class SignOfLife(Callback):
    """Writes the number of the last step to a file, twice a second at most. The file exists while
    the loop runs."""

    session_every = None

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._next = 0.0

    def on_start(self, run: Run) -> None:
        """Creates the file."""
        self._tell(run.step)

    def on_step(self, run: Run) -> None:
        """Writes the number, if it is time."""
        if time.monotonic() >= self._next:
            self._tell(run.step)

    def on_end(self, run: Run) -> None:
        """Removes the file: what follows may take any time."""
        self._path.unlink(missing_ok=True)

    def _tell(self, step: int) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(str(step))
        os.replace(new, self._path)
        self._next = time.monotonic() + _SECONDS


def signs() -> list[Callback]:
    """The callback, if a supervisor asks for it."""
    path = os.environ.get(VARIABLE)
    return [SignOfLife(path)] if path else []
