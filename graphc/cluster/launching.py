"""`launch`: the processes of a cluster on this machine, started, watched and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread, current_thread, main_thread
from typing import IO, Any

from graphc.cluster.detection import LAUNCHER, VARIABLE, text_of
from graphc.cluster.spec import ClusterSpec, Member
from graphc.errors import AttributeValueError

_TURN = 0.05  # seconds between two looks at the processes
_FAR = 1e9  # seconds
_LONGEST_PAUSE = 60.0  # seconds before a restart


@dataclass(frozen=True)
class Launch:
    """What `launch` starts.

    Attributes:
        command: the program and its arguments.
        processes: how many workers.
        devices: the devices of each process; None leaves it to JAX. On CPUs, virtual devices; on
            GPUs, consecutive ones.
        restarts: how often all processes may be started again after one has failed.
        pause: seconds before the first restart; each further one waits twice as long.
        grace: seconds that processes get to end after SIGTERM.
        silence: seconds without a further step of `fit` after which a process has failed, or None.
        environment: of the processes, in addition to their places in the cluster.
    """

    command: Sequence[str]
    processes: int
    devices: int | None = None
    restarts: int = 0
    pause: float = 1.0
    grace: float = 10.0
    silence: float | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def launch(
    command: Sequence[str],
    processes: int,
    *,
    devices: int | None = None,
    restarts: int = 0,
    pause: float = 1.0,
    grace: float = 10.0,
    silence: float | None = None,
) -> int:
    """Runs a command as the workers of a cluster on this machine, and waits for them.

    The command calls `gc.cluster.join()`. What the processes write has their names in front. If one
    of them fails, the others are ended; if restarts are left, all are started again, so that a
    script with checkpoints (`gc.train.fit(..., checkpoint=...)`) goes on from the last one. SIGINT
    and SIGTERM are passed on.

    Args:
        command: the program and its arguments.
        processes: how many workers, at least 1.
        devices: the devices of each process, at least 1: virtual CPUs, or consecutive GPUs. By
            default, JAX decides.
        restarts: how often all may be started again.
        pause: seconds before the first restart; each further one waits twice as long, up to 60.
        grace: seconds that processes get to end after SIGTERM, before SIGKILL.
        silence: a process that is in `gc.train.fit` and has made no step for so many seconds counts
            as failed: it hangs, or was stopped. Must be longer than the slowest step, compilation
            and validation. None waits forever.

    Returns:
        0 if all processes ended with 0; otherwise the exit status of the first that failed, as a
        shell gives it: 128 plus the number of the signal that ended it.

    Raises:
        AttributeValueError: a number is not valid.

    Examples:
        >>> import sys
        >>> gc.cluster.launch([sys.executable, "-c", "pass"], 2)
        0
    """
    for name, value, least in (
        ("processes", processes, 1), ("devices", devices, 1), ("restarts", restarts, 0),
    ):  # fmt: skip
        if value is not None and (type(value) is not int or value < least):
            raise AttributeValueError(
                f"launch: {name} must be a number of at least {least}, got {value!r}",
                hint="gc.cluster.launch([sys.executable, 'train.py'], 4)",
            )
    for name, seconds in (("pause", pause), ("grace", grace), ("silence", silence)):
        given: Any = seconds
        number = isinstance(given, (int, float)) and not isinstance(given, bool)
        optional = name == "silence"  # which must be above 0: each step takes some time
        right = number and 0 <= given < _FAR and not (optional and given == 0)
        if not right and not (optional and given is None):
            raise AttributeValueError(
                f"launch: {name} must be a number of seconds, got {seconds!r}",
                hint="gc.cluster.launch([sys.executable, 'train.py'], 4, grace=30)",
            )
    task = Launch(list(command), processes, devices, restarts, pause, grace, silence)
    with TemporaryDirectory(prefix="graphc-launch-") as folder:
        return _Supervisor(task, Path(folder)).run()


class _Supervisor:
    """Runs a `Launch` to its end."""

    def __init__(self, task: Launch, folder: Path) -> None:
        self._task, self._folder = task, folder
        self._signal = 0  # the number of a signal that this process got
        self._write = Lock()

    def run(self) -> int:
        here = current_thread() is main_thread()  # no other thread can handle signals
        before = {n: signal.signal(n, self._note) for n in _SIGNALS if here}
        try:
            attempt = 0
            while True:
                status = self._attempt(attempt)
                if status == 0 or self._is_stopped() or attempt == self._task.restarts:
                    return status
                pause = min(self._task.pause * 2**attempt, _LONGEST_PAUSE)
                self._say(f"restart {attempt + 1} of {self._task.restarts} in {pause:.0f} s")
                self._sleep(pause)
                if self._is_stopped():
                    return 128 + self._signal
                attempt += 1
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: Any) -> None:
        self._signal = number

    def _is_stopped(self) -> bool:
        return self._signal != 0

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._is_stopped() and time.monotonic() < end:
            time.sleep(_TURN)

    def _attempt(self, attempt: int) -> int:
        """Starts all processes once and waits until they have ended."""
        spec = ClusterSpec({"worker": [f"127.0.0.1:{p}" for p in free_ports(self._task.processes)]})
        started: list[_Process] = []
        try:
            for index in range(self._task.processes):
                progress = self._folder / f"{attempt}-{index}"
                member = spec.member("worker", index)
                started.append(_Process(member, self._task, attempt, progress, self.write))
            return self._watch(started)
        finally:
            self._end(started, signal.SIGKILL)

    def _watch(self, processes: Sequence[_Process]) -> int:
        while True:
            failed = [p for p in processes if p.status not in (None, 0)]
            if failed or self._is_stopped():
                break
            if all(p.status == 0 for p in processes):
                return 0
            if self._is_silent(processes):
                steps = [f"{p.name} at step {p.step}" for p in processes if p.step is not None]
                self._say(f"no step for {self._task.silence:g} s ({', '.join(steps)}); all end")
                self._end(processes, signal.SIGTERM)
                return 1
            time.sleep(_TURN)
        if self._is_stopped():
            self._end(processes, self._signal)
            return max((p.status or 0 for p in processes), default=0) or 128 + self._signal
        first = min(failed, key=lambda p: p.ended_at)
        self._say(f"{first.name} {first.fate}; the others are ended")
        self._end(processes, signal.SIGTERM)
        return first.status or 1

    def _is_silent(self, processes: Sequence[_Process]) -> bool:
        """Whether a process makes no further steps. As the others wait for it, all are silent."""
        limit = self._task.silence
        return limit is not None and max(p.silence for p in processes) > limit

    def _end(self, processes: Sequence[_Process], number: int) -> None:
        """Sends a signal to the processes that run. After the time of grace they are killed. If one
        has failed, what they have started is killed, too: it may hold their devices."""
        for process in processes:
            process.send(number)
        end = time.monotonic() + self._task.grace
        while any(p.status is None for p in processes) and time.monotonic() < end:
            time.sleep(_TURN)
        failed = any(p.status != 0 for p in processes)
        for process in processes:
            if failed:
                process.kill()
            process.wait()

    def _say(self, text: str) -> None:
        self.write(sys.stderr, f"[launch] {text}\n")

    def write(self, stream: IO[str], text: str) -> None:
        """Writes whole lines of one process at a time."""
        with self._write:
            stream.write(text)
            stream.flush()


class _Process:
    """One process of a cluster, and the threads that pass on what it writes."""

    def __init__(
        self,
        member: Member,
        task: Launch,
        attempt: int,
        progress: Path,
        write: Callable[[IO[str], str], None],
    ) -> None:
        self.name = f"{member.job} {member.index}"
        self.ended_at = 0.0
        self.step: int | None = None  # of `fit`, while it runs
        self._progress, self._stepped_at = progress, 0.0
        self._process = subprocess.Popen(
            task.command,
            env=_environment(member, task, attempt, progress),
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
    def silence(self) -> float:
        """For how many seconds `fit` has made no step; 0 outside of `fit`."""
        try:
            step = int(self._progress.read_text())
        except (OSError, ValueError):
            step = None
        if step is None or step != self.step:
            self.step, self._stepped_at = step, time.monotonic()
        return time.monotonic() - self._stepped_at

    @property
    def fate(self) -> str:
        """How it ended, in words."""
        code = self._process.poll() or 0
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    def send(self, number: int) -> None:
        if self.status is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kills the process and those that it has started."""
        with suppress(ProcessLookupError, PermissionError):  # all have ended
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> None:
        self._process.wait()
        for pump in self._pumps:
            pump.join(1.0)  # a grandchild may hold the pipe
        for pump, stream in zip(self._pumps, self._streams, strict=True):
            if not pump.is_alive():
                stream.close()

    def _pump(self, source: IO[str], to: IO[str], write: Callable[[IO[str], str], None]) -> None:
        for line in source:
            write(to, f"[{self.name}] {line if line.endswith(chr(10)) else line + chr(10)}")


