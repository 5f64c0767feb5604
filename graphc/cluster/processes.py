"""The processes of a cluster on this machine: started, watched and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import IO, Any

from graphc.cluster.detection import LAUNCHER, VARIABLE, text_of
from graphc.cluster.progress import Progress
from graphc.cluster.spec import Member
from graphc.errors import AttributeValueError


@dataclass(frozen=True)
class Launch:
    """What `launch` starts.

    Attributes:
        command: the program and its arguments.
        processes: how many workers.
        devices: the devices of each process; None leaves it to JAX. On CPUs, virtual devices; on
            GPUs, consecutive ones.
        restarts: how often all processes may be started again after one has failed.
        pause: seconds before a restart; longer after starts without a step.
        grace: seconds that processes get to end after SIGTERM.
        silence: seconds without a further step of `fit` after which a process has failed, or None.
        least: after a failure, how many processes are enough to go on without those that failed;
            None: as many as before.
        size_file: a file with the number of workers, which may change, or None.
        environment: of the processes, in addition to their places in the cluster.
    """

    command: Sequence[str]
    processes: int
    devices: int | None = None
    restarts: int = 0
    pause: float = 1.0
    grace: float = 10.0
    silence: float | None = None
    least: int | None = None
    size_file: Path | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


class WorkerProcess:
    """One process of a cluster, and the threads that pass on what it writes.

    Attributes:
        seat: the number that determines its GPUs. Without failures it is the index of the process.
    """

    def __init__(
        self,
        member: Member,
        task: Launch,
        seat: int,
        attempt: int,
        progress: Path,
        write: Callable[[IO[str], str], None],
    ) -> None:
        self.name, self.seat = f"{member.job} {member.index}", seat
        self.ended_at = 0.0
        self.progress = Progress(self.name, progress)
        self._process = subprocess.Popen(
            task.command,
            env=_environment(member, task, seat, attempt, progress),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C in a terminal goes to the launcher alone
        )
        self._streams: list[Any] = [self._process.stdout, self._process.stderr]
        pairs = zip(self._streams, (sys.stdout, sys.stderr), strict=True)
        self._pumps = [Thread(target=self._pump, args=(*p, write), daemon=True) for p in pairs]
        for pump in self._pumps:
            pump.start()

    @property
    def status(self) -> int | None:
        """The exit status as a shell gives it; None while the process runs."""
        code = self._process.poll()
        if code is None:
            return None
        self.ended_at = self.ended_at or time.monotonic()
        return 128 - code if code < 0 else code

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped by a signal, as by SIGSTOP. False where that cannot be seen."""
        try:
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2]
        except OSError:
            return False
        return state.split()[0] in "Tt"

    @property
    def fate(self) -> str:
        """How it ended, in words."""
        code = self._process.poll() or 0
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    def send(self, number: int) -> None:
        """Sends a signal to the process and those that it has started."""
        if self.status is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kills the process and those that it has started."""
        with suppress(ProcessLookupError, PermissionError):  # all have ended
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Waits for its end, and for what it has written."""
        self._process.wait()
        for pump in self._pumps:
            pump.join(1.0)  # a grandchild may hold the pipe
        for pump, stream in zip(self._pumps, self._streams, strict=True):
            if not pump.is_alive():
                stream.close()

    def _pump(self, source: IO[str], to: IO[str], write: Callable[[IO[str], str], None]) -> None:
        for line in source:
            write(to, f"[{self.name}] {line if line.endswith(chr(10)) else line + chr(10)}")


def _environment(
    member: Member, task: Launch, seat: int, attempt: int, progress: Path
) -> dict[str, str]:
    found = {**task.environment, VARIABLE: text_of(member), "GRAPHC_ATTEMPT": str(attempt)}
    found["GRAPHC_PROGRESS"] = str(progress)
    found[LAUNCHER] = str(os.getpid())
    found.setdefault("PYTHONUNBUFFERED", "1")  # lines appear when they are written
    if task.devices is not None:
        found["JAX_NUM_CPU_DEVICES"] = str(task.devices)
        gpus = gpus_of(task, max(member.size, seat + 1))
        first = seat * task.devices
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first : first + task.devices])
    return found


def gpus_of(task: Launch, seats: int) -> list[str]:
    """The GPUs of all seats: of those that this process may use, if it is restricted.

    Raises:
        AttributeValueError: it may use fewer.
    """
    each = task.devices or 1
    needed = seats * each
    visible = task.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [str(number) for number in range(needed)]
    given = [name.strip() for name in visible.split(",") if name.strip()]
    if given and len(given) < needed:
        raise AttributeValueError(
            f"launch: {seats} processes with {each} devices each need {needed} GPUs, "
            f"CUDA_VISIBLE_DEVICES has {len(given)}: {visible}",
            hint="start fewer processes, or give each fewer devices",
        )
    return given
