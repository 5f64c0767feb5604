"""Threads and signal handlers that use one session: each case interrupts at an exact moment."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import graphc as gc
from tests.runtime.counting import (
    FEED,
    counting,
    counts,
    handled,
    interrupt,
    meddle,
    strategy_of,
)


def test_a_handler_may_use_the_session_while_a_step_waits_for_room() -> None:
    graph, step, _ = counting()
    session = gc.Session(graph, options=gc.CompileOptions(max_in_flight=1))
    session.run(step, {"x": FEED})
    waiting = session.executables[0].executor._in_flight._waiting
    seen: list[set[float]] = []

    class Busy:
        def is_deleted(self) -> bool:
            return False

        def block_until_ready(self) -> None:
            interrupt()

    waiting[0] = [Busy()]
    with handled(signal.SIGINT, lambda *_: seen.append(counts(session.values()))):
        session.run(step, {"x": FEED})
    assert seen == [{1}] and counts(session.values()) == {2}


def test_reading_runs_bound_their_steps_from_any_thread() -> None:
    graph, _, total = counting()
    look = gc.compile(graph, total, {"x": FEED.shape}, options=gc.CompileOptions(max_in_flight=1))
    state, failed = look.init(), list[BaseException]()

    def work() -> None:
        try:
            for _ in range(200):
                assert look(state, {"x": FEED})[0] == 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_steps_run_while_another_thread_compiles(monkeypatch) -> None:
    graph, step, total = counting()
    session = gc.Session(graph, options=gc.CompileOptions(cache=None))
    session.run(step, {"x": FEED})
    compiling, go_on = threading.Event(), threading.Event()
    wait = gc.Executable.wait

    def slow(self: Any) -> Any:
        compiling.set()
        assert go_on.wait(60)
        return wait(self)

    monkeypatch.setattr(gc.Executable, "wait", slow)
    thread = threading.Thread(target=session.run, args=(total, {"x": FEED}))
    thread.start()
    assert compiling.wait(60)
    session.run(step, {"x": FEED})
    assert counts(session.values()) == {2}
    go_on.set()
    thread.join()
    assert counts(session.values()) == {2}


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("use", ["get", "values", "set", "run"])
def test_another_thread_waits_for_a_whole_step(use: str, devices: int) -> None:
    """No thread reads the state after a step consumed it and before the step stored the new one."""
    graph, step, total = counting()
    session = gc.Session(graph, strategy=strategy_of(devices))
    session.run(step, {"x": FEED})
    before = session.run(total, {"x": FEED})
    value = np.full(3, 7, np.float32)
    uses = {
        "get": lambda: seen.append(session.get("b").tolist()),
        "values": lambda: seen.append(session.values()["b"].tolist()),
        "set": lambda: seen.append(session.set("b", value)),
        "run": lambda: seen.append(float(session.run(total, {"x": FEED}) - before)),
    }
    seen: list[Any] = []
    threads: list[threading.Thread] = []

    def start_another() -> None:
        threads.append(threading.Thread(target=uses[use]))
        threads[0].start()
        threads[0].join(0.2)
        assert threads[0].is_alive() and not seen

    undo = meddle(session.executables[0], start_another)
    session.run(step, {"x": FEED})
    undo()
    threads[0].join()
    wanted = {"get": [2, 2, 2], "values": [2, 2, 2], "set": None, "run": 40 * 50}
    assert seen == [wanted[use]]
    if use == "set":
        assert session.get("b").tolist() == [7, 7, 7]


def test_one_thread_at_a_time_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compiled program must fit the current state, and no program is compiled twice."""
    graph, step, total = counting()
    session = gc.Session(graph, options=gc.CompileOptions(cache=None))
    wait = gc.Executable.wait
    at_work: list[int] = []
    most: list[int] = []

    def slow(self: Any) -> Any:
        at_work.append(1)
        most.append(len(at_work))
        time.sleep(0.1)
        at_work.pop()
        return wait(self)

    monkeypatch.setattr(gc.Executable, "wait", slow)
    threads = [
        threading.Thread(target=session.run, args=(fetch, {"x": FEED}))
        for fetch in (step, total, step, total)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(session.executables) == 2
    assert counts(session.values()) == {2}


@pytest.mark.parametrize("option", ["donate", "check_numerics"])
def test_a_step_that_a_handler_runs_inside_another_is_kept(option: str) -> None:
    """This holds for steps that do not donate their buffers."""
    graph, step, _ = counting()
    options = gc.CompileOptions(**{option: option == "check_numerics"})
    session = gc.Session(graph, options=options)
    session.run(step, {"x": FEED})

    def run_once_more(number: int, frame: Any) -> None:
        undo()
        session.run(step, {"x": FEED})

    undo = meddle(session.executables[0], interrupt)
    with handled(signal.SIGINT, run_once_more):
        session.run(step, {"x": FEED})
    assert counts(session.values()) == {3}
