"""Steps after the first compile nothing and leak no memory."""

from __future__ import annotations

import gc as garbage
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import DataParallel
from graphc.runtime.core.counters import COUNTERS

STATM = Path("/proc/self/statm")
ROWS, COLUMNS = 8, 512  # 16 kB of floats: a leak of one array per step is visible


@pytest.fixture(scope="module")
def graph() -> gc.Graph:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", COLUMNS), name="x")
        rate = gc.placeholder((), name="rate")
        w = gc.variable(np.ones((COLUMNS, 1), np.float32), name="w")
        h = gc.random.dropout(gc.matmul(x, w), 0.1)
        loss = gc.reduce_mean(gc.square(h), name="loss")
        falling = optax.linear_schedule(1e-2, 1e-4, 20)
        gc.minimize(loss * rate, optax.sgd(falling, momentum=0.9), name="train")
    return graph


def session_on(graph: gc.Graph, devices: int) -> gc.Session:
    strategy = DataParallel(devices) if devices > 1 else None
    return gc.Session(graph, strategy=strategy, options=gc.CompileOptions(cache=None))


def batches(count: int) -> Iterator[dict[str, Any]]:
    """Batches with different numbers and learning rates; the rates are Python or NumPy numbers."""
    rng = np.random.default_rng(0)
    some = rng.normal(size=(4, ROWS, COLUMNS)).astype(np.float32)
    for i in range(count):
        rate = 0.1 / (1 + i)
        yield {"x": some[i % 4] + i % 7, "rate": rate if i % 2 else np.float32(rate)}


def stream(session: gc.Session, count: int, prefetch: bool) -> Any:
    return gc.data.prefetch(batches(count), session) if prefetch else batches(count)


class Lines(logging.Handler):
    """Collects JAX's messages about tracing and compilation."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def compilations() -> Iterator[list[str]]:
    lines, logger = Lines(), logging.getLogger("jax")
    logger.addHandler(lines)
    try:
        with jax.log_compiles():
            yield lines.texts
    finally:
        logger.removeHandler(lines)


@pytest.mark.parametrize("prefetch", [False, True], ids=["host", "prefetch"])
@pytest.mark.parametrize("devices", [1, 4])
def test_only_the_first_step_compiles(graph: gc.Graph, devices: int, prefetch: bool) -> None:
    session = session_on(graph, devices)
    losses = []
    with compilations() as texts:
        feeds = iter(stream(session, 30, prefetch))
        losses.append(float(session.run(["train", "loss"], next(feeds))[1]))
        assert any("XLA compilation" in text for text in texts)
        texts.clear()
        before = COUNTERS.snapshot()
        for feed in feeds:
            losses.append(float(session.run(["train", "loss"], feed)[1]))
        assert texts == []
    assert len(set(losses)) == 30
    assert session.compile_count == 1
    assert COUNTERS.snapshot() == before


def resident() -> int:
    """The resident memory of this process in bytes."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held() -> tuple[int, int, int]:
    """Resident bytes, JAX arrays, and Python objects that the garbage collector tracks."""
    garbage.collect()
    return resident(), len(jax.live_arrays()), len(garbage.get_objects())


@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="memory is read as Linux tells it")
@pytest.mark.parametrize(("devices", "prefetch"), [(1, False), (2, False), (1, True), (2, True)])
def test_a_thousand_steps_leave_nothing_behind(
    graph: gc.Graph, devices: int, prefetch: bool
) -> None:
    session = session_on(graph, devices)

    def train(count: int) -> None:
        for feed in stream(session, count, prefetch):
            loss = session.run(["train", "loss"], feed)[1]
        loss.block_until_ready()

    train(200)
    grown = []
    for _ in range(3):  # a leak grows in each repetition; malloc's reserve does not
        memory, arrays, objects = held()
        train(1000)
        memory_after, arrays_after, objects_after = held()
        assert arrays_after - arrays <= 0
        assert objects_after - objects < 500  # one object per step would be 1,000
        grown.append(memory_after - memory)
        if grown[-1] < 8 * 2**20:  # 16 kB per step would be 16 MB
            return
    raise AssertionError(f"memory grew by {grown} bytes in a thousand steps each")
