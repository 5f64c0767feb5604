"""Compilation ahead of time and in the background: early errors, waiting and concurrency."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import AttributeValueError, ExecutionError, FeedError, LayoutError
from graphc.runtime.core.background import in_background
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.core.lazy import Lazy
from graphc.runtime.targets.jax_program import JaxProgram
from graphc.store.environment import settings
from tests.near import assert_near

FEED = np.linspace(-1, 1, 8 * 3).reshape(8, 3).astype(np.float32)


def model() -> tuple[gc.Graph, gc.Tensor, gc.Tensor, gc.Tensor, gc.Node]:
    """A training step whose variables share buffers, and an output that reads only some of them."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 3), name="x")
        y = gc.nn.Dense(4, name="a")(x)
        for i in range(3):
            y = y * gc.variable(np.full(4, 1.0 + i, np.float32), name=f"scale{i}")
        loss = gc.reduce_mean(gc.square(y), name="loss")
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
    return graph, x, y, loss, train


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> threading.Barrier:
    """Makes a compilation wait until another thread has started one."""
    barrier = threading.Barrier(2, timeout=60)
    compile = JaxProgram.compile

    def waiting(self: JaxProgram, *arguments: Any) -> Any:
        barrier.wait()
        return compile(self, *arguments)

    monkeypatch.setattr(JaxProgram, "compile", waiting)
    return barrier


# -- gc.compile -----------------------------------------------------------------------------


def test_several_compile_side_by_side(together: threading.Barrier) -> None:
    graph, x, y, loss, train = model()
    with graph.extend():
        other = gc.exp(y)
    futures = [gc.compile_async(graph, fetches, {x: (8, 3)}) for fetches in ([train, loss], other)]
    assert all(isinstance(future, Future) for future in futures)
    step, read = [future.result() for future in futures]  # either one alone would wait forever
    (_, value), state = step(step.init(), {x: FEED})
    wanted, state = read(state, {x: FEED})
    assert np.isfinite(float(value)) and np.asarray(wanted).shape == (8, 4)


def test_what_is_wrong_with_the_program_is_said_at_once() -> None:
    graph, x, y, loss, train = model()
    with pytest.raises(FeedError, match="got shape"):
        gc.compile_async(graph, loss, {x: (8, 4)})
    with graph.extend():
        doubled = gc.placeholder((3,), name="fixed") * 2
    with pytest.raises(LayoutError, match="no feed has a batch axis"):
        gc.compile_async(graph, doubled, {"fixed": (3,)}, strategy=DataParallel(2))


def test_what_xla_refuses_comes_with_the_future() -> None:
    graph, x, _, loss, train = model()
    options = gc.CompileOptions(xla_options={"no_such_option": 1})
    future = gc.compile_async(graph, [train, loss], {x: (8, 3)}, options=options)
    with pytest.raises(ExecutionError, match="no_such_option"):
        future.result()
    session = gc.Session(graph, options=options)
    with pytest.raises(ExecutionError, match="no_such_option"):
        session.compile_async(loss, {x: (8, 3)}).result()
    for _ in range(2):
        with pytest.raises(ExecutionError, match="no_such_option"):
            session.run(loss, {x: FEED})


def test_a_thread_has_the_settings_of_its_caller() -> None:
    for context in (jax.enable_x64(True), jax.default_matmul_precision("highest")):
        with context:
            assert in_background(settings).result() == settings()
    assert in_background(settings).result() == settings()
    texts = []
    graph, x, y, *_ = model()
    with jax.default_matmul_precision("highest"):
        texts.append(gc.compile(graph, y, {x: (8, 3)}).stablehlo())
        future = gc.compile_async(graph, y, {x: (8, 3)})
        texts.append(future.result().stablehlo())
    assert texts[0] == texts[1] and "precision = [HIGHEST" in texts[0]


# -- Session.compile ------------------------------------------------------------------------


def test_a_run_after_compile_compiles_nothing() -> None:
    graph, x, y, loss, train = model()
    session = gc.Session(graph)
    assert session.compile([train, loss], {x: (8, 3)}) in session.executables
    session.compile(y, {"x": gc.TensorSpec((8, 3), "float32")})
    session.compile([train, loss], {x: (8, 3)}, steps=3)
    before = COUNTERS.snapshot()
    session.run([loss, train], {"x": FEED})  # the same program, with the fetches in another order
    session.run(y, {x: FEED})
    session.run_steps([train, loss], {x: np.stack([FEED] * 3)}, 3)
    assert before == COUNTERS
    session.run(y, {x: FEED[:4]})
    assert COUNTERS.compiles == before.compiles + 1


def test_what_loses_its_buffers_is_compiled_again_ahead() -> None:
    graph, x, _, loss, train = model()
    with graph:
        part = graph.variables["scale1"].read() * 2.0
    session = gc.Session(graph)
    first = session.compile(part)  # reads one variable alone; the step groups it
    future = session.compile_async([train, loss], {x: (8, 3)})
    assert len(session.executables) == 2 and first not in session.executables
    np.testing.assert_array_equal(session.run(part), [4, 4, 4, 4])
    future.result()
    before = COUNTERS.snapshot()
    session.run([train, loss], {x: FEED})
    session.run(part)
    assert before == COUNTERS


def test_runs_wait_for_what_is_being_compiled(together: threading.Barrier) -> None:
    graph, x, y, loss, train = model()
    session = gc.Session(graph, strategy=DataParallel(2))
    futures = [session.compile_async(f, {x: (8, 3)}) for f in ([train, loss], [loss, y])]
    before = session.run([loss, y], {x: FEED})[0]
    assert_near(session.run([train, loss], {x: FEED})[1], before, rtol=1e-6)
    assert {future.result() for future in futures} == set(session.executables)
    assert session.compile_count == 2


@pytest.mark.parametrize("steps", [0, 2.0, True])
def test_a_number_of_steps_it_cannot_have(steps: Any) -> None:
    graph, x, _, loss, _ = model()
    with pytest.raises(AttributeValueError, match="must be an int of at least 1"):
        gc.Session(graph).compile(loss, {x: (8, 3)}, steps=steps)


# -- values that are computed once ----------------------------------------------------------


def test_once_is_made_once_for_all_threads() -> None:
    made: list[int] = []

    def slow() -> int:
        time.sleep(0.05)
        made.append(1)
        return len(made)

    value = Lazy(slow)
    futures = [in_background(value) for _ in range(4)]
    assert [future.result() for future in futures] == [1] * 4 and value() == 1


def test_once_is_made_again_where_it_failed() -> None:
    results: list[Any] = [ValueError("no"), 3]

    def make() -> Any:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    value = Lazy(make)
    with pytest.raises(ValueError, match="no"):
        value()
    assert (value(), value()) == (3, 3)
