"""Ctrl-C at random moments: the variables always hold the state after a whole step.

    python -m tests.reliability.interrupts '{FORM: ROUNDS, ...}' SEED     prints a tally as JSON

A form is a loop over one way to run or change a session: see `FORMS`. In each round, the loop is
interrupted at a random moment, by SIGINT from another thread or, in `limit` and `parallel_limit`,
by a timer whose handler raises TimeoutError. Then the values of all variables are compared with
each other and with the number of completed steps. Then the session is used again, and sometimes it
is saved and loaded. A tally counts:

    rounds, steps       the work that was done
    lost                values that are not those after the last whole step, or unreadable values
    told                in `executable`: StateError reported that the call consumed the state
    late                interrupts that were sent again, because Python dropped the exception
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import graphc as gc
from graphc.errors import StateError
from tests.reliability.counted import (
    FEED,
    NAMES,
    SHAPES,
    Counted,
    count_in,
    in_children,
    print_total,
    shared_out,
)

STEPS = 3  # of one `run_steps`
Loop = Callable[[], None]


class Interrupter:
    """Sends SIGINT to this process after a delay, and repeats it until it is noticed."""

    def __init__(self) -> None:
        self.late = 0
        self._delays: list[float] = []
        self._wanted, self._seen = threading.Event(), threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    def during(self, loop: Loop, delay: float) -> None:
        """Runs an endless loop until the interrupt ends it."""
        try:
            try:
                self._seen.clear()
                self._delays.append(delay)
                self._wanted.set()
                loop()
            finally:
                self._seen.set()
        except KeyboardInterrupt:
            pass

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            time.sleep(self._delays.pop())
            os.kill(os.getpid(), signal.SIGINT)
            while not self._seen.wait(3.0):
                self.late += 1
                os.kill(os.getpid(), signal.SIGINT)


class Timer:
    """A time limit: SIGALRM after a delay, repeated until it is noticed."""

    late = 0

    def during(self, loop: Loop, delay: float) -> None:
        """Runs an endless loop until the time is up."""
        before = signal.signal(signal.SIGALRM, _time_is_up)
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-5), 3.0)
                loop()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
        except TimeoutError:
            pass
        finally:
            signal.signal(signal.SIGALRM, before)


def _time_is_up(number: int, frame: Any) -> None:
    raise TimeoutError("time is up")


class Attack:
    """One form: a session, its loop, and the range of correct counts when the loop stops."""

    def __init__(self, form: str) -> None:
        self.model = Counted(partitioned=form == "partition")
        options = gc.CompileOptions(cache=None)
        strategy: Any = {
            "parallel": gc.devices.DataParallel,
            "parallel_limit": gc.devices.DataParallel,
            "parallel_steps": gc.devices.DataParallel,
            "workers": gc.devices.AsyncDataParallel,
        }.get(form)
        strategy = strategy and strategy(4)
        if form == "mesh":
            strategy = gc.devices.Mesh({"data": 2, "model": 2})
        self.session = gc.Session(self.model.graph, strategy=strategy, options=options)
        self.begun = self.ended = 0  # steps
        self.loop: Loop = getattr(self, "_" + LOOPS.get(form, form))

    def _run(self) -> None:
        run, model = self.session.run, self.model
        while True:
            self.begun += 1
            run([model.step, model.one], model.feeds)
            self.ended += 1

    def _run_steps(self) -> None:
        feeds = {self.model.x: np.ones((STEPS, *FEED.shape), np.float32)}
        while True:
            self.begun += STEPS
            self.session.run_steps(self.model.step, feeds, STEPS)
            self.ended += STEPS

    def _batches(self) -> Iterator[Any]:
        while True:
            self.ended = self.begun
            self.begun += 1
            yield self.model.feeds

    def _fit(self) -> None:
        model = self.model
        job = gc.train.Job(model.graph, model.step, self._batches(), 10**9, {"one": model.one})
        gc.train.fit(self.session, job, progress=False)

    def _workers(self) -> None:
        self.begun = 10**9  # workers take batches in any order
        self.session.run_workers(self.model.step, itertools.repeat(self.model.feeds))

    def _tune(self) -> None:
        model = self.model
        while True:
            feeds = {model.x: FEED.shape}
            gc.tune(model.graph, model.step, feeds, seconds=0.2, progress=False)

    def _set(self) -> None:
        while True:
            self.begun += 1
            values = [np.full(shape, self.begun, np.float32) for shape in SHAPES]
            self.session.set_all(dict(zip(NAMES, values, strict=True)))
            self.ended += 1
            self.begun += 1
            self.session.run(self.model.step, self.model.feeds)
            self.ended += 1

    def _compile(self) -> None:
        """The first run of each fetch set compiles it, and may move the state."""
        model = self.model
        for rows in itertools.count(1):
            feeds = {model.x: np.ones((rows, 4), np.float32)}
            self.session.run(model.checks[: rows % len(NAMES) + 1], feeds)
            self.begun += 1
            self.session.run(model.step, feeds)
            self.ended += 1

    def look(self) -> int | None:
        """The number of steps in the variables; None if that number cannot be correct."""
        values = self.session.values()
        count = count_in(values)
        got = np.asarray(self.session.get(NAMES[4]))
        if count is None or not self.ended <= count <= self.begun or not (got == count).all():
            print("lost:", self.ended, self.begun, {k: np.ravel(v)[0] for k, v in values.items()})
            return None
        return count

    def go_on(self, count: int) -> None:
        """Makes one more step, and counts from there."""
        self.session.run(self.model.step, self.model.feeds)
        self.begun = self.ended = count + 1

    def warm_up(self, interrupter: Interrupter | Timer) -> float:
        """Interrupts the loop until its programs are compiled; returns the seconds of a step."""
        for delay in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
            before = self.begun
            interrupter.during(self.loop, delay)
            count = self.look()
            if count is None or count > before or self.loop == self._tune:
                break
        start = time.perf_counter()
        for _ in range(8):
            self.session.run(self.model.step, self.model.feeds)
        self.session.values()
        self.begun = self.ended = (count or 0) + 8
        return (time.perf_counter() - start) / 8

    def is_saved(self, count: int) -> bool:
        """Whether a saved and loaded model contains this number of steps."""
        return all(value == count for value in self.model.saved(self.session))


LOOPS = {
    "limit": "run",
    "parallel": "run",
    "parallel_limit": "run",
    "parallel_steps": "run_steps",
    "partition": "run",
    "mesh": "run",
}


def attack(form: str, rounds: int, seed: int) -> Counter[str]:
    """Interrupts one form in this process, which an error in JAX may crash."""
    rng, tally = random.Random(seed), Counter[str](lost=0, crashes=0, hangs=0)
    if form == "executable":
        return attack_executable(rounds, rng, tally)
    attacked = Attack(form)
    interrupter = Timer() if form.endswith("limit") else Interrupter()
    attacked.go_on(0)
    step = attacked.warm_up(interrupter)
    most = {"compile": 0.3, "workers": 0.3, "tune": 1.0, "fit": 0.05}.get(
        form, max(0.003, 4 * step)
    )
    for number in range(rounds):
        interrupter.during(attacked.loop, rng.uniform(0.0, most))
        tally["rounds"] += 1
        try:
            count = attacked.look()
        except Exception as error:
            print("lost:", type(error), error)
            count = None
        if count is None:
            tally["lost"] += 1
            return tally
        attacked.go_on(count)
        if number % 500 == 1 and form in ("run", "parallel"):
            tally["lost"] += not attacked.is_saved(count + 1)
            tally["saved"] += 1
        tally["steps"] = count + 1
    tally["late"] = interrupter.late
    return tally


def attack_executable(rounds: int, rng: random.Random, tally: Counter[str]) -> Counter[str]:
    """`fetched, state = step(state, feeds)`: the old state has its values, or reports the loss."""
    model, interrupter = Counted(), Interrupter()
    options = gc.CompileOptions(cache=None)
    step = gc.compile(model.graph, model.step, {model.x: FEED.shape}, options=options)
    state, ended = step.init(), 0

    def loop() -> None:
        nonlocal state, ended
        while True:
            _, state = step(state, model.feeds)
            ended += 1

    for _ in range(rounds):
        interrupter.during(loop, rng.uniform(0.0, 0.01))
        tally["rounds"] += 1
        tally["steps"] = ended
        try:
            count = count_in({name: np.asarray(state[name]) for name in NAMES})
        except StateError:
            tally["told"] += 1
            state, ended = step.init(), 0
            continue
        if count is None or not ended <= count <= ended + 1:
            tally["lost"] += 1
            print("lost:", ended, count)
            return tally
        ended = count
    tally["late"] = interrupter.late
    return tally


# Each form's share of all rounds.
FORMS = {
    "run": 0.28,
    "parallel": 0.28,
    "limit": 0.02,
    "parallel_limit": 0.02,
    "run_steps": 0.08,
    "parallel_steps": 0.06,
    "fit": 0.06,
    "set": 0.06,
    "partition": 0.06,
    "mesh": 0.04,
    "executable": 0.03,
    "workers": 0.005,
    "compile": 0.005,
    "tune": 0.002,
}


def attack_all(rounds: int, seed: int, *, each: bool) -> Counter[str]:
    """Attacks all forms, each in a separate process or all in one: see `in_children`."""
    forms = shared_out(rounds, FORMS, least=2)
    return in_children("interrupts", forms, seed, each=each)


def main() -> None:
    """Prints the total of the forms that the command line names."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    print_total(attack)


if __name__ == "__main__":
    main()