def _environment(member: Member, task: Launch, attempt: int, progress: Path) -> dict[str, str]:
    found = {**task.environment, VARIABLE: text_of(member), "GRAPHC_ATTEMPT": str(attempt)}
    if task.silence is not None:
        found["GRAPHC_PROGRESS"] = str(progress)
    found[LAUNCHER] = str(os.getpid())
    found.setdefault("PYTHONUNBUFFERED", "1")  # lines appear when they are written
    if task.devices is not None:
        found["JAX_NUM_CPU_DEVICES"] = str(task.devices)
        gpus = _gpus(task)
        first = member.index * task.devices
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first : first + task.devices])
    return found


def _gpus(task: Launch) -> list[str]:
    """The GPUs of all processes: of those that this process may use, if it is restricted.

    Raises:
        AttributeValueError: it may use fewer.
    """
    needed = task.processes * (task.devices or 1)
    visible = task.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [str(number) for number in range(needed)]
    given = [name.strip() for name in visible.split(",") if name.strip()]
    if given and len(given) < needed:
        raise AttributeValueError(
            f"launch: {task.processes} processes with {task.devices} devices each need {needed} "
            f"GPUs, CUDA_VISIBLE_DEVICES has {len(given)}: {visible}",
            hint="start fewer processes, or give each fewer devices",
        )
    return given


def free_ports(count: int) -> list[int]:
    """Ports of this machine that no process listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
