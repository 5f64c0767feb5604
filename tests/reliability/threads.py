"""Eight threads on one session: results are as if the calls had run one after the other.

    python -m tests.reliability.threads '{FORM: ROUNDS, ...}' SEED     prints a tally as JSON

Each thread makes random calls: `run` and `run_steps` of a step that adds one to every variable and
fetches them all, `get`, `values`, `state`, reading runs, `set_all`, `compile` of new shapes (which
may move the state), and sometimes `save`. A tally counts:

    rounds              calls
    torn                calls whose results come from two states
    lost                steps whose numbers occurred twice or out of order
    errors              exceptions
    <call>              calls of each kind
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gc
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

THREADS = 8
STEPS = 3  # of one `run_steps`


class Attack:
    """A session that threads call, and the counts that its steps returned, by thread.

    Args:
        sets: whether calls include `set_all`; then the counts do not number the steps.
    """

    def __init__(self, form: str, sets: bool) -> None:
        self.model = Counted(partitioned=form == "partition")
        strategy: Any = None
        if form == "parallel":
            strategy = gc.devices.DataParallel(4)
        if form == "mesh":
            strategy = gc.devices.Mesh({"data": 2, "model": 2})
        options = gc.CompileOptions(cache=None)
        self.session = gc.Session(self.model.graph, strategy=strategy, options=options)
        self.fetches = [self.model.step, [self.model.graph.variables[name] for name in NAMES]]
        self.many = np.ones((STEPS, *FEED.shape), np.float32)
        self.tally = Counter[str](torn=0, lost=0, errors=0, crashes=0, hangs=0)
        self.given: list[list[int]] = [[] for _ in range(THREADS)]
        self.lock = threading.Lock()
        self.shapes = iter(range(9, 1000))
        self.calls: dict[Callable[[int, random.Random], list[int | None]], float] = {
            self.run: 40, self.run_steps: 10, self.get: 20, self.values: 8, self.state: 4,
            self.look: 20, self.compile: 0.1, self.save: 0.03, self.run_new: 0.05,
        }  # fmt: skip
        if sets:
            self.calls[self.set] = 10

    # Each call returns the counts that it saw; None for a torn result.

    def run(self, thread: int, rng: random.Random) -> list[int | None]:
        _, values = self.session.run(self.fetches, self.model.feeds)
        count = count_in(dict(zip(NAMES, values, strict=True)))
        self.given[thread].append(count or 0)
        return [count]

    def run_steps(self, thread: int, rng: random.Random) -> list[int | None]:
        _, rows = self.session.run_steps(self.fetches, {self.model.x: self.many}, STEPS)
        rows = [np.asarray(row) for row in rows]
        counts = [
            count_in(dict(zip(NAMES, [r[i] for r in rows], strict=True))) for i in range(STEPS)
        ]
        self.given[thread] += [count or 0 for count in counts]
        return list(counts)

    def get(self, thread: int, rng: random.Random) -> list[int | None]:
        values = np.ravel(self.session.get(rng.choice(NAMES)))
        return [int(values[0]) if (values == values[0]).all() else None]

    def values(self, thread: int, rng: random.Random) -> list[int | None]:
        return [count_in(self.session.values())]

    def state(self, thread: int, rng: random.Random) -> list[int | None]:
        return [count_in(self.session.state())]

    def look(self, thread: int, rng: random.Random) -> list[int | None]:
        values = self.session.run(self.model.checks, self.model.feeds)
        return [int(values[0]) if len({float(value) for value in values}) == 1 else None]

    def set(self, thread: int, rng: random.Random) -> list[int | None]:
        number = rng.randrange(1_000_000)
        values = [np.full(shape, number, np.float32) for shape in SHAPES]
        self.session.set_all(dict(zip(NAMES, values, strict=True)))
        return []

    def compile(self, thread: int, rng: random.Random) -> list[int | None]:
        with self.lock:
            rows = 4 * next(self.shapes)
        chosen = rng.sample(self.model.checks, 3)
        self.session.compile(chosen, {self.model.x: (rows, 4)})
        return []

    def run_new(self, thread: int, rng: random.Random) -> list[int | None]:
        with self.lock:
            rows = 4 * next(self.shapes)
        feeds = {self.model.x: np.ones((rows, 4), np.float32)}
        _, values = self.session.run(self.fetches, feeds)
        count = count_in(dict(zip(NAMES, values, strict=True)))
        self.given[thread].append(count or 0)
        return [count]

    def save(self, thread: int, rng: random.Random) -> list[int | None]:
        values = self.model.saved(self.session)
        return [int(values[0]) if len(set(values)) == 1 else None]

    def work(self, thread: int, calls: int, seed: int) -> None:
        """Makes the calls of one thread."""
        rng = random.Random(seed + thread)
        for _ in range(calls):
            (call,) = rng.choices(list(self.calls), list(self.calls.values()))
            try:
                counts = call(thread, rng)
            except Exception as error:
                print(f"{call.__name__}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                with self.lock:
                    self.tally["errors"] += 1
                    if self.tally["errors"] > 20:
                        return
                continue
            with self.lock:
                self.tally[call.__name__] += 1
                self.tally["rounds"] += 1
                self.tally["torn"] += counts.count(None)

    def judge(self, final: int) -> None:
        """Checks that steps are numbered without gaps, and in order within each thread."""
        every = sorted(count for counts in self.given for count in counts)
        self.tally["steps"] = len(every)
        if every != list(range(1, final + 1)):
            self.tally["lost"] += 1
        self.tally["lost"] += sum(counts != sorted(counts) for counts in self.given)


def attack(form: str, calls: int, seed: int) -> Counter[str]:
    """Makes calls from eight threads in this process, which an error in JAX may crash."""
    if form in ("executable", "fresh"):
        return {"executable": attack_executable, "fresh": attack_fresh}[form](calls, seed)
    attacked = Attack(form.removesuffix("_sets"), sets=form.endswith("_sets"))
    share = -(-calls // THREADS)
    in_threads(lambda thread: attacked.work(thread, share, seed * 1000))
    final = count_in(attacked.session.values())
    if final is None:
        attacked.tally["torn"] += 1
    elif not form.endswith("_sets"):
        attacked.judge(final)
    return attacked.tally


def attack_fresh(calls: int, seed: int) -> Counter[str]:
    """Threads use a new session at once, each with another program: all compile at the same time
    (or load from a cache after the first round), and each may need the state in other buffers."""
    model = Counted()
    tally = Counter[str](torn=0, lost=0, errors=0, crashes=0, hangs=0)
    lock, each = threading.Lock(), 4
    firsts: list[Any] = [model.checks[i : i + 3] for i in range(len(model.checks) - 2)]

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        options = gc.CompileOptions(cache=folder)
        for number in range(max(2, -(-calls // (THREADS * each)))):
            rng = random.Random(seed * 1000 + number)
            session = gc.Session(model.graph, options=options)
            order = [rng.choice(firsts) for _ in range(THREADS // 2)]
            order += [model.step] * (THREADS - len(order))
            rng.shuffle(order)

            def work(thread: int, session: gc.Session = session, order: Any = order) -> None:
                for _ in range(each):
                    try:
                        seen = session.run(order[thread], model.feeds)
                    except Exception as error:
                        print(f"{type(error).__name__}: {str(error)[:300]}", flush=True)
                        with lock:
                            tally["errors"] += 1
                        return
                    with lock:
                        tally["rounds"] += 1
                        tally["torn"] += seen is not None and len({float(v) for v in seen}) != 1

            in_threads(work)
            steps = each * order.count(model.step)
            tally["lost"] += count_in(session.values()) != steps
    return tally


def attack_executable(calls: int, seed: int) -> Counter[str]:
    """Executables on one device and on four. Each thread has its own states, made by either
    executable, and moves them between both."""
    model = Counted()
    options = gc.CompileOptions(cache=None, max_in_flight=1)
    shape = {model.x: FEED.shape}
    four = gc.devices.DataParallel(4)
    steps = [
        gc.compile(model.graph, model.step, shape, options=options),
        gc.compile(model.graph, [model.step, *model.checks], shape, options=options),
        gc.compile(model.graph, model.step, shape, strategy=four, options=options),
    ]
    look = gc.compile(model.graph, model.checks, shape, options=options)
    tally = Counter[str](torn=0, lost=0, errors=0, crashes=0, hangs=0)
    lock = threading.Lock()

    def work(thread: int) -> None:
        rng = random.Random(seed + thread)
        state, made = steps[thread % 3].init(), 0
        for _ in range(-(-calls // THREADS)):
            step = steps[thread % 3] if rng.random() < 0.95 else rng.choice(steps)
            try:
                _, state = step(state, model.feeds)
                made += 1
                count = count_in(state) if made % 50 == 0 else made
                if step is not steps[2]:
                    (first, *_), state = look(state, model.feeds)
                    count = int(first) if made % 10 == 0 else count
            except Exception as error:
                print(f"{type(error).__name__}: {str(error)[:300]}", flush=True)
                with lock:
                    tally["errors"] += 1
                return
            with lock:
                tally["rounds"] += 1
                tally["torn"] += count is None
                tally["lost"] += count != made

    in_threads(work)
    return tally


def in_threads(work: Callable[[int], None]) -> None:
    """Runs `work` in eight threads, each with its number."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# Each form's share of all calls.
FORMS = {
    "one": 0.3,
    "one_sets": 0.2,
    "parallel": 0.2,
    "parallel_sets": 0.1,
    "partition": 0.05,
    "mesh": 0.05,
    "executable": 0.08,
    "fresh": 0.02,
}


def attack_all(calls: int, seed: int, *, each: bool) -> Counter[str]:
    """Attacks all forms, each in a separate process or all in one: see `in_children`."""
    forms = shared_out(calls, FORMS, least=2 * THREADS)
    return in_children("threads", forms, seed, each=each)


if __name__ == "__main__":
    print_total(attack)
