"""`launch`: the processes of a cluster on this machine, started, watched and started again."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, current_thread, main_thread
from typing import IO, Any, NamedTuple

from tqdm import tqdm

from graphc.cluster.processes import Launch, WorkerProcess, gpus_of
from graphc.cluster.progress import Progress, Stragglers
from graphc.cluster.spec import ClusterSpec
from graphc.errors import AttributeValueError
from graphc.runtime.core.progress import progress_bar

_TURN = 0.05  # seconds between two looks at the processes
_LOOK = 0.5  # seconds between two looks at their progress
_FAR = 1e9  # seconds
_LONGEST_PAUSE = 60.0  # seconds before a restart


def launch(
    command: Sequence[str],
    processes: int,
    *,
    devices: int | None = None,
    restarts: int = 0,
    pause: float = 1.0,
    grace: float = 10.0,
    silence: float | None = None,
    least: int | None = None,
    size_file: str | os.PathLike[str] | None = None,
) -> int:
    """Runs a command as the workers of a cluster on this machine, and waits for them.

    The command calls `gc.cluster.join()`. What the processes write has their names in front. If one
    of them fails, the others are ended; if restarts are left, all are started again, so that a
    script with checkpoints (`gc.train.fit(..., checkpoint=...)`) goes on from the last one. SIGINT
    and SIGTERM are passed on. A process that makes the others wait, because its input or its
    callbacks are slow, is named. If standard error is a terminal, a bar shows the progress of all.

    Args:
        command: the program and its arguments.
        processes: how many workers, at least 1.
        devices: the devices of each process, at least 1: virtual CPUs, or consecutive GPUs. By
            default, JAX decides.
        restarts: how often all may be started again.
        pause: seconds before a restart. After a start in which not all made a step, the next one
            waits twice as long, up to 60.
        grace: seconds that processes get to end after SIGTERM, before SIGKILL.
        silence: a process that is in `gc.train.fit` and has made no step for so many seconds counts
            as failed: it hangs, or was stopped. Must be longer than the slowest step, compilation
            and validation. None waits forever.
        least: a restart leaves out the processes that failed, with their GPUs, if at least so many
            are left. By default, it starts as many as before.
        size_file: a file with the number of processes, which replaces `processes`. When it changes,
            all end (`fit` writes a checkpoint), and so many are started; this is no failure. A
            batch should be `total // gc.cluster.join().size` rows, so that the batches
            of all processes stay the same.

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
    for name, value, smallest in (
        ("processes", processes, 1), ("devices", devices, 1), ("restarts", restarts, 0),
        ("least", least, 1),
    ):  # fmt: skip
        if value is not None and (type(value) is not int or value < smallest):
            raise AttributeValueError(
                f"launch: {name} must be a number of at least {smallest}, got {value!r}",
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
    file = None if size_file is None else Path(size_file)
    task = Launch(list(command), processes, devices, restarts, pause, grace, silence, least, file)
    _check_elastic(task)
    with TemporaryDirectory(prefix="graphc-launch-") as folder:
        return _Supervisor(task, Path(folder)).run()


def _check_elastic(task: Launch) -> None:
    """Raises `AttributeValueError` if the number of processes can never change as asked."""
    if task.size_file is not None:
        try:
            _checked_size(task, task.size_file.read_text().strip())
        except (OSError, ValueError) as error:
            raise AttributeValueError(
                f"launch: the size file {str(task.size_file)!r} cannot be read: {error}",
                hint=f"write the number of processes into it: echo {task.processes} > FILE",
            ) from None
    elif task.least is not None and task.least > task.processes:
        raise AttributeValueError(
            f"launch: at least {task.least} processes of {task.processes} cannot be left",
            hint="give a smaller number",
        )


class _Outcome(NamedTuple):
    """How the processes of one start ended.

    Attributes:
        status: the exit status of `launch`, if nothing is started again.
        size: the wanted number of processes if it has changed; the processes did not fail.
        failed: the seats of the processes that failed.
    """

    status: int
    size: int | None = None
    failed: tuple[int, ...] = ()


class _Supervisor:
    """Runs a `Launch` to its end."""

    def __init__(self, task: Launch, folder: Path) -> None:
        self._task, self._folder = task, folder
        self._signal = 0  # the number of a signal that this process got
        self._write = Lock()
        self._bar: tqdm[Any] | None = None
        self._starts = 0
        self._refused = ""  # the last text in the file that is of no use
        self._seats = tuple(range(self._size() or task.processes))
        self._failed_at: float | None = None  # until all make steps again
        self._has_stepped = True  # whether all have made steps since they were started again

    def run(self) -> int:
        here = current_thread() is main_thread()  # no other thread can handle signals
        before = {n: signal.signal(n, self._note) for n in _SIGNALS if here}
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        restarts = self._task.restarts
        failures = in_vain = 0
        while True:
            outcome = self._attempt()
            if outcome.status == 0:
                return 0
            if self._is_stopped():
                return outcome.status if outcome.size is None else 128 + self._signal
            if outcome.size is not None:
                self._resize(outcome.size)
                continue
            if failures == restarts:
                return outcome.status
            in_vain = 0 if self._has_stepped else in_vain + 1
            pause = min(self._task.pause * 2**in_vain, _LONGEST_PAUSE)
            failures += 1
            self._leave_out(outcome.failed)
            self._say(f"restart {failures} of {restarts} in {pause:.0f} s")
            self._sleep(pause)
            if self._is_stopped():
                return 128 + self._signal

    def _leave_out(self, failed: Sequence[int]) -> None:
        """Goes on without the processes that failed, if the others are enough."""
        left = tuple(seat for seat in self._seats if seat not in failed)
        least = self._task.least
        if least is None or len(left) < least or left == self._seats:
            return
        self._say(f"{len(self._seats)} -> {len(left)} processes: without those that failed")
        self._seats = left

    def _resize(self, size: int) -> None:
        self._say(f"{len(self._seats)} -> {size} processes: {self._task.size_file} has changed")
        free = (seat for seat in count() if seat not in self._seats)
        self._seats = tuple(sorted([*self._seats, *islice(free, size)][:size]))

    def _size(self) -> int | None:
        """The number in the file; None if there is none, or if so many cannot be started, which is
        said once."""
        file = self._task.size_file
        if file is None:
            return None
        try:
            text = file.read_text().strip()
        except (OSError, ValueError):
            return None  # it is being replaced
        if text in ("", self._refused):
            return None
        try:
            return _checked_size(self._task, text)
        except AttributeValueError as error:
            self._refused = text
            self._say(f"{file}: {error.what}; the number of processes stays")
            return None

    def _note(self, number: int, _: Any) -> None:
        self._signal = number

    def _is_stopped(self) -> bool:
        return self._signal != 0

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._is_stopped() and time.monotonic() < end:
            time.sleep(_TURN)

    def _attempt(self) -> _Outcome:
        """Starts all processes once and waits until they have ended."""
        attempt, self._starts = self._starts, self._starts + 1
        self._has_stepped = attempt == 0
        self._stragglers = Stragglers()
        spec = ClusterSpec({"worker": [f"127.0.0.1:{p}" for p in free_ports(len(self._seats))]})
        started: list[WorkerProcess] = []
        try:
            for index, seat in enumerate(self._seats):
                progress = self._folder / f"{attempt}-{index}"
                member = spec.member("worker", index)
                started.append(
                    WorkerProcess(member, self._task, seat, attempt, progress, self.write)
                )
            return self._watch(started)
        finally:
            self._end(started, signal.SIGKILL)
            self._close_bar()

    def _watch(self, processes: Sequence[WorkerProcess]) -> _Outcome:
        looks_at = 0.0
        while True:
            failed = [p for p in processes if p.status not in (None, 0)]
            if failed or self._is_stopped():
                break
            if all(p.status == 0 for p in processes):
                return _Outcome(0)
            if time.monotonic() >= looks_at:
                outcome = self._look(processes)
                if outcome is not None:
                    return outcome
                looks_at = time.monotonic() + _LOOK
            time.sleep(_TURN)
        if self._is_stopped():
            self._end(processes, self._signal)
            most = max((p.status or 0 for p in processes), default=0)
            return _Outcome(most or 128 + self._signal)
        first = min(failed, key=lambda p: p.ended_at)
        self._fails(f"{first.name} {first.fate}; the others are ended")
        self._end(processes, signal.SIGTERM)
        return _Outcome(first.status or 1, failed=(first.seat,))

    def _look(self, processes: Sequence[WorkerProcess]) -> _Outcome | None:
        """Reads the progress of the processes. Ends them if they make none, or if another number
        of them is wanted."""
        known = [p.progress for p in processes]
        for progress in known:
            progress.look()
        self._show(known)
        for text in self._stragglers.new(known):
            self._say(text)
        if not self._has_stepped and all(_steps_again(each) for each in known):
            self._has_stepped = True
            if self._failed_at is not None:
                seconds = time.monotonic() - self._failed_at
                self._say(f"all make steps again, {seconds:.1f} s after the failure")
                self._failed_at = None
        if (size := self._size()) not in (None, len(processes)):
            self._end(processes, signal.SIGTERM)  # `fit` writes a checkpoint
            done = all(p.status == 0 for p in processes)
            return _Outcome(0) if done else _Outcome(1, size=size)
        limit = self._task.silence
        if limit is None or max(each.silence for each in known) <= limit:
            return None
        # As the others wait for it, all are silent.
        stopped = [p for p in processes if p.is_stopped]
        steps = [f"{p.name} at step {p.sign.step}" for p in known if p.sign is not None]
        who = f", {' and '.join(p.name for p in stopped)} stopped by a signal" if stopped else ""
        self._fails(f"no step for {limit:g} s ({', '.join(steps)}{who}); all end")
        self._end(processes, signal.SIGTERM)
        return _Outcome(1, failed=tuple(p.seat for p in stopped))

    def _fails(self, text: str) -> None:
        self._failed_at = time.monotonic()
        self._say(text)

    def _end(self, processes: Sequence[WorkerProcess], number: int) -> None:
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

    # -- what is shown ----------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self.write(sys.stderr, f"[launch] {text}\n")

    def write(self, stream: IO[str], text: str) -> None:
        """Writes whole lines of one process at a time."""
        with self._write:
            if self._bar is not None:
                self._bar.clear()
            stream.write(text)
            stream.flush()
            if self._bar is not None:
                self._bar.refresh()

    def _show(self, processes: Sequence[Progress]) -> None:
        """One bar for all processes: how far the last of them is."""
        signs = [p.sign for p in processes if p.sign is not None]
        if len(signs) < len(processes) or not sys.stderr.isatty():
            return
        step = min(sign.step for sign in signs)
        with self._write:
            if self._bar is None:
                self._bar = progress_bar(
                    True, signs[0].steps, "step", desc=f"{len(signs)} processes", initial=step
                )
            self._bar.update(step - self._bar.n)

    def _close_bar(self) -> None:
        with self._write:
            bar, self._bar = self._bar, None
            if bar is not None:
                bar.close()


def _checked_size(task: Launch, text: str) -> int:
    """The number of processes that a text asks for."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise AttributeValueError(
            f"launch: the size must be a number of at least 1, got {text!r:.40}",
            hint="echo 4 > FILE",
        )
    if task.devices is not None:
        gpus_of(task, int(text))
    return int(text)


def _steps_again(progress: Progress) -> bool:
    sign = progress.sign
    return sign is not None and progress.first is not None and sign.step > progress.first


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
