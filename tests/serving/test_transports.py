"""Connections of the REST client that the server closes."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from graphc.serving.transports import Rest
from graphc.web.failures import Failure

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Server:
    """A server that handles one connection after the other.

    Args:
        plan: the answers on each connection; b"" reads a request and closes without an answer.

    Attributes:
        requests: how many requests were read.
    """

    def __init__(self, *plan: Sequence[bytes]) -> None:
        self.requests = 0
        self.closed = [threading.Event() for _ in plan]
        self._plan = plan
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        for answers, closed in zip(self._plan, self.closed, strict=True):
            connection, _ = self._socket.accept()
            with closing(connection):
                for answer in answers:
                    self._read(connection)
                    connection.sendall(answer)
            closed.set()

    def _read(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            data += connection.recv(4096)
        self.requests += 1


@contextmanager
def serving(*plan: Sequence[bytes]) -> Iterator[tuple[Server, Rest]]:
    server = Server(*plan)
    server.thread.start()
    client = Rest(f"http://127.0.0.1:{server.port}", None, None)
    yield server, client
    client.close()
    server.thread.join()
    server.close()


def test_a_prediction_is_sent_once_more() -> None:
    with serving([OK, b""], [OK]) as (server, client):
        for _ in range(2):
            assert client.predict("m", None, None, b"", 60.0) == b"{}"
    assert server.requests == 3


def test_a_step_of_a_session_is_not_sent_twice() -> None:
    """The server may already have run it."""
    with serving([OK, b""]) as (server, client):
        assert client.step("m", "id", b"", 60.0) == b"{}"
        with pytest.raises(Failure, match="UNAVAILABLE"):
            client.step("m", "id", b"", 60.0)
    assert server.requests == 2


def test_a_step_on_a_connection_that_was_closed_while_it_was_idle() -> None:
    with serving([OK], [OK]) as (server, client):
        assert client.step("m", "id", b"", 60.0) == b"{}"
        assert server.closed[0].wait(60)
        assert client.step("m", "id", b"", 60.0) == b"{}"
    assert server.requests == 2
