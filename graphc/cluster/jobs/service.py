"""`JobService`: starts the jobs of a queue, watches them, and finds them after its own end."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphc.cluster.detection import LAUNCHER
from graphc.cluster.jobs.capacity import Capacity
from graphc.cluster.jobs.processes import RunProcess, kill, members, private_bytes
from graphc.cluster.jobs.quantities import shown_bytes
from graphc.cluster.jobs.records import FAILED, QUEUED, RUNNING, STOP, STOPPED, SUCCEEDED, Record
from graphc.cluster.jobs.roots import Roots
from graphc.cluster.jobs.runs import RunFolder
from graphc.cluster.jobs.scheduling import Limits, Quota, Running, Waiting, refusal, to_start
from graphc.cluster.jobs.store import Store
from graphc.errors import AttributeValueError, ClusterError

FILE: Final = "jobs.sqlite"
"""The store, in the folder of a queue."""

_TURN: Final = 0.2  # seconds between two looks at the jobs
_MEMORY_TURN: Final = 2.0
_LEAST_FREE: Final = 64 << 20  # bytes of the disk without which no job starts
_PATIENCE: Final = 10.0  # seconds after `grace` before what has not ended is killed
_TOLD_AGAIN: Final = 1.0  # seconds
TIME_LIMIT, DEADLINE, MEMORY, LOG = "time_limit", "deadline", "memory", "log"


@dataclass
class _Watched:
    """A running job, as long as this service watches it."""

    folder: RunFolder
    process: RunProcess
    token: str
    told: float | None = None  # when it was first told to end, in seconds of `time.monotonic()`
    again: float = 0.0  # when it is told again


class JobService:
    """Runs the jobs of a queue. One service may do so at a time.

    `tick` looks once; `run` does so until it is told to end. Jobs go on when the service ends, and
    the next one finds them.

    Args:
        folder: of the queue. Only this user of the machine has access.
        roots: the folders of the programs.
        capacity: what jobs may take together; by default, this machine.
        quotas: user -> quota.
        most_log: bytes of a log, beyond which its job is ended.
        clock: the time in seconds since 1970.

    Raises:
        ClusterError: another service runs the queue.

    Examples:
        >>> import tempfile, pathlib
        >>> from graphc.cluster.jobs.roots import Roots
        >>> from graphc.cluster.jobs.service import JobService
        >>> folder = tempfile.TemporaryDirectory()
        >>> service = JobService(pathlib.Path(folder.name), Roots([folder.name]))
        >>> service.tick()
        >>> service.close()
        >>> folder.cleanup()
    """

    def __init__(
        self,
        folder: Path,
        roots: Roots,
        capacity: Capacity | None = None,
        quotas: Mapping[str, Quota] | None = None,
        most_log: int = 1 << 30,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = queue_folder(folder)
        self.roots = roots
        self.capacity = capacity or Capacity.of()
        self.generation = 0
        """Changes when a job has changed."""
        self.problem = ""
        """Why the last tick failed; "" if it did not."""
        self._limits = Limits(self.capacity.total, dict(quotas or {}))
        self._most_log, self._clock = most_log, clock
        self._lock = _lock(self.folder)
        self.store = Store(self.folder / FILE)
        self._watched: dict[int, _Watched] = {}
        self._seen: object = None  # the version of the store at the last tick
        self._memory_at = self._next_deadline = -math.inf

    def close(self) -> None:
        """Ends the service. Jobs go on."""
        self.store.close()
        os.close(self._lock)

    def run(self, end: threading.Event) -> None:
        """Looks at the jobs until the event is set. Errors (a full disk) are reported, and tried
        again."""
        while not end.is_set():
            try:
                self.tick()
                self.problem = ""
            except Exception as error:
                if str(error) != self.problem:
                    print(f"graphc jobs: {type(error).__name__}: {error}", file=sys.stderr)
                self.problem = str(error)
                end.wait(2.0)
            end.wait(_TURN)

    def quota(self, user: str) -> Quota:
        """The quota of a user."""
        return self._limits.quota(user)

    def tick(self) -> None:
        """Looks once at all jobs: at those that run, at deadlines, and at those that may start."""
        now = self._clock()
        running = self.store.active(RUNNING)
        ended = [record.id for record in running if self._has_ended(record, now)]
        self._check_memory([record for record in running if record.id not in ended])
        if now >= self._next_deadline or self.store.version() != self._seen:
            self._check_deadlines(now)
        version = self.store.version()  # before the queue is read: others may write meanwhile
        if version != self._seen:
            self.generation += 1
            self._start_jobs(now)
            self._seen = version

    # -- running jobs ------------------------------------------------------------------------------

    def _has_ended(self, record: Record, now: float) -> bool:
        watched = self._watch(record)
        status = watched.process.exit_status()
        if status is None and watched.process.is_alive():
            self._check_limits(record, watched, now)
            self._end_processes(record, watched)
            return False
        if status is None:  # it may have ended between the two looks
            status = watched.process.exit_status()
        kill(watched.token)  # what it has left behind may hold devices
        del self._watched[record.id]
        if record.wanted == STOP:
            self.store.finish(record.id, STOPPED, "stopped", now, status)
        elif record.wanted:
            self.store.finish(record.id, FAILED, self._reason(record), now, status)
        elif status == 0:
            self.store.finish(record.id, SUCCEEDED, "", now, status)
        elif status is not None:
            self.store.finish(record.id, FAILED, _fate(status), now, status)
        else:
            self._lose(record, watched, now)
        return True

    def _lose(self, record: Record, watched: _Watched, now: float) -> None:
        """The job ended without a trace: the machine was restarted, or its launcher was killed."""
        if not watched.process.was_started:  # the service ended just before that
            self.store.put_back(record.id, "", lost=False)
        elif record.losses < record.spec.restarts:
            self.store.put_back(record.id, "its processes were lost; it continues")
        else:
            reason = "its processes were lost: the machine or the launcher ended; it can be resumed"
            self.store.finish(record.id, FAILED, reason, now)

    def _watch(self, record: Record) -> _Watched:
        """The processes of a running job: known, or those that an earlier service has started."""
        if record.id not in self._watched:
            folder = RunFolder.of(self.folder, record)
            token = f"{folder.path}:{record.starts}"
            self._watched[record.id] = _Watched(
                folder, RunProcess(folder.path, record.starts), token
            )
        return self._watched[record.id]

    def _check_limits(self, record: Record, watched: _Watched, now: float) -> None:
        limit, started = record.spec.time_limit, record.started
        if record.wanted:
            return
        if limit is not None and started is not None and now - started >= limit:
            self.store.end(record.id, TIME_LIMIT)
        elif record.deadline is not None and now >= record.deadline:
            self.store.end(record.id, DEADLINE)
        elif _size(watched.folder.log) > self._most_log:
            self.store.end(record.id, LOG)

    def _check_memory(self, running: list[Record]) -> None:
        """Ends jobs that use more memory than they have asked for."""
        if time.monotonic() - self._memory_at < _MEMORY_TURN:
            return
        self._memory_at = time.monotonic()
        limited = {
            self._watched[record.id].token: record
            for record in running
            if record.spec.memory is not None and not record.wanted and record.id in self._watched
        }
        for token, pids in members(limited, having=LAUNCHER).items():
            if private_bytes(pids) > limited[token].need_memory:
                self.store.end(limited[token].id, MEMORY)

    def _end_processes(self, record: Record, watched: _Watched) -> None:
        """Tells a job to end that is wanted to, and kills it if it has not after a while."""
        if not record.wanted:
            return
        now = time.monotonic()
        watched.told = watched.told or now
        if now - watched.told > record.spec.grace + _PATIENCE:
            kill(watched.token)
        elif now >= watched.again and watched.process.send(signal.SIGTERM):
            # Once more after a while: its first process may have had no command to end yet.
            watched.again = now + _TOLD_AGAIN

    def _reason(self, record: Record) -> str:
        if record.wanted == MEMORY:
            return f"it used more than its memory, {shown_bytes(record.need_memory)}"
        if record.wanted == LOG:
            return f"its log has more than {shown_bytes(self._most_log)}"
        return _REASONS.get(record.wanted, record.wanted)

    # -- the queue ---------------------------------------------------------------------------------

    def _check_deadlines(self, now: float) -> None:
        """Ends queued jobs whose deadlines have passed, and notes the next deadline."""
        self._next_deadline = math.inf
        for record in self.store.active(QUEUED):
            if record.deadline is None:
                continue
            if record.deadline <= now:
                self.store.finish(record.id, FAILED, _REASONS[DEADLINE], now)
            else:
                self._next_deadline = min(self._next_deadline, record.deadline)

    def _start_jobs(self, now: float) -> None:
        running = self.store.active(RUNNING)
        queued = {record.id: record for record in self.store.active(QUEUED)}
        if not queued:
            return
        if shutil.disk_usage(self.folder).free < _LEAST_FREE:
            raise ClusterError("the disk of the queue is full; no job starts")
        chosen = to_start(
            [_waiting(r) for r in queued.values()],
            [Running(_waiting(r), r.started or 0.0) for r in running],
            self._limits, now,
        )  # fmt: skip
        taken = {gpu for record in running for gpu in record.gpus.split(",")}
        for number in chosen:
            gpus = self.capacity.free_gpus(taken, queued[number].spec.need.devices)
            taken |= set(gpus.split(","))
            self._start(queued[number], gpus, now)
        for record in queued.values():
            why = refusal(record.spec.need, self.quota(record.user), self.capacity.total)
            if why is not None:  # it was submitted to a service with other limits
                self.store.finish(record.id, FAILED, why, now)

    def _start(self, record: Record, gpus: str, now: float) -> None:
        """Starts the processes of a job. If this service ends in between, the next one sees that
        nobody holds the lock, and takes the job for lost."""
        if not self.store.start(record.id, gpus, now):
            return  # it was stopped meanwhile
        record = self.store.get(record.id)
        try:
            program, inputs = self.roots.files_of(record.spec)
            self._watched.pop(record.id, None)
            watched = self._watch(record)
            watched.folder.make()
            watched.process.start(
                watched.folder.command(record.spec, program, inputs),
                watched.folder.environment(watched.token, gpus, os.environ),
                watched.folder.log,
                program.parent,
            )
        except (AttributeValueError, OSError) as error:
            self._watched.pop(record.id, None)
            reason = error.what if isinstance(error, AttributeValueError) else str(error)
            self.store.finish(record.id, FAILED, f"it could not start: {reason}", now)


_REASONS: Final = {
    TIME_LIMIT: "it ran longer than its time limit",
    DEADLINE: "it had not ended by its deadline",
}


def queue_folder(path: Path) -> Path:
    """The folder of a queue. If it is created, other users of the machine have no access.

    Raises:
        ClusterError: it cannot be created.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterError(
            f"cannot create the queue {str(path)!r}: {error.strerror}",
            hint="choose another folder: --queue FOLDER",
        ) from None
    return path.resolve()


def _lock(folder: Path) -> int:
    """The lock of the service, as a file that is open until it ends."""
    lock = os.open(folder / "service.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ClusterError(
            f"another service runs the queue {str(folder)!r}",
            hint="use that one, end it, or choose another folder: --queue FOLDER",
        ) from None
    return lock


def _waiting(record: Record) -> Waiting:
    """A job for `to_start`. It may run for its limit, and for the time that it gets to end."""
    spec = record.spec
    return Waiting(
        record.id, record.user, spec.need, record.queued, spec.priority,
        None if spec.time_limit is None else spec.time_limit + spec.grace + _PATIENCE,
    )  # fmt: skip


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _fate(status: int) -> str:
    """How a job failed, from its exit status."""
    if status > 128:
        try:
            return f"it was ended by {signal.Signals(status - 128).name}"
        except ValueError:
            pass
    return f"it ended with exit status {status}"
