"""Reads an exported program in another process before this one reads it: see `reader`."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from graphc.untrusted.rules import check_targets

_SECONDS_TO_START = 120.0  # to import JAX, even on a busy machine
_SECONDS = 20.0  # to read a program; long programs get more
_BYTES_PER_SECOND = 200_000


class UnreadableError(Exception):
    """This JAX cannot read the program. The text states the reason."""


def read_program(
    program: bytes | memoryview, digest: str, *, written: bool = False
) -> dict[str, Any]:
    """Reads a program in another process, once for each program.

    Args:
        digest: the hash of the program.
        written: whether this process will also write it as a portable artifact. Then the other
            process tries this as well: MLIR's writer can crash for a damaged program.

    Returns:
        The findings about it: see `untrusted.findings`.

    Raises:
        UnreadableError: it cannot be read safely.
        ArtifactCorruptError: it contains something that no artifact may contain.
    """
    key = digest, written
    if key not in _found:
        request = {"written": True} if written else {}
        found = _READER.ask(program, request, _SECONDS + len(program) / _BYTES_PER_SECOND)
        if "error" in found:
            raise UnreadableError(found["error"])
        check_targets(found)
        _found[key] = found
    return _found[key]


_found: dict[tuple[str, bool], dict[str, Any]] = {}


def try_compile(program: bytes, shapes: Sequence[Sequence[int]], wide: bool, seconds: float) -> str:
    """Compiles a program in another process, for a CPU.

    Args:
        program: the program as JAX serialises it; `read_program` has accepted it.
        shapes: the shapes of its arguments.
        wide: whether it holds 64-bit values.

    Returns:
        The reason why it was not compiled within the time; "" if it was.
    """
    request = {"shapes": [list(shape) for shape in shapes], "wide": wide}
    return str(_READER.ask(program, request, seconds).get("error", ""))


class _Reader:
    """The other process: started when it is first needed, and restarted after it has ended."""

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._lock = threading.Lock()

    def ask(
        self, program: bytes | memoryview, request: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        """The findings of the process, or {"error": the reason why there are none}."""
        with self._lock:
            try:
                return self._answer(program, request, seconds)
            except BaseException:  # Ctrl-C, a time limit: a later answer would be out of step
                self._kill()
                raise

    def _answer(
        self, program: bytes | memoryview, request: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        for _ in range(2):
            if self._process is None:
                try:
                    self._process = _Process()
                    self._process.reply(_SECONDS_TO_START)
                except TimeoutError:  # of a signal handler
                    raise
                except OSError as error:
                    self._kill()
                    return {"error": f"no process could be started to read it in: {error}"}
            reply = self._process.ask(program, request, seconds)
            if reply:
                found: dict[str, Any] = json.loads(reply)
                return found
            code = self.stop()
            if code is None:
                return {"error": f"it was not read within {seconds:.0f} s"}
            if code != 0:  # 0: idle; a request may have just missed it
                return {"error": f"reading it ended the process that did so (code {code})"}
        return {"error": "the process that reads it does not answer"}

    def forget(self) -> None:
        """Drops the process in a forked child, so that only the parent uses it."""
        self._process, self._lock = None, threading.Lock()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.stop()

    def stop(self) -> int | None:
        """Terminates the process. Returns its exit code, or None if it was still running."""
        process, self._process = self._process, None
        return 0 if process is None else process.stop()


class _Process:
    """One run of `reader`."""

    def __init__(self) -> None:
        settings = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
        own = str(Path(__file__).parents[2])  # `sys.path` may have it as "", the current folder
        found = [*filter(None, sys.path), own]
        settings |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(found)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "graphc.untrusted.reader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=settings,
            start_new_session=True,  # Ctrl-C in a terminal does not end it
        )
        self._requests = cast(IO[bytes], self._process.stdin)
        self._replies = cast(IO[bytes], self._process.stdout)

    def ask(self, program: bytes | memoryview, request: dict[str, Any], seconds: float) -> bytes:
        """The reply; empty if none arrives in time."""
        try:
            for part in (json.dumps(request).encode(), program):
                self._requests.write(len(part).to_bytes(8, "little"))
                self._requests.write(part)
            self._requests.flush()
        except BrokenPipeError:
            return b""
        return self.reply(seconds)

    def reply(self, seconds: float) -> bytes:
        """The next line of the process's output; empty if none arrives in time."""
        deadline = time.monotonic() + seconds
        reply = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while not reply.endswith(b"\n"):
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    return b""
                piece = os.read(self._replies.fileno(), 1 << 16)
                if not piece:
                    return b""
                reply += piece
        return reply

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> int | None:
        """Stops the process. Returns its exit code, or None if it had to be killed."""
        with suppress(OSError):  # bytes that the process did not read
            self._requests.close()
        self._replies.close()
        try:
            return self._process.wait(timeout=3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None


_READER = _Reader()
atexit.register(_READER.stop)
os.register_at_fork(after_in_child=_READER.forget)
