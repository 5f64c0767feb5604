"""`Store`: the jobs in a file of SQLite. Several processes may use it at the same time."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from graphc.cluster.jobs.records import ENDED, QUEUED, RUNNING, STOP, STOPPED, Record
from graphc.cluster.jobs.scheduling import rank
from graphc.cluster.jobs.spec import JobSpec
from graphc.errors import ClusterError, UnknownNameError

_VERSION: Final = 1
_WAIT: Final = 30.0  # seconds for another process that writes
_SCHEMA: Final = f"""
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, name TEXT NOT NULL,
    text TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    wanted TEXT NOT NULL DEFAULT '', submitted REAL NOT NULL, queued REAL NOT NULL,
    started REAL, ended REAL, run INTEGER NOT NULL DEFAULT 1, starts INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0, exit INTEGER, gpus TEXT NOT NULL DEFAULT '',
    rank REAL NOT NULL
);
CREATE INDEX by_state ON jobs (state, rank DESC);
CREATE INDEX by_user ON jobs (user, state);
PRAGMA user_version = {_VERSION};
"""
_STOPPING: Final = {"wanted": STOP}
_SHOWN_FIRST: Final = f"CASE state WHEN '{RUNNING}' THEN 0 WHEN '{QUEUED}' THEN 1 ELSE 2 END"


class Store:
    """The jobs. Each method is one transaction, which a crash does not leave half done.

    Threads have connections of their own, so that readers do not wait for writers.

    Args:
        path: of the file, which is created.

    Raises:
        ClusterError: the file is not a store, or one of a newer graphc.

    Examples:
        >>> import tempfile, pathlib
        >>> from graphc.cluster.jobs.spec import JobSpec
        >>> from graphc.cluster.jobs.store import Store
        >>> folder = tempfile.TemporaryDirectory()
        >>> store = Store(pathlib.Path(folder.name, "jobs.sqlite"))
        >>> number = store.submit("ann", JobSpec.of({"script": "train.py"}), now=0.0)
        >>> store.get(number).state
        'queued'
        >>> store.close()
        >>> folder.cleanup()
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise ClusterError(
                f"{str(path)!r} is not a store of jobs: {error}",
                hint="check that the disk is not full, or choose another folder: --queue FOLDER",
            ) from None

    def _prepare(self) -> None:
        connection = self._connection()
        connection.execute("PRAGMA journal_mode = WAL")
        with self._writing() as write:
            (version,) = write.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    write.execute(statement)
        if version > _VERSION:
            raise ClusterError(
                f"{str(self._path)!r} was written by a newer graphc (version {version})",
                hint="update graphc, or choose another folder: --queue FOLDER",
            )

    def close(self) -> None:
        """Closes the connections of all threads."""
        with self._lock:
            for connection in self._opened:
                connection.close()
            self._opened.clear()

    def version(self) -> tuple[int, int]:
        """Changes whenever this thread, another one or another process has changed the store."""
        connection = self._connection()
        (others,) = connection.execute("PRAGMA data_version").fetchone()
        return others, connection.total_changes

    # -- reading -----------------------------------------------------------------------------------

    def get(self, number: int, user: str | None = None) -> Record:
        """A job.

        Args:
            user: whose it must be; None is anybody.

        Raises:
            UnknownNameError: there is no such job.
        """
        rows = self._select("WHERE id = ? AND (? IS NULL OR user = ?)", (number, user, user))
        if not rows:
            raise UnknownNameError(f"there is no job {number}", hint="graphc jobs list")
        return rows[0]

    def jobs(
        self,
        user: str | None = None,
        states: Sequence[str] = (),
        before: int | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """Jobs: first those that run, then the queue in its order, then the latest that ended.

        Args:
            user: whose; None is everybody's.
            states: only these; empty is any.
            before: only those with a smaller number.
        """
        marks = ", ".join("?" * len(states))
        return self._select(
            f"WHERE (? IS NULL OR user = ?) AND (? IS NULL OR id < ?)"
            f"{f' AND state IN ({marks})' if states else ''} ORDER BY {_SHOWN_FIRST}, "
            f"CASE state WHEN '{QUEUED}' THEN -rank ELSE -id END, id LIMIT ?",
            (user, user, before, before, *states, limit),
        )

    def active(self, state: str) -> list[Record]:
        """All jobs that are queued or that run, in the order of their ranks."""
        return self._select("WHERE state = ? ORDER BY rank DESC, id", (state,))

    def counts(self, user: str | None = None) -> dict[str, int]:
        """The number of jobs in each state."""
        rows = self._connection().execute(
            "SELECT state, count(*) FROM jobs WHERE ? IS NULL OR user = ? GROUP BY state",
            (user, user),
        )
        return dict(rows.fetchall())

    def _select(self, rest: str, values: Sequence[object]) -> list[Record]:
        found = self._connection().execute(f"SELECT {_COLUMNS} FROM jobs {rest}", values)
        return [Record(*row) for row in found]

    # -- writing -----------------------------------------------------------------------------------

    def submit(self, user: str, spec: JobSpec, now: float, most: int | None = None) -> int:
        """Adds a job to the queue.

        Args:
            most: how many jobs of the user may wait.

        Returns:
            its number.

        Raises:
            ClusterError: so many wait already.
        """
        text = json.dumps(spec.as_dict())
        with self._writing() as write:
            _check_waiting(write, user, most)
            found = write.execute(
                "INSERT INTO jobs (user, name, text, state, submitted, queued, rank) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (user, spec.name, text, QUEUED, now, now, rank(spec.priority, now)),
            )
            return int(found.lastrowid or 0)

    def start(self, number: int, gpus: str, now: float) -> bool:
        """Marks a queued job as running. Returns whether it was queued."""
        return self._update(
            number, QUEUED,
            {"state": RUNNING, "reason": "", "wanted": "", "gpus": gpus, "ended": None,
             "exit": None, "started": now, "starts": "+1"},
        )  # fmt: skip

    def finish(
        self, number: int, state: str, reason: str, now: float, exit: int | None = None
    ) -> bool:
        """Marks a running or queued job as ended."""
        values = {"state": state, "reason": reason, "ended": now, "exit": exit, "wanted": "",
                  "gpus": ""}  # fmt: skip
        return self._update(number, RUNNING, values) or self._update(number, QUEUED, values)

    def put_back(self, number: int, reason: str, *, lost: bool = True) -> bool:
        """Puts a running job back to its place in the queue, to continue its run.

        Args:
            lost: whether its processes were.
        """
        values = {"state": QUEUED, "reason": reason, "gpus": "", "wanted": "", "started": None}
        return self._update(number, RUNNING, values | {"losses": "+1"} if lost else values)

    def end(self, number: int, why: str) -> bool:
        """Asks for the end of a running job. The first reason counts."""
        with self._writing() as write:
            found = write.execute(
                "UPDATE jobs SET wanted = ? WHERE id = ? AND state = ? AND wanted = ''",
                (why, number, RUNNING),
            )
            return found.rowcount == 1

    def stop(self, number: int, now: float) -> None:
        """Stops a job: at once if it is queued; otherwise the service ends its processes.

        Raises:
            ClusterError: it has already ended.
        """
        queued = {"state": STOPPED, "reason": "stopped before it started", "ended": now}
        with self._writing() as write:
            if _set(write, number, QUEUED, queued) or _set(write, number, RUNNING, _STOPPING):
                return
        record = self.get(number)
        raise ClusterError(f"job {number} has already ended: {record.state}")

    def again(self, number: int, now: float, *, fresh: bool, most: int | None = None) -> None:
        """Puts a job that has ended into the queue again.

        Args:
            fresh: whether it begins anew, in a new folder; otherwise it continues from its last
                checkpoint.
            most: how many jobs of its user may wait.

        Raises:
            ClusterError: it has not ended, or so many wait already.
        """
        record = self.get(number)
        values = {
            "state": QUEUED, "reason": "", "queued": now, "started": None, "ended": None,
            "exit": None, "rank": rank(record.spec.priority, now), "submitted": now,
            "losses": 0,
        }  # fmt: skip
        if fresh:
            values |= {"run": record.run + 1, "starts": 0}
        with self._writing() as write:
            _check_waiting(write, record.user, most)
            done = any(_set(write, number, state, values) for state in ENDED)
        if not done:
            raise ClusterError(
                f"job {number} has not ended: it is {record.state}",
                hint=f"graphc jobs stop {number}",
            )

    def _update(self, number: int, state: str, values: Mapping[str, object]) -> bool:
        with self._writing() as write:
            return _set(write, number, state, values)

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = sqlite3.connect(
                self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False
            )
            found.execute("PRAGMA synchronous = FULL")  # a job that was accepted is not lost
            self._local.connection = found
            with self._lock:
                self._opened.append(found)
        return found

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction."""
        connection = self._connection()
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise ClusterError(
                f"the jobs in {str(self._path.parent)!r} cannot be changed: {error}",
                hint="check that the disk is not full",
            ) from None
        finally:
            if connection.in_transaction:  # a full disk has ended it already
                connection.execute("ROLLBACK")


_COLUMNS: Final = (
    "id, user, name, text, state, reason, wanted, submitted, queued, started, ended, run, starts, "
    "losses, exit, gpus, rank"
)


def _set(write: sqlite3.Connection, number: int, state: str, values: Mapping[str, object]) -> bool:
    """Sets columns of a job if it is in a state; "+1" adds one. Returns whether it was."""
    sets = ", ".join(f"{n} = {n} + 1" if v == "+1" else f"{n} = ?" for n, v in values.items())
    given = [value for value in values.values() if value != "+1"]
    found = write.execute(
        f"UPDATE jobs SET {sets} WHERE id = ? AND state = ?", (*given, number, state)
    )
    return found.rowcount == 1


def _check_waiting(write: sqlite3.Connection, user: str, most: int | None) -> None:
    (waiting,) = write.execute(
        "SELECT count(*) FROM jobs WHERE user = ? AND state = ?", (user, QUEUED)
    ).fetchone()
    if most is not None and waiting >= most:
        raise ClusterError(
            f"{waiting} jobs of {user} wait, and the quota is {most}",
            hint="wait until one has started, or stop one",
        )
