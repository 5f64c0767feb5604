"""`JobsServer`: a service of jobs with its REST interface and page."""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from graphc.cluster.jobs.endpoint import JobsApplication
from graphc.cluster.jobs.service import JobService
from graphc.cluster.jobs.users import User, Users
from graphc.errors import ClusterError, MissingExtraError
from graphc.web.connections import http_server, listen

_HEAD_SECONDS: Final = 10.0
_DRAIN_SECONDS: Final = 3.0


class JobsServer:
    """Runs a service of jobs, and answers requests.

    `with JobsServer(service, users) as server:` does so in threads; `run` in this thread until
    SIGTERM or Ctrl-C. Jobs go on after the server has ended.

    Args:
        service: that runs the jobs. It is closed at the end.
        users: who may ask.
        host, port: where to listen; port 0 selects a free one.
        tls: the files of certificate and key.

    Attributes:
        port: once it listens.

    Raises:
        MissingExtraError: the extra `jobs` is not installed.

    Examples:
        >>> import tempfile, pathlib
        >>> from graphc.cluster.jobs.roots import Roots
        >>> from graphc.cluster.jobs.server import JobsServer
        >>> from graphc.cluster.jobs.service import JobService
        >>> from graphc.cluster.jobs.users import User, Users
        >>> folder = tempfile.TemporaryDirectory()
        >>> service = JobService(pathlib.Path(folder.name), Roots([folder.name]))
        >>> users = Users({User("ann"): "a-token-of-ann-123"})
        >>> with JobsServer(service, users) as server:
        ...     server.port > 0
        True
        >>> folder.cleanup()
    """

    def __init__(
        self,
        service: JobService,
        users: Users,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: tuple[str, str] | None = None,
    ) -> None:
        try:
            import httptools  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError:
            raise MissingExtraError(
                "the service of jobs needs uvicorn", hint="pip install 'graphc[jobs]'"
            ) from None
        self._service, self._host, self.port = service, host, port
        self._application = JobsApplication(service, users)
        self._server = http_server(
            self._application,
            head_seconds=_HEAD_SECONDS,
            drain_seconds=_DRAIN_SECONDS,
            tls=None if tls is None else (*tls, None),
        )
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Serves until SIGTERM or Ctrl-C.

        Args:
            started: called when it listens.

        Raises:
            ClusterError: it cannot listen.
        """
        before = {n: signal.signal(n, self._stop) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._serve(started)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        self._application.stopping = True
        self._server.should_exit = True

    def _serve(self, started: Callable[[], None]) -> None:
        try:
            listener = listen(self._host, self.port)
        except OSError as error:
            self._service.close()
            raise ClusterError(
                f"cannot listen at {self._host}:{self.port}: {error.strerror}",
                hint="choose another port: --port N",
            ) from None
        self.port = listener.getsockname()[1]
        loop = threading.Thread(target=self._service.run, args=(self._end,), name="graphc-jobs")
        loop.start()
        started()
        try:
            asyncio.run(self._server.serve(sockets=[listener]))
        finally:
            self._end.set()
            loop.join()
            self._service.close()
            listener.close()

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready.set,), daemon=True)
        self._thread.start()
        if not ready.wait(30):
            raise ClusterError("the service of jobs did not start within 30 s")
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()
        if self._thread is not None:
            self._thread.join()


def own_token(folder: Path) -> tuple[Users, str]:
    """The only user of a service without a file of users: who runs it. The token is in a file of
    the queue, which only this user of the machine can read."""
    path = folder / "token"
    with suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w") as out:
            out.write(secrets.token_urlsafe(24))
    token = path.read_text().strip()
    return Users({User(own_name(), admin=True): token}), token


def own_name() -> str:
    """The name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return str(os.getuid())
