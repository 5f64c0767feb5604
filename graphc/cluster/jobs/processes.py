"""The processes of a run: started, found again after the service has ended, and ended.

A run has a lock file, which its first process holds from before it exists until it has ended. The
kernel frees the lock however the process ends. So the lock says whether a run is alive, also to a
service that did not start it, and no number of a process can be mistaken for that of another one.
The process leaves its exit status in a file.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from graphc.cluster.jobs.locks import is_locked
from graphc.cluster.jobs.runs import TOKEN

# It survives SIGTERM, which its group gets, to write the exit status of the command; `trap :` is
# not passed on to the command. Standard input and output are set by `start`.
_SHELL: Final = """
trap : TERM INT HUP
folder=$1; shift
number=$1; shift
echo $$ > "$folder/pid.new" && mv "$folder/pid.new" "$folder/pid-$number" || exit 1
"$@"
code=$?
echo $code > "$folder/exit.new" && mv "$folder/exit.new" "$folder/exit-$number"
"""
_CHILDREN: Final[list[subprocess.Popen[bytes]]] = []
"""The processes that this process has started. They go on when the objects of their runs do not."""
_LOOKS: Final = 100
_SECONDS_BETWEEN_LOOKS: Final = 0.001
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class RunProcess:
    """The process of one start of a run.

    Args:
        folder: of the run.
        number: of the start. Each one has files of its own.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._lock = folder / f"lock-{number}"

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, cwd: Path
    ) -> None:
        """Starts a command. What it writes is added to the log.

        Raises:
            OSError: it cannot be started.
        """
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with log.open("ab") as output:
                child = subprocess.Popen(
                    ["/bin/sh", "-c", _SHELL, "job", self._folder, str(self._number), *command],
                    env=dict(environment),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[lock],  # it keeps the lock, which has only been lent to us
                    start_new_session=True,  # Ctrl-C in the service's terminal is not for jobs
                )
            _CHILDREN.append(child)
        finally:
            os.close(lock)

    @property
    def was_started(self) -> bool:
        """Whether `start` was called for it, perhaps by an earlier service."""
        return self._lock.exists()

    def is_alive(self) -> bool:
        """Whether a process of the run holds the lock."""
        # Frees the entries of what has ended in the table of processes.
        _CHILDREN[:] = [child for child in _CHILDREN if child.poll() is None]
        return is_locked(self._lock)

    def exit_status(self) -> int | None:
        """The exit status of the command, once it has ended by itself or by a signal."""
        return _read(self._folder / f"exit-{self._number}")

    def send(self, number: int) -> bool:
        """Sends a signal to the process and its group. Returns whether the run was alive, and far
        enough to get it.

        While a process of the group is alive, its number belongs to no other group.
        """
        group = _read(self._folder / f"pid-{self._number}")
        if group is None or group <= 1 or not self.is_alive():
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
        return True


def _read(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def members(tokens: Iterable[str], having: str = TOKEN) -> dict[str, list[int]]:
    """The processes of runs, by the tokens in their environments; none where there is no /proc.

    Args:
        having: only those that have this variable, too. `graphc launch` gives its processes
            GRAPHC_LAUNCHER, which it does not have itself.
    """
    beginning = f"{having}=".encode()
    wanted = {f"{TOKEN}={token}".encode(): token for token in tokens}
    found: dict[str, list[int]] = {token: [] for token in wanted.values()}
    if not wanted or not os.path.isdir("/proc"):
        return found
    for number in os.listdir("/proc"):
        if not number.isdecimal():
            continue
        variables = _environment(f"/proc/{number}")
        for variable in wanted.keys() & set(variables):
            if any(each.startswith(beginning) for each in variables):
                found[wanted[variable]].append(int(number))
    return found


def _environment(process: str) -> list[bytes]:
    """The variables of a process; none if it has ended or belongs to somebody else.

    A process that starts a program has neither arguments nor variables for a moment. Its program
    is then known; that of a process which has ended, or of a thread of the kernel, is not.
    """
    has_started = False
    try:
        for _ in range(_LOOKS):
            with open(f"{process}/environ", "rb") as file:
                text = file.read()
            if text or has_started:
                return text.split(b"\0")
            with open(f"{process}/cmdline", "rb") as file:
                has_started = bool(file.read())  # since then; the variables are read again
            if not has_started:
                os.readlink(f"{process}/exe")
                time.sleep(_SECONDS_BETWEEN_LOOKS)
    except OSError:
        pass
    return []


def kill(token: str) -> None:
    """Kills all processes of a run, also those that have left its group."""
    for _ in range(3):  # what is forked meanwhile is found the next time
        pids = members([token])[token]
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def private_bytes(pids: Iterable[int]) -> int:
    """The memory that processes do not share with others."""
    pages = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                _, resident, shared, *_ = map(int, file.read().split())
        except (OSError, ValueError):
            continue
        pages += max(0, resident - shared)
    return pages * _PAGE
