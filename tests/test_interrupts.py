"""The state of a session after an interrupt: each case interrupts at an exact moment.

`tests/reliability` interrupts at random moments.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc import interrupts
from graphc.errors import StateError
from graphc.interrupts import uninterrupted
from graphc.runtime.buffers import packing
from graphc.runtime.targets.jax_program import JaxProgram
from tests.runtime.counting import (
    FEED,
    Meddled,
    counting,
    counts,
    handled,
    interrupt,
    meddle,
    strategy_of,
)


def _time_is_up(number: int, frame: Any) -> None:
    raise TimeoutError("time is up")


class Busy:
    """A value of a step that receives a signal while a thread waits for it."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        self._number = number

    def is_deleted(self) -> bool:
        return False

    def block_until_ready(self) -> None:
        interrupt(self._number)


# -- interrupts --------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGALRM"])
def test_an_interrupt_between_donation_and_storing_comes_after_the_step(
    devices: int, name: str
) -> None:
    graph, step, _ = counting()
    session = gc.Session(graph, strategy=strategy_of(devices))
    session.run(step, {"x": FEED})
    undo = meddle(session.executables[0], lambda: interrupt(getattr(signal, name)))

    def stop(number: int, frame: Any) -> None:
        assert counts(session.values()) == {2}, "a handler sees a whole step"
        raise KeyboardInterrupt

    with handled(getattr(signal, name), stop):
        with pytest.raises(KeyboardInterrupt):
            session.run(step, {"x": FEED})
        assert signal.getsignal(getattr(signal, name)) is stop
    undo()
    session.run(step, {"x": FEED})
    assert counts(session.values()) == {3}


@pytest.mark.parametrize("devices", [1, 4])
def test_what_cannot_be_delayed_breaks_the_session_and_says_so(devices: int) -> None:
    graph, step, total = counting()
    session = gc.Session(graph, strategy=strategy_of(devices))
    session.run([step, total], {"x": FEED})
    session.get("c")  # in jax 0.10, a program that ran once crashes if an input buffer is deleted
    session.run(total, {"x": FEED})

    def fail() -> None:
        raise KeyboardInterrupt("by PyThreadState_SetAsyncExc")

    meddle(session.executables[0], fail)
    with pytest.raises(KeyboardInterrupt):
        session.run([step, total], {"x": FEED})
    uses: list[Callable[[], Any]] = [
        lambda: session.get("c"),
        session.values,
        session.state,
        lambda: session.run(total, {"x": FEED}),
        lambda: session.run([step, total], {"x": FEED}),
        lambda: session.run_steps(total, {"x": FEED[None]}, 1),
        lambda: session.set("a", 0.0),
        lambda: session.compile(step, {"x": (8, 4)}),
        lambda: gc.save(
            session, "nowhere", signatures={"s": gc.Signature({"x": "x"}, {"t": total})}
        ),
    ]
    for use in uses:
        with pytest.raises(StateError, match="session is broken: a step that was given the state"):
            use()
    session.close()


def test_an_interrupted_call_leaves_the_state_that_it_was_given_usable() -> None:
    graph, step, _ = counting()
    compiled = gc.compile(graph, step, {"x": FEED.shape})
    _, state = compiled(compiled.init(), {"x": FEED})
    undo = meddle(compiled, interrupt)
    with pytest.raises(KeyboardInterrupt):
        compiled(state, {"x": FEED})
    assert counts(state) == {2}, "the step was carried out"
    undo()

    def fail() -> None:
        raise KeyboardInterrupt

    _, state = compiled(state, {"x": FEED})
    meddle(compiled, fail)
    with pytest.raises(KeyboardInterrupt):
        compiled(state, {"x": FEED})
    with pytest.raises(StateError, match="consumed by a run that was interrupted"):
        state["a"]


