"""`Pump`: a thread that fills a bounded queue from an iterable, and how it is stopped."""

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

from graphc.runtime.core.background import under
from graphc.runtime.core.forking import in_child_of_thread

PATIENCE = 5.0  # seconds: for a source that is in the middle of a batch


class Pump:
    """Reads an iterable in a thread, at most `size` items ahead of those that were taken.

    An item counts from before it is read until it is taken. The iterable is read, and closed if
    it is a generator, in the thread alone.

    Args:
        source: what is read.
        make: item and its number -> what is handed out.
        size: how many items may be read and not taken.
        settings: of JAX, for the thread: see `background.own_settings`.
    """

    def __init__(
        self,
        source: Iterable[Any],
        make: Callable[[Any, int], Any],
        size: int,
        settings: Mapping[str, Any],
    ) -> None:
        # Its lock may be taken again by the thread that has it: garbage collection, which may
        # stop the pump, comes at any place.
        self._changed = threading.Condition()
        self._ready: deque[Any] = deque()
        self._size = size
        self._ended = False  # nothing more will be ready
        self._stopped = False  # nobody wants more
        self._error: BaseException | None = None  # of the source, for the next `take`
        self._fault: BaseException | None = None  # of closing the source, for `join`
        self._thread = threading.Thread(
            target=under,
            args=(settings, lambda: self._run(source, make)),
            name="graphc-prefetch",
            daemon=True,  # a source that never returns must not keep the process
        )
        self._thread.start()
        _RUNNING.add(self)

    # -- in other threads -------------------------------------------------------------------

    def take(self) -> Any:
        """The next item, waited for.

        Raises:
            StopIteration: there are no more.
            Others: what reading or making the next one raised: once.
        """
        with self._changed:
            while not self._ready and not self._ended:
                self._changed.wait()
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
            error, self._error = self._error, None
        try:
            raise error or StopIteration
        finally:
            del error  # its traceback holds this frame

    def stop(self) -> None:
        """Has the thread end as soon as it is done with its item; drops what is ready."""
        with self._changed:
            self._stopped = self._ended = True
            self._error = None
            self._ready.clear()
            self._changed.notify_all()

    def join(self) -> None:
        """Waits until the thread has ended, but not for ever.

        Raises:
            Others: what closing a generator raised: once.
        """
        if self._thread is threading.current_thread():  # a source that closes its own pump
            return
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            warnings.warn(
                f"prefetch: the source has not given its next batch for {PATIENCE:g} s; its thread "
                "is left behind and ends when it does",
                RuntimeWarning,
                stacklevel=3,
            )
        fault, self._fault = self._fault, None
        try:
            if fault is not None:
                raise fault
        finally:
            del fault

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
        except BaseException as error:  # whatever it is, it is the consumer's
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


_RUNNING: WeakSet[Pump] = WeakSet()


def _forked() -> None:
    for pump in list(_RUNNING):
        pump.forked()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)


@atexit.register
def _stop_all() -> None:
    """Ends every thread before the interpreter takes away what it works with."""
    pumps = list(_RUNNING)
    for pump in pumps:
        pump.stop()
    deadline = time.monotonic() + PATIENCE / 2  # of all together
    for pump in pumps:
        pump._thread.join(max(0.0, deadline - time.monotonic()))
