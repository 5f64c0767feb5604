"""`Appointments`: what all processes of a training loop do after the same step."""

from __future__ import annotations

import sys
from threading import Event, Lock, Thread
from types import FrameType
from typing import Self

import jax

from graphc.jax_internals import set_for_all, value_of_all
from graphc.runtime.core.agreement import awaited, place_of
from graphc.train.saving import Saves
from graphc.train.signals import Signals

_TURN = 0.1  # seconds between two looks at the signals of the processes
_SAVE = -1  # in place of the number of a signal: write a checkpoint


class Appointments(Signals):
    """Ends the loops of all processes after the same step, whichever of them gets a signal; and
    writes checkpoints after the same step when the clock of the chief says so.

    A process that did so alone would leave the others in the middle of a step. So a thread tells
    the other processes, and each answers with the step that it has started last. All go on to the
    largest of these, which all can complete. A second signal takes effect at once.

    Args:
        saves: the checkpoints.
        is_chief: whether the clock of this process counts.
    """

    def __init__(self, saves: Saves, is_chief: bool) -> None:
        super().__init__()
        self._saves, self._is_chief = saves, is_chief
        saves.wait_for_all()
        self._lock = Lock()
        self._closed = Event()
        self._started = 0  # the step that was started last
        self._expect()

    def _expect(self) -> None:
        """Begins to wait for the next signal."""
        self._place = place_of("signals")
        self._number = 0  # the signal of which all processes know, or `_SAVE`
        self._last: int | None = None  # the step after which it takes effect
        self._thread = Thread(target=self._watch, daemon=True, name="graphc-signals")

    def __enter__(self) -> Self:
        super().__enter__()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed.set()
        self._thread.join()
        if not self._number:
            self._answer()  # another process may still get a signal
        super().__exit__(*exc)

    def deliver(self) -> None:
        """Does nothing: signals take effect when a step begins."""

    def before(self, step: int) -> bool:
        """Notes that this process begins to run the steps up to this one. If all processes end
        before, it calls the handler of the signal instead. Returns True if all write a checkpoint
        before."""
        with self._lock:
            if not self._number:
                self._started = step
                return False
        if self._last is None:
            places = [f"{self._place}/{index}" for index in range(jax.process_count())]
            self._last = max(int(awaited(key, index)) for index, key in enumerate(places))
        if step <= self._last:
            return False
        number = self._number
        if number == _SAVE:
            self._saves.demand()
        self._thread.join()
        self._expect()
        self._thread.start()
        if number != _SAVE:
            self.pending, self.busy = 0, False
            self._call(number, sys._getframe())
        return number == _SAVE

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.pending:
            self.torn = True
            self._call(number, frame)
        else:
            self.pending = number

    def _watch(self) -> None:
        """Tells the other processes of a signal of this one, and learns of theirs."""
        key = f"{self._place}/number"
        while not self._closed.is_set():
            if self.pending:
                set_for_all(key, str(self.pending))
            elif self._is_chief and self._saves.is_late:
                set_for_all(key, str(_SAVE))
            number = value_of_all(key, _TURN)
            if number is not None:
                with self._lock:
                    self._number = int(number)
                    self._answer()
                return

    def _answer(self) -> None:
        set_for_all(f"{self._place}/{jax.process_index()}", str(self._started))
