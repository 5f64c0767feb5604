"""The process that reads programs finds graphc in the same way as this process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import graphc as gc
from graphc.untrusted import reader, safe_reading


def test_graphc_is_found_that_was_imported_from_the_current_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example `python -c` in a checkout: "" is an entry of `sys.path`, and the child's current
    folder may be another."""
    given: dict[str, Any] = {}

    class Stopped(Exception):
        pass

    def start(command: list[str], **options: Any) -> None:
        given.update(options["env"], command=command)
        raise Stopped

    root = Path(safe_reading.__file__).parents[2]
    monkeypatch.setattr(safe_reading.sys, "path", ["", "/usr/lib/python3"])
    monkeypatch.setattr(safe_reading.subprocess, "Popen", start)
    with pytest.raises(Stopped):
        safe_reading._Process()
    folders = given["PYTHONPATH"].split(os.pathsep)
    assert "" not in folders and str(root) in folders


def test_the_child_runs_from_another_folder(tmp_path: Path) -> None:
    """Files in this folder that have the names of modules are not imported."""
    for name in ("json.py", "graphc.py", "jax.py"):
        (tmp_path / name).write_text("raise SystemExit(7)")
    code = (
        "from graphc.untrusted.safe_reading import read_program\n"
        "print(read_program(b'module { func.func public @main() { return } }', 'x')['operations'])"
    )
    root = str(Path(safe_reading.__file__).parents[2])
    done = subprocess.run(
        [safe_reading.sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "'func.func': 1" in done.stdout


ONE = b"""module { func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32> } }"""


@pytest.mark.parametrize("error", [None, ValueError("of a later version")])
def test_a_program_that_will_be_written_is_written_in_the_other_process_first(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """MLIR's writer once crashed for a damaged program that its reader had accepted."""
    written: list[Any] = []

    def write(module: Any) -> bytes:
        written.append(module)
        if error is not None:
            raise error
        return b""

    monkeypatch.setattr(reader, "write_module", write)
    assert reader._read(ONE)["operations"] == reader._read(ONE, written=True)["operations"]
    assert len(written) == 1


def test_the_importer_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Any] = []
    ask = safe_reading._READER.ask

    def watched(program: bytes, request: dict[str, Any], seconds: float) -> Any:
        requests.append(request)
        return ask(program, request, seconds)

    monkeypatch.setattr(safe_reading._READER, "ask", watched)
    monkeypatch.setattr(safe_reading, "_found", {})  # another test may have read this program
    gc.from_stablehlo(ONE)
    assert requests == [{"written": True}]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_question_has_no_late_answer(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the answer about a harmless program would be taken for that about the next one."""
    asked = safe_reading._Reader()
    other = ONE.replace(b"return %x", b"%y = stablehlo.negate %x : tensor<2xf32> return %y")
    wanted = asked.ask(other, {}, 60.0)
    assert wanted["operations"]["stablehlo.negate"] == 1
    reply = safe_reading._Process.reply

    def interrupted(process: Any, seconds: float) -> bytes:
        monkeypatch.setattr(safe_reading._Process, "reply", reply)
        raise error

    monkeypatch.setattr(safe_reading._Process, "reply", interrupted)
    with pytest.raises(error):
        asked.ask(ONE, {}, 60.0)
    assert asked.ask(other, {}, 60.0) == wanted
    asked.stop()


def test_a_time_limit_while_the_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*args: Any, **options: Any) -> None:
        raise TimeoutError("time is up")  # of a signal handler

    monkeypatch.setattr(safe_reading.subprocess, "Popen", start)
    with pytest.raises(TimeoutError, match="time is up"):
        safe_reading._Reader().ask(ONE, {}, 60.0)


def test_ctrl_c_in_a_terminal_does_not_reach_the_process() -> None:
    process = safe_reading._Process()
    try:
        assert os.getpgid(process._process.pid) != os.getpgid(0)
    finally:
        process.kill()
        process.stop()
