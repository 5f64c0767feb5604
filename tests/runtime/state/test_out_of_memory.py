"""Steps that exhaust memory: they are refused, or a graphc error reports that the state is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import graphc as gc
from graphc.runtime.targets import room
from tests.runtime.counting import FEED, counting, counts


def out_of_memory(devices: int, how: str) -> dict[str, str]:
    """The outcome of each operation of a session: see `tests.runtime.out_of_memory`."""
    return process("out_of_memory", devices, str(devices), how)


def process(module: str, devices: int, *arguments: str) -> dict[str, str]:
    """The output of a module that runs in a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.runtime.{module}", *arguments],
        cwd=Path(__file__).parents[3],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            # glibc returns freed blocks of this size to the system. Without it, a thread's heap may
            # keep them, and whether a later run finds memory would depend on the threads.
            "MALLOC_MMAP_THRESHOLD_": str(2**20),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.parametrize(
    "devices, how",
    [
        (1, "asked"),
        (4, "late"),
        (1, "waited"),
        pytest.param(4, "asked", marks=pytest.mark.slow),
        pytest.param(4, "waited", marks=pytest.mark.slow),
        pytest.param(1, "late", marks=pytest.mark.slow),
    ],
)
def test_a_step_that_finds_no_memory(devices: int, how: str) -> None:
    said = out_of_memory(devices, how)
    large = said.pop("large")
    assert said.pop("close") == "ok"
    if how == "asked":  # the run did not start, so the state is unchanged
        assert large.startswith("ExecutionError: the run failed before it began: it needs 305")
        assert set(said.values()) == {"ok"}
        return
    if how == "waited":
        assert large.startswith("StateError: the run failed after it had consumed state: ")
        assert "Out of memory" in large
    for name, text in said.items():
        assert text.startswith("StateError: the session is broken: "), name
        assert "Out of memory" in text


@pytest.mark.parametrize(
    "kind, devices",
    [
        ("session", 1),
        ("artifact", 1),
        pytest.param("session", 4, marks=pytest.mark.slow),
        pytest.param("partition", 2, marks=pytest.mark.slow),
    ],
)
def test_small_blocks_that_find_no_memory(kind: str, devices: int) -> None:
    """Only the call that finds no memory fails. The state and earlier results stay valid."""
    said = process("kept_results", devices, kind)
    failure = "the run failed: "
    if devices == 4:  # the check refuses it: XLA ends the process if one device alone has no memory
        failure = "the run failed before it began: it needs "
    for name in ("update", "read"):
        assert said.pop(name).startswith(f"ExecutionError: {failure}")
    assert set(said.values()) == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 4])
def test_a_state_whose_step_finds_no_memory_says_so(devices: int) -> None:
    said = out_of_memory(devices, "state")
    assert said.pop("large") == "ok", "JAX does not know it yet"
    for text in said.values():
        assert text.startswith("StateError: this state is lost: an earlier run failed: ")
        assert "Out of memory" in text


def test_there_is_room_or_not() -> None:
    assert room.has_room(1 << 20) and not room.has_room(1 << 60)


def test_a_call_does_not_report_the_failure_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads may share an executable; each waits only for its own run."""

    class Failed:
        def is_deleted(self) -> bool:
            return False

        def block_until_ready(self) -> None:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: of another thread")

    graph, step, _ = counting()
    train = gc.compile(graph, step, {"x": FEED.shape}, options=gc.CompileOptions(max_in_flight=1))
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "is_limited", lambda: True)
    state = train.init()
    for has_room in (True, False):
        monkeypatch.setattr(room, "has_room", lambda size, answer=has_room: answer)
        train.executor._in_flight._waiting.append([Failed()])
        _, state = train(state, {"x": FEED})
    assert counts(state) == {2}
