"""Queues as the command line uses them: one in a folder of this machine, or one behind a server."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import ssl
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import platformdirs

from graphc.cluster.jobs.locks import is_locked
from graphc.cluster.jobs.logs import part_of
from graphc.cluster.jobs.records import STATES
from graphc.cluster.jobs.runs import RunFolder
from graphc.cluster.jobs.server import own_name
from graphc.cluster.jobs.service import FILE, queue_folder
from graphc.cluster.jobs.spec import JobSpec
from graphc.cluster.jobs.store import Store
from graphc.errors import AttributeValueError, ClusterError, GraphcError, UnknownNameError

_TIMEOUT: Final = 30.0  # seconds


class Queue(ABC):
    """A queue of jobs."""

    @abstractmethod
    def submit(self, spec: JobSpec) -> dict[str, Any]:
        """Queues a job."""

    @abstractmethod
    def listed(self, limit: int) -> dict[str, Any]:
        """The jobs that run, wait and have ended, and their numbers."""

    @abstractmethod
    def details(self, number: int) -> dict[str, Any]:
        """A job with all that it is."""

    @abstractmethod
    def act(self, number: int, action: str) -> dict[str, Any]:
        """Stops, restarts or resumes a job."""

    @abstractmethod
    def log(self, number: int, offset: int) -> tuple[bytes, int]:
        """A part of a log, and where the next one begins."""

    def is_served(self) -> bool:
        """Whether a service runs the jobs of the queue."""
        return True


def default_folder() -> Path:
    """The folder of the queue if none is named: GRAPHC_JOBS, or one in the user's state folder."""
    named = os.environ.get("GRAPHC_JOBS")
    return Path(named) if named else Path(platformdirs.user_state_path("graphc"), "jobs")


class LocalQueue(Queue):
    """The queue in a folder. A service need not run.

    Args:
        folder: of the queue; created if necessary.

    Examples:
        >>> import tempfile, pathlib
        >>> from graphc.cluster.jobs.clients import LocalQueue
        >>> from graphc.cluster.jobs.spec import JobSpec
        >>> folder = tempfile.TemporaryDirectory()
        >>> queue = LocalQueue(pathlib.Path(folder.name))
        >>> queue.submit(JobSpec.of({"script": "train.py"}))["state"], queue.is_served()
        ('queued', False)
        >>> folder.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        self._folder = queue_folder(folder)
        self._store = Store(self._folder / FILE)

    def submit(self, spec: JobSpec) -> dict[str, Any]:
        """Queues a job."""
        return self.details(self._store.submit(own_name(), spec, time.time()))

    def listed(self, limit: int) -> dict[str, Any]:
        """The jobs that run, wait and have ended, and their numbers."""
        jobs = [record.as_dict() for record in self._store.jobs(limit=limit)]
        return {"jobs": jobs, "counts": dict.fromkeys(STATES, 0) | self._store.counts()}

    def details(self, number: int) -> dict[str, Any]:
        """A job with all that it is.

        Raises:
            UnknownNameError: there is no such job.
        """
        record = self._store.get(number)
        folder = RunFolder.of(self._folder, record)
        return record.as_dict() | {"spec": record.spec.as_dict(), "folder": str(folder.path)}

    def act(self, number: int, action: str) -> dict[str, Any]:
        """Stops, restarts or resumes a job.

        Raises:
            UnknownNameError: there is no such job.
            ClusterError: it has ended already, or has not ended.
        """
        if action == "stop":
            self._store.get(number)
            self._store.stop(number, time.time())
        else:
            self._store.again(number, time.time(), fresh=action == "restart")
        return self.details(number)

    def log(self, number: int, offset: int) -> tuple[bytes, int]:
        """A part of a log, and where the next one begins.

        Raises:
            UnknownNameError: there is no such job.
        """
        return part_of(RunFolder.of(self._folder, self._store.get(number)).log, offset)

    def is_served(self) -> bool:
        """Whether a service runs the jobs of the queue."""
        return is_locked(self._folder / "service.lock", fcntl.LOCK_SH)


class RemoteQueue(Queue):
    """The queue of a server.

    Args:
        url: such as http://127.0.0.1:8600.
        token: of the user.

    Raises:
        AttributeValueError: the URL is not valid.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AttributeValueError(
                f"{url!r} is not the URL of a service of jobs", hint="http://127.0.0.1:8600"
            )
        self._parts, self._url, self._token = parts, url, token

    def submit(self, spec: JobSpec) -> dict[str, Any]:
        """Queues a job."""
        return self._json("POST", "/v1/jobs", spec.as_dict())

    def listed(self, limit: int) -> dict[str, Any]:
        """The jobs that run, wait and have ended, and their numbers."""
        return self._json("GET", f"/v1/jobs?limit={limit}")

    def details(self, number: int) -> dict[str, Any]:
        """A job with all that it is."""
        return self._json("GET", f"/v1/jobs/{number}")

    def act(self, number: int, action: str) -> dict[str, Any]:
        """Stops, restarts or resumes a job."""
        return self._json("POST", f"/v1/jobs/{number}:{action}", {})

    def log(self, number: int, offset: int) -> tuple[bytes, int]:
        """A part of a log, and where the next one begins."""
        data, headers = self._ask("GET", f"/v1/jobs/{number}/log?offset={offset}")
        return data, int(headers.get("x-next-offset") or 0)

    def _json(self, method: str, path: str, value: object = None) -> dict[str, Any]:
        data, _ = self._ask(method, path, value)
        found: dict[str, Any] = json.loads(data)
        return found

    def _ask(
        self, method: str, path: str, value: object = None
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """The body and the headers of a response."""
        connection = self._connection()
        headers = {"authorization": f"Bearer {self._token}", "x-graphc-jobs": "1"}
        body = None if value is None else json.dumps(value)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise GraphcError(
                f"{self._url} does not answer: {error}", hint="graphc jobs serve starts a service"
            ) from None
        finally:
            connection.close()
        if response.status < 400:
            return data, response.headers
        raise _refused(response.status, data)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=context)
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT)


def _refused(status: int, data: bytes) -> GraphcError:
    """The error that a response describes."""
    try:
        message = str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        message = f"the server answered {status}"
    what, *details = message.splitlines()
    if status == 401:
        return GraphcError(
            "the server does not accept the token", hint="set GRAPHC_TOKEN, or give --token-file"
        )
    kind = {400: AttributeValueError, 404: UnknownNameError, 409: ClusterError}
    return kind.get(status, GraphcError)(what, details=[line.strip() for line in details])