def test_an_interrupt_while_state_moves_leaves_all_programs_right(monkeypatch) -> None:
    graph, step, total = counting()
    session = gc.Session(graph, options=gc.CompileOptions(cache=None))
    session.run(total, {"x": FEED})
    move_to = gc.Executable.move_to

    def interrupted(self: Any, layout: Any) -> bool:
        interrupt()
        return move_to(self, layout)

    monkeypatch.setattr(gc.Executable, "move_to", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.run(step, {"x": FEED})
    monkeypatch.undo()
    for number in range(1, 3):
        session.run(step, {"x": FEED})
        assert float(session.run(total, {"x": FEED})) == 2000 * number + 1
        assert counts(session.values()) == {number}


def test_variables_are_set_all_or_none(monkeypatch) -> None:
    graph, step, _ = counting()
    session = gc.Session(graph)
    session.run(step, {"x": FEED})

    place_on = packing.place_on

    def interrupted(*arguments: Any) -> Any:
        interrupt()
        return place_on(*arguments)

    monkeypatch.setattr(packing, "place_on", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.set_all({"a": 7.0, "b": [7, 7, 7], "c": np.full((40, 50), 7.0)})
    assert counts(session.values()) == {7}


def test_an_interrupted_entry_point_leaves_the_state_that_it_was_given_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, step, total = counting()
    signature = gc.Signature({"x": "x"}, {"total": total}, updates=[step])
    gc.save(gc.Session(graph), tmp_path / "model", signatures={"train": signature})
    model = gc.load(tmp_path / "model")
    train = model.signatures["train"]
    _, state = train(model.state(), x=FEED)
    make = train._chain.step

    def meddled(shapes: Any) -> Any:
        compiled, places = make(shapes)
        return Meddled(compiled, interrupt), places

    def interrupted(self: Any, values: Any) -> Any:
        raise KeyboardInterrupt

    for number in (2, 3):
        if number == 2:  # interrupts before the run returns; the other case interrupts after it
            monkeypatch.setattr(train._chain, "step", meddled)
        else:
            monkeypatch.setattr(type(state), "followed_by", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(state, x=FEED)
        monkeypatch.undo()
        assert counts(state) == {number}
    _, state = train(state, x=FEED)
    assert counts(state) == {4}


def test_an_interrupt_does_not_leave_averages_in_the_place_of_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, step, _ = counting()
    with graph:
        averages = gc.train.moving_averages(graph.variables.values(), decay=0.5)
    session = gc.Session(graph)
    session.run(step, {"x": FEED})
    set_all, calls = gc.Session.set_all, []

    def interrupted(self: gc.Session, values: Any) -> None:
        calls.append(values)
        if len(calls) == 2:  # this call would restore the parameters
            raise KeyboardInterrupt
        set_all(self, values)

    monkeypatch.setattr(gc.Session, "set_all", interrupted)
    with pytest.raises(KeyboardInterrupt), averages.swapped(session):
        assert counts(session.values()) == {0}
    assert counts(session.values()) == {1}


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
def test_an_error_that_a_handler_raises_is_no_failure_of_a_run(devices: int, number: int) -> None:
    """A time limit raises TimeoutError while a step waits or starts, or while values are read."""
    graph, step, _ = counting()
    options = gc.CompileOptions(max_in_flight=1)
    session = gc.Session(graph, strategy=strategy_of(devices), options=options)
    session.run(step, {"x": FEED})
    in_flight = session.executables[0].executor._in_flight

    with handled(number, _time_is_up):
        in_flight._waiting.clear()
        in_flight._waiting.append([Busy(number)])
        with pytest.raises(TimeoutError, match="time is up"):
            session.run(step, {"x": FEED})
        in_flight._waiting.clear()
        assert counts(session.values()) == {1}

        undo = meddle(session.executables[0], lambda: interrupt(number))
        with pytest.raises(TimeoutError, match="time is up"):
            session.run(step, {"x": FEED})
        undo()
        assert counts(session.values()) == {2}

    session.run(step, {"x": FEED})
    assert counts(session.values()) == {3}


def test_a_call_of_an_executable_passes_on_what_a_handler_raises() -> None:
    graph, step, _ = counting()
    compiled = gc.compile(graph, step, {"x": FEED.shape})
    _, state = compiled(compiled.init(), {"x": FEED})
    undo = meddle(compiled, interrupt)
    with handled(signal.SIGINT, _time_is_up), pytest.raises(TimeoutError):
        compiled(state, {"x": FEED})
    undo()
    assert counts(state) == {2}, "the step was carried out"
    in_flight = compiled.executor._in_flight
    in_flight._bound = 1
    in_flight._waiting.append([Busy()])
    with handled(signal.SIGINT, _time_is_up), pytest.raises(TimeoutError):
        compiled(state, {"x": FEED})
    assert counts(state) == {2}, "the step was not carried out"


def test_an_error_that_a_handler_raises_while_values_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, step, _ = counting()
    session = gc.Session(graph)
    session.run(step, {"x": FEED})
    state, buffers = session._state, session._state.buffers
    monkeypatch.setattr("graphc.runtime.core.failures.jax", SimpleNamespace(Array=Busy))
    state.buffers = [Busy()]
    with handled(signal.SIGINT, _time_is_up), pytest.raises(TimeoutError):
        session.values()
    monkeypatch.undo()
    state.buffers = buffers
    assert counts(session.values()) == {1}


# -- handlers ----------------------------------------------------------------------------------


def test_a_signal_waits_and_the_handler_is_the_users_again() -> None:
    seen: list[str] = []

    def work(value: int) -> int:
        interrupt()
        interrupt()
        seen.append("done")
        return value

    def handler(number: int, frame: Any) -> None:
        seen.append(signal.Signals(number).name)

    with handled(signal.SIGINT, handler):
        assert uninterrupted(work, 3) == 3
        assert signal.getsignal(signal.SIGINT) is handler
    assert seen == ["done", "SIGINT"], "once: a second press adds nothing"


def test_each_kind_of_signal_is_delivered_even_if_the_first_raises() -> None:
    seen: list[int] = []

    def work() -> None:
        interrupt(signal.SIGTERM)
        interrupt()

    with (
        handled(signal.SIGTERM, lambda *_: seen.append(15) or 1 / 0),
        handled(signal.SIGINT, lambda *_: seen.append(2)),
        pytest.raises(ZeroDivisionError),
    ):
        uninterrupted(work)
    assert seen == [15, 2]


def test_nested_work_and_work_that_fails() -> None:
    def inner() -> None:
        interrupt()
        raise ValueError("inner")

    def outer() -> str:
        with pytest.raises(ValueError, match="inner"):
            uninterrupted(inner)
        return "not interrupted here either"

    reached: list[str] = []
    with handled(signal.SIGINT, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        uninterrupted(lambda: reached.append(outer()))
    assert reached == ["not interrupted here either"]


def test_handlers_that_are_not_pythons_stay() -> None:
    for handler in (signal.SIG_IGN, signal.SIG_DFL):
        with handled(signal.SIGINT, handler):
            assert uninterrupted(lambda: signal.getsignal(signal.SIGINT)) == handler


def test_a_call_that_hangs_can_be_stopped(monkeypatch) -> None:
    monkeypatch.setattr(interrupts, "PATIENCE", 0.05)

    def hang() -> None:
        interrupt()
        time.sleep(0.1)
        interrupt()
        raise AssertionError("the second press is not delayed")

    with handled(signal.SIGINT, signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(hang)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert not interrupts._delayed


def test_a_handler_that_was_left_behind_passes_on_and_goes() -> None:
    interrupts._handlers[int(signal.SIGINT)] = signal.default_int_handler
    with handled(signal.SIGINT, interrupts._delay):
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_run_with_the_handlers_as_they_are() -> None:
    found: list[Any] = []
    work = lambda: found.append(signal.getsignal(signal.SIGINT))  # noqa: E731
    thread = threading.Thread(target=uninterrupted, args=(work,))
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


def test_asyncio_finds_the_handler_that_it_expects() -> None:
    graph, step, _ = counting()
    session = gc.Session(graph)

    async def train() -> None:
        for _ in range(3):
            session.run(step, {"x": FEED})
            await asyncio.sleep(0)
        interrupt()
        await asyncio.sleep(5)

    with handled(signal.SIGINT, signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(train())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert counts(session.values()) == {3}


def test_asyncio_sees_one_interrupt_once() -> None:
    """asyncio learns of a signal from a file descriptor, to which Python writes when it arrives."""
    graph, step, _ = counting()
    session = gc.Session(graph)
    session.run(step, {"x": FEED})
    undo = meddle(session.executables[0], interrupt)
    seen: list[int] = []

    async def train() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, seen.append, 1)
        session.run(step, {"x": FEED})
        await asyncio.sleep(0.05)

    with handled(signal.SIGINT, signal.default_int_handler):
        asyncio.run(train())
    undo()
    assert seen == [1]


def test_a_signal_of_a_call_outside_stays_delayed() -> None:
    seen: list[str] = []

    def inner() -> None:
        interrupt(signal.SIGTERM)

    def outer() -> None:
        interrupt()
        before = signal.signal(signal.SIGTERM, lambda *_: seen.append("SIGTERM"))
        uninterrupted(inner)
        signal.signal(signal.SIGTERM, before)
        seen.append("outer")

    with handled(signal.SIGINT, lambda *_: seen.append("SIGINT")):
        uninterrupted(outer)
    assert seen == ["SIGTERM", "outer", "SIGINT"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_signal_that_is_ignored_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanged: list[int] = []
    real = interrupts._set_handler

    def watched(number: int, handler: Any) -> Any:
        exchanged.append(number)
        return real(number, handler)

    monkeypatch.setattr(interrupts, "_set_handler", watched)
    with handled(signal.SIGHUP, signal.SIG_IGN), handled(signal.SIGTERM, signal.SIG_DFL):
        assert uninterrupted(lambda: 3) == 3
    assert set(exchanged) <= {signal.SIGINT}


def test_handlers_are_compared_by_identity() -> None:
    class Equal:
        """Compares equal to every object, including `signal.SIG_IGN`."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> Any:
            return np.ones(2, bool)  # bool() of this array raises an error

        def __call__(self, *_: Any) -> None:
            seen.append(self.name)

    seen: list[str] = []
    for name in ("first", "second"):
        with handled(signal.SIGINT, Equal(name)):
            uninterrupted(interrupt)
    assert seen == ["first", "second"]
    with handled(signal.SIGINT, signal.SIG_IGN):
        uninterrupted(lambda: seen.append(str(signal.getsignal(signal.SIGINT))))
    assert seen[2] == str(signal.SIG_IGN)
    assert not interrupts._handlers.get(signal.SIGINT), "the last one is held no more"


def test_the_handlers_of_each_moment_are_delayed() -> None:
    """A call must restore the handlers that it found, not those that an earlier call found."""
    seen: list[str] = []

    def handler(name: str) -> Any:
        return lambda *_: seen.append(name)

    def work() -> None:
        interrupt()
        interrupt(signal.SIGTERM)
        seen.append("work")

    for turn in ("a", "b", "a"):
        with handled(signal.SIGINT, handler(f"INT {turn}")):
            uninterrupted(interrupt)
            with handled(signal.SIGTERM, handler(f"TERM {turn}")):
                mine = signal.getsignal(signal.SIGTERM)
                uninterrupted(work)
                assert signal.getsignal(signal.SIGTERM) is mine
        assert seen == [f"INT {turn}", "work", f"INT {turn}", f"TERM {turn}"]
        seen.clear()


def test_a_time_limit_that_ends_a_compilation_is_no_failure_of_it(monkeypatch) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        y = x + 1
    session = gc.Session(graph)

    def limited(*args: object, **more: object) -> None:
        raise TimeoutError("time is up")

    with monkeypatch.context() as patch, pytest.raises(TimeoutError, match="time is up"):
        patch.setattr(jax.stages.Lowered, "compile", limited)
        session.run(y, {x: 1.0})
    assert float(session.run(y, {x: 1.0})) == 2.0


@pytest.mark.parametrize("part", ["_lower", "_compile"])
def test_an_interrupt_while_jax_traces_or_compiles_comes_after_it(part: str, monkeypatch) -> None:
    """JAX may be unusable after an exception in the middle of a trace."""
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        y = x + 1
    session = gc.Session(graph, options=gc.CompileOptions(cache=None))
    whole, original = [], getattr(JaxProgram, part)

    def interrupted(*args: Any) -> Any:
        interrupt()
        whole.append(original(*args))
        return whole[-1]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(JaxProgram, part, interrupted)
        session.run(y, {x: 1.0})
    assert len(whole) == 1
    assert float(session.run(y, {x: 1.0})) == 2.0


@pytest.mark.parametrize("part", ["init", "update"])
def test_an_interrupt_while_an_optimizer_is_traced_comes_after_it(part: str) -> None:
    parts, whole = optax.sgd(0.5)._asdict(), []

    def interrupted(*args: Any, **more: Any) -> Any:
        if not whole:
            interrupt()
        whole.append(optax.sgd(0.5)._asdict()[part](*args, **more))
        return whole[-1]

    optimizer = optax.GradientTransformation(**parts | {part: interrupted})
    with gc.Graph() as graph:
        v = gc.variable(1.0, name="v")
        with pytest.raises(KeyboardInterrupt):
            gc.minimize(v * v, optimizer)
        assert len(whole) == 1
        train = gc.minimize(v * v, optimizer)
    session = gc.Session(graph)
    session.run(train)
    assert float(session.get(v)) == 0.0
