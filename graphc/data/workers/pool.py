"""`Pool`: threads that work on tasks, and end whatever happens."""

from __future__ import annotations

import multiprocessing.util  # noqa: F401 - before `stop_at_exit`, which must run before its handler
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from weakref import WeakSet

from graphc.data.pump import MOMENT, PATIENCE, stop_at_exit
from graphc.errors import StateError
from graphc.interrupts import uninterrupted
from graphc.runtime.core.background import under
from graphc.runtime.core.forking import in_child_of_thread


class Worker(Protocol):
    """What one thread of a pool works with. Only this thread calls it, except for `stop`."""

    def call(self, work: Any) -> Any:
        """The result of a task."""

    def stop(self) -> None:
        """Called by another thread: makes a waiting `call` end soon."""

    def end(self) -> None:
        """Called at the end of the thread."""


class Task:
    """A task of a pool, and its result once it is done.

    Attributes:
        unwanted: set by the consumer if the result is no longer needed.
    """

    __slots__ = ("done", "error", "unwanted", "value", "work")

    def __init__(self, work: Any) -> None:
        self.work = work
        self.done = False
        self.unwanted = False
        self.value: Any = None
        self.error: BaseException | None = None


class Pool:
    """Threads that take tasks in order.

    Args:
        make: makes the worker of one thread.
        threads: how many.
        settings: JAX settings for the threads: see `background.own_settings`.
    """

    def __init__(
        self, make: Callable[[], Worker], threads: int, settings: Mapping[str, Any]
    ) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Task] = deque()
        self._workers: list[Worker] = []
        self._stopped = False
        self._forked = False
        self._threads = [
            threading.Thread(
                target=under,
                args=(settings, lambda: self._run(make)),
                name="graphc-data",
                daemon=True,  # a task that never returns must not keep the process alive
            )
            for _ in range(threads)
        ]
        _RUNNING.add(self)
        for thread in self._threads:
            thread.start()

    # -- in other threads -------------------------------------------------------------------

    def submit(self, work: Any) -> Task:
        """Adds a task."""
        if self._forked:
            raise in_child_of_thread("this iterator of a pipeline")
        task = Task(work)
        uninterrupted(self._add, task)
        return task

    def _add(self, task: Task) -> None:
        with self._changed:
            self._waiting.append(task)
            self._changed.notify_all()

    def result(self, task: Task) -> Any:
        """Waits for a task and returns its value.

        Raises:
            Others: the error of the task.
        """
        while not uninterrupted(self._wait, task):
            pass  # signals are handled here, where the lock is free
        if self._forked:
            raise in_child_of_thread("this iterator of a pipeline")
        if not task.done:
            raise closed()
        if task.error is not None:
            try:
                raise task.error
            finally:
                task.error = None  # its traceback refers to this frame
        return task.value

    def _wait(self, task: Task) -> bool:
        """Whether the task is done, or will never be; waits for a moment."""
        with self._changed:
            return self._changed.wait_for(lambda: task.done or self._stopped, MOMENT)

    def close(self) -> None:
        """Ends the threads after their current tasks, and waits for them up to a time limit."""
        self.stop()
        self.end_by(time.monotonic() + PATIENCE)

    def stop(self) -> None:
        """Tells the threads to end."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            workers = list(self._workers)
            self._changed.notify_all()
        for worker in workers:
            worker.stop()

    def end_by(self, deadline: float) -> None:
        """Waits until the threads have ended, at most until a time of `time.monotonic`."""
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def forked(self) -> None:
        """Called in a child process, which does not have the threads."""
        self._changed = threading.Condition()
        self._workers, self._threads = [], []
        self._forked = self._stopped = True

    # -- in the threads ---------------------------------------------------------------------

    def _run(self, make: Callable[[], Worker]) -> None:
        worker = make()
        with self._changed:
            self._workers.append(worker)
        try:
            while (task := self._next()) is not None:
                try:
                    task.value = None if task.unwanted else worker.call(task.work)
                except BaseException as error:  # every error is passed to the consumer
                    task.error = error
                with self._changed:
                    task.work = None
                    task.done = True
                    self._changed.notify_all()
                del task
        finally:
            worker.end()

    def _next(self) -> Task | None:
        with self._changed:
            while not self._waiting and not self._stopped:
                self._changed.wait()
            return None if self._stopped else self._waiting.popleft()


def closed() -> StateError:
    """The error for who waits for a pool that another thread closes."""
    return StateError("a pipeline was closed while an item was being computed")


_RUNNING: WeakSet[Pool] = WeakSet()
stop_at_exit(_RUNNING)
