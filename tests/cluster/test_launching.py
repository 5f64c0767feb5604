"""`launch` starts, watches, ends and restarts processes. The processes here need no JAX."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import graphc as gc
from graphc.cli import main
from graphc.errors import AttributeValueError
from tests.cluster.launched import PATIENCE, REPOSITORY

# `who` is the index of the process; `attempt` counts the starts.
HEADER = """
import json, os, signal, sys, time
who = json.loads(os.environ["GRAPHC_CLUSTER"])["task"]["index"]
attempt = int(os.environ["GRAPHC_ATTEMPT"])
"""


def launched(program: str, count: int, **options: Any) -> int:
    return gc.cluster.launch([sys.executable, "-c", HEADER + program], count, **options)


def test_lines_have_names(capfd: pytest.CaptureFixture[str]) -> None:
    assert launched("print('out', who); print('err', who, file=sys.stderr)", 2) == 0
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["[worker 0] out 0", "[worker 1] out 1"]
    assert sorted(err.splitlines()) == ["[worker 0] err 0", "[worker 1] err 1"]


def test_a_line_without_an_end_and_bytes_that_are_no_text(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert launched("sys.stdout.buffer.write(b'\\xff end')", 1) == 0
    assert capfd.readouterr().out == "[worker 0] \N{REPLACEMENT CHARACTER} end\n"


def test_each_process_knows_all_addresses(capfd: pytest.CaptureFixture[str]) -> None:
    program = "print(sorted(set(json.loads(os.environ['GRAPHC_CLUSTER'])['cluster']['worker'])))"
    assert launched(program, 3) == 0
    lines = {line.partition("] ")[2] for line in capfd.readouterr().out.splitlines()}
    assert len(lines) == 1
    assert len(eval(lines.pop())) == 3


def test_devices_are_split(capfd: pytest.CaptureFixture[str]) -> None:
    program = "print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['JAX_NUM_CPU_DEVICES'])"
    assert launched(program, 2, devices=2) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["[worker 0] 0,1 2", "[worker 1] 2,3 2"]


@pytest.mark.parametrize(
    ("visible", "shown"),
    [("4,5,6,7", ["4,5", "6,7"]), ("", ["", ""]), ("GPU-a, GPU-b,2,3", ["GPU-a,GPU-b", "2,3"])],
)
def test_gpus_that_this_process_may_use_are_split(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    visible: str,
    shown: list[str],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert launched("print(os.environ['CUDA_VISIBLE_DEVICES'])", 2, devices=2) == 0
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == [f"[worker {i}] {text}" for i, text in enumerate(shown)]


def test_too_few_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with pytest.raises(AttributeValueError, match="need 4 GPUs, CUDA_VISIBLE_DEVICES has 3"):
        launched("pass", 2, devices=2)


def test_a_failure_ends_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    assert launched("sys.exit(7) if who == 1 else time.sleep(1000)", 3) == 7
    assert "worker 1 ended with 7; the others are ended" in capfd.readouterr().err


def test_a_signal_is_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    program = "os.kill(os.getpid(), signal.SIGKILL) if who == 0 else time.sleep(1000)"
    assert launched(program, 2) == 137
    assert "worker 0 was ended by SIGKILL" in capfd.readouterr().err


def test_a_process_that_ignores_the_end_is_killed() -> None:
    program = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(1000) if who == 0 else (time.sleep(1), sys.exit(3))
"""
    assert launched(program, 2, grace=0.2) == 3


def test_a_failure_ends_what_a_process_has_started(tmp_path: Path) -> None:
    """A killed rank leaves no child, such as a data reader, that holds its devices."""
    note = tmp_path / "child"
    program = f"""
import subprocess
child = subprocess.Popen(["sleep", "1000"])
open({str(note)!r}, "w").write(str(child.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert launched(program, 1) == 137
    end = time.monotonic() + PATIENCE
    while is_running(int(note.read_text())) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(int(note.read_text()))


def is_running(process: int) -> bool:
    """Whether a process runs: a process that has ended but was not waited for does not count."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_restarts(capfd: pytest.CaptureFixture[str]) -> None:
    program = "print('start', attempt); sys.exit(1 if attempt < 2 and who == 0 else 0)"
    assert launched(program, 2, restarts=3, pause=0.01) == 0
    out, err = capfd.readouterr()
    assert [f"[worker 0] start {n}" in out for n in range(4)] == [True, True, True, False]
    assert "restart 2 of 3" in err


def test_no_more_restarts() -> None:
    assert launched("sys.exit(9)", 1, restarts=1, pause=0.01) == 9


