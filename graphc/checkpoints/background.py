"""One write at a time in a thread, whose failure the next call raises."""

from __future__ import annotations

import sys
import threading
import traceback
import weakref
from collections.abc import Callable


class Background:
    """Runs one job at a time in a thread. Python waits for it before it exits.

    The owner must call `wait` or `check`. If the process ends before that, a failure is printed.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failures: list[BaseException] = []  # at most one
        weakref.finalize(self, _print_unseen, self._failures)

    def start(self, job: Callable[[], None]) -> None:
        """Runs a job. The one before must have ended: see `wait`."""
        self._thread = threading.Thread(
            target=_run, args=(job, self._failures), name="graphc-checkpoint"
        )
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether a job has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def check(self) -> None:
        """Raises the failure of a job that has ended, once."""
        if self._failures:
            raise self._failures.pop()

    def wait(self) -> None:
        """Waits for the job; raises its failure, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()


def _run(job: Callable[[], None], failures: list[BaseException]) -> None:
    try:
        job()
    except BaseException as error:
        failures.append(error)


def _print_unseen(failures: list[BaseException]) -> None:
    for error in failures:
        print("a checkpoint was not written:", file=sys.stderr)
        traceback.print_exception(error, file=sys.stderr)
