"""The format of JAX's profiles. If a new JAX breaks this test, fix graphc/reports/xplane.py."""

import threading
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from graphc.errors import ExecutionError
from graphc.reports.xplane import Recording, read, recording
from tests.compiling import optimised


@pytest.fixture(scope="module")
def recorded() -> Recording:
    with optimised():

        @jax.jit
        def looped(x: jax.Array) -> jax.Array:
            y = x @ x
            return jax.lax.fori_loop(0, 5, lambda i, v: jnp.tanh(v @ x), y)

        x = jax.device_put(np.ones((64, 64), "float32"))
        jax.block_until_ready(looped(x))
        with recording() as found:
            for _ in range(3):
                with jax.profiler.TraceAnnotation("graphc.step"):
                    jax.block_until_ready(looped(x))
    return found()


def test_every_run_of_an_instruction_is_there(recorded: Recording) -> None:
    runs = [run for run in recorded.runs if run.module == "jit_looped"]
    assert sum(run.instruction.startswith("while") for run in runs) == 3
    counts = {r.instruction: sum(o.instruction == r.instruction for o in runs) for r in runs}
    assert {3, 15} <= set(counts.values()), counts
    assert {run.device for run in runs} == {0}


def test_marks_and_runs_have_one_clock(recorded: Recording) -> None:
    marks = [mark for mark in recorded.marks if mark.name == "graphc.step"]
    assert len(marks) == 3
    assert all(a.end <= b.start for a, b in pairwise(marks))
    for run in recorded.runs:
        if run.module == "jit_looped":
            assert run.end >= run.start
            assert any(mark.start <= run.start <= mark.end for mark in marks)


def test_large_products_last_until_their_work_has_ended() -> None:
    """The start of such a product is a short event in one thread; other threads do the work."""
    with optimised():
        product = jax.jit(lambda x: jnp.sin(x) @ x)
        x = jax.device_put(np.ones((1024, 1024), "float32"))
        jax.block_until_ready(product(x))
        with recording() as found, jax.profiler.TraceAnnotation("graphc.step"):
            jax.block_until_ready(product(x))
    (step,) = [mark for mark in found().marks if mark.name == "graphc.step"]
    spans = [(run.start, run.end) for run in found().runs]
    last = max(end for _, end in spans)
    assert last - min(start for start, _ in spans) > 0.5 * (step.end - step.start)


def test_one_profile_at_a_time(tmp_path: Path) -> None:
    with (
        jax.profiler.trace(str(tmp_path)),
        pytest.raises(ExecutionError, match="cannot start"),
        recording(),
    ):
        pass
    with recording() as found:
        pass
    assert found().marks == []


def test_what_the_block_raises_passes_through_and_the_profiler_stops() -> None:
    with pytest.raises(KeyboardInterrupt), recording():
        raise KeyboardInterrupt
    with recording() as found:
        pass
    assert not found().runs


def test_no_recording(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="wrote no recording"):
        read(str(tmp_path))


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    with recording():
        pass
    assert threading.active_count() == before
