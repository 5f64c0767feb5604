"""Ctrl-C, kill -9 and the end of the interpreter: no stage of a pipeline leaves a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def script(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


def started(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


STAGES = """
    import os, sys, time
    import numpy as np
    import graphc as gc
    from tests.data.workers_functions import square, sleeps

    def slowly(x):
        time.sleep(0.05)
        return x

    def main():
        numbers = gc.data.from_iterable(list(range(1000000)))
        pipeline = {pipeline}
        items = iter(pipeline)
        next(items)
        print("ready", flush=True)
        {rest}

    if __name__ == "__main__":
        main()
"""
PIPELINES = {
    "inline": "numbers.map(slowly)",
    "shuffle": "numbers.map(slowly).shuffle(10)",
    "threads": "numbers.map(slowly, workers=2).batch(4)",
    "prefetch": "numbers.map(slowly, workers=2).batch(4).prefetch()",
    "processes": "numbers.map(slowly, workers=2, processes=True).prefetch()",
}


def nobody_is_left_in(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("kind", PIPELINES)
def test_ctrl_c_in_any_stage_leaves_no_process(kind: str, tmp_path: Path) -> None:
    text = STAGES.format(pipeline=PIPELINES[kind], rest="[None for _ in items]")
    process = started(script(text, tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # a terminal signals the whole group
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.count("KeyboardInterrupt") == 1 and errors.count("Traceback") == 1
    until(lambda: nobody_is_left_in(process.pid))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PIPELINES)
def test_the_interpreter_ends_cleanly_with_an_open_iterator(kind: str, tmp_path: Path) -> None:
    process = started(
        script(STAGES.format(pipeline=PIPELINES[kind], rest="global kept; kept = items"), tmp_path)
    )
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "ready\n", "")
    until(lambda: nobody_is_left_in(process.pid))


@pytest.mark.slow
def test_kill_9_of_the_parent_leaves_no_process(tmp_path: Path) -> None:
    text = STAGES.format(pipeline=PIPELINES["processes"], rest="[None for _ in items]")
    process = started(script(text, tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate(timeout=30)
    until(lambda: nobody_is_left_in(process.pid))


@pytest.mark.slow
def test_a_script_without_a_main_guard_gets_a_clear_error(tmp_path: Path) -> None:
    text = """
        import graphc as gc
        from tests.data.workers_functions import square

        print(list(gc.data.from_iterable([1, 2]).map(square, workers=1, processes=True)))
    """
    process = started(script(text, tmp_path))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "DataError: map(square): the worker process did not start (exit code 1)" in errors
    assert 'if __name__ == "__main__":' in errors


BLOCKED = """
import multiprocessing, signal

def blocked():
    for process in multiprocessing.active_children():
        with open(f"/proc/{process.pid}/status") as status:
            facts = dict(line.split(":", 1) for line in status)
        print(int(facts["SigBlk"], 16) >> (signal.SIGINT - 1) & 1)
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_no_worker_receives_ctrl_c(tmp_path: Path) -> None:
    """Not the first one either: with it, multiprocessing starts its resource tracker, after which
    it allows SIGINT again."""
    stages = STAGES.format(pipeline=PIPELINES["processes"], rest="blocked()")
    process = started(script(BLOCKED + textwrap.dedent(stages), tmp_path))
    output, errors = process.communicate(timeout=60)
    assert output.split() == ["ready", "1", "1"], errors
    assert not errors  # the workers, whose parent is gone, say nothing