def test_silence(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
with open(os.environ["GRAPHC_PROGRESS"], "w") as file:
    json.dump({"step": 17, "of": 40, "late": 0.0, "own": 0.0}, file)
time.sleep(1000)
"""
    assert launched(program, 2, silence=0.5, grace=5) == 1
    assert "no step for 0.5 s (worker " in (err := capfd.readouterr().err)
    assert "at step 17" in err


def test_no_silence_outside_of_fit() -> None:
    assert launched("time.sleep(1)", 1, silence=0.1) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(tmp_path: Path, number: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        HEADER + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\ntime.sleep(1000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "graphc", "launch", "-n", "2", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None
    for _ in range(2):
        assert "ready" in process.stdout.readline()
    process.send_signal(number)
    assert process.wait(PATIENCE) == 5
    process.stdout.close()


def test_processes_end_with_the_launcher(tmp_path: Path) -> None:
    """A killed launcher leaves no process of its cluster."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nimport graphc as gc\ngc.cluster.join()\n"
        "print(os.getpid(), flush=True)\ntime.sleep(1000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "graphc", "launch", "-n", "1", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"},
    )
    assert process.stdout is not None
    child = int(process.stdout.readline().partition("] ")[2])
    process.kill()
    process.wait()
    process.stdout.close()
    end = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{child}") and time.monotonic() < end:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{child}")


@pytest.mark.parametrize(
    "options",
    [{"processes": 0}, {"processes": "2"}, {"processes": 2, "devices": 0},
     {"processes": 2, "restarts": -1}, {"processes": 2, "silence": "1"},
     {"processes": 2, "silence": 0},
     {"processes": 2, "grace": float("nan")}],
    ids=str,
)  # fmt: skip
def test_arguments_that_are_not_valid(options: dict[str, Any]) -> None:
    with pytest.raises(AttributeValueError, match="launch: "):
        gc.cluster.launch(["true"], **options)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no.py", "-n", "2"], "no script 'no.py'"),
        ([__file__], "give either a number of processes or a specification"),
        ([__file__, "-n", "2", "--spec", "x.json"], "give either"),
        ([__file__, "--spec", "x.json"], "which task"),
        ([__file__, "--spec", "x.json", "--task", "0"], "cannot be read"),
    ],
    ids=["script", "neither", "both", "task", "file"],
)
def test_commands_that_are_not_valid(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(["launch", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_a_terminal_has_one_bar(tmp_path: Path) -> None:
    """The bar shows the progress of the slowest process, and does not mix with other output."""
    pty, fcntl, termios = (pytest.importorskip(n) for n in ("pty", "fcntl", "termios"))
    script = tmp_path / "script.py"
    script.write_text(
        HEADER + "def tell(step):\n"
        "    told = {'step': step, 'of': 40, 'late': 0.0, 'own': 0.0}\n"
        "    open(os.environ['GRAPHC_PROGRESS'], 'w').write(json.dumps(told))\n"
        "tell(10 + who)\ntime.sleep(1)\nprint('half', file=sys.stderr)\n"
        "tell(20 + who)\ntime.sleep(1)\n"
    )
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "graphc", "launch", "-n", "2", script],
        stderr=inner,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    os.close(inner)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while piece := os.read(outer, 1024):
            shown += piece
    os.close(outer)
    assert process.wait(PATIENCE) == 0
    text = shown.decode().replace("\r", "\n")
    assert "2 processes:  25%" in text and "10/40" in text and "20/40" in text
    assert "\n[worker 0] half\n" in text and "\n[worker 1] half\n" in text


def test_those_that_failed_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
print("seat", attempt, os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.exit(attempt == 0 and who == 1)
"""
    assert launched(program, 3, devices=1, restarts=1, pause=0.01, least=2) == 0
    out, err = capfd.readouterr()
    assert "3 -> 2 processes: without those that failed" in err
    assert [out.count(f"seat 1 {gpu}") for gpu in "012"] == [1, 0, 1]  # the failed GPU is free


def test_too_few_are_left(capfd: pytest.CaptureFixture[str]) -> None:
    assert launched("sys.exit(attempt == 0 and who == 1)", 2, restarts=1, pause=0.01, least=2) == 0
    assert "processes: without" not in capfd.readouterr().err


def test_another_number_of_processes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An invalid number is reported once and ignored. A change of the number is no failure."""
    file = tmp_path / "size"
    file.write_text("2")
    program = f"""
print("start", attempt, who, flush=True)
file = {str(file)!r}
if attempt == 0 and who == 0:
    for text in ("many", "0", "3"):
        time.sleep(1.5)
        open(file, "w").write(text)
time.sleep(1000) if attempt == 0 else None
"""
    assert launched(program, 7, size_file=file, grace=5) == 0
    out, err = capfd.readouterr()
    starts = sorted(line.partition("start ")[2] for line in out.splitlines())
    assert starts == ["0 0", "0 1", "1 0", "1 1", "1 2"]
    assert err.count("at least 1, got 'many'; the number of processes stays") == 1
    assert err.count("got '0'") == 1 and "2 -> 3 processes" in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"least": 3}, "at least 3 processes of 2 cannot be left"),
        ({"least": 0}, "least must be a number of at least 1, got 0"),
        ({"size_file": "missing"}, "the size file 'missing' cannot be read: .*No such file"),
        ({"size_file": os.devnull}, "must be a number of at least 1, got ''"),
    ],
)
def test_numbers_that_cannot_change(options: dict[str, Any], says: str) -> None:
    with pytest.raises(AttributeValueError, match=says):
        launched("pass", 2, **options)
