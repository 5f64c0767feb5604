"""Processes of runs: any process can find them, and they end together with all their children."""

import io
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import IO

import pytest

from graphc.cluster.jobs import processes
from graphc.cluster.jobs.processes import RunProcess, kill, members, private_bytes
from graphc.cluster.jobs.runs import TOKEN

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")


def start(folder: Path, text: str, number: int = 1) -> tuple[RunProcess, str]:
    token = f"{folder}:{number}"
    process = RunProcess(folder, number)
    process.start(["/bin/sh", "-c", text], {**os.environ, TOKEN: token}, folder / "log.txt", folder)
    return process, token


def wait(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_exit_status(tmp_path: Path) -> None:
    process, _ = start(tmp_path, "echo out; echo err >&2; exit 3")
    wait(lambda: not process.is_alive())
    assert process.exit_status() == 3
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["err", "out"]


def test_a_later_start_has_files_of_its_own(tmp_path: Path) -> None:
    first, _ = start(tmp_path, "exit 3")
    wait(lambda: first.exit_status() == 3)
    second, token = start(tmp_path, "sleep 60", 2)
    assert second.is_alive() and second.exit_status() is None and not first.is_alive()
    kill(token)
    wait(lambda: not second.is_alive())


def test_a_process_that_is_starting_its_program_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has neither arguments nor variables for a moment, and a run would not be found."""
    for name in ("environ", "cmdline"):
        (tmp_path / name).touch()
    (tmp_path / "exe").symlink_to("/bin/sh")
    monkeypatch.setattr(
        processes.time, "sleep", lambda _: (tmp_path / "environ").write_bytes(b"A=1\0B=2\0")
    )
    assert processes._environment(str(tmp_path)) == [b"A=1", b"B=2", b""]


def test_a_program_that_starts_between_two_reads_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the arguments are there, so are the variables."""
    for name in ("environ", "cmdline"):
        (tmp_path / name).touch()
    (tmp_path / "exe").symlink_to("/bin/sh")

    def opened(path: str, mode: str) -> IO[bytes]:
        read = io.BytesIO(Path(path).read_bytes())
        (tmp_path / "cmdline").write_bytes(b"sleep\0")
        (tmp_path / "environ").write_bytes(b"A=1\0")
        return read

    monkeypatch.setattr("builtins.open", opened)
    found = processes._environment(str(tmp_path))
    monkeypatch.undo()
    assert found == [b"A=1", b""]


@pytest.mark.parametrize("kind", ["no program", "no variables"])
def test_a_process_without_variables_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "environ").touch()
    (tmp_path / "cmdline").write_bytes(b"" if kind == "no program" else b"sleep\0")
    if kind == "no variables":
        (tmp_path / "exe").symlink_to("/bin/sh")
    monkeypatch.setattr(processes.time, "sleep", lambda _: pytest.fail("waits for its variables"))
    assert not any(processes._environment(str(tmp_path)))


def test_somebody_else_finds_it(tmp_path: Path) -> None:
    """An object that did not start the process finds it, as a new service does."""
    process, token = start(tmp_path, "sleep 60")
    other = RunProcess(tmp_path, 1)
    assert other.was_started and other.is_alive() and other.exit_status() is None
    assert not RunProcess(tmp_path, 2).was_started
    wait(lambda: (tmp_path / "pid-1").exists())
    # Sends the signal again until the process ends: the first may arrive before the command starts.
    wait(lambda: not (other.send(signal.SIGTERM) and process.is_alive()))
    assert other.exit_status() == 128 + signal.SIGTERM and not members([token])[token]


def test_sigterm_reaches_the_command_and_its_status_is_kept(tmp_path: Path) -> None:
    process, _ = start(tmp_path, "trap 'exit 7' TERM; echo ready; sleep 60 & wait")
    wait(lambda: "ready" in (tmp_path / "log.txt").read_text())
    process.send(signal.SIGTERM)
    wait(lambda: process.exit_status() == 7)


def test_a_process_that_is_killed_leaves_no_status(tmp_path: Path) -> None:
    process, token = start(tmp_path, "sleep 60")
    kill(token)
    wait(lambda: not process.is_alive())
    assert process.exit_status() is None


def test_what_has_left_the_group_is_killed(tmp_path: Path) -> None:
    process, token = start(tmp_path, "setsid sleep 61 & exit 0")
    wait(lambda: process.exit_status() == 0)
    wait(lambda: len(members([token])[token]) >= 1)
    kill(token)
    wait(lambda: not members([token])[token])


def test_processes_with_a_variable(tmp_path: Path) -> None:
    """The test distinguishes a launcher's process from the processes of its job."""
    _, token = start(tmp_path, "GRAPHC_LAUNCHER=1 sleep 60")
    # A new process has the variables of its parent until its program starts.
    wait(lambda: len(members([token], having="GRAPHC_LAUNCHER")[token]) == 1)
    assert len(members([token])[token]) >= 2
    assert members([token], having="GRAPHC_OTHER")[token] == []
    kill(token)


def test_signals_to_what_has_ended_go_nowhere(tmp_path: Path) -> None:
    """Another process may have its number by now."""
    process, _ = start(tmp_path, "exit 0")
    wait(lambda: not process.is_alive())
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        (tmp_path / "pid-1").write_text(str(other.pid))
        assert not process.send(signal.SIGKILL)
        time.sleep(0.1)
        assert other.poll() is None
        other.kill()


def test_the_memory_of_processes(tmp_path: Path) -> None:
    size = 50 << 20
    process, token = start(
        tmp_path, f"exec {os.sys.executable} -c \"x = bytearray(b'1') * {size}; input()\" <&0"
    )
    del process
    own = bytearray(b"1") * size
    assert private_bytes([os.getpid()]) >= len(own)
    assert private_bytes([2**22 + 1]) == 0
    kill(token)
