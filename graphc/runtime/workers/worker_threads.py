"""One call of `Session.run_workers`, with one thread for each worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock, Thread
from typing import Any

import jax
import numpy as np

from graphc.errors import StateError
from graphc.interrupts import uninterrupted
from graphc.ops.draws.random_keys import as_jax_key
from graphc.passes.simplify.functionalize import RNG_COUNTER, RNG_KEY
from graphc.runtime.core.background import own_settings, under
from graphc.runtime.state.live_state import LiveState
from graphc.runtime.workers.admission import Admission
from graphc.runtime.workers.worker_batches import WorkerBatches


@dataclass(frozen=True)
class WorkerStep:
    """One step of one worker, just applied. It is passed to `on_step`.

    Attributes:
        worker: the number of the worker, from 0.
        step: the number of the step among the worker's steps in this call, from 0.
        update: the number of the update among all updates in this call, from 0.
        staleness: the number of updates by other workers between its read and this update.
        values: the values of the fetches.
    """

    worker: int
    step: int
    update: int
    staleness: int
    values: Any


@dataclass(frozen=True)
class WorkersRun:
    """The result of `Session.run_workers`.

    Attributes:
        steps: the number of steps that each worker made.
        updates: the number of updates that were applied, which is the sum of `steps`.
        staleness: staleness -> the number of updates that had it, in ascending order.
        last: the fetched values of the last update; None if there was none.
        values: the fetched values of all updates, in the order in which they were applied, if the
            call had `keep=True`.
    """

    steps: tuple[int, ...]
    updates: int
    staleness: Mapping[int, int]
    last: Any
    values: Sequence[Any] | None


@dataclass(frozen=True)
class WorkersCall:
    """What a call of `run_workers` asks for.

    Attributes:
        state: the state of the session.
        bound: see `Staleness`.
        source: the batches.
        fetches, on_step, keep: see `Session.run_workers`.
    """

    state: LiveState
    bound: int | None
    fetches: Any
    source: WorkerBatches
    on_step: Callable[[WorkerStep], object] | None
    keep: bool


class WorkerThreads(ABC):
    """One call of `run_workers`. A subclass says how a worker makes a step.

    Args:
        workers: the name of each worker, for errors.
    """

    def __init__(self, workers: Sequence[str], call: WorkersCall) -> None:
        self._names: list[str] = []
        self._fetches, self._source, self._on_step = call.fetches, call.source, call.on_step
        self._admission = Admission(call.bound)
        self._steps: list[int] = []
        self._staleness: Counter[int] = Counter()
        self._last: Any = None
        self._values: list[Any] | None = [] if call.keep else None
        self._lock = Lock()
        self._failed: tuple[int, BaseException] | None = None  # the first worker that failed
        # Random draws are derived from these. They differ in each call, because updates advance
        # them.
        hidden = call.state.values([RNG_KEY, RNG_COUNTER])
        self._root = [hidden[RNG_KEY], hidden[RNG_COUNTER]]
        self._keys: list[Any] = []
        self._settings = own_settings()
        self._ended: list[Event] = []
        self._threads: list[Thread] = []
        self._leaving: set[int] = set()
        for name in workers:
            self._add(name)

    def _add(self, name: str) -> Thread:
        worker = len(self._threads)
        self._names.append(name)
        self._steps.append(0)
        self._keys.append(None)
        self._ended.append(Event())
        thread = Thread(
            target=under,
            args=(self._settings, partial(self._work, worker)),
            name=f"graphc-worker-{worker}",
            daemon=True,  # one that waits forever for a batch must not keep the process
        )
        self._threads.append(thread)
        return thread

    def join(self, name: str) -> None:
        """Adds a worker to a run that is going. It has the next number."""
        with self._lock:
            thread = self._add(name)
            uninterrupted(thread.start)

    def leave(self, worker: int) -> None:
        """Lets a worker end after its current step."""
        self._leaving.add(worker)

    @property
    def active(self) -> list[int]:
        """The numbers of the workers that have not ended and do not leave."""
        rows = enumerate(self._ended)
        return [i for i, ended in rows if i not in self._leaving and not ended.is_set()]

    @property
    def count(self) -> int:
        """The number of workers that there have been."""
        return len(self._threads)

    def is_going(self) -> bool:
        """Whether a worker was started and has not ended."""
        rows = zip(self._threads, self._ended, strict=False)  # one may be about to join
        return any(thread.ident is not None and not ended.is_set() for thread, ended in rows)

    def carry_out(self) -> None:
        """Runs the workers until they end or one fails.

        Raises:
            The exception of a worker, with its traceback, or the one that interrupted the caller.
        """
        try:
            # If an interrupt came while a thread was being started, `_wait` would not wait for it.
            uninterrupted(self._start)
            self._wait()
        finally:  # Ctrl-C arrives here, in the caller's thread
            self._admission.stop()
            self._wait()
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join()
        if self._failed is not None:
            (worker, error), self._failed = self._failed, None
            error.add_note(
                f"raised in worker {worker} of run_workers, on {self._names[worker]}, after "
                f"{self._steps[worker]} steps of its own; the variables have the "
                f"values after the {self._admission.updates} updates that were applied"
            )
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame

    def _start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _wait(self) -> None:
        """Waits until no worker is running. `Thread.join` is not used, because it treats a thread
        as ended when Ctrl-C interrupts it (Python 3.11 and 3.12). The wait has short intervals,
        because a signal that the system delivers to another thread is only handled between them."""
        while self.is_going():
            for thread, ended in zip(self._threads, self._ended, strict=False):
                if thread.ident is not None:
                    ended.wait(0.1)

    def result(self) -> WorkersRun:
        """The record of the call."""
        histogram = dict(sorted(self._staleness.items()))
        return WorkersRun(
            tuple(self._steps), self._admission.updates, histogram, self._last, self._values
        )

    # -- in the threads of workers --------------------------------------------------------------

    def _work(self, worker: int) -> None:
        """Runs the steps of a worker until there are no more batches."""
        try:
            while self._continues(worker) and self._step(worker):
                pass
        except BaseException as error:  # the caller's thread raises it
            self._fail(worker, error)
        finally:
            self._admission.leave(worker)
            self._ended[worker].set()

    def _continues(self, worker: int) -> bool:
        return not self._admission.stopping and worker not in self._leaving

    def _fail(self, worker: int, error: BaseException) -> None:
        with self._lock:
            if self._failed is None:
                self._failed = worker, error
        self._admission.stop()

    @abstractmethod
    def _step(self, worker: int) -> bool:
        """Makes one step of a worker. Returns False if there is none left."""

    def _note(self, worker: int, update: int, staleness: int, values: Any) -> None:
        """Records an update. The calls come one at a time, in the order of the updates."""
        step = self._steps[worker]
        self._steps[worker] += 1
        self._staleness[staleness] += 1
        self._last = values
        if self._values is not None:
            self._values.append(values)
        if self._on_step is not None:
            self._on_step(WorkerStep(worker, step, update, staleness, values))

    def _draws(self, worker: int, names: Sequence[str]) -> list[Any]:
        """The values from which a worker's random numbers are derived in its next step: its own
        key, which has its number folded in, and the number of its step in place of the run's."""
        if not names:
            return []
        if self._keys[worker] is None:
            root, counter = self._root
            key = jax.random.fold_in(as_jax_key(root), int(counter))
            self._keys[worker] = np.asarray(jax.random.key_data(jax.random.fold_in(key, worker)))
        drawn = {
            RNG_KEY: self._keys[worker],
            RNG_COUNTER: np.asarray(self._steps[worker], np.int32),
        }
        return [drawn[name] for name in names]


def check_not_going(run: WorkerThreads | None) -> None:
    """Raises `StateError` while the workers of a session are running."""
    if run is not None and run.is_going():
        raise StateError.here(
            "run_workers: workers of this session are running already",
            hint="wait until the first call has returned, or open another session",
        )
