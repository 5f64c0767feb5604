"""`Pump`: a thread that fills a bounded queue from an iterable and can be stopped."""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

from graphc.interrupts import uninterrupted
from graphc.runtime.core.background import under
from graphc.runtime.core.forking import in_child_of_thread

PATIENCE = 5.0  # seconds to wait for a source that is producing a batch
MOMENT = 0.05  # seconds for which a wait delays signals, which must not come while it has a lock


class Pump:
    """Reads an iterable in a thread, at most `size` items ahead of the consumer.

    An item counts from before it is read until it is taken. Only the thread reads the iterable, and
    closes it if it is a generator.

    Args:
        source: the iterable to read.
        make: item and its number -> the item that `take` returns.
        size: how many items may be read but not yet taken.
        settings: JAX settings for the thread: see `background.own_settings`.
    """

    def __init__(
        self,
        source: Iterable[Any],
        make: Callable[[Any, int], Any],
        size: int,
        settings: Mapping[str, Any],
    ) -> None:
        # The lock is reentrant, because garbage collection may run at any point in the thread that
        # holds it, and may stop the pump.
        self._changed = threading.Condition()
        self._ready: deque[Any] = deque()
        self._size = size
        self._ended = False  # no more items will be ready
        self._stopped = False  # no more items are wanted
        self._error: BaseException | None = None  # error of the source, for the next `take`
        self._fault: BaseException | None = None  # error of closing the source, for `join`
        self._thread = threading.Thread(
            target=under,
            args=(settings, lambda: self._run(source, make)),
            name="graphc-prefetch",
            daemon=True,  # a source that never returns must not keep the process alive
        )
        self._thread.start()
        _RUNNING.add(self)

    # -- in other threads -------------------------------------------------------------------

    def take(self) -> Any:
        """Waits for the next item and returns it.

        Raises:
            StopIteration: there are no more.
            Others: an error from reading or making the next item. It is raised once.
        """
        while (taken := uninterrupted(self._taken)) is None:
            pass  # signals are handled here, where the lock is free
        if taken:
            return taken[0]
        error, self._error = self._error, None
        try:
            raise error or StopIteration
        finally:
            del error  # its traceback refers to this frame

    def _taken(self) -> tuple[Any, ...] | None:
        """The next item in a tuple, or an empty one at the end; None after a moment."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready or self._ended, MOMENT):
                return None
            if not self._ready:
                return ()
            self._changed.notify_all()
            return (self._ready.popleft(),)

    def stop(self) -> None:
        """Makes the thread end after its current item, and discards ready items."""
        with self._changed:
            self._stopped = self._ended = True
            self._error = None
            self._ready.clear()
            self._changed.notify_all()

    def join(self) -> bool:
        """Waits until the thread has ended, up to a time limit, and returns whether it has.

        Raises:
            Others: an error from closing a generator. It is raised once.
        """
        if self._thread is threading.current_thread():  # a source that closes its own pump
            return True
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            warnings.warn(
                f"prefetch: the source has not given its next batch for {PATIENCE:g} s; its thread "
                "keeps running until it does",
                RuntimeWarning,
                stacklevel=3,
            )
        fault, self._fault = self._fault, None
        try:
            if fault is not None:
                raise fault
        finally:
            del fault
        return not self._thread.is_alive()

    def end_by(self, deadline: float) -> None:
        """Waits until the thread has ended, at most until a time of `time.monotonic`."""
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def forked(self) -> None:
        """Called in a child process. The thread exists only in the parent, and the lock may be held
        by another thread of the parent."""
        self._changed = threading.Condition()
        self._ready.clear()
        self._ended = True
        self._error = in_child_of_thread("this iterator of gc.data.prefetch")

    # -- in the thread ----------------------------------------------------------------------

    def _run(self, source: Iterable[Any], make: Callable[[Any, int], Any]) -> None:
        items: Any = None
        try:
            items = iter(source)
            self._fill(items, make)
        except BaseException as error:  # every error is passed to the consumer
            self._end(error)
        else:
            self._end(None)
        try:
            close(items)
        except BaseException as error:
            self._fault = error

    def _fill(self, items: Iterator[Any], make: Callable[[Any, int], Any]) -> None:
        number = 0
        while self._wait_for_room():
            try:
                item = next(items)
            except StopIteration:
                return
            self._hand_out(make(item, number))
            del item
            number += 1

    def _wait_for_room(self) -> bool:
        with self._changed:
            while not self._stopped and len(self._ready) >= self._size:
                self._changed.wait()
            return not self._stopped

    def _hand_out(self, made: Any) -> None:
        with self._changed:
            if not self._stopped:
                self._ready.append(made)
                self._changed.notify_all()

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self._error = None if self._stopped else error
            self._ended = True
            self._changed.notify_all()


def close(items: Any) -> None:
    """Closes a generator, so that its `finally` runs now."""
    if isinstance(items, Generator):
        items.close()


def stop_at_exit(running: WeakSet[Any]) -> None:
    """Ends the threads of the pumps or pools in the set before the interpreter destroys the objects
    that the threads use. Also tells them when the process is forked."""

    def forked() -> None:
        for each in list(running):
            each.forked()

    def stop_all() -> None:
        found = list(running)
        for each in found:
            each.stop()
        deadline = time.monotonic() + PATIENCE / 2  # for all threads together
        for each in found:
            each.end_by(deadline)

    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=forked)
    atexit.register(stop_all)


_RUNNING: WeakSet[Pump] = WeakSet()
stop_at_exit(_RUNNING)
