"""Steps that run out of memory: they are refused, or an error of graphc reports the loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphc.runtime import executors


def out_of_memory(devices: int, how: str) -> dict[str, str]:
    """The result of each use of a session: see `tests.runtime.out_of_memory`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.out_of_memory", str(devices), how],
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
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
    if how == "asked":  # the state is as it was
        assert large.startswith("ExecutionError: the run failed before it began: it needs 305")
        assert set(said.values()) == {"ok"}
        return
    if how == "waited":
        assert large.startswith("StateError: the run failed after it had consumed state: ")
        assert "Out of memory" in large
    for name, text in said.items():
        assert text.startswith("StateError: the session is broken: "), name
        assert "Out of memory" in text


@pytest.mark.parametrize("devices", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_small_blocks_that_find_no_memory(devices: int) -> None:
    """The call that finds none says so; the state and all earlier results stay."""
    said = out_of_memory(devices, "kept")
    failure = "the run failed: RESOURCE_EXHAUSTED"
    if devices > 1:  # it is not begun, for XLA ends the process where one device alone fails
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
    assert executors.has_room(1 << 20) and not executors.has_room(1 << 60)
