"""Connections of the REST client that the server closes, and its time limits."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace

import pytest

from graphc.serving import time_limits
from graphc.serving.transports import ModelChoice, Rest
from graphc.web.failures import Failure
from tests.serving.stateful import Clock

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
MODEL = ModelChoice("m", None, None, "")
PAUSE = b"|"  # in an answer: what follows is sent late


class Server:
    """A server that handles one connection after the other.

    Args:
        plan: the answers on each connection; b"" reads a request and closes without an answer.

    Attributes:
        requests: how many requests were read.
        at_request: called with their number when a request was read.
    """

    def __init__(self, *plan: Sequence[bytes]) -> None:
        self.requests = 0
        self.at_request: Callable[[int], None] = lambda number: None
        self.closed = [threading.Event() for _ in plan]
        self._plan = plan
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)

    def close(self) -> None:
        """Closes it, also if requests of the plan did not arrive."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self._socket.close()

    def _serve(self) -> None:
        for answers, closed in zip(self._plan, self.closed, strict=True):
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with closing(connection):
                for answer in answers:
                    self._read(connection)
                    first, _, second = answer.partition(PAUSE)
                    connection.sendall(first)
                    if second and not self._is_left(connection):
                        connection.sendall(second)
            closed.set()

    def _is_left(self, connection: socket.socket) -> bool:
        """Whether the client closes the connection instead of waiting for more."""
        connection.settimeout(5.0)
        try:
            return not connection.recv(1)
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _read(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            data += connection.recv(4096)
        self.requests += 1
        self.at_request(self.requests)


@contextmanager
def serving(*plan: Sequence[bytes]) -> Iterator[tuple[Server, Rest]]:
    server = Server(*plan)
    server.thread.start()
    client = Rest(f"http://127.0.0.1:{server.port}", None, None)
    try:
        yield server, client
        client.close()
        server.thread.join()
    finally:
        client.close()
        server.close()


def test_a_prediction_is_sent_once_more() -> None:
    with serving([OK, b""], [OK]) as (server, client):
        for _ in range(2):
            assert client.predict(MODEL, b"", 60.0) == b"{}"
    assert server.requests == 3


def test_a_request_is_not_sent_a_third_time() -> None:
    with serving([OK, b""], [b""]) as (server, client):
        client.predict(MODEL, b"", 60.0)
        with pytest.raises(Failure, match="UNAVAILABLE"):
            client.predict(MODEL, b"", 60.0)
    assert server.requests == 3


def test_a_request_on_a_connection_that_was_closed_while_it_was_idle() -> None:
    with serving([OK], [OK]) as (server, client):
        assert client.step("m", "id", b"", 60.0) == b"{}"
        assert server.closed[0].wait(60)
        assert client.step("m", "id", b"", 60.0) == b"{}"
    assert server.requests == 2


class Interrupt(BaseException):
    """What the handler of a signal raises, as that of Ctrl-C."""


@pytest.fixture
def interrupted() -> Iterator[Callable[[Server], None]]:
    """Interrupts the main thread when the first request has arrived, before its answer."""

    def stop(number: int, frame: object) -> None:
        raise Interrupt

    def prepare(server: Server) -> None:
        main = threading.main_thread().ident
        assert main is not None
        server.at_request = lambda number: (
            signal.pthread_kill(main, signal.SIGALRM) if number == 1 else None
        )

    before = signal.signal(signal.SIGALRM, stop)
    yield prepare
    signal.signal(signal.SIGALRM, before)


def test_an_interrupted_call_has_no_late_answer(interrupted) -> None:
    late = OK.replace(b"{}", b"[]")
    with serving([late], [OK, OK]) as (server, client):
        interrupted(server)
        with pytest.raises(Interrupt):
            client.predict(MODEL, b"", 60.0)
        for _ in range(2):
            assert client.predict(MODEL, b"", 60.0) == b"{}"
    assert server.requests == 3


def test_an_interrupted_stream_is_closed(interrupted) -> None:
    with serving([b"HTTP/1.1 200 OK\r\n\r\ndata: \n\n"]) as (server, client):
        interrupted(server)
        stream = client.stream("m", "id", b"", 60.0)
        with pytest.raises(Interrupt):
            next(stream)
        assert list(stream) == []  # the request is not sent again
    assert server.requests == 1


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The clock of time limits."""
    found = Clock()
    monkeypatch.setattr(time_limits, "time", SimpleNamespace(monotonic=found))
    return found


def at(clock: Clock, now: float, server: Server, number: int) -> None:
    """Sets the clock when a request arrives."""

    def move(arrived: int) -> None:
        if arrived == number:
            clock.now = now

    server.at_request = move


def test_the_second_try_has_the_time_that_is_left(clock: Clock) -> None:
    with serving([OK, b""], [OK]) as (server, client):
        client.predict(MODEL, b"", 60.0)
        assert client._connection().timeout == 60.0
        at(clock, 50.0, server, number=2)
        client.predict(MODEL, b"", 60.0)
        assert client._connection().timeout == 10.0


def test_there_is_no_second_try_after_the_time(clock: Clock) -> None:
    with serving([OK, b""]) as (server, client):
        client.predict(MODEL, b"", 60.0)
        at(clock, 61.0, server, number=2)
        with pytest.raises(Failure, match="DEADLINE_EXCEEDED: no answer within 60 s"):
            client.predict(MODEL, b"", 60.0)
    assert server.requests == 2


def test_an_answer_that_takes_too_long_in_parts(clock: Clock) -> None:
    """Each part alone arrives in time."""
    with serving([OK, OK[:9] + PAUSE + OK[9:]], [OK]) as (server, client):
        client.predict(MODEL, b"", 60.0)
        at(clock, 61.0, server, number=2)
        with pytest.raises(Failure, match="DEADLINE_EXCEEDED: no answer within 60 s"):
            client.predict(MODEL, b"", 60.0)
        assert client.predict(MODEL, b"", 60.0) == b"{}"  # on a new connection


def test_a_stream_that_takes_too_long_in_parts(clock: Clock) -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with serving([head + PAUSE + b"data: \n\n"]) as (server, client):
        at(clock, 61.0, server, number=1)
        with pytest.raises(Failure, match="DEADLINE_EXCEEDED: the stream did not end within 60 s"):
            next(client.stream("m", "id", b"", 60.0))
    with serving([head + b"data: \n\n"]) as (server, client):
        stream = client.stream("m", "id", b"", None)
        assert next(stream) == b""
        stream.close()
